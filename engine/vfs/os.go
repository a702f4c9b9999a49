package vfs

import (
	"errors"
	"os"
	"syscall"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"
)

// OS returns the operating system's file system.
func OS() FS { return osFS{pebblevfs.Default} }

type osFS struct{ pebblevfs.FS }

// OpenFile implements FS.
func (fs osFS) OpenFile(name string, create bool) (File, error) {
	flags := os.O_RDWR | syscall.O_CLOEXEC
	if create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osFile{File: f, raw: raw}, nil
}

// osFile adds to *os.File what the interface asks for. Reads and writes go through os.File, so that a
// closed file is an error and never another file's descriptor.
type osFile struct {
	*os.File
	raw syscall.RawConn
}

// Stat implements File.
func (f *osFile) Stat() (pebblevfs.FileInfo, error) {
	info, err := f.File.Stat()
	if err != nil {
		return nil, err
	}
	return fileInfo{info}, nil
}

// Preallocate implements File; the log never asks for it, so it does nothing.
func (f *osFile) Preallocate(_, _ int64) error { return nil }

// Prefetch implements File; the kernel's own read-ahead serves sequential readers.
func (f *osFile) Prefetch(_, _ int64) error { return nil }

// SyncTo implements File with a full data sync.
func (f *osFile) SyncTo(int64) (bool, error) { return true, f.SyncData() }

type fileInfo struct{ os.FileInfo }

// DeviceID implements pebblevfs.FileInfo; only Pebble asks, and it opens its files through its own FS.
func (fileInfo) DeviceID() pebblevfs.DeviceID { return pebblevfs.DeviceID{} }
