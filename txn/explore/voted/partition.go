package voted

import (
	"fmt"
	"time"

	"gopherlog/txn/explore"
	"gopherlog/txn/twopc"
)

// partition drives twopc.Participant, and keeps what a partition knows of batches: which it has, so that a repeat is not appended twice.
type partition struct {
	twopc.Config
	Setting
	i int
}

// partitionLocal is a partition's leader. Bit n of a set stands for batch n.
type partitionLocal struct {
	twopc.Participant
	appended, durable uint16
}

func (l partitionLocal) String() string {
	s := l.Participant.String()
	if l.appended != 0 {
		s += fmt.Sprintf(" batches%s", set(l.durable))
	}
	if more := l.appended &^ l.durable; more != 0 {
		s += " +" + set(more)
	}
	return s
}

func set(bits uint16) (s string) {
	for n := range 16 {
		if bits&(1<<n) != 0 {
			s += fmt.Sprintf(" %d", n)
		}
	}
	return s
}

func (p partition) Name() string  { return string(member(p.i)) }
func (partition) Deposable() bool { return true }

func (p partition) Boot(_ int, log []explore.Record) (explore.Local, []explore.Effect) {
	var st twopc.Standing
	var l partitionLocal
	for _, r := range log {
		switch r := r.(type) {
		case batch:
			l.durable |= 1 << r.Txn
			if !r.Opens.None() {
				st = st.Apply(twopc.Opened{Txn: r.Opens})
			}
		case record:
			st = st.Apply(r.Record)
		}
	}
	l.appended = l.durable
	m, fx := p.Join(member(p.i), st, time.Time{})
	l.Participant = m
	out, l := p.effects(l, fx, produce{})
	return l, out
}

func (p partition) Own(l explore.Local) []explore.Event {
	switch l.(partitionLocal).Stage {
	case twopc.Working:
		return []explore.Event{p.timeout(twopc.TimerTransaction), dueAgain{twopc.TimerAsk}}
	case twopc.Prepared:
		if p.Plant == LonelyAbort {
			return []explore.Event{dueAgain{twopc.TimerAsk}, due{twopc.TimerTransaction}}
		}
		return []explore.Event{dueAgain{twopc.TimerAsk}}
	}
	return nil
}

func (p partition) Handle(local explore.Local, e explore.Event) (explore.Local, []explore.Effect) {
	l := local.(partitionLocal)
	switch e := e.(type) {
	case explore.Durable:
		if b, ok := e.Record.(batch); ok {
			l.durable |= 1 << b.Txn
			return l, []explore.Effect{p.produced(b.Txn, twopc.Done)}
		}
		return p.step(l, twopc.Durable{Record: e.Record.(record).Record}, produce{})
	case due:
		return p.step(l, twopc.Timer{Kind: e.Kind}, produce{})
	case dueAgain:
		return p.step(l, twopc.Timer{Kind: e.Kind}, produce{})
	case explore.Message:
		switch m := e.Body.(type) {
		case produce:
			return p.offer(l, m, twopc.Txn{})
		case verified:
			return p.answered(l, m)
		case protocol:
			return p.step(l, m.Message.(twopc.Event), produce{})
		}
	}
	panic("voted: event for nobody: " + e.String())
}

// offer takes a batch to the machine, unless it is here already.
func (p partition) offer(l partitionLocal, b produce, t twopc.Txn) (explore.Local, []explore.Effect) {
	switch {
	case l.durable&(1<<b.Txn) != 0:
		return l, []explore.Effect{p.produced(b.Txn, twopc.Done)}
	case l.appended&(1<<b.Txn) != 0:
		return l, nil
	}
	return p.step(l, twopc.Batch{Request: twopc.Request(b.Txn), Owner: b.Owner, Verified: t}, b)
}

func (p partition) answered(l partitionLocal, m verified) (explore.Local, []explore.Effect) {
	switch m.Result {
	case twopc.Done:
		return p.offer(l, produce{m.Txn, m.Of.Owner}, m.Of)
	case twopc.Busy:
		return l, nil
	}
	return l, []explore.Effect{p.produced(m.Txn, m.Result)}
}

func (p partition) produced(txn int, r twopc.Result) explore.Effect {
	return explore.Send{To: clientID, Body: produced{txn, p.i, r}}
}

func (p partition) step(l partitionLocal, e twopc.Event, b produce) (explore.Local, []explore.Effect) {
	after, fx, done := p.planted(l.Participant, e)
	if !done {
		after, fx = p.Participate(l.Participant, e, time.Time{})
	}
	l.Participant = after
	out, l := p.effects(l, fx, b)
	return l, out
}

// effects turns the machine's effects into the world's; b is the batch that an Admitted is about.
func (p partition) effects(l partitionLocal, fx []twopc.Effect, b produce) (out []explore.Effect, _ partitionLocal) {
	var opens twopc.Txn
	for _, f := range fx {
		switch f := f.(type) {
		case twopc.Append:
			if o, ok := f.Record.(twopc.Opened); ok {
				opens = o.Txn // goes with the batch
				continue
			}
			out = append(out, explore.Append{Record: record{f.Record}})
		case twopc.Report:
			out = append(out, explore.Send{To: coordinatorID, Body: protocol{f.Message}})
		case twopc.Answer:
			switch f.Result {
			case twopc.Admitted:
				l.appended |= 1 << b.Txn
				out = append(out, explore.Append{Record: batch{b.Txn, opens}})
			case twopc.Unverified:
				out = append(out, explore.Send{To: coordinatorID, Body: verify{b.Txn, p.i, b.Owner}})
			case twopc.Busy:
			default:
				out = append(out, p.produced(b.Txn, f.Result))
			}
		}
	}
	return out, l
}
