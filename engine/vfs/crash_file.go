package vfs

import (
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"
)

// crashFile is an open file or directory of a CrashFS. The file system's mutex guards pos.
type crashFile struct {
	fs     *CrashFS
	n      *node
	name   string
	write  bool
	pos    int64
	closed atomic.Bool
}

var _ File = (*crashFile)(nil)

func (f *crashFile) usable(op string, write bool) error {
	switch {
	case f.closed.Load():
		return pathError(op, f.name, os.ErrClosed)
	case f.n.dir:
		return pathError(op, f.name, syscall.EISDIR)
	case write && !f.write:
		return pathError(op, f.name, os.ErrPermission)
	}
	return nil
}

// Close implements File; a second Close is an error, as with the operating system.
func (f *crashFile) Close() error {
	if f.closed.Swap(true) {
		return pathError("close", f.name, os.ErrClosed)
	}
	return nil
}

// Read implements File.
func (f *crashFile) Read(p []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	n, err := f.readAt(p, f.pos)
	f.pos += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// ReadAt implements File.
func (f *crashFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	return f.readAt(p, off)
}

func (f *crashFile) readAt(p []byte, off int64) (int, error) {
	if err := f.usable("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", f.name, os.ErrInvalid)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Write implements File.
func (f *crashFile) Write(p []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	n, err := f.writeAt(p, f.pos)
	f.pos += int64(n)
	return n, err
}

// WriteAt implements File.
func (f *crashFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.writeAt(p, off)
}

// WriteVAt implements File; the buffers reach the file in one step.
func (f *crashFile) WriteVAt(bufs [][]byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	total := 0
	for _, b := range bufs {
		n, err := f.writeAt(b, off+int64(total))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (f *crashFile) writeAt(p []byte, off int64) (int, error) {
	if err := f.usable("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("write", f.name, os.ErrInvalid)
	}
	n, err := f.fits(p, off)
	if n > 0 {
		before := len(f.n.data)
		f.n.writeAt(p[:n], off)
		f.fs.used += int64(len(f.n.data) - before)
	}
	return n, err
}

// fits returns how many of the bytes the disk has room for, and ErrNoSpace when not for all.
func (f *crashFile) fits(p []byte, off int64) (int, error) {
	grow := off + int64(len(p)) - int64(len(f.n.data))
	free := f.fs.space - f.fs.used
	if f.fs.space == 0 || grow <= 0 || grow <= free {
		return len(p), nil
	}
	return int(max(0, int64(len(p))-(grow-max(0, free)))), pathError("write", f.name, ErrNoSpace)
}

// Truncate implements File.
func (f *crashFile) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usable("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return pathError("truncate", f.name, os.ErrInvalid)
	}
	f.fs.used += size - int64(len(f.n.data))
	f.n.resize(size)
	f.n.modTime = time.Now()
	return nil
}

// Sync implements File, for directories too.
func (f *crashFile) Sync() error {
	if f.closed.Load() {
		return pathError("sync", f.name, os.ErrClosed)
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.n.sync()
	return nil
}

// SyncData implements File.
func (f *crashFile) SyncData() error { return f.Sync() }

// SyncTo implements File. It syncs nothing and says so: whoever relies on it loses data in a test.
func (f *crashFile) SyncTo(int64) (bool, error) { return false, nil }

// Preallocate implements File.
func (f *crashFile) Preallocate(_, _ int64) error { return nil }

// Prefetch implements File.
func (f *crashFile) Prefetch(_, _ int64) error { return nil }

// Fd implements File.
func (f *crashFile) Fd() uintptr { return InvalidFd }

// Stat implements File.
func (f *crashFile) Stat() (pebblevfs.FileInfo, error) {
	if f.closed.Load() {
		return nil, pathError("stat", f.name, os.ErrClosed)
	}
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	return f.n.info(f.name), nil
}

func (n *node) info(name string) crashInfo {
	return crashInfo{name: name, size: int64(len(n.data)), mod: n.modTime, dir: n.dir}
}

type crashInfo struct {
	name string
	size int64
	mod  time.Time
	dir  bool
}

func (i crashInfo) Name() string                 { return i.name }
func (i crashInfo) Size() int64                  { return i.size }
func (i crashInfo) ModTime() time.Time           { return i.mod }
func (i crashInfo) IsDir() bool                  { return i.dir }
func (i crashInfo) Sys() any                     { return nil }
func (i crashInfo) DeviceID() pebblevfs.DeviceID { return pebblevfs.DeviceID{} }
func (i crashInfo) Mode() os.FileMode {
	if i.dir {
		return os.ModeDir | 0o755
	}
	return 0o644
}
