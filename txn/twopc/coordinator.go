package twopc

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Phase is what a coordinator is at with one transactional id.
type Phase uint8

const (
	Fresh        Phase = iota // nobody was given an epoch
	Raising                   // an epoch waits to be replicated; no transaction
	Ready                     // no transaction
	Beginning                 // a version 0 transaction whose first record waits to be replicated: nothing is let into it yet
	Open                      // participants may be added; known in memory only
	Voting                    // PREPARE is out
	Deciding                  // all voted yes; the decision waits to be replicated
	Committing                // decided; participants are being told
	Aborting                  // it cannot commit any more; participants are being told
	AbortRaising              // the same, and an epoch waits to be replicated
	Silent                    // this node does not lead any more
)

var phases = [...]string{"Fresh", "Raising", "Ready", "Beginning", "Open", "Voting", "Deciding", "Committing", "Aborting", "AbortRaising", "Silent"}

func (p Phase) String() string { return phases[p] }

// Coordinator is the state for one transactional id on the node that leads its shard. It is a value: Coordinate returns the next one and
// leaves the old one and its slices as they are.
type Coordinator struct {
	Phase   Phase
	Term    uint64   // of this leadership
	Ledger  Ledger   // what is replicated and applied
	Number  uint32   // transactions begun in this term
	Doomed  bool     // the client's transaction failed under it; it must abort before it may begin another
	Txn     Txn      // Beginning … AbortRaising
	Next    Identity // Voting, Deciding: the client's if it commits
	Members []Member // participants of Txn, sorted
	Missing []Member // those whose vote or acknowledgement is awaited, sorted
	Request Request  // whom the awaited record or votes answer
	Tries   uint8
}

// Boot is the coordinator of a node that has applied every record of the shard and leads it in term. What was in the predecessor's memory
// is lost: every epoch given before the term is stale. A decision that was not finished is told again.
func (c Config) Boot(term uint64, l Ledger) (Coordinator, []Effect) {
	s := Coordinator{Phase: Ready, Term: term, Ledger: l}
	switch {
	case l.Owner.Producer < 0:
		s.Phase = Fresh
	case !l.Finished:
		s.Phase, s.Txn, s.Members, s.Missing = Committing, l.Last.Txn, l.Last.Members, l.Last.Members
		return s, c.tellOutcome(s, true)
	}
	return s, nil
}

// NeedsProducerID says that the next Init or End needs an unused producer id.
func (c Config) NeedsProducerID(s Coordinator) bool {
	return s.Ledger.Owner.Producer < 0 || s.Ledger.Owner.Epoch+1 >= c.MaxEpoch
}

// Coordinate is the coordinator's step. An event that does not fit the state changes nothing; a request is answered in every state except
// Silent, where the driver has answered all requests in hand when leadership was lost.
func (c Config) Coordinate(s Coordinator, e Event, _ time.Time) (Coordinator, []Effect) {
	if s.Phase == Silent {
		return s, nil
	}
	switch e := e.(type) {
	case Init:
		return c.init(s, e)
	case Add:
		return c.add(s, e)
	case Verify:
		return s, verify(s, e)
	case End:
		return c.end(s, e)
	case Vote:
		return c.vote(s, e)
	case Ended:
		return c.ended(s, e.Txn, e.From)
	case Query:
		return s, query(s, e)
	case Gone:
		return c.gone(s, e.Member)
	case Durable:
		return c.durable(s, e.Record)
	case Timer:
		return c.timer(s, e.Kind)
	case Lost:
		return Coordinator{Phase: Silent, Term: s.Term, Ledger: s.Ledger}, nil
	}
	return s, nil
}

// stale says that the current epoch was given in an older term, under whose coordinator anything may have begun.
func (s Coordinator) stale() bool { return s.Ledger.Term != s.Term }

// judge compares the identity that a request shows with the current one; 0 if they are equal.
func (s Coordinator) judge(owner Identity) Result {
	switch {
	case owner == s.Ledger.Owner && owner.Producer >= 0:
		return 0
	case s.Ledger.Owner.Producer < 0 || owner.Producer != s.Ledger.Owner.Producer && owner.Producer != s.Ledger.Prev.Producer:
		return BadID
	}
	return Fenced
}

func (c Config) init(s Coordinator, e Init) (Coordinator, []Effect) {
	claimed := e.Claim.Producer >= 0
	if known := e.Claim == s.Ledger.Owner || e.Claim == s.Ledger.Prev; claimed && !known && s.Phase != Fresh {
		return s, reply(e.Request, Fenced)
	}
	switch s.Phase {
	case Fresh, Ready:
		prev := Nobody
		if claimed {
			prev = s.Ledger.Owner
		}
		return c.raise(s, Raising, e.Request, Raised{Prev: prev, Timeout: e.Timeout}, e.Fresh)
	case Open, Voting: // another instance of the client, or the same after a crash: what it left behind aborts
		s, fx := c.fail(s)
		return s, append(fx, Answer{Request: e.Request, Result: Busy})
	}
	return s, reply(e.Request, Busy)
}

func (c Config) raise(s Coordinator, to Phase, req Request, r Raised, fresh int64) (Coordinator, []Effect) {
	s.Phase, s.Request = to, req
	r.Term, r.Owner = s.Term, c.successor(s, fresh)
	return s, []Effect{Append{r}}
}

// renew is the Raised record of a client that goes on.
func (s Coordinator) renew() Raised {
	return Raised{Prev: s.Ledger.Owner, Timeout: s.Ledger.Timeout}
}

// successor is the identity after the current one.
func (c Config) successor(s Coordinator, fresh int64) Identity {
	if c.NeedsProducerID(s) {
		return Identity{Producer: fresh}
	}
	return Identity{Producer: s.Ledger.Owner.Producer, Epoch: s.Ledger.Owner.Epoch + 1}
}

func (c Config) add(s Coordinator, e Add) (Coordinator, []Effect) {
	if bad := s.judge(e.Owner); bad != 0 {
		return s, reply(e.Request, bad)
	}
	switch {
	case s.Phase == Open, s.Phase == Beginning && e.Version < 2:
		for _, m := range e.Members {
			s.Members = with(s.Members, m)
		}
		return s, s.opened(e.Request)
	case s.Phase != Ready && !(s.Phase == Aborting && s.Doomed):
		return s, reply(e.Request, Busy)
	case s.stale() && e.Version < 2:
		return s, reply(e.Request, Stale)
	case s.stale(), s.Doomed:
		return s, reply(e.Request, Aborted)
	}
	s.Number++
	s.Txn, s.Members = Txn{Term: s.Term, Number: s.Number, Owner: e.Owner}, nil
	for _, m := range e.Members {
		s.Members = with(s.Members, m)
	}
	switch begun := (Append{Begun{s.Txn}}); {
	case s.Ledger.repeats(e.Owner) && e.Version < 2: // the client goes on meanwhile: its data and its EndTxn wait until this is replicated
		s.Phase = Beginning
		return s, append(s.opened(e.Request), begun)
	case s.Ledger.repeats(e.Owner): // a partition's leader, which would let data in
		s.Phase, s.Request = Beginning, e.Request
		return s, []Effect{begun}
	}
	s.Phase = Open
	return s, append(s.opened(e.Request), SetTimer{TimerTransaction, s.Ledger.Timeout})
}

func (s Coordinator) opened(req Request) []Effect {
	return []Effect{Answer{Request: req, Result: Done, Owner: s.Ledger.Owner, Txn: s.Txn, Timeout: s.Ledger.Timeout}}
}

func verify(s Coordinator, e Verify) []Effect {
	if bad := s.judge(e.Owner); bad != 0 {
		return reply(e.Request, bad)
	}
	switch s.Phase {
	case Open:
		if _, member := slices.BinarySearch(s.Members, e.Member); member {
			return s.opened(e.Request)
		}
	case Raising, Beginning:
		return reply(e.Request, Busy)
	}
	if s.Doomed || s.stale() {
		return reply(e.Request, Aborted)
	}
	return reply(e.Request, BadState)
}

func (c Config) vote(s Coordinator, e Vote) (Coordinator, []Effect) {
	_, asked := slices.BinarySearch(s.Missing, e.From)
	if s.Phase != Voting || e.Txn != s.Txn || !asked {
		return s, nil
	}
	if !e.Yes {
		return c.fail(s)
	}
	if s.Missing = without(s.Missing, e.From); len(s.Missing) > 0 {
		return s, nil
	}
	return c.decide(s)
}

// decide is reached with a yes of every participant.
func (c Config) decide(s Coordinator) (Coordinator, []Effect) {
	s.Phase = Deciding
	return s, []Effect{ClearTimer{TimerVotes}, ClearTimer{TimerResend}, Append{Committed{Txn: s.Txn, Next: s.Next, Members: s.Members}}}
}

// fail aborts a transaction that the client has not asked to abort, and answers its EndTxn if there is one.
func (c Config) fail(s Coordinator) (Coordinator, []Effect) {
	var fx []Effect
	if s.Phase == Voting {
		fx = reply(s.Request, Aborted)
	}
	s.Doomed, s.Request = true, 0
	s, more := c.abort(s)
	return s, append(fx, more...)
}

// abort gives up a transaction that is not decided. Nothing is replicated: whoever asks later and finds no decision learns the same.
func (c Config) abort(s Coordinator) (Coordinator, []Effect) {
	s.Phase, s.Missing, s.Tries, s.Next = Aborting, s.Members, 0, Identity{}
	fx := append([]Effect{ClearTimer{TimerTransaction}, ClearTimer{TimerVotes}}, c.tellOutcome(s, false)...)
	if len(s.Missing) == 0 {
		s = s.close(Ready)
	}
	return s, fx
}

// close forgets the transaction.
func (s Coordinator) close(to Phase) Coordinator {
	s.Phase, s.Txn, s.Members, s.Missing, s.Tries = to, Txn{}, nil, nil, 0
	return s
}

func (c Config) tellOutcome(s Coordinator, commit bool) []Effect {
	fx := make([]Effect, 0, len(s.Missing)+1)
	for _, m := range s.Missing {
		fx = append(fx, Tell{m, Outcome{Txn: s.Txn, Commit: commit, Epoch: s.Ledger.epochAfter(s.Txn)}})
	}
	if len(fx) == 0 {
		return nil
	}
	return append(fx, SetTimer{TimerResend, c.backoff(c.ResendAfter, s.Tries)})
}

// epochAfter is the epoch that a marker of t carries: the newest of the same producer id.
func (l Ledger) epochAfter(t Txn) int16 {
	if l.Owner.Producer == t.Owner.Producer {
		return max(l.Owner.Epoch, t.Owner.Epoch)
	}
	return t.Owner.Epoch
}

func (c Config) ended(s Coordinator, t Txn, from Member) (Coordinator, []Effect) {
	if t != s.Txn || s.Phase != Committing && s.Phase != Aborting && s.Phase != AbortRaising {
		return s, nil
	}
	before := len(s.Missing)
	if s.Missing = without(s.Missing, from); len(s.Missing) > 0 || before == 0 {
		return s, nil
	}
	fx := []Effect{ClearTimer{TimerResend}}
	switch s.Phase {
	case Committing:
		return s.close(Ready), append(fx, Append{Finished{t}})
	case AbortRaising:
		return s.close(Raising), fx
	}
	return s.close(Ready), fx
}

func (c Config) gone(s Coordinator, m Member) (Coordinator, []Effect) {
	switch s.Phase {
	case Voting:
		return c.vote(s, Vote{Txn: s.Txn, From: m})
	case Committing, Aborting, AbortRaising:
		return c.ended(s, s.Txn, m)
	}
	return s, nil
}

// query answers a participant that promised. Silence means: not decided yet, or not known here; it asks again.
func query(s Coordinator, e Query) []Effect {
	t := e.Txn
	switch {
	case t == s.Ledger.Last.Txn && !t.None():
		return []Effect{Tell{e.From, Outcome{Txn: t, Commit: true, Epoch: s.Ledger.epochAfter(t)}}}
	case t.Term > s.Term, t.Term == s.Term && t.Number > s.Number: // of a successor: this node does not know that it was deposed
		return nil
	case t == s.Txn && s.Phase != Aborting && s.Phase != AbortRaising:
		return nil
	}
	return []Effect{Tell{e.From, Outcome{Txn: t, Commit: false, Epoch: s.Ledger.epochAfter(t)}}}
}

func (c Config) durable(s Coordinator, r Record) (Coordinator, []Effect) {
	s.Ledger = s.Ledger.Apply(r)
	switch {
	case s.Phase == Raising && is[Raised](r):
		s.Phase = Ready
	case s.Phase == AbortRaising && is[Raised](r):
		s.Phase = Aborting
	case s.Phase == Beginning && is[Begun](r):
		s.Phase = Open
		var fx []Effect
		if s.Request != 0 {
			fx, s.Request = s.opened(s.Request), 0
		}
		return s, append(fx, SetTimer{TimerTransaction, s.Ledger.Timeout})
	case s.Phase == Deciding && is[Committed](r):
		s.Phase, s.Missing, s.Tries = Committing, s.Members, 0
		fx := append(s.granted(), c.tellOutcome(s, true)...)
		s.Request, s.Doomed, s.Next = 0, false, Identity{}
		if len(s.Missing) == 0 {
			return s.close(Ready), append(fx, Append{Finished{s.Txn}})
		}
		return s, fx
	default:
		return s, nil
	}
	fx := s.granted()
	s.Request, s.Doomed = 0, false
	return s, fx
}

// granted answers the request in hand with the identity that the ledger holds.
func (s Coordinator) granted() []Effect {
	return []Effect{Answer{Request: s.Request, Result: Done, Owner: s.Ledger.Owner}}
}

func is[R Record](r Record) bool { _, ok := r.(R); return ok }

func (c Config) timer(s Coordinator, k TimerKind) (Coordinator, []Effect) {
	switch {
	case k == TimerTransaction && s.Phase == Open, k == TimerVotes && s.Phase == Voting:
		return c.fail(s)
	case k == TimerResend && s.Phase == Voting:
		s.Tries = c.next(s.Tries)
		return s, c.askVotes(s)
	case k == TimerResend && (s.Phase == Committing || s.Phase == Aborting || s.Phase == AbortRaising):
		s.Tries = c.next(s.Tries)
		return s, c.tellOutcome(s, s.Phase == Committing)
	}
	return s, nil
}

func (c Config) askVotes(s Coordinator) []Effect {
	fx := make([]Effect, 0, len(s.Missing)+1)
	for _, m := range s.Missing {
		fx = append(fx, Tell{m, Prepare{s.Txn}})
	}
	return append(fx, SetTimer{TimerResend, c.backoff(c.ResendAfter, s.Tries)})
}

// reply answers without an identity.
func reply(to Request, r Result) []Effect {
	return []Effect{Answer{Request: to, Result: r, Confirm: r == Fenced || r == BadState || r == BadID}}
}

// String tells everything that decides, durations left out: two coordinators with equal strings do the same for ever.
func (s Coordinator) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s t%d", s.Phase, s.Term)
	if l := s.Ledger; l.Owner.Producer >= 0 {
		fmt.Fprintf(&b, " %s of t%d", l.Owner, l.Term)
		if l.Prev != Nobody {
			fmt.Fprintf(&b, " after %s", l.Prev)
		}
		if !l.Last.Txn.None() {
			fmt.Fprintf(&b, " last %s", l.Last.Txn)
		}
		if !l.Finished {
			b.WriteString(" unfinished")
		}
		if !l.Begun.None() {
			fmt.Fprintf(&b, " begun %s", l.Begun)
		}
	}
	if s.Doomed {
		b.WriteString(" doomed")
	}
	if !s.Txn.None() {
		fmt.Fprintf(&b, " txn %s {%s} missing {%s}", s.Txn, names(s.Members), names(s.Missing))
	}
	if s.Number > 0 {
		fmt.Fprintf(&b, " n%d", s.Number)
	}
	if s.Request != 0 {
		fmt.Fprintf(&b, " for #%d", s.Request)
	}
	if s.Tries > 0 {
		fmt.Fprintf(&b, " try %d", s.Tries)
	}
	if s.Next != (Identity{}) {
		fmt.Fprintf(&b, " next %s", s.Next)
	}
	return b.String()
}
