// Package vfs is the one seam between GopherLog and everything on disk: Pebble's file-system interface
// plus what a log needs, on the operating system or in a memory twin that can lose power.
//
// It knows files, directories and what survives a crash; it knows nothing of what the bytes mean.
package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"
)

// FS is a namespace of files: Pebble's, so that one value serves the segments and the key-value store.
type FS interface {
	pebblevfs.FS

	// OpenFile opens the named file for reading and writing and never truncates it. With create it makes
	// a missing file (whose name is durable only after SyncDir); without, a missing file is os.ErrNotExist.
	OpenFile(name string, create bool) (File, error)
}

// File is an open file. ReadAt, WriteAt and WriteVAt at different places may overlap; Sync and Truncate
// must not overlap with writes of the same file. Fd returns InvalidFd for a file that lives in memory:
// use sendfile only with another value.
type File interface {
	pebblevfs.File

	// Truncate sets the size; growth reads as zeros. Durable only after Sync.
	Truncate(size int64) error

	// WriteVAt writes the buffers one after the other starting at off, in as few system calls as the
	// platform offers. It returns the bytes written; fewer than all comes with an error. The buffers stay
	// the caller's and are not changed. Not durable.
	WriteVAt(bufs [][]byte, off int64) (int, error)
}

// InvalidFd is what File.Fd returns for a file without a descriptor.
const InvalidFd = pebblevfs.InvalidFd

// ErrNoSpace is what a full disk answers.
var ErrNoSpace error = syscall.ENOSPC

// SyncDir makes the names created, renamed and removed in dir durable.
func SyncDir(fs pebblevfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("open directory to sync: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// WriteFileAtomic replaces path by data: after it returns nil the new content is durable; after a crash
// inside it, path holds the old content or the new, never a mixture.
func WriteFileAtomic(fs FS, path string, data []byte) error {
	tmp := path + ".tmp"
	if err := writeSynced(fs, tmp, data); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", tmp, err), removeIfThere(fs, tmp))
	}
	if err := fs.Rename(tmp, path); err != nil {
		return fmt.Errorf("rename %s: %w", tmp, err)
	}
	return SyncDir(fs, fs.PathDir(path))
}

func writeSynced(fs FS, path string, data []byte) error {
	f, err := fs.OpenFile(path, true)
	if err != nil {
		return err
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(data, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func removeIfThere(fs FS, path string) error {
	if err := fs.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// ReadFile returns the whole content of a file. It is for small files.
func ReadFile(fs pebblevfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, &os.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	}
	buf := make([]byte, info.Size())
	if len(buf) == 0 {
		return buf, nil
	}
	n, err := f.ReadAt(buf, 0)
	if n == len(buf) {
		err = nil
	}
	return buf[:n], err
}

// Exists reports whether path names a file or a directory.
func Exists(fs pebblevfs.FS, path string) (bool, error) {
	_, err := fs.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// MkdirAllSync makes dir and its missing parents, and makes their names durable.
func MkdirAllSync(fs pebblevfs.FS, dir string) error {
	var made []string
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		there, err := Exists(fs, d)
		if err != nil {
			return err
		}
		if there || d == filepath.Dir(d) {
			break
		}
		made = append(made, filepath.Dir(d))
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, parent := range made {
		if err := SyncDir(fs, parent); err != nil {
			return err
		}
	}
	return nil
}
