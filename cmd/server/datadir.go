package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/rpc"
	"gopherlog/cmd/internal/cli"
	"gopherlog/engine/kv"
	"gopherlog/engine/vfs"
)

// lockFile in a data directory is locked by the server that uses it.
const lockFile = "lock"

// dataDir is an opened data directory.
type dataDir struct {
	path     string
	lock     io.Closer
	identity *meta.Identity
	kv       *kv.DB
}

// openDataDir makes the directory if need be, locks it, and reads who it is. The store is opened later.
func openDataDir(files vfs.FS, path string, id int32) (*dataDir, error) {
	if err := vfs.MkdirAllSync(files, path); err != nil {
		return nil, diskError("make the data directory", path, err)
	}
	if err := refuseForeign(files, path); err != nil {
		return nil, err
	}
	lock, err := files.Lock(filepath.Join(path, lockFile))
	if err != nil {
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, cli.Environment(fmt.Errorf("the data directory %s is in use by another server: stop that one or give another -data", path))
		}
		return nil, diskError("lock the data directory", path, err)
	}
	d := &dataDir{path: path, lock: lock}
	d.identity, err = meta.ReadIdentity(files, path, rpc.NodeID(id))
	if err != nil {
		return nil, errors.Join(dirError(path, err), lock.Close())
	}
	return d, nil
}

// ours are the names that a server may have left before it wrote who it is; lost+found is the file system's.
var ours = []string{lockFile, "kv", "topics", "control", "lost+found"}

// refuseForeign refuses a directory that holds other files and no identity: it is most likely not the one that was meant.
func refuseForeign(files vfs.FS, path string) error {
	names, err := files.List(path)
	if err != nil {
		return diskError("read the data directory", path, err)
	}
	if slices.Contains(names, meta.PropertiesFile) {
		return nil
	}
	for _, name := range names {
		if !slices.Contains(ours, name) && !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, meta.PropertiesFile) {
			return cli.Environment(fmt.Errorf("the data directory %s holds files that GopherLog did not write, such as %s: give -data a directory of its own", path, name))
		}
	}
	return nil
}

// dirError turns what the identity says into an environment error.
func dirError(path string, err error) error {
	var dir *meta.DirError
	if errors.As(err, &dir) {
		return cli.Environment(fmt.Errorf("the data directory cannot be used: %w", err))
	}
	return diskError("use the data directory", path, err)
}

// diskError says what a disk refused, and what to do.
func diskError(doing, path string, err error) error {
	advice := "check the disk"
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		advice = "make it writable for this user or give another -data"
	case errors.Is(err, fs.ErrNotExist):
		advice = "there is no such place on this machine: give another -data"
	case errors.Is(err, syscall.ENOSPC):
		advice = "the disk is full: free some space or give another -data"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
		advice = "it is not a directory: give another -data"
	}
	return cli.Environment(fmt.Errorf("cannot %s %s: %w; %s", doing, path, innermost(err), advice))
}

// innermost is the system's own word for what went wrong, without the calls on the way.
func innermost(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// storeError says why the store cannot be opened.
func storeError(path string, err error) error {
	switch {
	case errors.Is(err, kv.ErrLocked):
		return cli.Environment(fmt.Errorf("the store %s is in use by another process: stop that one or give another -data", path))
	case errors.Is(err, kv.ErrCorrupt):
		return cli.Environment(fmt.Errorf("the store %s is damaged (%w): move the whole data directory away; a node of a cluster then joins anew and is refilled by the others", path, err))
	}
	return diskError("open the store", path, err)
}
