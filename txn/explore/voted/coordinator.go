package voted

import (
	"time"

	"gopherlog/txn/explore"
	"gopherlog/txn/twopc"
)

// coordinator drives twopc.Coordinator.
type coordinator struct {
	twopc.Config
	Setting
}

type record struct{ twopc.Record }

func (coordinator) Name() string    { return "coordinator" }
func (coordinator) Deposable() bool { return true }

func (c coordinator) Boot(term int, log []explore.Record) (explore.Local, []explore.Effect) {
	l := twopc.NewLedger().Apply(firstEpoch)
	for _, r := range log {
		l = l.Apply(r.(record).Record)
	}
	if c.Plant == NoTermFence {
		l.Term = uint64(term)
	}
	s, fx := c.Config.Boot(uint64(term), l)
	return s, c.effects(fx)
}

// firstEpoch is what the client was given before the world began.
var firstEpoch = twopc.Raised{Term: 1, Owner: twopc.Identity{Producer: 7}, Prev: twopc.Nobody}

func (c coordinator) Own(l explore.Local) []explore.Event {
	switch l.(twopc.Coordinator).Phase {
	case twopc.Open:
		return []explore.Event{c.timeout(twopc.TimerTransaction)}
	case twopc.Voting:
		return []explore.Event{c.timeout(twopc.TimerVotes), dueAgain{twopc.TimerResend}}
	case twopc.Committing, twopc.Aborting, twopc.AbortRaising:
		return []explore.Event{dueAgain{twopc.TimerResend}}
	}
	return nil
}

func (c coordinator) Handle(l explore.Local, e explore.Event) (explore.Local, []explore.Effect) {
	s := l.(twopc.Coordinator)
	what := c.event(e)
	after, fx := c.Coordinate(s, what, time.Time{})
	if v, asked := what.(twopc.Verify); asked && c.Plant == EarlyWord && s.Phase == twopc.Beginning {
		s.Phase = twopc.Open
		_, fx = c.Coordinate(s, v, time.Time{})
	}
	if c.Plant == EarlyOutcome && after.Phase == twopc.Deciding && s.Phase != twopc.Deciding {
		early, more := c.Coordinate(after, twopc.Durable{Record: decision(fx)}, time.Time{})
		after, fx = early, append(fx, more...)
	}
	return after, c.effects(fx)
}

// decision is the record of the decision among the effects.
func decision(fx []twopc.Effect) twopc.Record {
	for _, f := range fx {
		if a, ok := f.(twopc.Append); ok {
			return a.Record
		}
	}
	panic("voted: a coordinator decided without a record")
}

func (c coordinator) event(e explore.Event) twopc.Event {
	switch e := e.(type) {
	case explore.Durable:
		return twopc.Durable{Record: e.Record.(record).Record}
	case due:
		return twopc.Timer{Kind: e.Kind}
	case dueAgain:
		return twopc.Timer{Kind: e.Kind}
	case explore.Message:
		switch m := e.Body.(type) {
		case add:
			return twopc.Add{Request: m.Request, Owner: m.Owner, Members: []twopc.Member{member(m.Part)}, Version: 0}
		case end:
			return twopc.End{Request: m.Request, Owner: m.Owner, Commit: m.Commit, Version: c.endVersion()}
		case initialise:
			return twopc.Init{Request: m.Request, Claim: m.Claim}
		case verify:
			req := partitionRequest(m.Part, m.Txn)
			if c.Version < 2 {
				return twopc.Verify{Request: req, Owner: m.Owner, Member: member(m.Part)}
			}
			return twopc.Add{Request: req, Owner: m.Owner, Members: []twopc.Member{member(m.Part)}, Version: 2}
		case protocol:
			return m.Message.(twopc.Event)
		}
	}
	panic("voted: event for nobody: " + e.String())
}

// endVersion: without an epoch per transaction EndTxn is what it was at version 0.
func (c coordinator) endVersion() int8 {
	if c.Plant == OneEpoch {
		return 0
	}
	return c.Version
}

func (c coordinator) effects(fx []twopc.Effect) (out []explore.Effect) {
	for _, f := range fx {
		switch f := f.(type) {
		case twopc.Append:
			out = append(out, explore.Append{Record: record{f.Record}})
		case twopc.Tell:
			out = append(out, explore.Send{To: partitionID(index(f.To)), Body: protocol{f.Message}})
		case twopc.Answer:
			if f.Result != twopc.Busy { // a client that is told to come again comes again
				out = append(out, c.answer(f))
			}
		}
	}
	return out
}

func (c coordinator) answer(a twopc.Answer) explore.Effect {
	if a.Request < 10000 {
		return explore.Send{To: clientID, Body: answer{a.Request, a.Result, a.Owner}, Confirm: a.Confirm}
	}
	part, txn := int(a.Request-10000)/100, int(a.Request-10000)%100
	return explore.Send{To: partitionID(part), Body: verified{Txn: txn, Owner: a.Owner, Result: a.Result, Of: a.Txn}, Confirm: a.Confirm}
}
