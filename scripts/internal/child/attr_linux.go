package child

import "syscall"

// attr makes the kernel end a child with this process.
func attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
