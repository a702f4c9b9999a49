package partition

import (
	"maps"
	"slices"
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
	// startWindow is for how long after its opening a replica counts as just started.
	startWindow = 5 * time.Second
	// lull is how long a group that was led may be without a leader: an ordinary election takes a few milliseconds.
	lull = 50 * time.Millisecond
	// freshPatience multiplies the head starts in a new group: its first replica may still be creating many others.
	freshPatience = 4
	// busyPatience is for how long another replica's campaign is waited for: on busy cores an election is slow.
	busyPatience = time.Second
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
// Surviving replicas have their turn in order of assignment, each a head start after the one before. Whoever has its turn
// asks the others how long their logs are, and lets the longest campaign.
//
// A leader to whom a majority of the voters is dead commits nothing, and the others follow another one by now. It steps down at
// once, long before its lease ends, so that its clients look elsewhere. It leads again only when a majority elects it.
//
// A replica whose storage failed or does not return leads nobody either, but its node answers pings, so the others would believe in it
// for seconds. It asks the one with the longest log to campaign, unless somebody else leads.

// election is what the elector remembers of an undecided group.
type election struct {
	orphan   bool      // its leader's node is dead
	since    time.Time // undecided since
	campaign time.Time // last one
}

// elector decides who campaigns. It belongs to one goroutine.
//
// When a node dies hundreds of groups change at once, and each change several times. So it looks at all groups only when a node died or
// came back, and once in electIdle; at the undecided ones every electEvery; and otherwise at those that changed.
type elector struct {
	m     *Manager
	open  map[*Partition]*election
	unfit map[*Partition]time.Time // replicas that cannot lead, and when another was asked to
	alone map[*Partition]uint64    // leaders that were told to step down, and their term

	all, some time.Time // last look at all groups, and at all undecided ones
}

// lookAt tells the elector that the leadership of p may have become undecided, or decided.
func (m *Manager) lookAt(p *Partition) { m.unled.add(p); kick(m.electKick) }

// lookAtAll tells it that this may be so of any group.
func (m *Manager) lookAtAll() { m.lookAll.Store(true); kick(m.electKick) }

func newElector(m *Manager) *elector {
	return &elector{m: m, open: make(map[*Partition]*election), unfit: make(map[*Partition]time.Time), alone: make(map[*Partition]uint64)}
}

func (m *Manager) electLoop() {
	e := newElector(m)
	timer := time.NewTimer(electIdle)
	defer timer.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-m.electKick:
		case <-timer.C:
		}
		timer.Reset(e.wake(m.cfg.Now()))
	}
}

// wake looks at what may have changed and returns when to look again.
func (e *elector) wake(now time.Time) time.Duration {
	changed := e.m.unled.take()
	if e.m.lookAll.Swap(false) || now.Sub(e.all) >= electIdle {
		return e.round(now)
	}
	groups := slices.Collect(maps.Keys(changed))
	if now.Sub(e.some) >= electEvery {
		e.some = now
		for p := range e.open {
			if _, too := changed[p]; !too {
				groups = append(groups, p)
			}
		}
	}
	e.look(groups, now)
	return e.next()
}

// round looks at every group once and returns when to look again.
func (e *elector) round(now time.Time) time.Duration {
	e.all, e.some = now, now
	all := e.m.All()
	e.look(all, now)
	removed := func(p *Partition) bool { return !slices.Contains(all, p) }
	maps.DeleteFunc(e.open, func(p *Partition, _ *election) bool { return removed(p) })
	maps.DeleteFunc(e.unfit, func(p *Partition, _ time.Time) bool { return removed(p) })
	maps.DeleteFunc(e.alone, func(p *Partition, _ uint64) bool { return removed(p) })
	return e.next()
}

func (e *elector) next() time.Duration {
	if len(e.open) > 0 && !e.m.draining.Load() {
		return electEvery
	}
	return electIdle
}

// look decides about these groups.
func (e *elector) look(groups []*Partition, now time.Time) {
	if len(groups) == 0 || e.m.draining.Load() {
		return
	}
	v := newView(e.m)
	var due, unfit []*Partition
	givenUp := 0
	for _, p := range groups {
		st := p.group.Status()
		if st.Failed != nil || st.Stalled {
			if now.Sub(e.unfit[p]) >= againAfter {
				e.unfit[p] = now
				unfit = append(unfit, p)
			}
			delete(e.open, p)
			continue
		}
		delete(e.unfit, p)
		if st.Role == replica.Leader && v.alone(p) {
			p.group.StepDown()
			if e.alone[p] != st.Term { // once, also if it takes its time
				e.alone[p] = st.Term
				givenUp++
			}
		}
		orphan, undecided := v.undecided(st)
		if !undecided {
			delete(e.open, p)
			continue
		}
		el := e.open[p]
		if el == nil || el.orphan != orphan {
			el = &election{orphan: orphan, since: now}
			e.open[p] = el
		}
		if e.turn(p, el, v, now) {
			due = append(due, p)
		}
	}
	if givenUp > 0 {
		e.m.logger.Warn("a majority of their voters does not answer, leaderships given up", "partitions", givenUp)
	}
	answers := v.askAll(slices.Concat(due, unfit))
	for _, p := range due {
		e.decide(p, e.open[p], answers[p], v, now)
	}
	for _, p := range unfit {
		e.handOver(p, answers[p], v)
	}
}

// handOver asks the replica with the longest log to campaign in place of this one, if nobody leads and a majority could follow it.
func (e *elector) handOver(p *Partition, answers []answer, v *view) {
	var best answer
	there := 0
	for _, a := range answers {
		switch {
		case !a.held:
			continue
		case a.leads, a.led, a.busy:
			return
		}
		there++
		if v.mayLead(a.server.Node()) && (best.server == "" || a.longer(best)) {
			best = a
		}
	}
	if best.server != "" && there >= majority(len(p.group.Voters())) {
		e.m.ask(best.server, p)
	}
}

// decide lets the replica with the longest log campaign, if a majority may follow it: this one in case of a tie. A shorter
// log could not win, and its campaign would only depose who can.
func (e *elector) decide(p *Partition, el *election, answers []answer, v *view, now time.Time) {
	best := answer{server: e.m.cfg.Self, lastTerm: p.log.LastTerm(), lastIndex: p.log.LastIndex()}
	without, there := 1, 1
	for _, a := range answers {
		if !a.held {
			continue
		}
		if a.leads {
			return // it won a moment ago, and this replica has not heard from it yet: a campaign would depose it
		}
		there++
		if a.busy && now.Sub(el.since) < busyPatience {
			return // two campaigns at once would cost each other the votes
		}
		if !a.led {
			without++
		}
		if a.longer(best) && v.mayLead(a.server.Node()) {
			best = a
		}
	}
	need := majority(len(p.group.Voters()))
	if there < need || !el.orphan && without < need {
		return // on busy cores an answer may be late: who does not answer now does not vote in time either
	}
	if best.server != e.m.cfg.Self {
		el.campaign = now
		e.m.ask(best.server, p)
		return
	}
	if err := p.group.Campaign(); err != nil {
		e.m.logger.Debug("campaign", "partition", p.label, "error", err) // tried again in the next round
		return
	}
	el.campaign = now
}

// ask makes another replica campaign, without waiting for it.
func (m *Manager) ask(server rpc.ServerID, p *Partition) {
	m.wg.Go(func() {
		if err := m.net.TimeoutNow(p.groupID(), server); err != nil {
			m.logger.Debug("ask to campaign", "partition", p.label, "server", server, "error", err)
		}
	})
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
	case p.fresh && p.applied.Load() == 0:
		wait *= freshPatience
	case now.Sub(p.opened) < startWindow:
		wait += e.m.cfg.StartGrace
	default:
		wait += lull
	}
	return now.Sub(el.since) >= wait
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

// alone says whether so many voters are dead to this node that the others are no majority.
func (v *view) alone(p *Partition) bool {
	if !v.somebodyDead() {
		return false
	}
	voters := p.group.Voters()
	reached := 0
	for _, s := range voters {
		if !v.isDead(s.Node()) {
			reached++
		}
	}
	return reached < majority(len(voters))
}

// somebodyDead spares the healthy cluster a look at every group's voters.
func (v *view) somebodyDead() bool {
	for id := range v.img.Brokers {
		if v.isDead(id) {
			return true
		}
	}
	return false
}

// isDead is this node's own verdict; a node that was never heard of has none.
func (v *view) isDead(node rpc.NodeID) bool { return node != v.m.node && v.reports(node)[v.m.node] }

// reports returns who takes the node for dead, this node included, as it was when first asked for.
func (v *view) reports(node rpc.NodeID) map[rpc.NodeID]bool {
	by := v.dead[node]
	if by == nil {
		by = maps.Clone(v.m.net.ReportsDead(node))
		if by == nil {
			by = make(map[rpc.NodeID]bool)
		}
		v.dead[node] = by
	}
	return by
}

// deadFor says whether a majority of voters reports the node dead.
func (v *view) deadFor(node rpc.NodeID, voters []rpc.ServerID) bool {
	by := v.reports(node)
	n := 0
	for _, voter := range voters {
		if voter.Node() != node && (by[voter.Node()] || voter.Node() == v.m.node && !v.m.net.Alive(node)) {
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
