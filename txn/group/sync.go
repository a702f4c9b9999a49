package group

// sync is SyncGroup.
func (s *step) sync(e Sync) {
	code := s.checkGeneration(e.MemberID, e.Instance, e.Generation)
	switch {
	case code != OK:
	case e.ProtocolType != "" && e.ProtocolType != s.ProtocolType, e.Protocol != "" && e.Protocol != s.Protocol:
		code = InconsistentGroupProtocol
	case s.Status == PreparingRebalance:
		code = RebalanceInProgress
	}
	if code != OK {
		s.emit(Synced{Request: e.Request, Code: code})
		return
	}
	m := s.Member(e.MemberID)
	if s.Status == Stable {
		s.hear(m)
		if !m.Synced {
			m = s.replace(m, func(m *Member) { m.Synced = true })
			s.allSynced()
		}
		s.emit(s.synced(e.Request, m))
		return
	}
	s.supersede(m)
	s.replace(m, func(m *Member) { m.Syncing, m.Synced = e.Request, true })
	if m.ID == s.Leader && !s.assigning() {
		assignments := e.Assignments
		if assignments == nil {
			assignments = map[string][]byte{}
		}
		s.append(assignments)
	}
}

// assigning says that the assignment of this generation is on its way into the log.
func (s *step) assigning() bool {
	for _, p := range s.Pending {
		if p.Assigns && p.Record.Generation == s.Generation {
			return true
		}
	}
	return false
}

// assign gives out the assignment that the record holds.
func (s *step) assign(r *Record) {
	s.each(func(m *Member) {
		for i := range r.Members {
			if r.Members[i].ID == m.ID {
				m.Assignment = r.Members[i].Assignment
			}
		}
	})
	s.become(Stable)
	for _, m := range s.Members {
		if m.Syncing != 0 {
			s.emit(s.synced(m.Syncing, m))
			s.hear(m)
		}
	}
	s.each(func(m *Member) { m.Syncing = 0 })
	s.allSynced()
}

// allSynced stops waiting for members that have not asked for their assignment, when there are none.
func (s *step) allSynced() {
	for _, m := range s.Members {
		if !m.Synced {
			return
		}
	}
	s.emit(ClearTimer{Kind: TimerSync})
}

func (s *step) synced(r Request, m *Member) Synced {
	return Synced{Request: r, ProtocolType: s.ProtocolType, Protocol: s.Protocol, Assignment: m.Assignment}
}

// checkGeneration says whether the member is one of this generation.
func (s *step) checkGeneration(id, instance string, generation int32) Code {
	code := s.check(id, instance)
	if code == OK && generation != s.Generation {
		code = IllegalGeneration
	}
	return code
}

// before says whether a member speaks of a generation before this one while nobody has an assignment of a later one, given out or on its way
// into the log: whoever had partitions in the last generation that was assigned has them still, it alone.
func (s *step) before(id, instance string, generation int32) bool {
	return s.Assigned <= generation && generation < s.Generation && s.check(id, instance) == OK
}

// heartbeat is Heartbeat. Members of a generation that is waiting for its assignment are well.
func (s *step) heartbeat(e Heartbeat) {
	code := s.checkGeneration(e.MemberID, e.Instance, e.Generation)
	switch {
	case code == OK && s.Status == PreparingRebalance, s.before(e.MemberID, e.Instance, e.Generation):
		code = RebalanceInProgress
		s.hear(s.Member(e.MemberID))
	case code == OK:
		s.hear(s.Member(e.MemberID))
	}
	s.answer(e.Request, code)
}

// leave is LeaveGroup.
func (s *step) leave(e Leave) {
	codes := make([]Code, len(e.Members))
	gone, members := false, len(s.Members)
	for i, l := range e.Members {
		codes[i] = s.depart(l)
		gone = gone || codes[i] == OK
	}
	if e.Request != 0 {
		s.emit(Left{e.Request, codes})
	}
	switch {
	case !gone:
	case s.Status == PreparingRebalance:
		s.tryComplete()
	case s.Status != Empty && len(s.Members) < members: // an id that was only promised takes nothing from the others
		s.rebalance()
	}
}

func (s *step) left(e Leave, code Code) {
	codes := make([]Code, len(e.Members))
	for i := range codes {
		codes[i] = code
	}
	s.emit(Left{e.Request, codes})
}

func (s *step) depart(l Leaver) Code {
	if l.Instance == "" && s.promised(l.MemberID) {
		s.keepPromise(l.MemberID)
		s.emit(ClearTimer{TimerSession, l.MemberID})
		return OK
	}
	id := l.MemberID
	if m := s.static(l.Instance); m != nil && id == "" {
		id = m.ID // an administrator names the instance alone
	}
	if code := s.check(id, l.Instance); code != OK {
		return code
	}
	s.drop(s.Member(id))
	return OK
}

// commit says whether offsets may be committed. Nobody but a member of the generation may while the group has members, or somebody who
// was left behind would overwrite what its successor has done; from an old client's transaction, which names no member, it is accepted,
// since the producer's epoch fences it. Until the assignment of a generation exists, members may commit what they did in the one before:
// some are not told of the new one yet, and the coordinator that would have told them may be gone. In the name of the new generation they
// have nothing to commit then, except that a transaction that was begun before may still be completed.
func (s *step) commit(e Commit) {
	named := e.Generation >= 0 || e.MemberID != "" || e.Instance != ""
	before := named && s.before(e.MemberID, e.Instance, e.Generation)
	code := OK
	switch {
	case e.Generation < 0 && s.Status == Empty:
	case s.Blank() && e.Transactional: // Kafka's words for a generation of a group that it does not know
		code = IllegalGeneration
	case s.Blank():
		code = GroupIDNotFound
	case named:
		if code = s.checkGeneration(e.MemberID, e.Instance, e.Generation); before {
			code = OK
		}
	case !e.Transactional:
		code = UnknownMemberID
	}
	if code == OK && named {
		if m := s.Member(e.MemberID); m != nil && !m.New {
			s.hear(m)
		}
	}
	if code == OK && !before && !e.Transactional && s.Status == CompletingRebalance {
		code = RebalanceInProgress
	}
	s.answer(e.Request, code)
}
