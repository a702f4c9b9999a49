package partition

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
)

const (
	// transferTimeout is for how long produce to one partition may pause while its leadership moves.
	transferTimeout = 500 * time.Millisecond
	// drainAtOnce is how many leaderships move side by side when the node leaves.
	drainAtOnce = 16
	// drainPause lies between two passes over what could not be handed over yet.
	drainPause = 20 * time.Millisecond
	// markTimeout is for how long a leaving node tries to commit its mark; without a control leader it goes on unmarked.
	markTimeout = 2 * time.Second
	// memberTimeout bounds one change of membership.
	memberTimeout = 5 * time.Second
)

// dutiesLoop does what leaders owe: give leadership back, keep membership as the image wants it.
func (m *Manager) dutiesLoop() {
	balance := &balancer{m: m, inSync: make(map[*Partition]time.Time)}
	tick := time.NewTicker(m.cfg.BalanceEvery)
	defer tick.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-tick.C:
		}
		if m.draining.Load() {
			continue
		}
		led := m.led()
		parallel(atOnce, len(led), func(i int) { m.reconcileMembers(led[i]) })
		balance.round(led, m.cfg.Now())
	}
}

// led returns the partitions that this node leads.
func (m *Manager) led() []*Partition {
	return slices.DeleteFunc(m.All(), func(p *Partition) bool { return p.lead.Load() == nil })
}

// balancer returns leaderships to preferred replicas at a bounded rate. It belongs to one goroutine.
type balancer struct {
	m      *Manager
	inSync map[*Partition]time.Time // since when the preferred replica is fit to lead
}

func (b *balancer) round(led []*Partition, now time.Time) {
	view := newView(b.m)
	var due []*Partition
	fit := make(map[*Partition]time.Time, len(b.inSync))
	for _, p := range led {
		preferred := p.assigned.Load().Replicas[0]
		if preferred == b.m.node || !view.mayLead(preferred) || !slices.Contains(p.InSyncNodes(), preferred) {
			continue
		}
		since, ok := b.inSync[p]
		if !ok {
			since = now
		}
		fit[p] = since
		if now.Sub(since) >= b.m.cfg.BalanceAfter && len(due) < b.m.cfg.BalanceAtOnce {
			due = append(due, p)
		}
	}
	b.inSync = fit
	parallel(atOnce, len(due), func(i int) {
		b.m.transfer(b.m.ctx, due[i], due[i].assigned.Load().Replicas[0])
	})
	for _, p := range due {
		delete(b.inSync, p) // whatever came of it, wait anew
	}
}

// transfer moves one leadership to a node, pausing produce for transferTimeout at most.
func (m *Manager) transfer(ctx context.Context, p *Partition, to rpc.NodeID) bool {
	voters := p.group.Voters()
	i := slices.IndexFunc(voters, func(s rpc.ServerID) bool { return s.Node() == to })
	if i < 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	if err := p.group.TransferTo(ctx, voters[i]); err != nil {
		m.logger.Debug("transfer leadership", "partition", p.label, "to", to, "error", err)
		return false
	}
	return true
}

// Drain hands all leaderships to other nodes, as far as any is fit for them, and takes none from then on. The mark that
// keeps others from handing them back is committed to the control group first; leadership of that group is not touched.
func (m *Manager) Drain(ctx context.Context) error {
	m.draining.Store(true)
	err := m.markDraining(ctx)
	for ctx.Err() == nil {
		led := m.led()
		v := newView(m)
		var tried atomic.Bool
		parallel(drainAtOnce, len(led), func(i int) {
			if m.handOver(ctx, led[i], v) {
				tried.Store(true)
			}
		})
		if !tried.Load() || !m.sleep(drainPause) {
			break
		}
	}
	return err
}

func (m *Manager) markDraining(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	return m.cfg.Meta.Drain(ctx, m.node)
}

// handOver tries the other replicas in order of assignment. It says whether any was fit to be tried.
func (m *Manager) handOver(ctx context.Context, p *Partition, v *view) (tried bool) {
	fit := p.InSyncNodes()
	for _, node := range p.assigned.Load().Replicas {
		if node == m.node || !v.mayLead(node) || !slices.Contains(fit, node) {
			continue
		}
		tried = true
		if m.transfer(ctx, p, node) {
			return tried
		}
	}
	return tried
}

// reconcileMembers makes the group's members those that the image names: a replica whose disk was replaced leaves under its
// old name, joins under the new one without a vote, and votes once it has caught up. One change at a time.
func (m *Manager) reconcileMembers(p *Partition) {
	want := p.assigned.Load().Servers
	have := p.group.Members()
	change := nextChange(want, have, func(id rpc.ServerID) bool {
		match, _ := p.group.Match(id)
		return match >= p.group.Status().CommitIndex
	})
	if change.id == "" || change.id == m.cfg.Self {
		return
	}
	ctx, cancel := context.WithTimeout(m.ctx, memberTimeout)
	defer cancel()
	var err error
	switch change.kind {
	case removeMember:
		err = p.group.RemoveServer(ctx, change.id)
	case addMember:
		err = p.group.AddNonvoter(ctx, change.id)
	case promoteMember:
		err = p.group.AddVoter(ctx, change.id)
	}
	if errors.Is(err, replica.ErrNotLeader) {
		return
	}
	switch news := m.troubles.news("members "+p.label, err); {
	case news && err != nil:
		m.logger.Warn("change membership", "partition", p.label, "server", change.id, "error", err)
	case err == nil:
		m.logger.Info("membership changed", "partition", p.label, "server", change.id, "change", change.kind)
	}
}

type changeKind string

const (
	removeMember  changeKind = "removed"
	addMember     changeKind = "added without vote"
	promoteMember changeKind = "votes"
)

type memberChange struct {
	kind changeKind
	id   rpc.ServerID
}

// nextChange is the next step from the members that are to those that shall be; no id when there is none.
func nextChange(want []rpc.ServerID, have []replica.Member, caughtUp func(rpc.ServerID) bool) memberChange {
	for _, h := range have {
		if !slices.Contains(want, h.ID) {
			return memberChange{removeMember, h.ID}
		}
	}
	for _, w := range want {
		i := slices.IndexFunc(have, func(h replica.Member) bool { return h.ID == w })
		switch {
		case i < 0:
			return memberChange{addMember, w}
		case !have[i].Voter && caughtUp(w):
			return memberChange{promoteMember, w}
		}
	}
	return memberChange{}
}

// publishEvery is how often the in-sync sets of led partitions are compared with what the image shows.
const publishEvery = time.Second

// publishLoop tells the control group who leads and who is in sync: at once after a change of leader, within a second after
// a change of the in-sync set. The controller repeats it until the image shows it.
func (m *Manager) publishLoop() {
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	for {
		var updates []meta.LeaderUpdate
		select {
		case <-m.stop:
			return
		case <-m.publishKick:
			for p := range m.dirty.take() {
				if u, ok := m.leaderUpdate(p); ok {
					updates = append(updates, u)
				}
			}
		case <-tick.C:
			img := m.cfg.Meta.Image()
			for _, p := range m.led() {
				if u, ok := m.leaderUpdate(p); ok && !shows(img, u) {
					updates = append(updates, u)
				}
			}
		}
		if len(updates) > 0 {
			m.cfg.Meta.PublishLeaders(updates)
		}
	}
}

func (m *Manager) leaderUpdate(p *Partition) (u meta.LeaderUpdate, ok bool) {
	l := p.lead.Load()
	if l == nil {
		return u, false
	}
	isr := p.InSyncNodes()
	slices.Sort(isr)
	return meta.LeaderUpdate{Topic: p.id, Partition: p.number, Leader: m.node, Term: l.epoch, ISR: isr}, true
}

// shows says whether the image has the update or something newer.
func shows(img *meta.Image, u meta.LeaderUpdate) bool {
	pi := img.Partition(u.Topic, u.Partition)
	if pi == nil || pi.Term > u.Term {
		return true
	}
	isr := slices.Clone(pi.ISR)
	slices.Sort(isr)
	return pi.Term == u.Term && pi.Leader == u.Leader && slices.Equal(isr, u.ISR)
}
