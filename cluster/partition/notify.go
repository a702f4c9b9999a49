package partition

import "slices"

// Waiter is whoever waits for something of a partition: a parked fetch, or requests that meet it between leaders. It may be parked on many
// partitions; whichever moves first fills C.
type Waiter struct {
	// C receives once when a partition that the waiter was parked on moved or changed its leader.
	C chan struct{}
}

// NewWaiter returns a waiter that is parked nowhere.
func NewWaiter() *Waiter { return &Waiter{C: make(chan struct{}, 1)} }

// place is a waiter in a partition.
type place struct {
	w     *Waiter
	until until
}

// until is what a waiter waits for.
type until uint8

const (
	forRecords   until = iota // the high watermark moves
	forCommitted              // the last stable offset moves
	forLeader                 // who leads, or in which term, or whether it serves
)

// news is what happened to a partition.
type news uint8

const (
	recordsCame news = iota // the high watermark moved
	stableMoved             // and the last stable offset with it
	leadHeard               // something was heard of who leads, here that changed nothing
	leadChanged             // this replica begins or ceases to serve
)

// concern says whether a waiter wants to know.
func (n news) concern(u until) bool {
	switch n {
	case recordsCame:
		return u == forRecords
	case stableMoved:
		return u != forLeader
	case leadHeard:
		return u == forLeader
	}
	return true
}

// Park registers w until the end of what its reader may see leaves end, the leadership of epoch ends, or Unpark. That end is the high
// watermark, or with ReadCommitted the last stable offset: such a reader is not woken by what an open transaction hides from it. It is
// one-shot: what fills C also removes w. It returns false, without registering, if that has happened already: read again.
func (p *Partition) Park(w *Waiter, end int64, epoch int32, isolation int8) bool {
	if isolation == ReadCommitted {
		p.register(w, forCommitted)
	} else {
		p.register(w, forRecords)
	}
	// Registered first, then looked: a move in between is seen here or fills C.
	l := p.lead.Load()
	if p.end(isolation) == end && l != nil && l.epoch == epoch {
		return true
	}
	p.Unpark(w)
	return false
}

// register makes w wait here, whatever it waited for before.
func (p *Partition) register(w *Waiter, u until) {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	if i := p.placeOf(w); i >= 0 {
		p.waiters[i].until = u
	} else {
		p.waiters = append(p.waiters, place{w, u})
	}
	p.parked.Store(int32(len(p.waiters)))
}

// Unpark forgets w. It may be called at any time, also when w is not parked here.
func (p *Partition) Unpark(w *Waiter) {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	i := p.placeOf(w)
	if i < 0 {
		return
	}
	last := len(p.waiters) - 1
	p.waiters[i], p.waiters[last] = p.waiters[last], place{}
	p.waiters = p.waiters[:last]
	p.parked.Store(int32(last))
}

// placeOf is where w stands; waitMu is held.
func (p *Partition) placeOf(w *Waiter) int {
	return slices.IndexFunc(p.waiters, func(x place) bool { return x.w == w })
}

// wake fills C of everyone parked here. It does not block.
func (p *Partition) wake() { p.tell(leadChanged) }

// wakeReaders fills C of those who wait for records; unless the last stable offset moved, readers of committed stay.
func (p *Partition) wakeReaders(stable bool) {
	if stable {
		p.tell(stableMoved)
	} else {
		p.tell(recordsCame)
	}
}

// wakeLeaderless fills C of those who wait for a leader.
func (p *Partition) wakeLeaderless() { p.tell(leadHeard) }

// tell fills C of all whom n concerns, and forgets them.
func (p *Partition) tell(n news) {
	if p.parked.Load() == 0 {
		return
	}
	var stay []place
	p.waitMu.Lock()
	waiters := p.waiters
	for _, x := range waiters {
		if !n.concern(x.until) {
			stay = append(stay, x)
		}
	}
	p.waiters = stay
	p.parked.Store(int32(len(stay)))
	p.waitMu.Unlock()
	for _, x := range waiters {
		if !n.concern(x.until) {
			continue
		}
		select {
		case x.w.C <- struct{}{}:
		default:
		}
	}
}
