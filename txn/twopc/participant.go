package twopc

import (
	"fmt"
	"strings"
	"time"
)

// Stage is what a participant is at with one transactional id.
type Stage uint8

const (
	Idle      Stage = iota // nothing of the id is open here
	Working                // a transaction is open; it may still be aborted alone
	Promising              // the promise waits to be replicated: it counts as given, and is not said
	Prepared               // promised: only the coordinator ends it
	Marking                // the marker waits to be replicated
	Skipping               // the word that nothing is here waits to be replicated
	Deposed                // this node does not lead any more
)

var stages = [...]string{"Idle", "Working", "Promising", "Prepared", "Marking", "Skipping", "Deposed"}

func (s Stage) String() string { return stages[s] }

// Participant is the state for one transactional id on the leader of one partition. It is a value, like Coordinator. It follows what the
// leader appended; what it says to others follows what is replicated.
type Participant struct {
	Stage  Stage
	Self   Member
	Txn    Txn // Working … Skipping
	Ended  Txn // replicated: this transaction and all older ones are over here
	Told   bool
	Commit bool // Marking
	Tries  uint8
	Since  time.Time // Prepared: since when in doubt. For tools; decides nothing and is not part of String, as At of a promise
}

// Join is the participant on a node that has applied the whole log of the partition and leads it.
func (c Config) Join(self Member, st Standing, now time.Time) (Participant, []Effect) {
	p := Participant{Self: self, Txn: st.Txn, Ended: st.Ended}
	switch {
	case st.Promised:
		p.Stage, p.Since = Prepared, since(st.At, now)
		return c.ask(p)
	case !st.Txn.None(): // its coordinator may have gone with the leader of this partition, and know it no more
		p.Stage = Working
		p, fx := c.ask(p)
		return p, append(fx, SetTimer{TimerTransaction, st.Timeout})
	}
	return p, nil
}

// Participate is the participant's step. An event that does not fit the state changes nothing.
func (c Config) Participate(p Participant, e Event, now time.Time) (Participant, []Effect) {
	if p.Stage == Deposed {
		return p, nil
	}
	switch e := e.(type) {
	case Batch:
		return c.batch(p, e)
	case Prepare:
		return c.prepare(p, e.Txn, now)
	case Outcome:
		return c.outcome(p, e)
	case Durable:
		return c.replicated(p, e.Record, now)
	case Decree:
		if p.Stage == Prepared && p.Txn.Owner == e.Owner {
			return c.mark(p, e.Commit, p.Txn.Owner.Epoch, false)
		}
	case Timer:
		return c.due(p, e.Kind)
	case Lost:
		return Participant{Stage: Deposed, Self: p.Self, Ended: p.Ended}, nil
	}
	return p, nil
}

// over says that t cannot be opened here again.
func (p Participant) over(t Txn) bool { return t.Compare(p.Ended) <= 0 }

// batch decides about a transactional batch. One of the epoch of the open transaction needs no question; any other is let in only with the
// coordinator's word for which transaction it belongs to.
func (c Config) batch(p Participant, e Batch) (Participant, []Effect) {
	t := e.Verified
	switch {
	case p.Stage == Working && p.Txn.Owner == e.Owner && (t.None() || t == p.Txn):
		return p, reply(e.Request, Admitted)
	case p.Stage == Working && p.Txn.Owner.Producer == e.Owner.Producer && e.Owner.Epoch < p.Txn.Owner.Epoch:
		return p, reply(e.Request, Fenced)
	case p.Stage != Idle && p.Stage != Working:
		return p, reply(e.Request, Busy)
	case t.None():
		return p, reply(e.Request, Unverified)
	case t.Owner != e.Owner, p.over(t), p.Stage == Working && t.Compare(p.Txn) < 0:
		return p, reply(e.Request, BadState)
	case p.Stage == Working: // an orphan: its coordinator forgot it, and the id has gone on
		p, fx := c.mark(p, false, p.Txn.Owner.Epoch, false)
		return p, append(fx, Answer{Request: e.Request, Result: Busy})
	}
	p.Stage, p.Txn = Working, t
	return p, []Effect{Append{Opened{Txn: t, Timeout: e.Timeout}}, Answer{Request: e.Request, Result: Admitted}, SetTimer{TimerTransaction, e.Timeout}}
}

// mark ends the open transaction. Told: the coordinator waits for the acknowledgement.
func (c Config) mark(p Participant, commit bool, epoch int16, told bool) (Participant, []Effect) {
	p.Stage, p.Commit, p.Told, p.Tries = Marking, commit, told, 0
	return p, []Effect{ClearTimer{TimerTransaction}, ClearTimer{TimerAsk}, Append{Marked{Txn: p.Txn, Commit: commit, Epoch: epoch}}}
}

func (c Config) prepare(p Participant, t Txn, now time.Time) (Participant, []Effect) {
	no := []Effect{Report{Vote{Txn: t, From: p.Self}}}
	order := t.Compare(p.Txn)
	switch {
	case p.over(t), t.None():
		return p, no
	case p.Stage == Idle: // registered, and nothing came: it may commit nothing
		return c.promise(p, t, now)
	case p.Stage == Working && order == 0:
		return c.promise(p, t, now)
	case p.Stage == Working && order > 0: // the id has gone on: what is open here is an orphan
		p, fx := c.mark(p, false, p.Txn.Owner.Epoch, false)
		return p, append(fx, no...)
	case p.Stage == Promising && order == 0: // the vote follows
		return p, nil
	case p.Stage == Prepared && order == 0:
		return p, []Effect{Report{Vote{Txn: t, From: p.Self, Yes: true}}}
	case p.Stage == Prepared && order > 0:
		return p, append(no, Report{Query{Txn: p.Txn, From: p.Self}})
	}
	return p, no
}

func (c Config) promise(p Participant, t Txn, now time.Time) (Participant, []Effect) {
	p.Stage, p.Txn, p.Tries = Promising, t, 0
	return p, []Effect{ClearTimer{TimerTransaction}, ClearTimer{TimerAsk}, Append{Promised{Txn: t, At: millis(now)}}}
}

// millis is now as records hold it; a driver without a clock has none.
func millis(now time.Time) int64 {
	if now.IsZero() {
		return 0
	}
	return now.UnixMilli()
}

// since is when a promise was given. One that does not say so was known by now.
func since(at int64, now time.Time) time.Time {
	if at == 0 {
		return now
	}
	return time.UnixMilli(at)
}

func (c Config) outcome(p Participant, e Outcome) (Participant, []Effect) {
	order := e.Txn.Compare(p.Txn)
	switch {
	case e.Txn.None():
		return p, nil
	case p.over(e.Txn), p.open() && order < 0: // a repeat
		return p, []Effect{Report{Ended{Txn: e.Txn, From: p.Self}}}
	case p.Stage == Idle:
		p.Stage, p.Txn = Skipping, e.Txn
		return p, []Effect{Append{Skipped{e.Txn}}}
	case p.Stage == Marking && order == 0:
		p.Told = true
		return p, nil
	case order == 0 && (p.Stage == Promising || p.Stage == Prepared || p.Stage == Working && !e.Commit):
		return c.mark(p, e.Commit, e.Epoch, true)
	case order > 0 && p.Stage == Working: // the id has gone on
		return c.mark(p, false, p.Txn.Owner.Epoch, false)
	case order > 0 && p.Stage == Prepared:
		return p, []Effect{Report{Query{Txn: p.Txn, From: p.Self}}}
	}
	return p, nil
}

// open says that Txn holds data, or a promise, that is not ended.
func (p Participant) open() bool {
	return p.Stage == Working || p.Stage == Promising || p.Stage == Prepared || p.Stage == Marking
}

func (c Config) replicated(p Participant, r Record, now time.Time) (Participant, []Effect) {
	switch r := r.(type) {
	case Promised:
		if p.Stage == Promising && r.Txn == p.Txn {
			p.Stage, p.Since, p.Tries = Prepared, since(r.At, now), 0
			return p, []Effect{Report{Vote{Txn: p.Txn, From: p.Self, Yes: true}}, SetTimer{TimerAsk, c.AskAfter}}
		}
	case Marked:
		if p.Stage == Marking && r.Txn == p.Txn {
			return p.rest(r.Txn, p.Told)
		}
	case Skipped:
		if p.Stage == Skipping && r.Txn == p.Txn {
			return p.rest(r.Txn, true)
		}
	}
	return p, nil
}

func (p Participant) rest(ended Txn, told bool) (Participant, []Effect) {
	p = Participant{Self: p.Self, Ended: newer(p.Ended, ended)}
	if !told {
		return p, nil
	}
	return p, []Effect{Report{Ended{Txn: ended, From: p.Self}}}
}

func (c Config) due(p Participant, k TimerKind) (Participant, []Effect) {
	switch {
	case k == TimerTransaction && p.Stage == Working:
		return c.mark(p, false, p.Txn.Owner.Epoch, false)
	case k == TimerAsk && (p.Stage == Prepared || p.Stage == Working):
		return c.ask(p)
	}
	return p, nil
}

// ask asks for the outcome, and will again. A participant that promised nothing may ask as well, when leadership has changed: a coordinator
// that does not know the transaction has it aborted before its time is over.
func (c Config) ask(p Participant) (Participant, []Effect) {
	fx := []Effect{Report{Query{Txn: p.Txn, From: p.Self}}, SetTimer{TimerAsk, c.backoff(c.AskAfter, p.Tries)}}
	p.Tries = c.next(p.Tries)
	return p, fx
}

// String tells everything that decides: two participants of one partition with equal strings do the same for ever.
func (p Participant) String() string {
	var b strings.Builder
	b.WriteString(p.Stage.String())
	if !p.Txn.None() {
		fmt.Fprintf(&b, " %s", p.Txn)
	}
	if p.Stage == Marking {
		b.WriteString(" " + verb(p.Commit))
	}
	if p.Told {
		b.WriteString(" told")
	}
	if !p.Ended.None() {
		fmt.Fprintf(&b, " ended %s", p.Ended)
	}
	if p.Tries > 0 {
		fmt.Fprintf(&b, " try %d", p.Tries)
	}
	return b.String()
}
