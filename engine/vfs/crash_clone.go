package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// cloner copies a tree of nodes; a node with several names stays one node.
type cloner struct {
	pct  int
	rng  *rand.Rand
	done map[*node]*node
}

// keep draws whether one unsynced thing survives.
func (k *cloner) keep() bool {
	return k.pct >= 100 || k.pct > 0 && k.rng.IntN(100) < k.pct
}

func (k *cloner) crash(n *node) *node {
	if out := k.done[n]; out != nil {
		return out
	}
	out := &node{dir: n.dir, modTime: n.modTime}
	k.done[n] = out
	if !n.dir {
		out.data, out.undo = k.crashData(n), map[int64][]byte{}
		out.syncedSize = int64(len(out.data))
		return out
	}
	names := maps.Clone(n.synced)
	for _, ch := range n.pending {
		if !k.keep() {
			break
		}
		setNames(names, ch)
	}
	out.children = make(map[string]*node, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) { // sorted: the same seed gives the same clone
		out.children[name] = k.crash(names[name])
	}
	out.synced = maps.Clone(out.children)
	return out
}

// crashData draws the bytes of a file after a power cut.
func (k *cloner) crashData(n *node) []byte {
	out := make([]byte, k.crashSize(n))
	copy(out, n.data[:min(len(out), len(n.data))])
	for page := int64(0); page*pageSize < int64(len(out)); page++ {
		from := page * pageSize
		to := min(from+pageSize, int64(len(out)))
		old, changed := n.undo[page]
		grown := to > n.syncedSize
		if !changed && !grown || k.keep() {
			continue
		}
		k.lose(out[from:to], syncedPage(n, page, old, changed))
	}
	return out
}

// syncedPage is the content of a page at the last Sync; bytes past its end were never written.
func syncedPage(n *node, page int64, undo []byte, changed bool) []byte {
	if changed {
		return undo
	}
	end := min((page+1)*pageSize, n.syncedSize, int64(len(n.data)))
	if end <= page*pageSize {
		return nil
	}
	return n.data[page*pageSize : end]
}

// lose puts the synced content back into a page, except, sometimes, for its first sectors: a torn page.
func (k *cloner) lose(page, synced []byte) {
	from := 0
	if k.pct > 0 && k.rng.IntN(2) == 0 {
		from = min(k.rng.IntN(pageSize/sectorSize)*sectorSize, len(page))
	}
	clear(page[from:])
	if from < len(synced) {
		copy(page[from:], synced[from:])
	}
}

// crashSize draws the size: the synced one, the newest, or, for a file that grew, one between.
func (k *cloner) crashSize(n *node) int64 {
	size, synced := int64(len(n.data)), n.syncedSize
	switch {
	case size == synced || k.keep():
		return size
	case size > synced && k.pct > 0 && k.rng.IntN(2) == 0:
		return synced + k.rng.Int64N(size-synced)
	}
	return synced
}

func (k *cloner) copy(n *node) *node {
	if out := k.done[n]; out != nil {
		return out
	}
	out := &node{dir: n.dir, modTime: n.modTime, data: slices.Clone(n.data), syncedSize: n.syncedSize}
	k.done[n] = out
	if !n.dir {
		out.undo = make(map[int64][]byte, len(n.undo))
		for page, b := range n.undo {
			out.undo[page] = slices.Clone(b)
		}
		return out
	}
	out.children, out.synced = k.copyNames(n.children), k.copyNames(n.synced)
	for _, ch := range n.pending {
		out.pending = append(out.pending, k.copyNames(ch))
	}
	return out
}

func (k *cloner) copyNames(names map[string]*node) map[string]*node {
	out := make(map[string]*node, len(names))
	for name, child := range names {
		if child == nil {
			out[name] = nil
		} else {
			out[name] = k.copy(child)
		}
	}
	return out
}
