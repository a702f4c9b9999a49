package kafkatx

// Owed is what is left of the transaction before while the next one of the producer has begun: its markers.
type Owed struct {
	Commit     bool
	Start      int64       // when it began, in milliseconds
	Partitions []Partition // sorted, never empty: those whose marker was not known to be there
}

// owing says that the transaction before is still ending while this one is open already. What would end this one, and every yes to somebody
// who wants to write in it, waits until that is over.
func (s State) owing() bool {
	return len(s.Unmarked) > 0 && s.Meta.Status == Ongoing
}

// mayOverlap says that e begins the transaction after the one that is ending, and comes from who was given the decision's answer: at version
// 2 nobody else knows this epoch, and no marker of the one before ends what is written in it. A new producer id would need an Owed that names
// the old one, once in 32,766 transactions: there the next one waits.
func (s State) mayOverlap(e AddPartitions) bool {
	m := s.Meta
	if m == nil || !m.Status.Decided() || !s.settled() || m.Version != Version2 || m.Next != None || m.Epoch > lastEpoch {
		return false
	}
	given := m.LastEpoch != None && m.LastEpoch == m.Epoch-1 // to the owner of the epoch before
	return given && e.Version == Version2 && e.ProducerID == m.ProducerID && e.Epoch == m.Epoch && len(e.Partitions) > 0
}

// overlap begins the next transaction while the markers of the one before are on their way. Its record takes the place of the decision's, so
// it says what is still owed of that. Whoever added is told to come again: that is, when nothing is owed any more.
func (s *step) overlap(e AddPartitions) {
	was := s.Meta
	next := s.from()
	next.Status, next.Version, next.LastEpoch, next.Start = Ongoing, e.Version, None, next.Update
	next.Partitions = union(nil, e.Partitions)
	next.Owed = &Owed{was.Status == PrepareCommit, was.Start, s.Unmarked}
	s.append(next)
	s.fail(e.Request, ConcurrentTransactions)
}

// paid: every partition has the marker of the transaction before.
func (s *step) paid() {
	s.Unmarked, s.Tries = nil, 0
	s.set(TimerTransaction, rest(s.Meta.Timeout, s.Meta.Start, s.now))
}

// rests is Owed without what was paid meanwhile.
func (o *Owed) rests(unmarked []Partition) *Owed {
	if o == nil || len(unmarked) == 0 {
		return nil
	}
	return &Owed{o.Commit, o.Start, unmarked}
}

// Shown is the transaction as administrators see it: while markers are owed it is the one before, which is still ending.
func (s State) Shown() *Meta {
	if !s.owing() {
		return s.Meta
	}
	m := *s.Meta
	m.Status, m.Partitions, m.Start, m.Owed = s.ShownAs(), m.Owed.Partitions, m.Owed.Start, nil
	return &m
}

// ShownAs is the status of Shown, which is not nil.
func (s State) ShownAs() Status {
	switch {
	case !s.owing():
		return s.Meta.Status
	case s.Meta.Owed.Commit:
		return PrepareCommit
	}
	return PrepareAbort
}

// ending is what the markers that are missing say.
func (s State) ending() (commit bool, v Version) {
	if s.owing() {
		return s.Meta.Owed.Commit, Version2
	}
	return s.Meta.Status == PrepareCommit, s.Meta.Version
}
