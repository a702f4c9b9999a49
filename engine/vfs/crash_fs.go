package vfs

import (
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"
)

func pathError(op, name string, err error) error {
	return &os.PathError{Op: op, Path: name, Err: err}
}

// find returns the node at name. The mutex is held.
func (c *CrashFS) find(op, name string) (*node, error) {
	n := c.root
	for part := range strings.SplitSeq(strings.Trim(path.Clean("/"+name), "/"), "/") {
		if part == "" {
			continue
		}
		if !n.dir {
			return nil, pathError(op, name, syscall.ENOTDIR)
		}
		if n = n.children[part]; n == nil {
			return nil, pathError(op, name, os.ErrNotExist)
		}
	}
	return n, nil
}

// parent returns the directory that holds name, and the last element of name. The mutex is held.
func (c *CrashFS) parent(op, name string) (*node, string, error) {
	clean := path.Clean("/" + name)
	if clean == "/" {
		return nil, "", pathError(op, name, os.ErrInvalid)
	}
	dir, err := c.find(op, path.Dir(clean))
	if err != nil {
		return nil, "", err
	}
	if !dir.dir {
		return nil, "", pathError(op, name, syscall.ENOTDIR)
	}
	return dir, path.Base(clean), nil
}

// Create implements FS.
func (c *CrashFS) Create(name string, _ pebblevfs.DiskWriteCategory) (pebblevfs.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	dir, base, err := c.parent("create", name)
	if err != nil {
		return nil, err
	}
	n := newFile()
	dir.apply(change{base: n})
	return &crashFile{fs: c, n: n, name: base, write: true}, nil
}

// OpenFile implements FS.
func (c *CrashFS) OpenFile(name string, create bool) (File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	dir, base, err := c.parent("open", name)
	if err != nil {
		return nil, err
	}
	n := dir.children[base]
	switch {
	case n == nil && !create:
		return nil, pathError("open", name, os.ErrNotExist)
	case n == nil:
		n = newFile()
		dir.apply(change{base: n})
	case n.dir:
		return nil, pathError("open", name, syscall.EISDIR)
	}
	return &crashFile{fs: c, n: n, name: base, write: true}, nil
}

// OpenReadWrite implements FS.
func (c *CrashFS) OpenReadWrite(name string, _ pebblevfs.DiskWriteCategory, opts ...pebblevfs.OpenOption) (pebblevfs.File, error) {
	f, err := c.OpenFile(name, true)
	if err != nil {
		return nil, err
	}
	for _, o := range opts {
		o.Apply(f)
	}
	return f, nil
}

// Open implements FS.
func (c *CrashFS) Open(name string, opts ...pebblevfs.OpenOption) (pebblevfs.File, error) {
	c.mu.RLock()
	n, err := c.find("open", name)
	c.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	f := &crashFile{fs: c, n: n, name: path.Base(path.Clean("/" + name))}
	for _, o := range opts {
		o.Apply(f)
	}
	return f, nil
}

// OpenDir implements FS.
func (c *CrashFS) OpenDir(name string) (pebblevfs.File, error) { return c.Open(name) }

// Link implements FS.
func (c *CrashFS) Link(oldname, newname string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.find("link", oldname)
	if err != nil {
		return err
	}
	dir, base, err := c.parent("link", newname)
	if err != nil {
		return err
	}
	if dir.children[base] != nil {
		return pathError("link", newname, os.ErrExist)
	}
	dir.apply(change{base: n})
	return nil
}

// Remove implements FS.
func (c *CrashFS) Remove(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	dir, base, err := c.parent("remove", name)
	if err != nil {
		return err
	}
	n := dir.children[base]
	switch {
	case n == nil:
		return pathError("remove", name, os.ErrNotExist)
	case n.dir && len(n.children) > 0:
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	c.drop(dir, base)
	return nil
}

// drop removes a name and gives the space back that only it used. The mutex is held.
func (c *CrashFS) drop(dir *node, base string) {
	dir.apply(change{base: nil})
	c.recount()
}

func (c *CrashFS) recount() {
	if c.space > 0 {
		c.used = c.root.bytes(map[*node]bool{})
	}
}

// RemoveAll implements FS.
func (c *CrashFS) RemoveAll(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	dir, base, err := c.parent("removeall", name)
	if err != nil {
		if os.IsNotExist(err) {
			return nil
		}
		return err
	}
	if dir.children[base] != nil {
		c.drop(dir, base)
	}
	return nil
}

// Rename implements FS.
func (c *CrashFS) Rename(oldname, newname string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	from, oldBase, err := c.parent("rename", oldname)
	if err != nil {
		return err
	}
	to, newBase, err := c.parent("rename", newname)
	if err != nil {
		return err
	}
	n := from.children[oldBase]
	old := to.children[newBase]
	switch {
	case n == nil:
		return pathError("rename", oldname, os.ErrNotExist)
	case n == old:
		return nil
	case old != nil && old.dir && len(old.children) > 0:
		return pathError("rename", newname, syscall.ENOTEMPTY)
	case from == to:
		from.apply(change{oldBase: nil, newBase: n})
	default:
		to.apply(change{newBase: n})
		from.apply(change{oldBase: nil})
	}
	c.recount()
	return nil
}

// ReuseForWrite implements FS.
func (c *CrashFS) ReuseForWrite(oldname, newname string, category pebblevfs.DiskWriteCategory) (pebblevfs.File, error) {
	if err := c.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return c.OpenReadWrite(newname, category)
}

// MkdirAll implements FS.
func (c *CrashFS) MkdirAll(name string, _ os.FileMode) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.root
	for part := range strings.SplitSeq(strings.Trim(path.Clean("/"+name), "/"), "/") {
		if part == "" {
			continue
		}
		child := n.children[part]
		if child == nil {
			child = newDir()
			n.apply(change{part: child})
		}
		if !child.dir {
			return pathError("mkdir", name, syscall.ENOTDIR)
		}
		n = child
	}
	return nil
}

// Lock implements FS: one holder per name at a time, within this file system.
func (c *CrashFS) Lock(name string) (io.Closer, error) {
	f, err := c.OpenFile(name, true)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := path.Clean("/" + name)
	if c.locks[key] {
		return nil, pathError("lock", name, syscall.EAGAIN)
	}
	c.locks[key] = true
	return &crashLock{fs: c, key: key, f: f}, nil
}

type crashLock struct {
	fs  *CrashFS
	key string
	f   File
}

func (l *crashLock) Close() error {
	l.fs.mu.Lock()
	delete(l.fs.locks, l.key)
	l.fs.mu.Unlock()
	return l.f.Close()
}

// List implements FS; the names are sorted.
func (c *CrashFS) List(name string) ([]string, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n, err := c.find("list", name)
	if err != nil {
		return nil, err
	}
	if !n.dir {
		return nil, pathError("list", name, syscall.ENOTDIR)
	}
	return slices.Sorted(maps.Keys(n.children)), nil
}

// Stat implements FS.
func (c *CrashFS) Stat(name string) (pebblevfs.FileInfo, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n, err := c.find("stat", name)
	if err != nil {
		return nil, err
	}
	return n.info(path.Base(path.Clean("/" + name))), nil
}

// PathBase implements FS.
func (*CrashFS) PathBase(p string) string { return path.Base(p) }

// PathJoin implements FS.
func (*CrashFS) PathJoin(elem ...string) string { return path.Join(elem...) }

// PathDir implements FS.
func (*CrashFS) PathDir(p string) string { return path.Dir(p) }

// GetDiskUsage implements FS; without SetSpace it is unknown.
func (c *CrashFS) GetDiskUsage(string) (pebblevfs.DiskUsage, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.space == 0 {
		return pebblevfs.DiskUsage{}, pebblevfs.ErrUnsupported
	}
	free := uint64(max(0, c.space-c.used))
	return pebblevfs.DiskUsage{AvailBytes: free, TotalBytes: uint64(c.space), UsedBytes: uint64(c.used)}, nil
}

// Unwrap implements FS.
func (*CrashFS) Unwrap() pebblevfs.FS { return nil }
