package twopc

import "time"

// Ledger is what the replicated records of one transactional id come to: all that a coordinator knows after a change of leader.
type Ledger struct {
	Term     uint64        // in which Owner was given; an epoch may commit in that term only
	Owner    Identity      // current; Producer is -1 before the first Raised
	Prev     Identity      // what the same client held before, so that its repeats are known; Nobody if none
	Timeout  time.Duration // of the client's transactions
	Last     Committed     // the newest decision; Txn is none before the first
	Finished bool          // every participant of Last has ended it
	Begun    Txn           // a version 0 transaction that began after Last
}

// NewLedger is the ledger of an id without records.
func NewLedger() Ledger { return Ledger{Owner: Nobody, Prev: Nobody, Finished: true} }

// Apply takes in the next replicated record. Records of a participant do not belong here and are ignored.
func (l Ledger) Apply(r Record) Ledger {
	switch r := r.(type) {
	case Raised:
		l.Term, l.Owner, l.Prev, l.Timeout, l.Begun = r.Term, r.Owner, r.Prev, r.Timeout, Txn{}
	case Begun:
		l.Begun = r.Txn
	case Committed:
		if r.Next != l.Owner {
			l.Term, l.Prev = r.Txn.Term, r.Txn.Owner
		}
		l.Owner, l.Last, l.Finished, l.Begun = r.Next, r, false, Txn{}
	case Finished:
		l.Finished = l.Finished || r.Txn == l.Last.Txn
	}
	return l
}

// repeats says that a commit by owner asks for what Last says already: the owner has begun nothing since.
func (l Ledger) repeats(owner Identity) bool {
	return !l.Last.Txn.None() && l.Last.Txn.Owner == owner && l.Begun.None()
}

// LastIsNewest says that nothing is known to have happened since the newest decision: no epoch was given, no transaction began.
func (l Ledger) LastIsNewest() bool {
	return !l.Last.Txn.None() && l.Owner == l.Last.Next && l.Begun.None()
}

// Standing is what the replicated records of one participant come to.
type Standing struct {
	Txn      Txn           // open here; none if there is none
	Promised bool          // Txn was voted for
	At       int64         // when: see Promised
	Timeout  time.Duration // of Txn
	Ended    Txn           // the newest that is over here: this and every older one is
}

// Apply takes in the next replicated record. Records of a coordinator do not belong here and are ignored.
func (s Standing) Apply(r Record) Standing {
	switch r := r.(type) {
	case Opened:
		s.Txn, s.Promised, s.At, s.Timeout = r.Txn, false, 0, r.Timeout
	case Promised:
		s.Txn, s.Promised, s.At = r.Txn, true, r.At
	case Marked:
		s.Txn, s.Promised, s.At, s.Ended = Txn{}, false, 0, newer(s.Ended, r.Txn)
	case Skipped:
		s.Ended = newer(s.Ended, r.Txn)
	}
	return s
}

func newer(a, b Txn) Txn {
	if b.Compare(a) > 0 {
		return b
	}
	return a
}
