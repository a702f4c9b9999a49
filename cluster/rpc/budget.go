package rpc

import (
	"sync"
	"time"
)

// budget bounds bytes that are held at once. A single demand above the limit
// is charged as the limit, so it is served when nothing else is held.
type budget struct {
	limit int64

	mu    sync.Mutex
	held  int64
	freed chan struct{} // closed at the next release; nil when nobody waits
}

func newBudget(limit int64) *budget { return &budget{limit: limit} }

// acquire waits at most d for n bytes and returns what release must give
// back; ok is false when they did not come free or stop was closed.
func (b *budget) acquire(n int64, stop <-chan struct{}, d time.Duration) (charged int64, ok bool) {
	n = min(n, b.limit)
	var timer *time.Timer
	for {
		b.mu.Lock()
		if b.held+n <= b.limit {
			b.held += n
			b.mu.Unlock()
			if timer != nil {
				timer.Stop()
			}
			return n, true
		}
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed := b.freed
		b.mu.Unlock()
		if timer == nil {
			timer = time.NewTimer(d)
		}
		select {
		case <-freed:
		case <-stop:
			timer.Stop()
			return 0, false
		case <-timer.C:
			return 0, false
		}
	}
}

func (b *budget) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
	if b.held < 0 {
		panic("rpc: budget released more than was acquired")
	}
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}
