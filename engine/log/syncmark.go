package log

import "sync/atomic"

// syncMark says whether something was written since its last finished sync. A sync that another goroutine
// has begun does not count until it is done.
type syncMark struct{ writes, synced atomic.Uint64 }

// wrote counts a write; call it after the write and before anybody relies on it.
func (m *syncMark) wrote() { m.writes.Add(1) }

func (m *syncMark) dirty() bool { return m.synced.Load() < m.writes.Load() }

// run calls sync if anything was written that no finished sync covers.
func (m *syncMark) run(sync func() error) error {
	w := m.writes.Load()
	if m.synced.Load() >= w {
		return nil
	}
	if err := sync(); err != nil {
		return err
	}
	for {
		old := m.synced.Load()
		if old >= w || m.synced.CompareAndSwap(old, w) {
			return nil
		}
	}
}
