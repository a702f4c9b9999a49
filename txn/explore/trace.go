package explore

import (
	"fmt"
	"slices"
	"strings"
)

// Trace is a way through a System from its start.
type Trace []Step

// Step is one line of a trace.
type Step struct {
	Fault  bool   // a crash, a loss, a repeat
	Actor  string // to whom it happens
	From   string // who sent the message; empty if it is none
	Event  string
	Does   []string // effects, in order, as far as a crash let them happen
	Change string   // the actor's state after it; empty if it is as before
}

// String numbers the steps, one a line.
func (t Trace) String() string {
	var b strings.Builder
	for i, s := range t {
		fmt.Fprintf(&b, "%3d %s\n", i+1, s)
	}
	return b.String()
}

func (s Step) String() string {
	var b strings.Builder
	mark := " "
	if s.Fault {
		mark = "!"
	}
	fmt.Fprintf(&b, "%s %-12s", mark, s.Actor)
	if s.From != "" {
		fmt.Fprintf(&b, " ← %s:", s.From)
	}
	b.WriteString(" " + s.Event)
	if len(s.Does) > 0 {
		fmt.Fprintf(&b, "; %s", strings.Join(s.Does, "; "))
	}
	if s.Change != "" {
		fmt.Fprintf(&b, "  [%s]", s.Change)
	}
	return b.String()
}

// trace is the way by which state i was reached first.
func (x *search) trace(i uint32) Trace {
	var t Trace
	for ; i != 0; i = x.seen.parent[i] {
		t = append(t, x.describe(x.seen.parent[i], int(x.seen.ordinal[i])))
	}
	slices.Reverse(t)
	return t
}

// describe is the ordinal-th step from state i.
func (x *search) describe(i uint32, ordinal int) (out Step) {
	var s state
	s.decode(x.seen.bytes(i), len(x.sys.Actors))
	n := 0
	x.steps(s, func(st step) bool {
		if n == ordinal {
			out = x.tell(s, st)
		}
		n++
		return n <= ordinal
	})
	return out
}

func (x *search) tell(s state, st step) Step {
	out := Step{Fault: st.move.fault, Actor: x.sys.Actors[st.at].Name(), Event: st.move.title()}
	out.Does = append(x.words(st.move.does, st.move.byDeposed), x.words(st.move.boots, false)...)
	if st.message >= 0 {
		out.From = x.sys.Actors[x.flights.values[s.net[st.message]].From].Name()
	}
	before, after := x.nodes[s.nodes[st.at]], x.nodes[st.move.to]
	if before.local != after.local {
		out.Change = x.locals.values[after.local].String()
	}
	return out
}

// title says what happened.
func (m *move) title() string {
	var b strings.Builder
	if m.byDeposed {
		b.WriteString("(deposed) ")
	}
	if m.event != nil {
		b.WriteString(m.event.String())
	}
	switch {
	case m.depose:
		b.WriteString("deposed, and does not know it")
	case m.crash && m.event != nil:
		b.WriteString(", then crash")
	case m.crash:
		b.WriteString("crash")
	}
	if m.lose > 0 {
		fmt.Fprintf(&b, " (loses %d)", m.lose)
	}
	if m.keep > 0 {
		fmt.Fprintf(&b, " (finds %d durable)", m.keep)
	}
	return b.String()
}

// words tells effects.
func (x *search) words(fx []Effect, deposed bool) (out []string) {
	for _, f := range fx {
		switch f := f.(type) {
		case Send:
			text := fmt.Sprintf("→ %s: %s", x.sys.Actors[f.To].Name(), f.Body)
			if f.Confirm && deposed {
				text = "asks a quorum in vain"
			}
			out = append(out, text)
		case Append:
			text := "append: " + f.Record.String()
			if deposed {
				text = "append in vain: " + f.Record.String()
			}
			out = append(out, text)
		}
	}
	return out
}

// view shows a state to the invariants.
type view struct {
	*world
	s state
}

func (v *view) node(id ID) *node       { return &v.nodes[v.s.nodes[id]] }
func (v *view) Local(id ID) Local      { return v.locals.values[v.node(id).local] }
func (v *view) Log(id ID) []Record     { return v.node(id).log }
func (v *view) Pending(id ID) []Record { return v.node(id).pending }
func (v *view) Term(id ID) int         { return v.node(id).term }
func (v *view) Digest(id ID) any       { return v.node(id).digest }
func (v *view) Deposed(id ID) (l Local) {
	if d := v.node(id).deposed; d > 0 {
		l = v.locals.values[d-1]
	}
	return l
}

func (v *view) Flying(fits func(Message) bool) bool {
	return slices.ContainsFunc(v.s.net, func(m uint32) bool { return fits(v.flights.values[m]) })
}
