package group

import "slices"

// join is JoinGroup.
func (s *step) join(e Join) {
	switch {
	case e.Session < s.MinSession || e.Session > s.MaxSession:
		s.refuseJoin(e, InvalidSessionTimeout)
	case !s.supports(e.ProtocolType, e.Protocols, s.predecessor(e)):
		s.refuseJoin(e, InconsistentGroupProtocol)
	case e.MemberID == "":
		s.joinNew(e)
	case s.promised(e.MemberID):
		if e.Instance != "" {
			s.refuseJoin(e, UnknownMemberID) // the id was given to a dynamic member
			return
		}
		s.admit(e, e.MemberID)
	default:
		if code := s.check(e.MemberID, e.Instance); code != OK {
			s.refuseJoin(e, code)
			return
		}
		s.rejoin(e, s.Member(e.MemberID))
	}
}

// predecessor is the member that the join would change; nil: none.
func (s *step) predecessor(e Join) *Member {
	if m := s.static(e.Instance); m != nil {
		return m
	}
	return s.Member(e.MemberID)
}

func (s *step) refuseJoin(e Join, code Code) { s.emit(refusedJoin(e.Request, code, e.MemberID)) }

// check says whether the member is in the group, and is who its instance id belongs to.
func (s *step) check(id, instance string) Code {
	if instance != "" {
		switch m := s.static(instance); {
		case m == nil:
			return UnknownMemberID
		case m.ID != id:
			return FencedInstanceID
		}
	}
	if s.Member(id) == nil {
		return UnknownMemberID
	}
	return OK
}

// joinNew is a JoinGroup without member id.
func (s *step) joinNew(e Join) {
	if old := s.static(e.Instance); old != nil {
		s.succeed(e, old)
		return
	}
	if len(s.Members)+len(s.Promised) >= s.MaxMembers {
		s.refuseJoin(e, GroupMaxSizeReached)
		return
	}
	if e.Instance == "" && e.RequireID {
		s.promise(e.NewID)
		s.emit(SetTimer{TimerSession, e.NewID, e.Session})
		s.emit(refusedJoin(e.Request, MemberIDRequired, e.NewID))
		return
	}
	s.admit(e, e.NewID)
}

func (s *step) promise(id string) {
	at, ok := slices.BinarySearch(s.Promised, id)
	if !ok {
		s.Promised = slices.Insert(slices.Clone(s.Promised), at, id)
	}
}

func (s *step) keepPromise(id string) {
	if at, ok := slices.BinarySearch(s.Promised, id); ok {
		s.Promised = slices.Delete(slices.Clone(s.Promised), at, at+1)
	}
}

// admit takes in a new member.
func (s *step) admit(e Join, id string) {
	s.keepPromise(id)
	m := &Member{ID: id, Instance: e.Instance, New: true}
	m.update(e)
	if len(s.Members) == 0 {
		s.ProtocolType, s.Leader = e.ProtocolType, id
	}
	s.Members = append(slices.Clip(s.Members), m)
	s.emit(SetTimer{TimerSession, id, s.NewMember})
	s.Grown = s.Delaying
	s.rebalance()
}

// update takes over what a JoinGroup says.
func (m *Member) update(e Join) {
	m.ClientID, m.ClientHost, m.Session, m.Rebalance = e.ClientID, e.ClientHost, e.Session, e.Rebalance
	m.Protocols, m.Joining = e.Protocols, e.Request
}

// rejoin is a JoinGroup of a member. Outside of a rebalance one that brings nothing new has lost its answer, or wants to know; the leader
// of a stable group asks for a rebalance by it.
func (s *step) rejoin(e Join, m *Member) {
	same := slices.EqualFunc(m.Protocols, e.Protocols, func(a, b Protocol) bool { return a.Name == b.Name && string(a.Metadata) == string(b.Metadata) })
	if same && (s.Status == CompletingRebalance || s.Status == Stable && m.ID != s.Leader) {
		s.hear(m)
		s.tell(s.joined(e.Request, m))
		return
	}
	s.supersede(m)
	s.replace(m, func(m *Member) {
		m.update(e)
		m.Syncing = 0
	})
	s.rebalance()
}

// supersede answers what a member had asked before: it has given up on that.
func (s *step) supersede(m *Member) {
	if m.Joining != 0 {
		s.emit(refusedJoin(m.Joining, RebalanceInProgress, m.ID))
	}
	if m.Syncing != 0 {
		s.emit(Synced{Request: m.Syncing, Code: RebalanceInProgress})
	}
}

// joined is the answer that takes a member into the generation.
func (s *step) joined(r Request, m *Member) Joined {
	a := Joined{Request: r, Generation: s.Generation, ProtocolType: s.ProtocolType, Protocol: s.Protocol, Leader: s.Leader, MemberID: m.ID}
	if m.ID == s.Leader {
		a.Members = s.roster()
	}
	return a
}

func (s *step) roster() []Joiner {
	out := make([]Joiner, len(s.Members))
	for i, m := range s.Members {
		out[i] = Joiner{m.ID, m.Instance, m.metadata(s.Protocol)}
	}
	return out
}

// succeed lets a static member that was started anew take the place of what it was before (KIP-345). A stable group stays so, unless the
// protocol must change: the new one gets the old one's assignment when it asks.
func (s *step) succeed(e Join, old *Member) {
	if old.Joining != 0 {
		s.emit(refusedJoin(old.Joining, FencedInstanceID, old.ID))
	}
	if old.Syncing != 0 {
		s.emit(Synced{Request: old.Syncing, Code: FencedInstanceID})
	}
	s.emit(ClearTimer{TimerSession, old.ID})
	led := s.Leader
	if led == old.ID {
		s.Leader = e.NewID
	}
	m := s.replace(old, func(m *Member) {
		m.update(e)
		m.ID, m.Syncing = e.NewID, 0
	})
	if s.Status != Stable || s.choose() != s.Protocol {
		if m.New {
			s.emit(SetTimer{TimerSession, m.ID, s.NewMember})
		} else {
			s.hear(m)
		}
		s.rebalance()
		return
	}
	m = s.replace(m, func(m *Member) { m.Joining = 0 })
	s.hear(m)
	answer := s.joined(e.Request, m)
	switch {
	case m.ID != s.Leader:
	case e.MayBeExempted:
		answer.Exempted = true
	default:
		answer.Leader, answer.Members = led, nil // so that it does not assign
	}
	s.append(nil, answer)
}
