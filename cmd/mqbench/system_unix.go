package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// freeBytes is the space that an unprivileged user may still write at path.
func freeBytes(path string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// openFiles is the limit of open descriptors.
func openFiles() (uint64, error) {
	var l unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
	return l.Cur, err
}

// columns is the width of the terminal on standard output; where that is none, a width that has room for intervals.
func columns() int { return columnsOf(os.Stdout) }

func columnsOf(f *os.File) int {
	if w, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && w.Col > 0 {
		return int(w.Col)
	}
	return 120
}
