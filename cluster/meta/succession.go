package meta

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"gopherlog/cluster/rpc"
)

const (
	// successionIdle is how often the control leader is looked for while nothing seems wrong; changes of peers' state are looked at
	// at once. successionLook is the same while nobody leads.
	successionIdle, successionLook = 500 * time.Millisecond, 50 * time.Millisecond
	// headStart is how much longer each further voter waits for its turn, by node id.
	headStart = 150 * time.Millisecond
	// askAgain is the pause between two rounds of questions, campaignAgain between two campaigns.
	askAgain, campaignAgain = 100 * time.Millisecond, 500 * time.Millisecond
	askTimeout              = 200 * time.Millisecond
)

// succession finds the control group a leader sooner than Raft's timers, which stay as the fallback. To campaign at once skips
// pre-vote and the voters' loyalty to a leader, so that needs the word of a majority of voters: that the leader's node is dead, or, if
// this node knows no leader, that they know none either. It belongs to one goroutine.
type succession struct {
	c                      *Controller
	since, asked, campaign time.Time // without a leader since; last questions; last campaign
}

func (c *Controller) succeed() {
	c.cfg.Node.OnPeerChange(func(NodeID, bool) { c.stir() })
	c.cfg.Node.OnReport(func(NodeID) { c.stir() })
	s := &succession{c: c}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.stirred:
		case <-timer.C:
		case <-c.ctx.Done():
			return
		}
		timer.Reset(s.round(time.Now()))
	}
}

// stir makes the succession look at once.
func (c *Controller) stir() {
	select {
	case c.stirred <- struct{}{}:
	default:
	}
}

// round looks once and says when to look again.
func (s *succession) round(now time.Time) time.Duration {
	ctl := s.c.controlGroup()
	if ctl == nil {
		return successionIdle
	}
	leader := ctl.Leader()
	if leader == s.c.self.ServerID() || leader != "" && s.c.cfg.Node.Alive(leader.Node()) {
		s.since = time.Time{}
		return successionIdle
	}
	if s.since.IsZero() {
		s.since = now
	}
	voters := votersOf(ctl.Members())
	rank, ok := turn(voters, s.c.self.ServerID(), leader, s.c.fit)
	if !ok || now.Sub(s.since) < time.Duration(rank)*headStart || now.Sub(s.campaign) < campaignAgain {
		return successionLook
	}
	if leader != "" && !s.deadFor(voters, leader.Node()) || leader == "" && !s.unledFor(voters, now) {
		return successionLook
	}
	s.campaign = now
	if err := ctl.Campaign(); err != nil {
		s.c.log.Debug("control group: campaign", "error", err) // Raft's own timers will do
	}
	return successionLook
}

func votersOf(members []Member) (voters []rpc.ServerID) {
	for _, m := range members {
		if m.Voter {
			voters = append(voters, m.ID)
		}
	}
	slices.SortFunc(voters, func(a, b rpc.ServerID) int { return cmp.Compare(a.Node(), b.Node()) })
	return voters
}

// turn says how many fit voters come before self; ok is false if self may not lead.
func turn(voters []rpc.ServerID, self, leader rpc.ServerID, fit func(NodeID) bool) (rank int, ok bool) {
	for _, v := range voters {
		if v == leader || !fit(v.Node()) {
			continue
		}
		if v == self {
			return rank, true
		}
		rank++
	}
	return 0, false
}

// fit says whether a node is there and is not about to leave.
func (c *Controller) fit(id NodeID) bool {
	if b := c.Image().Brokers[id]; b != nil && b.Draining {
		return false
	}
	return id == c.self.ID || c.cfg.Node.Alive(id)
}

// deadFor says whether a majority of voters takes the node for dead.
func (s *succession) deadFor(voters []rpc.ServerID, node NodeID) bool {
	reports := s.c.cfg.Node.ReportsDead(node)
	n := 0
	for _, v := range voters {
		if v == s.c.self.ServerID() || v.Node() != node && reports[v.Node()] {
			n++ // round looks only when this node itself takes it for dead
		}
	}
	return n > len(voters)/2
}

// unledFor asks the voters whether a majority of them, this one included, knows no leader.
func (s *succession) unledFor(voters []rpc.ServerID, now time.Time) bool {
	if now.Sub(s.asked) < askAgain {
		return false
	}
	s.asked = now
	ctx, cancel := context.WithTimeout(s.c.ctx, askTimeout)
	defer cancel()
	without := make([]bool, len(voters))
	var wg sync.WaitGroup
	for i, v := range voters {
		if v == s.c.self.ServerID() {
			without[i] = true
			continue
		}
		wg.Go(func() {
			a, err := s.c.hello(ctx, v.Node())
			without[i] = err == nil && rpc.ServerID(a.ServerId) == v && a.ControlLeader == ""
		})
	}
	wg.Wait()
	n := 0
	for _, w := range without {
		if w {
			n++
		}
	}
	return n > len(voters)/2
}
