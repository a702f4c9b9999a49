//go:build !linux

package main

// bootID is a new one at each start: every unclean stop then counts as a loss of power.
func bootID() string { return randomBootID() }
