package log

import (
	"sync"

	"gopherlog/engine/vfs"
)

// Committer is the node's door to fdatasync: at most n run at once, which lets the file system's journal
// commit them together, and callers that want the same file synced share a call that has not begun yet.
// There is no goroutine behind it.
type Committer struct {
	slots chan struct{}

	mu      sync.Mutex
	waiting map[vfs.File]*commit
}

// commit is one sync to come; done is closed when err is set.
type commit struct {
	done chan struct{}
	err  error
}

// NewCommitter returns a committer that runs up to n syncs at once (at least one).
func NewCommitter(n int) *Committer {
	return &Committer{slots: make(chan struct{}, max(n, 1)), waiting: map[vfs.File]*commit{}}
}

// Sync returns when everything written to f before the call is durable. A nil committer syncs directly.
func (c *Committer) Sync(f vfs.File) error {
	if c == nil {
		return f.SyncData()
	}
	c.mu.Lock()
	if w := c.waiting[f]; w != nil {
		c.mu.Unlock()
		<-w.done
		return w.err
	}
	w := &commit{done: make(chan struct{})}
	c.waiting[f] = w
	c.mu.Unlock()

	c.slots <- struct{}{}
	c.mu.Lock()
	delete(c.waiting, f) // who comes from here on may have written after the sync began
	c.mu.Unlock()
	w.err = f.SyncData()
	<-c.slots
	close(w.done)
	return w.err
}
