package vfs

import (
	"math/rand/v2"
	"sync"
	"time"
)

// CrashFS is a file system in memory that can lose power. The fault model: a file's bytes survive when
// Sync returned after they were written, a name survives when its directory was synced after the change;
// of the rest a power cut keeps any part. Bytes are lost or kept in pages, a page may be torn at a sector,
// the size may grow without the bytes (zeros). Names survive in the order in which they were changed, and
// a rename within a directory is one change.
//
// All methods may be called from any goroutine. Paths are absolute or relative to the root alike.
type CrashFS struct {
	mu    sync.RWMutex // guards every node below root, locks and space
	root  *node
	locks map[string]bool
	space int64 // bytes that all files together may hold; 0: no limit
	used  int64
}

var _ FS = (*CrashFS)(nil)

// NewCrashable returns an empty file system.
func NewCrashable() *CrashFS {
	return &CrashFS{root: newDir(), locks: map[string]bool{}}
}

// CrashConfig says how much of what was not synced a power cut keeps. The zero value keeps none.
type CrashConfig struct {
	Seed            uint64
	UnsyncedPercent int // 0 keeps synced data only, 100 keeps everything, between: a seeded share
}

// CrashClone returns what is on disk after a power cut at this moment; everything in it counts as synced.
// The original goes on unharmed, so a node that still runs on it cannot touch the clone.
func (c *CrashFS) CrashClone(cfg CrashConfig) *CrashFS {
	c.mu.RLock()
	defer c.mu.RUnlock()
	k := &cloner{pct: cfg.UnsyncedPercent, rng: rand.New(rand.NewPCG(cfg.Seed, 0x6c6f7365)), done: map[*node]*node{}}
	return c.adopt(k.crash(c.root))
}

// Clone returns an exact copy, with what is not synced still not synced: what a SIGKILL leaves.
func (c *CrashFS) Clone() *CrashFS {
	c.mu.RLock()
	defer c.mu.RUnlock()
	k := &cloner{done: map[*node]*node{}}
	return c.adopt(k.copy(c.root))
}

func (c *CrashFS) adopt(root *node) *CrashFS {
	out := NewCrashable()
	out.root, out.space = root, c.space
	out.used = root.bytes(map[*node]bool{})
	return out
}

// SetSpace limits the bytes that all files together may hold; writes beyond it fail with ErrNoSpace.
// Zero means no limit.
func (c *CrashFS) SetSpace(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.space = bytes
}

const (
	pageSize   = 4096
	sectorSize = 512
)

// node is a file or a directory.
type node struct {
	dir     bool
	modTime time.Time

	// A file: its bytes now, and how to go back to the synced ones. undo holds the synced content of
	// every page changed since, cut at syncedSize.
	data       []byte
	syncedSize int64
	undo       map[int64][]byte

	// A directory: its names now, the synced ones, and the changes between in order.
	children map[string]*node
	synced   map[string]*node
	pending  []change
}

// change is one atomic change of a directory: names set, or removed where the node is nil.
type change map[string]*node

func newDir() *node {
	return &node{dir: true, modTime: time.Now(), children: map[string]*node{}, synced: map[string]*node{}}
}

func newFile() *node {
	return &node{modTime: time.Now(), undo: map[int64][]byte{}}
}

func (n *node) apply(ch change) {
	n.modTime = time.Now()
	n.pending = append(n.pending, ch)
	setNames(n.children, ch)
}

func setNames(names map[string]*node, ch change) {
	for name, child := range ch {
		if child == nil {
			delete(names, name)
		} else {
			names[name] = child
		}
	}
}

func (n *node) sync() {
	if n.dir {
		for _, ch := range n.pending {
			setNames(n.synced, ch)
		}
		n.pending = nil
		return
	}
	n.syncedSize = int64(len(n.data))
	clear(n.undo)
}

// remember saves the synced content of the pages in [from, to) before they change.
func (n *node) remember(from, to int64) {
	for page := from / pageSize; page*pageSize < min(to, n.syncedSize); page++ {
		if _, saved := n.undo[page]; saved {
			continue
		}
		end := min((page+1)*pageSize, n.syncedSize)
		n.undo[page] = append([]byte(nil), n.data[page*pageSize:end]...)
	}
}

func (n *node) resize(size int64) {
	old := int64(len(n.data))
	if size < old {
		n.remember(size, old)
		n.data = n.data[:size]
		return
	}
	if int64(cap(n.data)) < size {
		grown := make([]byte, old, max(size, 2*old))
		copy(grown, n.data)
		n.data = grown
	}
	n.data = n.data[:size]
	clear(n.data[old:])
}

func (n *node) writeAt(p []byte, off int64) {
	end := off + int64(len(p))
	n.remember(off, end)
	if end > int64(len(n.data)) {
		n.resize(end)
	}
	copy(n.data[off:], p)
	n.modTime = time.Now()
}

func (n *node) bytes(seen map[*node]bool) int64 {
	if seen[n] {
		return 0
	}
	seen[n] = true
	total := int64(len(n.data))
	for _, child := range n.children {
		total += child.bytes(seen)
	}
	return total
}
