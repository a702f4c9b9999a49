package main

import "syscall"

// childAttributes keep Ctrl-C away from the children, who are told to stop by their parent, and end them with it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
