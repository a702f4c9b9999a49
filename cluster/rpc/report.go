package rpc

import "time"

// reportAge is how long a peer's report counts.
const reportAge = time.Second

// report is whom a node takes for dead, and its place among all that this node
// tells: the order of the telling, not of the arrival.
type report struct {
	dead        []int32
	incarnation uint64 // of the reporter; zero from one that gives no order
	order       uint64
}

// report takes its place before it looks. So what has a higher one has looked
// later, and whoever keeps the highest cannot be told backwards.
func (n *Node) report() report {
	r := report{incarnation: uint64(n.born.UnixNano()), order: n.reported.Add(1)}
	for _, p := range n.allPeers() {
		if p.isDead() {
			r.dead = append(r.dead, int32(p.id))
		}
	}
	return r
}

// reports is the newest report of one peer.
type reports struct {
	dead        map[NodeID]bool
	incarnation uint64
	order       uint64
	at          time.Time
}

// take replaces the report by a newer one and says about whom the word changed.
// A peer that restarts begins a new incarnation. Incarnations are readings of a
// wall clock: one below the known is what an old connection still held, unless
// the known one has been silent so long that its word counts no more.
func (r *reports) take(now time.Time, next report) (changed []NodeID) {
	switch {
	case next.incarnation == 0: // gives no order
	case next.incarnation == r.incarnation:
		if next.order <= r.order {
			return nil
		}
	case next.incarnation < r.incarnation && now.Sub(r.at) < reportAge:
		return nil
	}
	dead := make(map[NodeID]bool, len(next.dead))
	for _, id := range next.dead {
		dead[NodeID(id)] = true
		if !r.dead[NodeID(id)] {
			changed = append(changed, NodeID(id))
		}
	}
	for id := range r.dead {
		if !dead[id] {
			changed = append(changed, id)
		}
	}
	*r = reports{dead: dead, incarnation: next.incarnation, order: next.order, at: now}
	return changed
}

// says whether the report, if recent, names id.
func (r *reports) says(now time.Time, id NodeID) bool {
	return r.dead[id] && now.Sub(r.at) < reportAge
}

// took takes over whom the peer reports dead.
func (p *peer) took(r report) {
	p.mu.Lock()
	changed := p.reports.take(time.Now(), r)
	p.mu.Unlock()
	for _, id := range changed {
		p.node.reportChanged(id)
	}
}

// saysDead says whether the peer's last report, if recent, names id.
func (p *peer) saysDead(id NodeID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reports.says(time.Now(), id)
}
