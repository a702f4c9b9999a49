package twopc

import (
	"slices"
	"testing"
	"time"
)

// did runs events through a coordinator and returns what the last one made it do.
func did(s Coordinator, events ...Event) (Coordinator, []Effect) {
	var fx []Effect
	for _, e := range events {
		s, fx = Defaults().Coordinate(s, e, time.Time{})
	}
	return s, fx
}

func records(fx []Effect) (out []Record) {
	for _, f := range fx {
		if a, ok := f.(Append); ok {
			out = append(out, a.Record)
		}
	}
	return out
}

// open is a coordinator of term 2 with transaction t2.1/7:0 over a and b.
func open(t *testing.T, version int8) Coordinator {
	t.Helper()
	l := NewLedger().Apply(Raised{Term: 2, Owner: Identity{7, 0}, Prev: Nobody, Timeout: time.Minute})
	s, _ := Defaults().Boot(2, l)
	s, _ = did(s, Add{Request: 1, Owner: Identity{7, 0}, Members: []Member{"b", "a"}, Version: version})
	if s.Phase != Open || !slices.Equal(s.Members, []Member{"a", "b"}) {
		t.Fatal(s)
	}
	return s
}

func yes(s Coordinator, m Member) Event { return Vote{Txn: s.Txn, From: m, Yes: true} }

// A round of a whole transaction counts what is replicated: two promises, a decision, two markers and the end that nothing waits for.
func TestACommitReplicatesOneDecisionBesideTheParticipants(t *testing.T) {
	s := open(t, 2)
	var appended []Record
	run := func(e Event) []Effect {
		after, fx := Defaults().Coordinate(s, e, time.Time{})
		s = after
		appended = append(appended, records(fx)...)
		return fx
	}
	run(End{Request: 2, Owner: Identity{7, 0}, Commit: true, Version: 2})
	run(yes(s, "a"))
	decision := records(run(yes(s, "b")))
	if len(decision) != 1 || !is[Committed](decision[0]) {
		t.Fatal(decision)
	}
	name := s.Txn
	fx := run(Durable{decision[0]})
	if a, ok := fx[0].(Answer); !ok || a.Request != 2 || a.Result != Done || a.Owner != (Identity{7, 1}) {
		t.Fatal(fx)
	}
	run(Ended{name, "a"})
	run(Ended{name, "b"})
	if len(appended) != 2 || !is[Finished](appended[1]) || s.Phase != Ready {
		t.Fatal(appended, s)
	}
}

func TestAnAbortReplicatesNothingAtVersion0(t *testing.T) {
	s, fx := did(open(t, 0), End{Request: 2, Owner: Identity{7, 0}, Version: 0})
	if len(records(fx)) != 0 || s.Phase != Aborting {
		t.Fatal(fx, s)
	}
}

func TestADecisionIsToldAgainByTheNextTerm(t *testing.T) {
	txn := Txn{Term: 2, Number: 1, Owner: Identity{7, 0}}
	l := NewLedger().Apply(Raised{Term: 2, Owner: Identity{7, 0}, Prev: Nobody}).Apply(Committed{Txn: txn, Next: Identity{7, 1}, Members: []Member{"a", "b"}})
	s, fx := Defaults().Boot(3, l)
	if s.Phase != Committing || len(fx) != 3 || fx[0] != (Tell{"a", Outcome{Txn: txn, Commit: true, Epoch: 1}}) {
		t.Fatal(s, fx)
	}
}

func TestAnEpochOfAnOlderTermCommitsNothing(t *testing.T) {
	l := NewLedger().Apply(Raised{Term: 2, Owner: Identity{7, 0}, Prev: Nobody})
	s, _ := Defaults().Boot(3, l)
	for _, e := range []Event{
		End{Request: 1, Owner: Identity{7, 0}, Commit: true, Version: 2},
		Add{Request: 1, Owner: Identity{7, 0}, Members: []Member{"a"}, Version: 2},
	} {
		if _, fx := did(s, e); fx[0].(Answer).Result != Aborted {
			t.Fatal(fx)
		}
	}
	s, fx := did(s, End{Request: 1, Owner: Identity{7, 0}, Version: 2})
	r := records(fx)
	if len(r) != 1 || r[0] != (Raised{Term: 3, Owner: Identity{7, 1}, Prev: Identity{7, 0}}) {
		t.Fatal(fx)
	}
	if s, _ = did(s, Durable{r[0]}, Add{Request: 2, Owner: Identity{7, 1}, Members: []Member{"a"}, Version: 2}); s.Phase != Open || s.Txn.Term != 3 {
		t.Fatal(s)
	}
}

// A record that was appended when leadership went may be durable: to call the transaction aborted then would split it.
func TestLostLeadershipIsSilence(t *testing.T) {
	s, _ := did(open(t, 2), End{Request: 2, Owner: Identity{7, 0}, Commit: true, Version: 2})
	s, _ = did(s, yes(s, "a"), yes(s, "b"))
	s, fx := did(s, Lost{})
	if s.Phase != Silent || len(fx) != 0 {
		t.Fatal(s, fx)
	}
	if _, fx = did(s, Query{Txn{Term: 2, Number: 1, Owner: Identity{7, 0}}, "a"}); len(fx) != 0 {
		t.Fatal(fx)
	}
}

func TestUsedUpEpochsLeadToAFreshProducerID(t *testing.T) {
	c := Defaults()
	owner := Identity{7, c.MaxEpoch - 1}
	s, _ := c.Boot(2, NewLedger().Apply(Raised{Term: 2, Owner: owner, Prev: Nobody}))
	if !c.NeedsProducerID(s) {
		t.Fatal(s)
	}
	s, fx := did(s, End{Request: 1, Owner: owner, Version: 2, Fresh: 8})
	if r := records(fx); len(r) != 1 || r[0].(Raised).Owner != (Identity{8, 0}) {
		t.Fatal(fx)
	}
	if _, fx = did(s, Durable{records(fx)[0]}, End{Request: 2, Owner: owner, Version: 2, Fresh: 9}); fx[0].(Answer) != (Answer{Request: 2, Result: Done, Owner: Identity{8, 0}}) {
		t.Fatal("a repeat", fx)
	}
}

func TestADeletedParticipantDoesNotHoldUpAnEnd(t *testing.T) {
	s, _ := did(open(t, 2), End{Request: 2, Owner: Identity{7, 0}, Commit: true, Version: 2})
	s, _ = did(s, yes(s, "a"), yes(s, "b"))
	s, _ = did(s, Durable{Committed{Txn: s.Txn, Next: s.Next, Members: s.Members}}, Ended{s.Txn, "a"}, Gone{"b"})
	if s.Phase != Ready {
		t.Fatal(s)
	}
}

func TestAPreparedParticipantAsksWithGrowingPauses(t *testing.T) {
	c := Defaults()
	txn := Txn{Term: 2, Number: 1, Owner: Identity{7, 0}}
	p, fx := c.Join("a", Standing{}.Apply(Opened{Txn: txn}).Apply(Promised{Txn: txn}), time.Time{})
	last := time.Duration(0)
	for range 12 {
		if fx[0] != (Report{Query{txn, "a"}}) {
			t.Fatal(fx)
		}
		pause := fx[1].(SetTimer).After
		if pause < last || pause > c.AskAfter<<c.MaxDoubling {
			t.Fatal(pause, last)
		}
		last = pause
		p, fx = c.Participate(p, Timer{TimerAsk}, time.Time{})
	}
	if p, fx = c.Participate(p, Timer{TimerTransaction}, time.Time{}); p.Stage != Prepared || len(fx) != 0 {
		t.Fatal("it ends alone what it promised", p, fx)
	}
}
