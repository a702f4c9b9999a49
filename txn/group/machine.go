package group

import (
	"slices"
	"time"
)

// Boot is the machine of a coordinator that leads the shard, from the newest record of the group (nil: none). Members that the record
// names have a whole session to be heard of. Where it is the record of a generation without assignment, its leader assigns now: whoever
// was told of the generation asks for its assignment, and whoever was not asks to join and is told.
func (c Config) Boot(newest *Record, now time.Time) (State, []Effect) {
	s := &step{Config: c, now: now}
	if newest == nil {
		s.Since = now.UnixMilli()
		return s.State, nil
	}
	s.State = State{Generation: newest.Generation, Assigned: newest.Generation, ProtocolType: newest.ProtocolType, Protocol: newest.Protocol, Leader: newest.Leader,
		Since: newest.Since, Known: true}
	for _, m := range newest.Members {
		s.Status = Stable
		s.Members = append(s.Members, m.member(newest.Protocol))
		s.hear(s.Members[len(s.Members)-1])
	}
	if newest.Unassigned && len(s.Members) > 0 {
		s.Status, s.Assigned = CompletingRebalance, s.Generation-1
		s.each(func(m *Member) { m.Synced = m.Instance != "" })
		s.emit(SetTimer{Kind: TimerSync, After: s.longest()})
	}
	if len(s.Members) > 0 && s.Member(s.Leader) == nil {
		s.Leader = s.Members[0].ID
	}
	return s.State, s.out
}

// Handle is the machine: what becomes of a state when something happens, and what is to be done. now only dates records.
//
// Membership lives in memory, so answers are right as long as this coordinator leads. One that was deposed and does not know it could send
// a member away whom its successor has (FENCED_INSTANCE_ID ends a client for good): a driver lets answers go only within its lease.
func (c Config) Handle(state State, event Event, now time.Time) (State, []Effect) {
	s := &step{Config: c, State: state, now: now}
	if state.Silent {
		s.refuse(event)
		return s.State, s.out
	}
	switch e := event.(type) {
	case Join:
		s.join(e)
	case Sync:
		s.sync(e)
	case Heartbeat:
		s.heartbeat(e)
	case Leave:
		s.leave(e)
	case Commit:
		s.commit(e)
	case Remove:
		s.remove(e)
	case Durable:
		s.durable()
	case Timer:
		s.timer(e)
	case Lost:
		s.lost()
	}
	return s.State, s.out
}

// step is one call of Handle at work: a copy of the state, and the effects so far.
type step struct {
	Config
	State
	now time.Time
	out []Effect
}

func (s *step) emit(e Effect) { s.out = append(s.out, e) }

// become changes the status.
func (s *step) become(status Status) { s.Status, s.Since = status, s.now.UnixMilli() }

// replace puts a changed copy of a member in its place and returns it.
func (s *step) replace(old *Member, change func(*Member)) *Member {
	m := *old
	change(&m)
	s.Members = slices.Clone(s.Members)
	s.Members[s.index(old.ID)] = &m
	return &m
}

// each replaces every member.
func (s *step) each(change func(*Member)) {
	members := make([]*Member, len(s.Members))
	for i, old := range s.Members {
		m := *old
		change(&m)
		members[i] = &m
	}
	s.Members = members
}

// hear starts a member's session anew.
func (s *step) hear(m *Member) { s.emit(SetTimer{TimerSession, m.ID, m.Session}) }

// append takes a record of the state as it is; the answers wait for it.
func (s *step) append(assignments map[string][]byte, answers ...Effect) {
	r := s.record(assignments)
	s.Known, s.Assigned = true, s.Generation
	s.Pending = append(slices.Clip(s.Pending), Step{Record: r, Assigns: assignments != nil, Answers: answers})
	s.emit(Append{r})
}

// begin takes the record of a generation whose assignment is missing; the answers tell of it.
func (s *step) begin(answers []Effect) {
	r := s.record(nil)
	r.Unassigned, s.Known = true, true
	s.Pending = append(slices.Clip(s.Pending), Step{Record: r, Answers: answers})
	s.emit(Append{r})
}

// beginning is the step whose record begins this generation, -1 when it is durable.
func (s *step) beginning() int {
	return slices.IndexFunc(s.Pending, func(p Step) bool {
		return p.Record != nil && p.Record.Unassigned && p.Record.Generation == s.Generation
	})
}

// tell answers who joined, no sooner than the generation is durable.
func (s *step) tell(a Joined) {
	at := s.beginning()
	if at < 0 {
		s.emit(a)
		return
	}
	s.Pending = slices.Clone(s.Pending)
	s.Pending[at].Answers = append(slices.Clip(s.Pending[at].Answers), a)
}

// untold says whether a member of this generation waits to be told of it.
func (s *step) untold(id string) bool {
	at := s.beginning()
	return at >= 0 && slices.ContainsFunc(s.Pending[at].Answers, func(a Effect) bool { j, ok := a.(Joined); return ok && j.MemberID == id })
}

// durable: the oldest record is in the log for ever.
func (s *step) durable() {
	if len(s.Pending) == 0 {
		return
	}
	done := s.Pending[0]
	s.Pending = slices.Clone(s.Pending[1:])
	s.out = append(s.out, done.Answers...)
	switch {
	case done.Record == nil:
		if len(s.Pending) == 0 && len(s.Members)+len(s.Promised) == 0 {
			s.emit(Forget{})
		}
	case done.Assigns && s.Status == CompletingRebalance && s.Generation == done.Record.Generation:
		s.assign(done.Record)
	}
}

func (s *step) timer(e Timer) {
	switch e.Kind {
	case TimerSession:
		s.expire(e.Member)
	case TimerRebalance:
		s.rebalanceDue()
	case TimerSync:
		s.syncDue()
	}
}

// remove deletes a group that has no members.
func (s *step) remove(e Remove) {
	switch {
	case s.Status != Empty || len(s.Promised) > 0:
		s.answer(e.Request, NonEmptyGroup)
	case !s.Known && len(s.Pending) == 0:
		s.answer(e.Request, OK)
		s.emit(Forget{})
	default:
		s.State = State{Since: s.now.UnixMilli(), Pending: slices.Clip(s.Pending)}
		var answers []Effect
		if e.Request != 0 {
			answers = []Effect{Answer{e.Request, OK}}
		}
		s.Pending = append(s.Pending, Step{Answers: answers})
		s.emit(Append{nil})
	}
}

func (s *step) answer(r Request, code Code) {
	if r != 0 {
		s.emit(Answer{r, code})
	}
}

// lost: whoever waits asks the next coordinator.
func (s *step) lost() {
	for _, m := range s.Members {
		if m.Joining != 0 {
			s.emit(refusedJoin(m.Joining, NotCoordinator, m.ID))
		}
		if m.Syncing != 0 {
			s.emit(Synced{Request: m.Syncing, Code: NotCoordinator})
		}
	}
	for _, p := range s.Pending {
		for _, a := range p.Answers {
			s.emit(misled(a))
		}
	}
	s.State = State{Silent: true}
}

// misled is an answer that can no longer be given.
func misled(a Effect) Effect {
	switch a := a.(type) {
	case Joined:
		return refusedJoin(a.Request, NotCoordinator, a.MemberID)
	case Answer:
		return Answer{a.Request, NotCoordinator}
	}
	return a
}

// refuse is all that a machine does after its term.
func (s *step) refuse(event Event) {
	switch e := event.(type) {
	case Join:
		s.emit(refusedJoin(e.Request, NotCoordinator, e.MemberID))
	case Sync:
		s.emit(Synced{Request: e.Request, Code: NotCoordinator})
	case Heartbeat:
		s.answer(e.Request, NotCoordinator)
	case Leave:
		s.left(e, NotCoordinator)
	case Commit:
		s.answer(e.Request, NotCoordinator)
	case Remove:
		s.answer(e.Request, NotCoordinator)
	}
}

func refusedJoin(r Request, code Code, member string) Joined {
	return Joined{Request: r, Code: code, Generation: -1, MemberID: member}
}
