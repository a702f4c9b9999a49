//go:build !linux

package main

import "syscall"

// childAttributes keep Ctrl-C away from the children, who are told to stop by their parent.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
