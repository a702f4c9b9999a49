package kafkatx

import "slices"

// init is InitProducerId.
func (s *step) init(e InitProducerID) {
	m := s.Meta
	switch {
	case e.Timeout <= 0 || e.Timeout > s.MaxTimeout:
		s.fail(e.Request, InvalidTransactionTimeout)
	case m == nil:
		s.create(e)
	case e.named() && !m.mayResume(e.ProducerID, e.Epoch):
		s.fail(e.Request, ProducerFenced)
	case s.Ending():
		s.fail(e.Request, ConcurrentTransactions)
	case m.Status == Ongoing:
		s.interrupt(e)
	default:
		s.raise(e)
	}
}

func (e InitProducerID) named() bool { return e.ProducerID != None }

// mayResume says whether a client that names this producer id and epoch is the newest owner (KIP-360): it has the current epoch, or the
// one before that it may go on from, also if the step between gave it another producer id.
func (m *Meta) mayResume(id int64, epoch int16) bool {
	if newest, current := m.final(); id == newest && epoch == current || id == m.ProducerID && epoch == m.Epoch {
		return true
	}
	if epoch != m.LastEpoch || epoch == None {
		return false
	}
	return id == m.ProducerID || id == m.Previous && epoch >= lastEpoch
}

// create makes the transactional id known, with a producer id of its own.
func (s *step) create(e InitProducerID) {
	if e.Fresh == None {
		s.emit(NeedID{e.Request})
		return
	}
	now := s.now.UnixMilli()
	s.emit(Took{e.Fresh})
	s.append(&Meta{Status: Empty, ProducerID: e.Fresh, Epoch: 0, LastEpoch: None, Previous: None, Next: None, Timeout: e.Timeout, Start: None, Update: now})
	s.answer(Answer{Request: e.Request, ProducerID: e.Fresh, Epoch: 0})
}

// interrupt aborts the transaction that is in the way; the client asks again when that is done. The client is the transaction's owner,
// who may go on, or a new one, and then the owner may not.
func (s *step) interrupt(e InitProducerID) {
	last := int16(None)
	if e.named() {
		last = s.Meta.Epoch
	}
	s.fence(last)
	s.fail(e.Request, ConcurrentTransactions)
}

// fence aborts the ongoing transaction with an epoch that its producer does not have; last is the epoch whose owner may resume.
func (s *step) fence(last int16) {
	m := s.from()
	m.Status, m.Version = PrepareAbort, s.FenceVersion
	m.Epoch, m.LastEpoch = m.Epoch+1, last
	s.append(m)
}

// raise gives the producer the next epoch, or a producer id with fresh ones.
func (s *step) raise(e InitProducerID) {
	m := s.from()
	m.Status, m.Timeout, m.Partitions, m.Start = Empty, e.Timeout, nil, None
	switch {
	case e.named() && (e.ProducerID != m.ProducerID || e.Epoch != m.Epoch) && m.Epoch <= lastEpoch:
		// The step to the current epoch was this client's own: it gets that one.
		if s.Meta.Status == Empty && s.Meta.Timeout == e.Timeout {
			s.answer(Answer{Request: e.Request, ProducerID: m.ProducerID, Epoch: m.Epoch, Confirm: true})
			return
		}
		m.Previous = s.Meta.Previous
	case m.Epoch < lastEpoch:
		m.LastEpoch = None
		if e.named() {
			m.LastEpoch = m.Epoch
		}
		m.Epoch++
	case e.Fresh == None:
		s.emit(NeedID{e.Request})
		return
	default:
		m.LastEpoch = None
		if e.named() {
			m.LastEpoch = e.Epoch
		}
		m.ProducerID, m.Epoch = e.Fresh, 0
		s.emit(Took{e.Fresh})
	}
	s.append(m)
	s.answer(Answer{Request: e.Request, ProducerID: m.ProducerID, Epoch: m.Epoch})
}

// admits checks a request that belongs to a transaction which is open or may be begun.
func (m *Meta) admits(id int64, epoch int16) Code {
	if m == nil {
		return InvalidProducerIDMapping
	}
	newest, current := m.final()
	switch {
	case id != newest && id != m.ProducerID:
		return InvalidProducerIDMapping
	case id != newest || epoch != current || epoch > lastEpoch:
		return ProducerFenced
	case m.Status.Decided():
		return ConcurrentTransactions
	}
	return OK
}

// add is AddPartitionsToTxn and AddOffsetsToTxn, from clients and from partition leaders.
func (s *step) add(e AddPartitions) {
	m := s.Meta
	if s.mayOverlap(e) {
		s.overlap(e)
		return
	}
	if code := m.admits(e.ProducerID, e.Epoch); code != OK {
		s.fail(e.Request, code)
		return
	}
	if s.owing() && m.has(e.Partitions) {
		s.fail(e.Request, ConcurrentTransactions)
		return
	}
	if len(e.Partitions) == 0 || m.Status == Ongoing && m.has(e.Partitions) {
		s.fromMemory(e.Request, e.Version, None, None)
		return
	}
	next := s.from()
	next.Status, next.Version = Ongoing, e.Version
	if m.Status != Ongoing {
		next.Start, next.Partitions = next.Update, nil
		next.LastEpoch = None // the client has the current epoch
	}
	next.Partitions = union(next.Partitions, e.Partitions)
	s.append(next)
	if s.owing() {
		s.fail(e.Request, ConcurrentTransactions)
		return
	}
	s.answer(Answer{Request: e.Request, ProducerID: None, Epoch: None})
}

// union of sorted and more, sorted.
func union(sorted, more []Partition) []Partition {
	out := slices.Concat(sorted, more)
	slices.SortFunc(out, Partition.Compare)
	return slices.Compact(out)
}

// verify answers a partition leader. At version 0 a batch that comes late may carry the epoch of a transaction that has ended since, and a
// coordinator that was deposed may not know of the end. The partition does: it compares the term of who says yes with the one in the newest
// marker of the producer, so yes needs no proof of leadership.
func (s *step) verify(e Verify) {
	m := s.Meta
	if code := m.admits(e.ProducerID, e.Epoch); code != OK {
		s.fail(e.Request, code)
		return
	}
	if s.owing() {
		s.fail(e.Request, ConcurrentTransactions)
		return
	}
	a := Answer{Request: e.Request, ProducerID: None, Epoch: None}
	for _, p := range e.Partitions {
		if m.Status != Ongoing || !m.has([]Partition{p}) {
			a.Code, a.Confirm, a.Missing = TransactionAbortable, true, append(a.Missing, p)
		}
	}
	s.answer(a)
}
