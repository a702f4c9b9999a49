package kv

import (
	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"

	"gopherlog/engine/vfs"
)

// guardFS reports every failed sync of Pebble's files. Pebble itself would retry some of them, which
// after a failed fsync may succeed without the data.
type guardFS struct {
	vfs.FS
	failed func(error)
}

func (g guardFS) Unwrap() pebblevfs.FS { return g.FS }

func (g guardFS) Create(name string, c pebblevfs.DiskWriteCategory) (pebblevfs.File, error) {
	return g.wrap(g.FS.Create(name, c))
}

func (g guardFS) OpenReadWrite(name string, c pebblevfs.DiskWriteCategory, opts ...pebblevfs.OpenOption) (pebblevfs.File, error) {
	return g.wrap(g.FS.OpenReadWrite(name, c, opts...))
}

func (g guardFS) ReuseForWrite(oldname, newname string, c pebblevfs.DiskWriteCategory) (pebblevfs.File, error) {
	return g.wrap(g.FS.ReuseForWrite(oldname, newname, c))
}

func (g guardFS) OpenDir(name string) (pebblevfs.File, error) {
	return g.wrap(g.FS.OpenDir(name))
}

func (g guardFS) wrap(f pebblevfs.File, err error) (pebblevfs.File, error) {
	if err != nil {
		return nil, err
	}
	return guardFile{File: f, failed: g.failed}, nil
}

type guardFile struct {
	pebblevfs.File
	failed func(error)
}

func (f guardFile) Sync() error     { return f.check(f.File.Sync()) }
func (f guardFile) SyncData() error { return f.check(f.File.SyncData()) }
func (f guardFile) SyncTo(n int64) (bool, error) {
	full, err := f.File.SyncTo(n)
	return full, f.check(err)
}

func (f guardFile) check(err error) error {
	if err != nil {
		f.failed(err)
	}
	return err
}
