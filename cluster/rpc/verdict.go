package rpc

import (
	"sync"
	"time"
)

// pingAll pings every connected peer each interval, from one goroutine for
// all: its ticks also say whether this node itself gets to run.
func (n *Node) pingAll() {
	t := time.NewTicker(n.cfg.PingInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			n.ticked()
			n.pingNow()
		case <-n.closing:
			return
		}
	}
}

func (n *Node) pingNow() {
	for _, p := range n.allPeers() {
		if l, _ := p.current(); l != nil {
			l.ping()
		}
	}
}

func (n *Node) ticked() { n.tick.Store(int64(time.Since(n.born))) }

func (n *Node) lastTick() time.Time { return n.born.Add(time.Duration(n.tick.Load())) }

// Alive says whether a node answered pings lately. This node is alive.
func (n *Node) Alive(id NodeID) bool {
	if id == n.cfg.Node {
		return true
	}
	p := n.peer(id)
	return p != nil && p.alive()
}

// ReportsDead returns the nodes that take id for dead: this one, and the peers
// whose last ping, at most a second old, said so.
func (n *Node) ReportsDead(id NodeID) map[NodeID]bool {
	out := make(map[NodeID]bool)
	for _, p := range n.allPeers() {
		switch {
		case p.id == id:
			if p.isDead() {
				out[n.cfg.Node] = true
			}
		case p.saysDead(id):
			out[p.id] = true
		}
	}
	return out
}

// verdict tells the others and the callbacks what this node takes a peer for.
func (n *Node) verdict(id NodeID, alive bool) {
	n.cfg.Logger.Info("peer judged", "peer", id, "alive", alive)
	n.counts.verdictChanges.Add(1)
	n.pingNow() // the others learn it now, not at the next interval
	n.events.add(event{peer: id, alive: alive})
}

func (n *Node) reportChanged(about NodeID) { n.events.add(event{peer: about, report: true}) }

// OnPeerChange calls fn, from one goroutine, whenever this node's verdict on a
// peer changes, in order. It may be called several times, before and after
// Start, and adds a callback each time.
func (n *Node) OnPeerChange(fn func(id NodeID, alive bool)) { n.events.onChange(fn) }

// OnReport calls fn, from the same goroutine, whenever another node's report
// about a peer changes: then ReportsDead may answer anew.
func (n *Node) OnReport(fn func(about NodeID)) { n.events.onReport(fn) }

type event struct {
	peer   NodeID
	alive  bool
	report bool
}

// maxEvents bounds the changes that wait for a slow callback. Beyond it only
// the newest of each peer is kept.
const maxEvents = 1024

// events passes changes to callbacks. Of reports, which say only that something
// changed, at most one per node waits.
type events struct {
	mu      sync.Mutex
	change  []func(NodeID, bool)
	report  []func(NodeID)
	pending []event
	wake    chan struct{}
}

func (e *events) init() { e.wake = make(chan struct{}, 1) }

func (e *events) onChange(fn func(NodeID, bool)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.change = append(e.change, fn)
}

func (e *events) onReport(fn func(NodeID)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.report = append(e.report, fn)
}

func (e *events) add(ev event) {
	e.mu.Lock()
	found := false
	for i := len(e.pending) - 1; i >= 0 && !found && (ev.report || len(e.pending) >= maxEvents); i-- {
		if e.pending[i].peer == ev.peer && e.pending[i].report == ev.report {
			e.pending[i] = ev
			found = true
		}
	}
	if !found {
		e.pending = append(e.pending, ev)
	}
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (e *events) run(stop <-chan struct{}) {
	for {
		select {
		case <-e.wake:
		case <-stop:
			return
		}
		e.mu.Lock()
		pending, change, report := e.pending, e.change, e.report
		e.pending = nil
		e.mu.Unlock()
		for _, ev := range pending {
			if ev.report {
				for _, fn := range report {
					fn(ev.peer)
				}
				continue
			}
			for _, fn := range change {
				fn(ev.peer, ev.alive)
			}
		}
	}
}
