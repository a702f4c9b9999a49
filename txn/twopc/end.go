package twopc

// end is EndTxn. It is idempotent by identity: at version 2 each transaction has its own epoch, so a repeat shows the previous one; at
// version 0 an epoch serves many transactions, and a repeat is what asks for the newest decision again.
func (c Config) end(s Coordinator, e End) (Coordinator, []Effect) {
	if e.Owner == s.Ledger.Prev && e.Owner != s.Ledger.Owner && e.Owner.Producer >= 0 {
		return s, s.repeated(e)
	}
	if bad := s.judge(e.Owner); bad != 0 {
		return s, reply(e.Request, bad)
	}
	switch s.Phase {
	case Open:
		return c.endOpen(s, e)
	case Ready:
		return c.endNothing(s, e)
	case Committing:
		if e.Version < 2 && s.Ledger.Last.Txn.Owner == e.Owner {
			return s, settle(e, s.Ledger.Owner, e.Commit)
		}
	case Aborting:
		return c.endAborted(s, e)
	}
	return s, reply(e.Request, Busy)
}

// repeated answers an EndTxn that shows the previous identity.
func (s Coordinator) repeated(e End) []Effect {
	committed := s.Ledger.Last.Txn.Owner == e.Owner && !s.Ledger.Last.Txn.None()
	switch {
	case committed:
		return settle(e, s.Ledger.Owner, e.Commit)
	case !e.Commit:
		return settle(e, s.Ledger.Owner, true)
	}
	return reply(e.Request, Fenced)
}

// settle answers Done with the identity if the request asks for what is so, else BadState.
func settle(e End, owner Identity, so bool) []Effect {
	if !so {
		return reply(e.Request, BadState)
	}
	return []Effect{Answer{Request: e.Request, Result: Done, Owner: owner}}
}

func (c Config) endOpen(s Coordinator, e End) (Coordinator, []Effect) {
	if !e.Commit {
		return c.endAbort(s, e)
	}
	s.Phase, s.Request, s.Missing, s.Tries = Voting, e.Request, s.Members, 0
	s.Next = s.Ledger.Owner
	if e.Version >= 2 {
		s.Next = c.successor(s, e.Fresh)
	}
	fx := []Effect{ClearTimer{TimerTransaction}}
	if len(s.Missing) == 0 {
		s, more := c.decide(s)
		return s, append(fx, more...)
	}
	fx = append(fx, SetTimer{TimerVotes, c.VoteTimeout})
	return s, append(fx, c.askVotes(s)...)
}

// endAbort is the client's own wish: at version 2 it is answered with a new epoch, once that is replicated.
func (c Config) endAbort(s Coordinator, e End) (Coordinator, []Effect) {
	s, fx := c.abort(s)
	if e.Version < 2 {
		return s, append(fx, settle(e, s.Ledger.Owner, true)...)
	}
	to := AbortRaising
	if s.Phase == Ready {
		to = Raising
	}
	s, more := c.raise(s, to, e.Request, s.renew(), e.Fresh)
	return s, append(fx, more...)
}

// endNothing is an EndTxn that meets no transaction.
func (c Config) endNothing(s Coordinator, e End) (Coordinator, []Effect) {
	repeat := e.Version < 2 && s.Ledger.repeats(e.Owner)
	switch {
	case repeat:
		return s, settle(e, s.Ledger.Owner, e.Commit)
	case e.Commit && (s.stale() || s.Doomed):
		return s, reply(e.Request, Aborted)
	case e.Commit:
		return s, reply(e.Request, BadState)
	case e.Version >= 2:
		return c.raise(s, Raising, e.Request, s.renew(), e.Fresh)
	}
	s.Doomed = false
	return s, settle(e, s.Ledger.Owner, true)
}

// endAborted is an EndTxn that meets a transaction which is being aborted.
func (c Config) endAborted(s Coordinator, e End) (Coordinator, []Effect) {
	switch {
	case s.Doomed && e.Commit:
		return s, reply(e.Request, Aborted)
	case s.Doomed && e.Version >= 2:
		return c.raise(s, AbortRaising, e.Request, s.renew(), e.Fresh)
	case e.Version >= 2:
		return s, reply(e.Request, Busy)
	}
	s.Doomed = false
	return s, settle(e, s.Ledger.Owner, !e.Commit)
}
