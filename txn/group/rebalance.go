package group

import "slices"

// rebalance begins the next generation, unless that is under way, and goes on with it as far as possible. Whoever waits for an assignment
// must join first.
func (s *step) rebalance() {
	if s.Status == PreparingRebalance {
		s.tryComplete()
		return
	}
	first := s.Status == Empty && s.InitialDelay > 0
	s.emit(ClearTimer{Kind: TimerSync})
	for _, m := range s.Members {
		if m.Syncing != 0 {
			s.emit(Synced{Request: m.Syncing, Code: RebalanceInProgress})
			s.hear(m)
		}
	}
	s.each(func(m *Member) { m.Syncing, m.Synced = 0, false })
	s.become(PreparingRebalance)
	if first {
		s.Delaying, s.Grown = true, false
		s.Patience = max(0, s.longest()-s.InitialDelay)
		s.emit(SetTimer{Kind: TimerRebalance, After: s.InitialDelay})
		return
	}
	s.emit(SetTimer{Kind: TimerRebalance, After: s.longest()})
	s.tryComplete()
}

// tryComplete ends the joining when there is nobody to wait for.
func (s *step) tryComplete() {
	waiting := s.Delaying || len(s.Promised) > 0 || slices.ContainsFunc(s.Members, func(m *Member) bool { return m.Joining == 0 })
	if !waiting {
		s.complete()
	}
}

// rebalanceDue: the joining ends, or goes on for a while if members kept coming to a group that was empty.
func (s *step) rebalanceDue() {
	switch {
	case s.Status != PreparingRebalance:
	case s.Delaying && s.Grown && s.Patience > 0:
		wait := min(s.InitialDelay, s.Patience)
		s.Grown, s.Patience = false, s.Patience-wait
		s.emit(SetTimer{Kind: TimerRebalance, After: wait})
	default:
		s.complete()
	}
}

// complete begins the next generation with those who joined, who are told when it is durable: whoever coordinates next knows then what they
// speak of, so that they need not give up their partitions because a coordinator went away in the midst of a rebalance. Static members who
// did not keep their place until their session ends; nobody waits for them to ask for their assignment.
func (s *step) complete() {
	s.Delaying, s.Grown, s.Patience = false, false, 0
	for _, m := range s.Members {
		if m.Joining == 0 && m.Instance == "" {
			s.drop(m)
		}
	}
	joined := slices.IndexFunc(s.Members, func(m *Member) bool { return m.Joining != 0 })
	if joined < 0 && len(s.Members) > 0 {
		s.emit(SetTimer{Kind: TimerRebalance, After: s.longest()}) // until one comes, or their sessions end
		return
	}
	s.emit(ClearTimer{Kind: TimerRebalance})
	s.Generation++
	if joined < 0 {
		s.Protocol, s.Leader = "", ""
		s.become(Empty)
		s.append(nil)
		return
	}
	if s.Member(s.Leader).Joining == 0 {
		s.Leader = s.Members[joined].ID
	}
	s.Protocol = s.choose()
	s.become(CompletingRebalance)
	var answers []Effect
	for _, m := range s.Members {
		if m.Joining != 0 {
			answers = append(answers, s.joined(m.Joining, m))
			s.hear(m)
		}
	}
	s.each(func(m *Member) {
		m.New = m.New && m.Joining == 0
		m.Joining, m.Synced, m.Assignment = 0, m.Joining == 0, nil
	})
	s.begin(answers)
	s.emit(SetTimer{Kind: TimerSync, After: s.longest()})
}

// drop takes a member out of the group.
func (s *step) drop(m *Member) {
	if m.Joining != 0 {
		s.emit(refusedJoin(m.Joining, UnknownMemberID, m.ID))
	}
	if m.Syncing != 0 {
		s.emit(Synced{Request: m.Syncing, Code: UnknownMemberID})
	}
	s.emit(ClearTimer{TimerSession, m.ID})
	at := s.index(m.ID)
	s.Members = slices.Delete(slices.Clone(s.Members), at, at+1)
	if s.Leader != m.ID {
		return
	}
	s.Leader = ""
	if len(s.Members) > 0 {
		s.Leader = s.Members[0].ID
	}
}

// expire: a member, or somebody who was promised an id, was not heard of. One that waits for others is not to blame for its silence.
func (s *step) expire(id string) {
	if s.promised(id) {
		s.keepPromise(id)
		if s.Status == PreparingRebalance {
			s.tryComplete()
		}
		return
	}
	m := s.Member(id)
	switch {
	case m == nil || !m.New && (m.Joining != 0 || m.Syncing != 0):
		return
	case s.untold(id):
		s.hear(m)
		return
	}
	s.drop(m)
	s.rebalance()
}

// syncDue: members who never asked for their assignment are gone. If none are and nobody assigns, as may be with static members whose
// coordinator changed, they are to join once more.
func (s *step) syncDue() {
	if s.Status != CompletingRebalance && s.Status != Stable {
		return
	}
	before := len(s.Members)
	for _, m := range s.Members {
		if !m.Synced {
			s.drop(m)
		}
	}
	if len(s.Members) < before || s.Status == CompletingRebalance && !s.assigning() {
		s.rebalance()
	}
}
