package kafkastyle

import (
	"time"

	"gopherlog/txn/explore"
	"gopherlog/txn/kafkatx"
)

// coordinator drives kafkatx.
type coordinator struct {
	kafkatx.Config
	Setting
}

func newCoordinator(s Setting) coordinator {
	return coordinator{kafkatx.Config{MaxTimeout: time.Hour, FenceVersion: kafkatx.Version2}, s} // back-offs are of no concern
}

type step struct{ *kafkatx.Meta }

// given is what the client was given before the world began.
var given = &kafkatx.Meta{Status: kafkatx.Empty, ProducerID: theProducer, LastEpoch: kafkatx.None, Previous: kafkatx.None, Next: kafkatx.None, Timeout: time.Minute, Start: kafkatx.None}

func (coordinator) Name() string    { return "coordinator" }
func (coordinator) Deposable() bool { return true }

func (c coordinator) Boot(term int, log []explore.Record) (explore.Local, []explore.Effect) {
	newest := given
	if len(log) > 0 {
		newest = log[len(log)-1].(step).Meta
	}
	if c.Plant == Reopened && newest.Status == kafkatx.PrepareCommit {
		open := *newest
		open.Status = kafkatx.Ongoing
		newest = &open
	}
	if c.Plant == OwedForgotten && newest.Owed != nil {
		paid := *newest
		paid.Owed = nil
		newest = &paid
	}
	s, fx := c.Config.Boot(int32(term), newest, time.Time{})
	return s, c.effects(fx)
}

func (c coordinator) Own(l explore.Local) []explore.Event {
	s := l.(kafkatx.State)
	switch {
	case len(s.Unmarked) > 0:
		return []explore.Event{dueAgain{kafkatx.TimerResend}}
	case s.Meta.Status == kafkatx.Ongoing:
		return []explore.Event{due{kafkatx.TimerTransaction}}
	}
	return nil
}

func (c coordinator) Handle(l explore.Local, e explore.Event) (explore.Local, []explore.Effect) {
	s := c.planted(l.(kafkatx.State), e)
	after, fx := c.Config.Handle(s, c.event(e), time.Time{})
	for c.Plant == EarlyOutcome && after.Meta.Status.Decided() && len(after.Pending) > 0 {
		early, more := c.Config.Handle(after, kafkatx.Durable{}, time.Time{})
		after, fx = early, append(fx, more...)
	}
	after.Tries = 0
	if c.Plant == EarlyAdd && after.Meta.Owed != nil {
		for i, f := range fx {
			if a, ok := f.(kafkatx.Answer); ok && a.Code == kafkatx.ConcurrentTransactions && a.Request >= partitionRequests {
				a.Code = kafkatx.OK
				fx[i] = a
			}
		}
	}
	return after, c.effects(fx)
}

// planted forgets what is owed where a planted fault does.
func (c coordinator) planted(s kafkatx.State, e explore.Event) kafkatx.State {
	m, ok := e.(explore.Message)
	if !ok || s.Meta.Status != kafkatx.Ongoing {
		return s
	}
	if _, ends := m.Body.(end); ends && c.Plant == EarlyEnd {
		s.Unmarked = nil
	}
	return s
}

func (c coordinator) event(e explore.Event) kafkatx.Event {
	switch e := e.(type) {
	case explore.Durable:
		return kafkatx.Durable{}
	case due:
		return kafkatx.Timer{Kind: e.Kind}
	case dueAgain:
		return kafkatx.Timer{Kind: e.Kind}
	case explore.Message:
		switch m := e.Body.(type) {
		case add:
			return kafkatx.AddPartitions{Request: m.Request, ProducerID: theProducer, Epoch: m.Epoch, Partitions: []kafkatx.Partition{participant(m.Part)}}
		case end:
			return kafkatx.EndTxn{Request: m.Request, ProducerID: theProducer, Epoch: m.Epoch, Commit: m.Commit, Version: c.endVersion(), Fresh: kafkatx.None}
		case initialise:
			return kafkatx.InitProducerID{Request: m.Request, Timeout: time.Minute, ProducerID: theProducer, Epoch: m.Epoch, Fresh: kafkatx.None}
		case verify:
			req, ps := partitionRequest(m.Part, m.Epoch), []kafkatx.Partition{participant(m.Part)}
			if c.Version < 2 {
				return kafkatx.Verify{Request: req, ProducerID: theProducer, Epoch: m.Epoch, Partitions: ps}
			}
			return kafkatx.AddPartitions{Request: req, ProducerID: theProducer, Epoch: m.Epoch, Partitions: ps, Version: kafkatx.Version2}
		case marked:
			return kafkatx.Marked{Partition: participant(m.Part), ProducerID: theProducer, Epoch: m.Epoch}
		}
	}
	panic("kafkastyle: event for nobody: " + e.String())
}

// endVersion: without an epoch per transaction EndTxn is what it was at version 1.
func (c coordinator) endVersion() kafkatx.Version {
	if c.Plant == OneEpoch {
		return kafkatx.Version0
	}
	return c.coordinated()
}

func (c coordinator) effects(fx []kafkatx.Effect) (out []explore.Effect) {
	for _, f := range fx {
		switch f := f.(type) {
		case kafkatx.Append:
			out = append(out, explore.Append{Record: step{f.Record}})
		case kafkatx.WriteMarker:
			out = append(out, explore.Send{To: partitionID(int(f.Partition.Number)), Body: mark{f.Epoch, f.Coordinator, f.Commit, f.Version}})
		case kafkatx.Answer:
			if f.Code != kafkatx.ConcurrentTransactions { // who is told to come again comes again
				out = append(out, reply(f))
			}
		}
	}
	return out
}

func reply(a kafkatx.Answer) explore.Effect {
	if a.Request < partitionRequests {
		return explore.Send{To: clientID, Body: answer{a.Request, a.Code, a.Epoch}, Confirm: a.Confirm}
	}
	part, epoch := int(a.Request-partitionRequests)/1000, int16((a.Request-partitionRequests)%1000)
	return explore.Send{To: partitionID(part), Body: verified{epoch, a.Code}, Confirm: a.Confirm}
}
