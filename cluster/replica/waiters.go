package replica

import (
	"sync"
	"sync/atomic"

	"gopherlog/cluster/rpc"
)

// waiters wait until enough replicas hold an index. Few exist: only topics
// whose min.insync.replicas is above the majority need them.
type waiters struct {
	count atomic.Int32 // spares the lock on the transport's path
	mu    sync.Mutex
	list  map[*waiter]struct{}
}

type waiter struct {
	n     int
	index uint64
	fn    func(error)
}

// WaitCommittedOn calls fn once: with nil when n voters, this one included,
// hold index; with ErrLost when this replica stops leading. It is meant for an
// index that is committed. cancel makes sure that fn is not called afterwards,
// unless it is being called.
func (g *Group) WaitCommittedOn(n int, index uint64, fn func(error)) (cancel func()) {
	w := &waiter{n: n, index: index, fn: fn}
	g.waiters.add(w)
	g.wakeWaiters()
	if term, _ := g.leading(); term == 0 {
		g.waiters.fail(ErrLost)
	}
	return func() { g.waiters.take(w) }
}

// onMatched is the transport's news of a peer's match index.
func (g *Group) onMatched(rpc.ServerID, uint64) {
	if g.waiters.count.Load() > 0 {
		g.wakeWaiters()
	}
}

// wakeWaiters completes those whose index enough replicas hold.
func (g *Group) wakeWaiters() {
	match := make([]uint64, 0, 8)
	for _, id := range g.voters() {
		if id == g.self {
			match = append(match, g.log.LastIndex())
			continue
		}
		m, _ := g.node.Match(g.id, id)
		match = append(match, m)
	}
	for _, w := range g.waiters.reached(match) {
		w.fn(nil)
	}
}

func (ws *waiters) add(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.list == nil {
		ws.list = make(map[*waiter]struct{})
	}
	ws.list[w] = struct{}{}
	ws.count.Add(1)
}

// take removes w and reports whether it was still waiting.
func (ws *waiters) take(w *waiter) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	_, ok := ws.list[w]
	if ok {
		delete(ws.list, w)
		ws.count.Add(-1)
	}
	return ok
}

// reached takes the waiters that the match indexes satisfy.
func (ws *waiters) reached(match []uint64) (out []*waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.list {
		have := 0
		for _, m := range match {
			if m >= w.index {
				have++
			}
		}
		if have >= w.n {
			out = append(out, w)
			delete(ws.list, w)
			ws.count.Add(-1)
		}
	}
	return out
}

// fail ends all waiters.
func (ws *waiters) fail(err error) {
	if ws.count.Load() == 0 {
		return
	}
	ws.mu.Lock()
	out := ws.list
	ws.list = nil
	ws.count.Add(int32(-len(out)))
	ws.mu.Unlock()
	for w := range out {
		w.fn(err)
	}
}
