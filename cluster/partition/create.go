package partition

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"gopherlog/engine/kv"
	"gopherlog/engine/vfs"
)

// A new replica costs a few syncs, each of which waits for the disk and hardly for a processor. So many are made side by
// side: the file system commits what waits together at once, as does the store, and the directory that holds all of them is
// synced for everybody who waits.

// create makes the directory, unless it was here before: then its replica has voted and acknowledged, and must not come
// back empty under the same name.
func (m *Manager) create(dir string, key slotKey) error {
	if known, err := m.marked(key); err != nil {
		return err
	} else if known {
		return errVanished
	}
	if err := m.mkdir(dir); err != nil {
		return fmt.Errorf("create partition directory: %w", err)
	}
	return writeMetadata(m.cfg.FS, dir, key.id)
}

// mkdir makes a partition's directory, durably.
func (m *Manager) mkdir(dir string) error {
	fs := m.cfg.FS
	root := fs.PathDir(dir)
	if there, err := vfs.Exists(fs, root); err != nil {
		return err
	} else if !there {
		if err := vfs.MkdirAllSync(fs, root); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return m.names.sync(func() error { return vfs.SyncDir(fs, root) })
}

func markKey(key slotKey) []byte { return kv.StableKey(kv.NewGroupKey(key.id, key.number), "created") }

// marked says whether this node has ever opened the replica.
func (m *Manager) marked(key slotKey) (bool, error) {
	_, err := m.cfg.KV.Get(markKey(key))
	if errors.Is(err, kv.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// mark remembers that the replica's log exists. Only then may it vote.
func (m *Manager) mark(key slotKey) error {
	if known, err := m.marked(key); err != nil || known {
		return err
	}
	return m.cfg.KV.Set(markKey(key), []byte{1}, true)
}

// together merges calls of something that serves all who asked before it began.
type together struct {
	mu      sync.Mutex
	running bool
	next    *syncRound // whoever asks while one runs; nil if nobody did
}

type syncRound struct {
	done chan struct{}
	err  error
}

// sync returns when a run of do that began after the call has ended.
func (t *together) sync(do func() error) error {
	t.mu.Lock()
	r := t.next
	if r == nil {
		r = &syncRound{done: make(chan struct{})}
		t.next = r
	}
	if t.running {
		t.mu.Unlock()
		<-r.done
		return r.err
	}
	t.running = true
	for t.next != nil {
		one := t.next
		t.next = nil
		t.mu.Unlock()
		one.err = do()
		close(one.done)
		t.mu.Lock()
	}
	t.running = false
	t.mu.Unlock()
	return r.err
}
