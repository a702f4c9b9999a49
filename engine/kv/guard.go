package kv

import (
	"os"
	"sync/atomic"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"

	"gopherlog/engine/failpoint"
	"gopherlog/engine/vfs"
)

// guard stands between Pebble and the disk. The first write or sync that fails is reported, and from then
// on nothing that Pebble does reaches the disk: a sync tried again may succeed without the data, and a
// clean-up after a half-done flush would remove what recovery needs. Pebble itself is told that all went
// well, because some of its paths panic with locks held otherwise; DB answers every commit with the
// failure instead.
type guard struct {
	failed func(error)
	points *failpoint.Set
	armed  atomic.Bool // set once the store is open: before, errors go to the caller of Open
	frozen atomic.Bool
}

// check handles the outcome of a change and returns what Pebble is told.
func (g *guard) check(err error) error {
	if err == nil || !g.armed.Load() {
		return err
	}
	g.frozen.Store(true)
	g.failed(err)
	return nil
}

// do runs a change unless the disk is frozen.
func (g *guard) do(change func() error) error {
	if g.frozen.Load() {
		return nil
	}
	return g.check(change())
}

// sync is do for a sync.
func (g *guard) sync(sync func() error) error {
	return g.do(func() error {
		if err := g.points.Hit(beforeSync); err != nil {
			return err
		}
		return sync()
	})
}

type guardFS struct {
	vfs.FS
	g *guard
}

func (f guardFS) Unwrap() pebblevfs.FS { return f.FS }

func (f guardFS) Create(name string, c pebblevfs.DiskWriteCategory) (pebblevfs.File, error) {
	return f.open(func() (pebblevfs.File, error) { return f.FS.Create(name, c) })
}

func (f guardFS) OpenReadWrite(name string, c pebblevfs.DiskWriteCategory, opts ...pebblevfs.OpenOption) (pebblevfs.File, error) {
	return f.open(func() (pebblevfs.File, error) { return f.FS.OpenReadWrite(name, c, opts...) })
}

func (f guardFS) ReuseForWrite(oldname, newname string, c pebblevfs.DiskWriteCategory) (pebblevfs.File, error) {
	return f.open(func() (pebblevfs.File, error) { return f.FS.ReuseForWrite(oldname, newname, c) })
}

func (f guardFS) OpenDir(name string) (pebblevfs.File, error) {
	return f.open(func() (pebblevfs.File, error) { return f.FS.OpenDir(name) })
}

// open opens a file for writing; on a frozen disk a file that takes everything and holds nothing.
func (f guardFS) open(open func() (pebblevfs.File, error)) (file pebblevfs.File, err error) {
	err = f.g.do(func() error {
		file, err = open()
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case f.g.frozen.Load() && file == nil:
		return nullFile(), nil
	}
	return guardFile{File: file, g: f.g}, nil
}

func (f guardFS) Rename(oldname, newname string) error {
	return f.g.do(func() error { return f.FS.Rename(oldname, newname) })
}

func (f guardFS) Link(oldname, newname string) error {
	return f.g.do(func() error { return f.FS.Link(oldname, newname) })
}

func (f guardFS) MkdirAll(dir string, perm os.FileMode) error {
	return f.g.do(func() error { return f.FS.MkdirAll(dir, perm) })
}

// Remove and RemoveAll pass their errors on: a file too many harms nothing.
func (f guardFS) Remove(name string) error {
	if f.g.frozen.Load() {
		return nil
	}
	return f.FS.Remove(name)
}

func (f guardFS) RemoveAll(name string) error {
	if f.g.frozen.Load() {
		return nil
	}
	return f.FS.RemoveAll(name)
}

type guardFile struct {
	pebblevfs.File
	g *guard
}

func (f guardFile) Write(p []byte) (int, error) {
	n := len(p)
	return n, f.g.do(func() error { _, err := f.File.Write(p); return err })
}

func (f guardFile) WriteAt(p []byte, off int64) (int, error) {
	return len(p), f.g.do(func() error { _, err := f.File.WriteAt(p, off); return err })
}

func (f guardFile) Sync() error     { return f.g.sync(f.File.Sync) }
func (f guardFile) SyncData() error { return f.g.sync(f.File.SyncData) }

func (f guardFile) SyncTo(n int64) (full bool, err error) {
	err = f.g.sync(func() error {
		full, err = f.File.SyncTo(n)
		return err
	})
	return full, err
}

// nullFile is a file on a frozen disk.
func nullFile() pebblevfs.File { return &null{File: pebblevfs.NewMemFile(nil)} }

type null struct{ pebblevfs.File }

func (*null) Write(p []byte) (int, error)            { return len(p), nil }
func (*null) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (*null) Sync() error                            { return nil }
func (*null) SyncData() error                        { return nil }
func (*null) SyncTo(int64) (bool, error)             { return true, nil }
