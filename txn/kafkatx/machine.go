package kafkatx

import (
	"slices"
	"time"
)

// Boot is the machine of a coordinator that leads the shard in term, from the newest record of the transactional id (nil: none). Timers of
// what was going on are set, and markers of a decided transaction are sent again.
func (c Config) Boot(term int32, newest *Meta, now time.Time) (State, []Effect) {
	s := &step{Config: c, State: State{Term: term, Meta: newest}, now: now}
	switch {
	case newest == nil:
	case newest.Owed != nil:
		s.Unmarked = newest.Owed.Partitions
		s.send()
	case newest.Status == Ongoing:
		s.set(TimerTransaction, rest(newest.Timeout, newest.Start, now))
	case newest.Status.Decided():
		s.mark()
	default:
		s.set(TimerExpiry, rest(c.Expiry, newest.Update, now))
	}
	return s.State, s.out
}

// rest is what is left of a time span that began at since; all of it when clocks disagree about whether it has begun.
func rest(span time.Duration, since int64, now time.Time) time.Duration {
	return span - min(max(0, now.Sub(time.UnixMilli(since))), span)
}

// Handle is the machine: what becomes of a state when something happens, and what is to be done. now only dates records.
func (c Config) Handle(state State, event Event, now time.Time) (State, []Effect) {
	s := &step{Config: c, State: state, now: now}
	if state.Silent {
		s.refuse(event)
		return s.State, s.out
	}
	switch e := event.(type) {
	case InitProducerID:
		s.init(e)
	case AddPartitions:
		s.add(e)
	case Verify:
		s.verify(e)
	case EndTxn:
		s.end(e)
	case Durable:
		s.durable()
	case Marked:
		s.marked(e)
	case Timer:
		s.timer(e.Kind)
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

func (s *step) set(kind TimerKind, after time.Duration) { s.emit(SetTimer{kind, after}) }

// answer says a, after everything that it may rest on is durable. A request that waits for an answer already gets no second one.
func (s *step) answer(a Answer) {
	if a.Request == 0 || s.waits(a.Request) {
		return
	}
	if len(s.Pending) == 0 {
		s.emit(a)
		return
	}
	s.Pending = slices.Clone(s.Pending)
	last := &s.Pending[len(s.Pending)-1]
	last.Answers = append(slices.Clip(last.Answers), a)
}

func (s State) waits(r Request) bool {
	for _, p := range s.Pending {
		for _, a := range p.Answers {
			if a.Request == r {
				return true
			}
		}
	}
	return false
}

// fail refuses a request. A coordinator that was deposed may refuse what its successor would grant, and clients end for good on most codes;
// only those that make them ask again may come from memory alone.
func (s *step) fail(r Request, code Code) {
	again := code == NotCoordinator || code == ConcurrentTransactions || code == InvalidTransactionTimeout
	s.answer(Answer{Request: r, Code: code, ProducerID: None, Epoch: None, Confirm: !again})
}

// fromMemory says that it is so already. At version 2 an epoch has one transaction, so what a coordinator remembers of it stays true; at
// version 0 the epoch may have gone on under a later leader.
func (s *step) fromMemory(r Request, v Version, id int64, epoch int16) {
	s.answer(Answer{Request: r, ProducerID: id, Epoch: epoch, Confirm: v < Version2})
}

// append takes a step.
func (s *step) append(m *Meta) {
	was := s.Meta
	s.Meta = m
	s.Pending = append(slices.Clip(s.Pending), Step{Record: m})
	s.emit(Append{m})
	if was != nil && was.Status.resting() {
		s.emit(ClearTimer{TimerExpiry})
	}
	ongoing := m != nil && m.Status == Ongoing
	switch before := was != nil && was.Status == Ongoing; {
	case ongoing && !before && !s.owing(): // else it is set when nothing is owed
		s.set(TimerTransaction, m.Timeout)
	case before && !ongoing:
		s.emit(ClearTimer{TimerTransaction})
	}
}

// from copies the newest meta as the base of the next one.
func (s *step) from() *Meta {
	m := *s.Meta
	m.Previous, m.Update = m.ProducerID, s.now.UnixMilli()
	m.Owed = m.Owed.rests(s.Unmarked)
	return &m
}

// durable: the oldest step is in the log for ever.
func (s *step) durable() {
	if len(s.Pending) == 0 {
		return
	}
	done := s.Pending[0]
	s.Pending = slices.Clone(s.Pending[1:])
	for _, a := range done.Answers {
		s.emit(a)
	}
	if len(s.Pending) > 0 {
		return // a decision is always the newest step, since nothing is taken behind it
	}
	switch m := s.Meta; {
	case m == nil:
		s.emit(Forget{})
	case m.Status.Decided():
		s.mark()
	case m.Status.resting():
		s.set(TimerExpiry, s.Expiry)
	}
}

// mark sends the markers of the decided transaction.
func (s *step) mark() {
	s.Unmarked, s.Tries = s.Meta.Partitions, 0
	s.send()
}

func (s *step) send() {
	if len(s.Unmarked) == 0 {
		s.complete()
		return
	}
	m := s.Meta
	commit, version := s.ending()
	for _, p := range s.Unmarked {
		s.emit(WriteMarker{p, m.ProducerID, m.Epoch, s.Term, commit, version})
	}
	s.set(TimerResend, s.ResendAfter<<min(s.Tries, s.MaxDoubling))
	s.Tries = min(s.Tries+1, s.MaxDoubling)
}

func (s *step) marked(e Marked) {
	m := s.Meta
	if len(s.Unmarked) == 0 || e.ProducerID != m.ProducerID || e.Epoch != m.Epoch {
		return // of another transaction, or a repeat
	}
	at, ok := slices.BinarySearchFunc(s.Unmarked, e.Partition, Partition.Compare)
	if !ok {
		return
	}
	s.Unmarked = slices.Delete(slices.Clone(s.Unmarked), at, at+1)
	if len(s.Unmarked) == 0 {
		s.emit(ClearTimer{TimerResend})
		if m.Status == Ongoing {
			s.paid()
			return
		}
		s.complete()
	}
}

// complete ends the decided transaction.
func (s *step) complete() {
	m := s.from()
	m.ProducerID, m.Epoch = s.Meta.final()
	m.Status = CompleteAbort
	if s.Meta.Status == PrepareCommit {
		m.Status = CompleteCommit
	}
	m.Next, m.Partitions = None, nil
	s.Unmarked, s.Tries = nil, 0
	s.append(m)
}

func (s *step) timer(kind TimerKind) {
	m := s.Meta
	switch {
	case m == nil:
	case kind == TimerTransaction && m.Status == Ongoing && !s.owing():
		s.fence(m.Epoch)
	case kind == TimerResend && len(s.Unmarked) > 0:
		s.send()
	case kind == TimerExpiry && m.Status.resting():
		s.append(nil)
	}
}

// lost: the log may hold the pending steps or not, so whoever waits asks the next coordinator.
func (s *step) lost() {
	for _, p := range s.Pending {
		for _, a := range p.Answers {
			s.emit(Answer{Request: a.Request, Code: NotCoordinator, ProducerID: None, Epoch: None})
		}
	}
	s.State = State{Term: s.Term, Silent: true}
}

// refuse is all that a machine does after its term.
func (s *step) refuse(event Event) {
	switch e := event.(type) {
	case InitProducerID:
		s.fail(e.Request, NotCoordinator)
	case AddPartitions:
		s.fail(e.Request, NotCoordinator)
	case Verify:
		s.fail(e.Request, NotCoordinator)
	case EndTxn:
		s.fail(e.Request, NotCoordinator)
	}
}
