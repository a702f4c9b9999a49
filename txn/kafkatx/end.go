package kafkatx

// end is EndTxn of a client.
func (s *step) end(e EndTxn) {
	m := s.Meta
	switch {
	case m == nil || m.ProducerID != e.ProducerID && !m.repeats(e):
		s.fail(e.Request, InvalidProducerIDMapping)
	case e.Version >= Version2:
		s.endRaising(e)
	default:
		s.endKeeping(e)
	}
}

// repeats says that e is about the last decision, at version 2: it comes from the epoch that the decision ended, which may have been the
// last one of its producer id.
func (m *Meta) repeats(e EndTxn) bool {
	if e.Version < Version2 || e.Epoch != m.LastEpoch || m.decision() == undecided {
		return false
	}
	return e.ProducerID == m.ProducerID && e.Epoch == m.Epoch-1 || e.ProducerID == m.Previous && e.Epoch == lastEpoch && m.Epoch == 0
}

// endKeeping is EndTxn at version 0: the epoch stays, so a request cannot be told from one about an earlier transaction of the epoch.
// That is KAFKA-17754; only version 2 closes it.
func (s *step) endKeeping(e EndTxn) {
	m := s.Meta
	switch {
	case e.Epoch != m.Epoch:
		s.fail(e.Request, ProducerFenced)
	case s.owing():
		s.fail(e.Request, ConcurrentTransactions)
	case m.Status == Ongoing:
		next := s.decide(e)
		next.Version = Version0
		s.append(next)
		s.answer(Answer{Request: e.Request, ProducerID: None, Epoch: None})
	case m.decision() == decisionOf(e.Commit):
		s.fromMemory(e.Request, Version0, None, None)
	default:
		s.fail(e.Request, InvalidTxnState)
	}
}

// endRaising is EndTxn at version 2: the decision raises the epoch, so a request of the epoch before is a repeat, and one of the current
// epoch is about the transaction after it. To abort one that was never begun is allowed: the client need not know whether it was.
func (s *step) endRaising(e EndTxn) {
	m := s.Meta
	repeats := m.repeats(e)
	switch {
	case repeats && m.decision() == decisionOf(e.Commit):
		id, epoch := m.final()
		s.fromMemory(e.Request, Version2, id, epoch)
	case repeats:
		s.fail(e.Request, InvalidTxnState)
	case e.Epoch != m.Epoch || e.Epoch > lastEpoch:
		s.fail(e.Request, ProducerFenced)
	case s.Ending(): // only who got the decision's answer knows this epoch: it is about the next transaction. Kafka fences it.
		s.fail(e.Request, ConcurrentTransactions)
	case m.Status != Ongoing && e.Commit:
		s.fail(e.Request, InvalidTxnState)
	case m.Epoch >= lastEpoch && e.Fresh == None:
		s.emit(NeedID{e.Request})
	default:
		s.raiseAndDecide(e)
	}
}

func (s *step) raiseAndDecide(e EndTxn) {
	next := s.decide(e)
	next.Version = Version2
	if next.Epoch >= lastEpoch {
		next.Next = e.Fresh
		s.emit(Took{e.Fresh})
	}
	next.LastEpoch = next.Epoch
	next.Epoch++
	if s.Meta.Status != Ongoing {
		next.Start, next.Partitions = next.Update, nil
	}
	s.append(next)
	id, epoch := next.final()
	s.answer(Answer{Request: e.Request, ProducerID: id, Epoch: epoch})
}

func (s *step) decide(e EndTxn) *Meta {
	next := s.from()
	next.Status = PrepareAbort
	if e.Commit {
		next.Status = PrepareCommit
	}
	return next
}

// decision is what was decided last, as far as the status tells.
type decision uint8

const (
	undecided decision = iota
	committed
	aborted
)

func (m *Meta) decision() decision {
	switch m.Status {
	case PrepareCommit, CompleteCommit:
		return committed
	case PrepareAbort, CompleteAbort:
		return aborted
	}
	return undecided
}

func decisionOf(commit bool) decision {
	if commit {
		return committed
	}
	return aborted
}
