package main

import "syscall"

// childAttr makes the kernel end a child with this process.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
