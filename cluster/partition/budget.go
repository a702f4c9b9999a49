package partition

import (
	"sync"
	"time"
)

const (
	// PartitionBudget bounds the batches of one partition that are queued or in flight. It must not exceed the
	// transport's own budget per peer, or a burst would be shipped in pieces that wait for each other.
	PartitionBudget = 16 << 20
	// minCharge makes the same number bound the count: 16 MiB / 4 KiB = 4,096 batches.
	minCharge = 4 << 10
	// DefaultProduceBudget bounds the same for the whole node.
	DefaultProduceBudget = 256 << 20
)

// Budget is a number of bytes that waiting work may hold. Whoever finds it used up waits: that is the back-pressure which a
// connection passes on to its client by not reading.
type Budget struct {
	mu    sync.Mutex
	limit int64
	used  int64
	freed chan struct{} // closed and replaced when bytes come free; nil without waiters
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Used is what is taken.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// take charges n bytes, waiting until they are there, the deadline passes (false), or stop closes (false). More than the
// whole budget is admitted when nothing else is charged. A zero deadline never passes.
func (b *Budget) take(n int64, deadline time.Time, now func() time.Time, stop <-chan struct{}) bool {
	wait := b.tryTake(n)
	if wait == nil {
		return true
	}
	var expired <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(deadline.Sub(now()))
		defer timer.Stop()
		expired = timer.C
	}
	for wait != nil {
		select {
		case <-wait:
		case <-expired:
			return false
		case <-stop:
			return false
		}
		wait = b.tryTake(n)
	}
	return true
}

func (b *Budget) tryTake(n int64) (wait <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n <= b.limit || b.used == 0 {
		b.used += n
		return nil
	}
	if b.freed == nil {
		b.freed = make(chan struct{})
	}
	return b.freed
}

func (b *Budget) give(n int64) {
	b.mu.Lock()
	b.used -= n
	freed := b.freed
	b.freed = nil
	b.mu.Unlock()
	if freed != nil {
		close(freed)
	}
}
