package explore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// The toy: a counter that appends one record per request and answers, and a client that asks twice. say is when it answers.
type word string

func (w word) String() string { return string(w) }

type again struct{ word }

func (again) Lazy() {}

type toyServer struct{ early, deaf bool }

type toyCount struct{ seen, durable int }

func (c toyCount) String() string { return fmt.Sprintf("seen %d durable %d", c.seen, c.durable) }

func (toyServer) Name() string      { return "server" }
func (toyServer) Deposable() bool   { return true }
func (toyServer) Own(Local) []Event { return nil }

func (s toyServer) Boot(_ int, log []Record) (Local, []Effect) {
	return toyCount{len(log), len(log)}, nil
}

func (s toyServer) Handle(l Local, e Event) (Local, []Effect) {
	c := l.(toyCount)
	switch e.(type) {
	case Durable:
		c.durable++
		if s.early {
			return c, nil
		}
		return c, []Effect{Send{To: 1, Body: word(fmt.Sprintf("done %d", c.durable))}}
	case Message:
		n := int(e.String()[len("add ")] - '0')
		if n <= c.durable && !s.deaf {
			return c, []Effect{Send{To: 1, Body: word(fmt.Sprintf("done %d", n))}}
		}
		if n <= c.seen {
			return c, nil
		}
		c.seen++
		if s.early {
			return c, []Effect{Send{To: 1, Body: word(fmt.Sprintf("done %d", n))}, Append{word(fmt.Sprintf("record %d", n))}}
		}
		return c, []Effect{Append{word(fmt.Sprintf("record %d", n))}}
	}
	return c, nil
}

type toyClient struct{}

func (toyClient) Name() string { return "client" }
func (toyClient) Boot(int, []Record) (Local, []Effect) {
	return toyCount{1, 0}, []Effect{Send{To: 0, Body: word("add 1")}}
}

func (toyClient) Own(l Local) []Event {
	if l.(toyCount).seen > 2 {
		return nil
	}
	return []Event{again{"repeats"}}
}

func (toyClient) Handle(l Local, e Event) (Local, []Effect) {
	c := l.(toyCount)
	if e.String() == fmt.Sprintf("done %d", c.seen) {
		c.seen, c.durable = c.seen+1, c.durable+1
	} else if _, ok := e.(again); !ok {
		return c, nil
	}
	if c.seen > 2 {
		return c, nil
	}
	return c, []Effect{Send{To: 0, Body: word(fmt.Sprintf("add %d", c.seen))}}
}

func toy(s toyServer) System {
	return System{
		Name: "toy", Actors: []Actor{s, toyClient{}},
		Always: func(v View) error {
			if told := v.Local(1).(toyCount).durable; told > len(v.Log(0))+len(v.Pending(0)) {
				return errors.New("told more than is kept")
			}
			return nil
		},
		Step: func(before, after View) error {
			if len(after.Log(0)) < len(before.Log(0)) {
				return errors.New("the log shrinks")
			}
			return nil
		},
		Ended: func(v View) bool { return v.Local(1).(toyCount).seen > 2 && len(v.Pending(0)) == 0 },
	}
}

func TestACorrectSystemIsVisitedWhollyAndNothingIsFound(t *testing.T) {
	for _, l := range []Limits{{}, {Crashes: 1}, {Crashes: 2}, {Crashes: 2, Depositions: true}} {
		r := Explore(toy(toyServer{}), l)
		if r.Broken != nil || !r.Complete || r.Ended == 0 {
			t.Errorf("%+v: %s", l, r)
		}
		again := Explore(toy(toyServer{}), l)
		if again.States != r.States || again.Steps != r.Steps || again.Depth != r.Depth {
			t.Errorf("not deterministic: %s, %s", r, again)
		}
	}
}

// Between the answer and the record lies a crash; no shorter way leads there.
func TestACrashAfterEveryEffectFindsAnAnswerBeforeItsRecord(t *testing.T) {
	if r := Explore(toy(toyServer{early: true}), Limits{}); r.Broken != nil {
		t.Fatalf("without crashes there is nothing to find: %s\n%s", r, r.Broken.Trace)
	}
	r := Explore(toy(toyServer{early: true}), Limits{Crashes: 1})
	if r.Broken == nil || r.Broken.What != "told more than is kept" || len(r.Broken.Trace) != 2 {
		t.Fatal(r)
	}
	want := "  1 ! server       ← client: add 1, then crash; → client: done 1\n" +
		"  2   client       ← server: done 1; → server: add 2  [seen 2 durable 1]\n"
	if got := r.Broken.Trace.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// A server that answers a request once only works as long as no answer is lost.
func TestALostAnswerThatNobodyRepeatsIsFound(t *testing.T) {
	r := Explore(toy(toyServer{deaf: true}), Limits{})
	if r.Broken == nil || !strings.Contains(r.Broken.What, "stuck") {
		t.Fatal(r)
	}
	if last := r.Broken.Trace[len(r.Broken.Trace)-1]; last.Event != "loses every message" {
		t.Fatal(r.Broken.Trace)
	}
}

func TestLimitsEndASearchThatIsNotComplete(t *testing.T) {
	r := Explore(toy(toyServer{}), Limits{Crashes: 2, States: 10})
	if r.Complete || r.States < 10 || r.Broken != nil {
		t.Fatal(r)
	}
}

// A deposed leader acts on and gets nothing durable.
func TestADeposedLeaderAppendsInVain(t *testing.T) {
	s := toy(toyServer{})
	seen := false
	s.Always = func(v View) error {
		if d := v.Deposed(0); d != nil && d.(toyCount).seen > d.(toyCount).durable {
			seen = true
		}
		return nil
	}
	if r := Explore(s, Limits{Crashes: 1, Depositions: true}); r.Broken != nil || !seen {
		t.Fatal(r, seen)
	}
}
