package rpc

import (
	"sync"
	"sync/atomic"
	"time"
)

// rests wakes the requests of an idle group that wait for something to say.
type rests struct {
	resting atomic.Int32 // who waits, or is about to

	mu   sync.Mutex
	wake chan struct{} // closed and replaced by Appended; nil until somebody waits
}

// enter returns a channel that is closed when the log grows from now on. leave must follow.
func (r *rests) enter() <-chan struct{} {
	r.resting.Add(1) // first: whoever appends after this sees it
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wake == nil {
		r.wake = make(chan struct{})
	}
	return r.wake
}

func (r *rests) leave() { r.resting.Add(-1) }

// Appended ends the rest of the group's requests.
func (g *group) Appended() {
	r := &g.rests
	if r.resting.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wake != nil {
		close(r.wake)
		r.wake = nil
	}
}

// restTick is what rests end on. Those of all groups then end together, so that a
// node with a thousand idle groups is woken a few times a second, not a thousand
// times: waking costs more than what is then done.
const restTick = 250 * time.Millisecond

// restUntil returns how long a rest that begins now may last: at most d, and until
// a tick that it shares with others if d has room for one.
func (n *Node) restUntil(d time.Duration) time.Duration {
	if d < 2*restTick {
		return d
	}
	now := time.Since(n.born)
	return (now + d).Truncate(restTick) - now
}

// idle waits until limit, but no longer than the group has nothing to say in
// term: until the log has grown (if grown is given), a newer term shows, closed
// is closed or the group is aborted.
func (g *group) idle(limit <-chan time.Time, term uint64, closed <-chan struct{}, grown func() bool) {
	newer, err := g.outdated(term)
	if err != nil {
		return
	}
	var wake <-chan struct{}
	if grown != nil {
		wake = g.rests.enter()
		defer g.rests.leave()
		if grown() {
			return
		}
	}
	select {
	case <-limit:
	case <-wake:
	case <-newer:
	case <-closed:
	case <-g.aborted:
	}
}
