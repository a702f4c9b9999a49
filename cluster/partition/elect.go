package partition

import (
	"context"
	"slices"
	"sync"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
)

const (
	// electEvery is how often undecided groups are looked at again; electIdle when all are led.
	electEvery = 20 * time.Millisecond
	electIdle  = time.Second
	// againAfter is how long a campaign may take before the replica tries again.
	againAfter = 500 * time.Millisecond
	// freshPatience multiplies the head starts in a new group: its first replica may still be creating many others.
	freshPatience = 4
	// askTimeout bounds one question to one peer.
	askTimeout = 200 * time.Millisecond
)

// Raft's timers are calm, so a group without a leader would wait for seconds. Instead a replica campaigns at once when it is
// its turn, which skips pre-vote and the voters' loyalty to a leader; so it does that only when a majority of the group's
// voters is known to have no leader:
//
//   - the leader's node is dead by the reports of a majority of the voters (a node cut off from one peer only, or two busy
//     cores, must not move leadership), or
//   - no leader is known here, and a majority of the voters, asked, knows none either (a new group, or one restarted).
//
// Surviving replicas have their turn in order of assignment, each a head start after the one before.

// election is what the elector remembers of an undecided group.
type election struct {
	orphan   bool      // its leader's node is dead
	since    time.Time // undecided since
	campaign time.Time // last one
}

// elector decides who campaigns. It belongs to one goroutine.
type elector struct {
	m    *Manager
	open map[*Partition]*election
}

func (m *Manager) electLoop() {
	e := &elector{m: m, open: make(map[*Partition]*election)}
	timer := time.NewTimer(electIdle)
	defer timer.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-m.electKick:
		case <-timer.C:
		}
		timer.Reset(e.round(m.cfg.Now()))
	}
}

// round looks at every group once and returns when to look again.
func (e *elector) round(now time.Time) time.Duration {
	if e.m.draining.Load() {
		return electIdle
	}
	view := newView(e.m)
	var ask []*Partition
	seen := make(map[*Partition]bool)
	for _, p := range e.m.All() {
		st := p.group.Status()
		orphan, undecided := view.undecided(st)
		if !undecided {
			continue
		}
		seen[p] = true
		el := e.open[p]
		if el == nil || el.orphan != orphan {
			el = &election{orphan: orphan, since: now}
			e.open[p] = el
		}
		if !e.turn(p, el, view, now) {
			continue
		}
		if orphan {
			e.campaign(p, el, now)
		} else {
			ask = append(ask, p)
		}
	}
	for p := range e.open {
		if !seen[p] {
			delete(e.open, p)
		}
	}
	for _, p := range view.leaderless(ask) {
		if el := e.open[p]; el != nil {
			e.campaign(p, el, now)
		}
	}
	if len(e.open) > 0 {
		return electEvery
	}
	return electIdle
}

// turn says whether this replica may campaign now: it votes, the ones before it have had their head start, its last
// campaign is over, and a reopened group has had time to hear its leader.
func (e *elector) turn(p *Partition, el *election, v *view, now time.Time) bool {
	if now.Sub(el.campaign) < againAfter {
		return false
	}
	rank, ok := v.rank(p)
	if !ok {
		return false
	}
	wait := time.Duration(rank) * e.m.cfg.SuccessionDelay
	switch {
	case el.orphan:
	case p.fresh:
		wait *= freshPatience
	default:
		wait += e.m.cfg.StartGrace
	}
	return now.Sub(el.since) >= wait
}

func (e *elector) campaign(p *Partition, el *election, now time.Time) {
	if err := p.group.Campaign(); err != nil {
		e.m.logger.Debug("campaign", "partition", p.label, "error", err) // tried again in the next round
		return
	}
	el.campaign = now
}

// view is what this node knows about the others during one round.
type view struct {
	m    *Manager
	img  *meta.Image
	dead map[rpc.NodeID]map[rpc.NodeID]bool // node -> who reports it dead, this node included
}

func newView(m *Manager) *view {
	return &view{m: m, img: m.cfg.Meta.Image(), dead: make(map[rpc.NodeID]map[rpc.NodeID]bool)}
}

// undecided says whether the group needs somebody to campaign: its leader's node is not alive (orphan), or none is known.
func (v *view) undecided(st replica.Status) (orphan, yes bool) {
	switch {
	case st.Role == replica.Leader, st.Role == replica.Stopped, st.Suspect, st.Failed != nil:
		return false, false
	case st.Leader == "":
		return false, true
	case st.Leader.Node() == v.m.node:
		return false, false
	case v.m.net.Alive(st.Leader.Node()):
		return false, false
	}
	return true, true
}

// deadFor says whether a majority of voters reports the node dead.
func (v *view) deadFor(node rpc.NodeID, voters []rpc.ServerID) bool {
	by := v.dead[node]
	if by == nil {
		by = make(map[rpc.NodeID]bool)
		for reporter, dead := range v.m.net.ReportsDead(node) {
			by[reporter] = dead
		}
		by[v.m.node] = !v.m.net.Alive(node)
		v.dead[node] = by
	}
	n := 0
	for _, voter := range voters {
		if voter.Node() != node && by[voter.Node()] {
			n++
		}
	}
	return n >= majority(len(voters))
}

func majority(n int) int { return n/2 + 1 }

// rank is how many replicas have their turn before this one; ok is false if it does not vote, or if the leader's node is
// dead to this node alone.
func (v *view) rank(p *Partition) (rank int, ok bool) {
	voters := p.group.Voters()
	if !slices.Contains(voters, v.m.cfg.Self) {
		return 0, false
	}
	if leader := p.group.Status().Leader; leader != "" && !v.deadFor(leader.Node(), voters) {
		return 0, false
	}
	for _, node := range p.assigned.Load().Replicas {
		if node == v.m.node {
			return rank, true
		}
		if v.mayLead(node) && hasNode(voters, node) {
			rank++
		}
	}
	return rank, true
}

// mayLead says whether a node is alive and not leaving.
func (v *view) mayLead(node rpc.NodeID) bool {
	if b := v.img.Brokers[node]; b != nil && !b.Eligible() {
		return false
	}
	return node == v.m.node || v.m.net.Alive(node)
}

func hasNode(servers []rpc.ServerID, node rpc.NodeID) bool {
	return slices.ContainsFunc(servers, func(s rpc.ServerID) bool { return s.Node() == node })
}

// leaderless returns those groups of which a majority of the voters, this one included, holds a replica and knows no leader.
func (v *view) leaderless(groups []*Partition) []*Partition {
	if len(groups) == 0 {
		return nil
	}
	without := make(map[rpc.GroupID]int, len(groups))
	var mu sync.Mutex
	peers := v.peersOf(groups)
	parallel(len(peers), len(peers), func(i int) {
		for _, id := range v.ask(peers[i], groups) {
			mu.Lock()
			without[id]++
			mu.Unlock()
		}
	})
	var out []*Partition
	for _, p := range groups {
		if 1+without[p.groupID()] >= majority(len(p.group.Voters())) {
			out = append(out, p)
		}
	}
	return out
}

func (v *view) peersOf(groups []*Partition) []rpc.NodeID {
	var peers []rpc.NodeID
	for _, p := range groups {
		for _, s := range p.group.Voters() {
			if n := s.Node(); n != v.m.node && !slices.Contains(peers, n) && v.m.net.Alive(n) {
				peers = append(peers, n)
			}
		}
	}
	return peers
}

// ask returns the groups for which a peer votes and knows no leader.
func (v *view) ask(peer rpc.NodeID, groups []*Partition) []rpc.GroupID {
	byID := make(map[rpc.GroupID]*Partition, len(groups))
	var ids []rpc.GroupID
	for _, p := range groups {
		if hasNode(p.group.Voters(), peer) {
			byID[p.groupID()] = p
			ids = append(ids, p.groupID())
		}
	}
	ctx, cancel := context.WithTimeout(v.m.ctx, askTimeout)
	defer cancel()
	answers, err := v.m.net.WhoLeads(ctx, peer, ids)
	if err != nil {
		return nil
	}
	var without []rpc.GroupID
	for _, a := range answers {
		if byID[a.Group] != nil && a.Leader == "" {
			without = append(without, a.Group)
		}
	}
	return without
}

func (p *Partition) groupID() rpc.GroupID { return rpc.GroupID{Topic: p.id, Partition: p.number} }
