package vfs

import (
	"errors"
	"fmt"
	"os"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"
)

// Op is a kind of file-system operation that a FaultFS shows to its hook.
type Op uint8

const (
	OpCreate Op = iota // a file that may be new: Create, OpenReadWrite, OpenFile with create
	OpOpen             // Open, OpenDir, OpenFile without create
	OpRead
	OpWrite
	OpTruncate
	OpSync // of a file, data or whole
	OpSyncDir
	OpRename
	OpRemove
	OpList
	OpClose
)

// String returns the operation's name.
func (o Op) String() string {
	names := [...]string{"create", "open", "read", "write", "truncate", "sync", "syncdir", "rename", "remove", "list", "close"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("op(%d)", o)
}

// Call is one operation before it happens. Off and Len are set for reads and writes; for a truncation Off
// is the new size.
type Call struct {
	Op   Op
	Path string
	Off  int64
	Len  int
}

// ShortWrite, returned by a hook for an OpWrite, lets the first N bytes through and fails the rest with Err.
type ShortWrite struct {
	N   int
	Err error
}

// Error implements error.
func (s *ShortWrite) Error() string { return fmt.Sprintf("short write of %d bytes: %v", s.N, s.Err) }

// Unwrap implements the errors convention.
func (s *ShortWrite) Unwrap() error { return s.Err }

// FaultFS shows every operation to a hook first. The hook may fail it by returning an error, count, or
// block; it is called from whatever goroutine does the I/O.
type FaultFS struct {
	FS
	hook func(Call) error
}

// NewFault wraps fs. A nil hook lets everything through.
func NewFault(fs FS, hook func(Call) error) *FaultFS {
	if hook == nil {
		hook = func(Call) error { return nil }
	}
	return &FaultFS{FS: fs, hook: hook}
}

// Unwrap implements FS.
func (f *FaultFS) Unwrap() pebblevfs.FS { return f.FS }

// Create implements FS.
func (f *FaultFS) Create(name string, cat pebblevfs.DiskWriteCategory) (pebblevfs.File, error) {
	return f.open(OpCreate, name, func() (pebblevfs.File, error) { return f.FS.Create(name, cat) })
}

// OpenReadWrite implements FS.
func (f *FaultFS) OpenReadWrite(name string, cat pebblevfs.DiskWriteCategory, opts ...pebblevfs.OpenOption) (pebblevfs.File, error) {
	return f.open(OpCreate, name, func() (pebblevfs.File, error) { return f.FS.OpenReadWrite(name, cat, opts...) })
}

// Open implements FS.
func (f *FaultFS) Open(name string, opts ...pebblevfs.OpenOption) (pebblevfs.File, error) {
	return f.open(OpOpen, name, func() (pebblevfs.File, error) { return f.FS.Open(name, opts...) })
}

// OpenDir implements FS.
func (f *FaultFS) OpenDir(name string) (pebblevfs.File, error) {
	if err := f.hook(Call{Op: OpOpen, Path: name}); err != nil {
		return nil, err
	}
	d, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &faultFile{File: d, fs: f, path: name, dir: true}, nil
}

// OpenFile implements FS.
func (f *FaultFS) OpenFile(name string, create bool) (File, error) {
	op := OpOpen
	if create {
		op = OpCreate
	}
	file, err := f.open(op, name, func() (pebblevfs.File, error) { return f.FS.OpenFile(name, create) })
	if err != nil {
		return nil, err
	}
	return file.(*faultFile), nil
}

// ReuseForWrite implements FS.
func (f *FaultFS) ReuseForWrite(oldname, newname string, cat pebblevfs.DiskWriteCategory) (pebblevfs.File, error) {
	return f.open(OpCreate, newname, func() (pebblevfs.File, error) { return f.FS.ReuseForWrite(oldname, newname, cat) })
}

func (f *FaultFS) open(op Op, name string, open func() (pebblevfs.File, error)) (pebblevfs.File, error) {
	if err := f.hook(Call{Op: op, Path: name}); err != nil {
		return nil, err
	}
	file, err := open()
	if err != nil {
		return nil, err
	}
	return &faultFile{File: file, fs: f, path: name}, nil
}

// Remove implements FS.
func (f *FaultFS) Remove(name string) error {
	if err := f.hook(Call{Op: OpRemove, Path: name}); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// RemoveAll implements FS.
func (f *FaultFS) RemoveAll(name string) error {
	if err := f.hook(Call{Op: OpRemove, Path: name}); err != nil {
		return err
	}
	return f.FS.RemoveAll(name)
}

// Rename implements FS.
func (f *FaultFS) Rename(oldname, newname string) error {
	if err := f.hook(Call{Op: OpRename, Path: newname}); err != nil {
		return err
	}
	return f.FS.Rename(oldname, newname)
}

// MkdirAll implements FS.
func (f *FaultFS) MkdirAll(dir string, perm os.FileMode) error {
	if err := f.hook(Call{Op: OpCreate, Path: dir}); err != nil {
		return err
	}
	return f.FS.MkdirAll(dir, perm)
}

// List implements FS.
func (f *FaultFS) List(dir string) ([]string, error) {
	if err := f.hook(Call{Op: OpList, Path: dir}); err != nil {
		return nil, err
	}
	return f.FS.List(dir)
}

type faultFile struct {
	pebblevfs.File
	fs   *FaultFS
	path string
	dir  bool
	pos  int64 // of Write; its caller writes from one goroutine
}

func (f *faultFile) Read(p []byte) (int, error) {
	if err := f.fs.hook(Call{Op: OpRead, Path: f.path, Off: -1, Len: len(p)}); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.hook(Call{Op: OpRead, Path: f.path, Off: off, Len: len(p)}); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultFile) Write(p []byte) (int, error) {
	keep, fault := f.permit(len(p), f.pos)
	n, err := f.File.Write(p[:keep])
	f.pos += int64(n)
	return n, errors.Join(fault, err)
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	return f.WriteVAt([][]byte{p}, off)
}

// WriteVAt implements File.
func (f *faultFile) WriteVAt(bufs [][]byte, off int64) (int, error) {
	size := 0
	for _, b := range bufs {
		size += len(b)
	}
	keep, fault := f.permit(size, off)
	if keep == 0 && fault != nil {
		return 0, fault
	}
	n, err := f.write(head(bufs, keep), off)
	return n, errors.Join(fault, err)
}

func (f *faultFile) write(bufs [][]byte, off int64) (int, error) {
	if v, ok := f.File.(File); ok {
		return v.WriteVAt(bufs, off)
	}
	return writeEach(f.File, bufs, off)
}

// permit asks the hook and returns how many of the bytes may pass.
func (f *faultFile) permit(size int, off int64) (int, error) {
	err := f.fs.hook(Call{Op: OpWrite, Path: f.path, Off: off, Len: size})
	var short *ShortWrite
	switch {
	case err == nil:
		return size, nil
	case errors.As(err, &short):
		return min(short.N, size), err
	}
	return 0, err
}

// head returns the first n bytes of the buffers.
func head(bufs [][]byte, n int) [][]byte {
	var out [][]byte
	for _, b := range bufs {
		k := min(n, len(b))
		out = append(out, b[:k])
		n -= k
	}
	return out
}

// Truncate implements File.
func (f *faultFile) Truncate(size int64) error {
	if err := f.fs.hook(Call{Op: OpTruncate, Path: f.path, Off: size}); err != nil {
		return err
	}
	t, ok := f.File.(interface{ Truncate(int64) error })
	if !ok {
		return pathError("truncate", f.path, errors.ErrUnsupported)
	}
	return t.Truncate(size)
}

func (f *faultFile) syncOp() error {
	op := OpSync
	if f.dir {
		op = OpSyncDir
	}
	return f.fs.hook(Call{Op: op, Path: f.path})
}

func (f *faultFile) Sync() error {
	if err := f.syncOp(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultFile) SyncData() error {
	if err := f.syncOp(); err != nil {
		return err
	}
	return f.File.SyncData()
}

func (f *faultFile) SyncTo(length int64) (bool, error) {
	if err := f.syncOp(); err != nil {
		return false, err
	}
	return f.File.SyncTo(length)
}

func (f *faultFile) Close() error {
	err := f.fs.hook(Call{Op: OpClose, Path: f.path})
	return errors.Join(err, f.File.Close())
}
