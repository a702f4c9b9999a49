package main

import (
	"os"
	"strings"
)

// bootID changes when the machine restarts: what was in its page cache is then lost.
func bootID() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if id := strings.TrimSpace(string(raw)); err == nil && id != "" {
		return id
	}
	return randomBootID()
}
