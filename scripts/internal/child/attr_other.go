//go:build !linux

package child

import "syscall"

func attr() *syscall.SysProcAttr { return nil }
