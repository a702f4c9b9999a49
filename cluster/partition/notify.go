package partition

import "slices"

// Waiter is one parked fetch. It may be parked on many partitions; whichever moves first fills C.
type Waiter struct {
	// C receives once when a partition that the waiter was parked on moved or changed its leader.
	C chan struct{}
}

// NewWaiter returns a waiter that is parked nowhere.
func NewWaiter() *Waiter { return &Waiter{C: make(chan struct{}, 1)} }

// Park registers w until the high watermark leaves hw, the leadership of epoch ends, or Unpark. It is one-shot: what fills C
// also removes w. It returns false, without registering, if that has happened already: read again.
func (p *Partition) Park(w *Waiter, hw int64, epoch int32) bool {
	p.waitMu.Lock()
	if !slices.Contains(p.waiters, w) {
		p.waiters = append(p.waiters, w)
	}
	p.parked.Store(int32(len(p.waiters)))
	p.waitMu.Unlock()
	// Registered first, then looked: a move in between is seen here or fills C.
	l := p.lead.Load()
	if p.highWatermark.Load() == hw && l != nil && l.epoch == epoch {
		return true
	}
	p.Unpark(w)
	return false
}

// Unpark forgets w. It may be called at any time, also when w is not parked here.
func (p *Partition) Unpark(w *Waiter) {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	i := slices.Index(p.waiters, w)
	if i < 0 {
		return
	}
	last := len(p.waiters) - 1
	p.waiters[i], p.waiters[last] = p.waiters[last], nil
	p.waiters = p.waiters[:last]
	p.parked.Store(int32(last))
}

// wake fills C of everyone parked here. It does not block.
func (p *Partition) wake() {
	if p.parked.Load() == 0 {
		return
	}
	p.waitMu.Lock()
	waiters := p.waiters
	p.waiters = nil
	p.parked.Store(0)
	p.waitMu.Unlock()
	for _, w := range waiters {
		select {
		case w.C <- struct{}{}:
		default:
		}
	}
}
