package log

import (
	"io"

	"gopherlog/engine/vfs"
)

// DumpFile writes a readable listing of one file of a partition directory, chosen by its name.
func DumpFile(w io.Writer, fs vfs.FS, path string) error { panic("log: being built") }
