package coordinator

import (
	"sync"
	"sync/atomic"
	"time"

	"gopherlog/engine/failpoint"
	"gopherlog/engine/record"
)

const (
	defaultLate = 5 * time.Second // by how much no-barrier leaves a table behind
	maxLate     = 1 << 15         // batches; with more, all come to the table at once
)

// late stands between a replica and its table, and lets everything through at once unless a fault is planted: then what a replica hears that
// does not lead comes to its table only some time later, and whoever is elected serves without waiting for it.
type late struct {
	kept
	s *shard

	behind atomic.Int32 // len(held), read without the lock
	mu     sync.Mutex   // guards held; held while the table's own is taken
	held   []heldBatch  // oldest first
}

type heldBatch struct {
	batch record.Batch
	heard time.Time
}

// planted is by how much the table is to be behind; 0: not at all.
func (l *late) planted() time.Duration {
	on, millis := l.s.of.kind.points.Sabotage(failpoint.NoBarrier)
	switch {
	case !on:
		return 0
	case millis > 0:
		return time.Duration(millis) * time.Millisecond
	}
	return defaultLate
}

// Apply takes a committed batch.
func (l *late) Apply(b record.Batch) {
	by := l.planted()
	if by == 0 && l.behind.Load() == 0 {
		l.kept.Apply(b)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	leads, now := l.s.cur.Load() != nil, l.s.of.now()
	if len(l.held) >= maxLate {
		l.let(now)
	} else if !leads || by == 0 {
		l.let(now.Add(-by))
	}
	if by == 0 || leads && len(l.held) == 0 {
		l.kept.Apply(b)
		return
	}
	l.held = append(l.held, heldBatch{append(record.Batch(nil), b...), now})
	l.behind.Store(int32(len(l.held)))
}

// let hands on what was heard until then. mu is held.
func (l *late) let(until time.Time) {
	n := 0
	for n < len(l.held) && !l.held[n].heard.After(until) {
		l.kept.Apply(l.held[n].batch)
		n++
	}
	if n == 0 {
		return
	}
	l.held = append([]heldBatch(nil), l.held[n:]...)
	l.behind.Store(int32(len(l.held)))
}

// catchUp hands on everything.
func (l *late) catchUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.let(l.s.of.now())
}

// Snapshot is of everything that was heard.
func (l *late) Snapshot(dst []byte) []byte {
	l.catchUp()
	return l.kept.Snapshot(dst)
}

// Restore forgets what was heard before.
func (l *late) Restore(state []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = nil
	l.behind.Store(0)
	return l.kept.Restore(state)
}

// barrier comes before a term is loaded: everything committed is in the table when it returns. Planted, it does not wait, and the rest comes
// while the term serves.
func (t *term) barrier() (stop func()) {
	l := t.s.late
	by := l.planted()
	if by == 0 {
		if l.behind.Load() > 0 {
			l.catchUp()
		}
		return func() {}
	}
	timer := time.AfterFunc(by, func() { t.post(l.catchUp) })
	return func() { timer.Stop() }
}
