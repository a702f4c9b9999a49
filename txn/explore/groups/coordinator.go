package groups

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gopherlog/txn/explore"
	"gopherlog/txn/group"
)

// coordinator drives group.Config as cluster/coordinator does: it appends what the machine wants appended, and offsets when the machine
// allows them, and shows positions from a table of what is durable.
type coordinator struct {
	group.Config
	Setting
}

func newCoordinator(s Setting) coordinator {
	c := group.Defaults()
	c.InitialDelay = 0 // a timer more, and nothing else
	return coordinator{c, s}
}

const session = 10 * time.Second

// entry is a record of the shard: the group's, or offsets. Request and Generation say whose commit it is; the machine does not see them.
type entry struct {
	Group      *group.Record
	Request    group.Request
	Generation int32
	Offsets    offsets
}

func (e entry) String() string {
	if e.Group != nil {
		return e.Group.String()
	}
	return fmt.Sprintf("offsets %v by #%d of generation %d", e.Offsets, e.Request, e.Generation)
}

// due is a timer.
type due struct {
	Kind   group.TimerKind
	Member string
}

// late is a timer that comes only when nothing else does.
type late struct{ due }

func (late) Lazy() {}

func (d due) String() string { return strings.TrimSpace(fmt.Sprintf("timer: %s %s", d.Kind, d.Member)) }

// local is a coordinator in a term.
type local struct {
	group.State
	term   int
	timers []due // that are set, sorted
	table  offsets
	taken  []group.Request // commits that were appended in this term
	done   []group.Request // and are durable
}

func (l local) String() string {
	s := fmt.Sprintf("%s | timers %v | table %v | term %d | taken %v, done %v", l.State, l.timers, l.table, l.term, l.taken, l.done)
	for _, m := range l.Members {
		s += fmt.Sprintf(" | %s gets %q", m.ID, m.Assignment)
	}
	return s
}

func (coordinator) Name() string    { return "coordinator" }
func (coordinator) Deposable() bool { return true }

func (c coordinator) Boot(term int, log []explore.Record) (explore.Local, []explore.Effect) {
	if n := len(log) - 1; c.Plant == NoBarrier && n >= 0 && log[n].(entry).Group == nil {
		log = log[:n]
	}
	l := local{term: term, table: nowhere}
	var newest *group.Record
	for _, r := range log {
		if e := r.(entry); e.Group != nil {
			newest = e.Group
		} else {
			l.table = l.table.with(e.Offsets)
		}
	}
	state, fx := c.Config.Boot(newest, time.Time{})
	if l.State = state; c.Plant == ForgottenCount {
		l.Generation = 0
	}
	return c.perform(l, fx)
}

// with is the table after a commit.
func (o offsets) with(commit offsets) offsets {
	for p, at := range commit {
		if at >= 0 {
			o[p] = at
		}
	}
	return o
}

// over: the world has had its generations.
func (s Setting) over(l local) bool { return l.Generation > int32(s.Generations) }

func (c coordinator) Own(state explore.Local) []explore.Event {
	l := state.(local)
	var out []explore.Event
	for _, t := range l.timers {
		if c.Calm && t.Kind == group.TimerSession {
			out = append(out, late{t})
		} else {
			out = append(out, t)
		}
	}
	return out
}

func (c coordinator) Handle(state explore.Local, e explore.Event) (explore.Local, []explore.Effect) {
	l := state.(local)
	switch e := e.(type) {
	case due:
		return c.due(l, e)
	case late:
		return c.due(l, e.due)
	case explore.Durable:
		r := e.Record.(entry)
		if r.Group != nil {
			return c.step(l, group.Durable{})
		}
		l.table, l.done = l.table.with(r.Offsets), append(slices.Clip(l.done), r.Request)
		if c.Plant == EarlyAnswer {
			return l, nil
		}
		return l, reply(answer{request: requestOf(r.Request)}, false)
	case explore.Message:
		return c.asked(l, e.Body.(ask))
	}
	panic("groups: event for nobody: " + e.String())
}

func (c coordinator) due(l local, t due) (explore.Local, []explore.Effect) {
	l.timers = without(l.timers, t)
	return c.step(l, group.Timer{Kind: t.Kind, Member: t.Member})
}

func (c coordinator) asked(l local, a ask) (explore.Local, []explore.Effect) {
	n := a.number()
	switch a.Kind {
	case joinNew, joinAgain:
		e := group.Join{Request: n, MemberID: a.ID, ClientID: "c", Session: session, Rebalance: time.Minute, ProtocolType: "consumer", RequireID: true,
			NewID: fmt.Sprintf("m%d.%d@%d", a.Member, a.Try, l.term), Protocols: []group.Protocol{{Name: "p"}}}
		if l.waits(a.ID, n) || a.ID == "" && l.Member(e.NewID) != nil {
			return l, nil // the same as being asked a moment later, or not at all: ids are never given twice
		}
		return c.step(l, e)
	case sync:
		e := group.Sync{Request: n, MemberID: a.ID, Generation: a.Generation, Assignments: map[string][]byte{}}
		for _, one := range strings.FieldsFunc(a.Assign, func(r rune) bool { return r == ',' }) {
			id, part, _ := strings.Cut(one, ":")
			e.Assignments[id] = append(e.Assignments[id], part...)
		}
		if l.waits(a.ID, n) {
			return l, nil
		}
		return c.step(l, e)
	case beat:
		return c.step(l, group.Heartbeat{Request: n, MemberID: a.ID, Generation: a.Generation})
	case leave:
		return c.step(l, group.Leave{Request: n, Members: []group.Leaver{{MemberID: a.ID}}})
	case fetch:
		return l, reply(answer{request: a.request, Offsets: l.table}, c.Plant != UncertainFetch)
	}
	return c.committed(l, a)
}

// waits says whether the member waits for the answer of that very request.
func (l local) waits(id string, n group.Request) bool {
	if m := l.Member(id); m != nil && (m.Joining == n || m.Syncing == n) {
		return true
	}
	for _, p := range l.Pending {
		for _, a := range p.Answers {
			if j, ok := a.(group.Joined); ok && j.Request == n {
				return true
			}
		}
	}
	return false
}

// committed is OffsetCommit: the machine judges, and the offsets are answered when they are durable.
func (c coordinator) committed(l local, a ask) (explore.Local, []explore.Effect) {
	e := group.Commit{Request: a.number(), MemberID: a.ID, Generation: a.Generation}
	if c.Plant == ForgetGeneration && a.Generation < l.Generation {
		e = group.Commit{Request: a.number(), Generation: -1, Transactional: true}
	}
	state, fx := c.Config.Handle(l.State, e, time.Time{})
	l.State = state
	allowed := slices.Contains(fx, group.Effect(group.Answer{Request: a.number()}))
	after, out := c.perform(l, fx)
	switch {
	case !allowed:
		return after, out
	case !slices.Contains(l.taken, a.number()):
		after.taken = append(slices.Clip(l.taken), a.number())
	case slices.Contains(l.done, a.number()): // its answer was lost
		return after, append(out, reply(answer{request: a.request}, false)...)
	default: // a network repeats nothing within a connection, and a client nothing older than what it has asked since
		return after, out
	}
	out = append(out, explore.Append{Record: entry{Request: a.number(), Generation: a.Generation, Offsets: a.Offsets}})
	if c.Plant == EarlyAnswer {
		out = append(out, reply(answer{request: a.request}, false)...)
	}
	return after, out
}

// step lets something happen to the group.
func (c coordinator) step(l local, e group.Event) (explore.Local, []explore.Effect) {
	if c.over(l) {
		return l, nil
	}
	state, fx := c.Config.Handle(l.State, e, time.Time{})
	for c.Plant == EarlyGeneration && len(state.Pending) > 0 && state.Pending[0].Record.Unassigned {
		early, more := c.Config.Handle(state, group.Durable{}, time.Time{})
		state, fx = early, append(fx, more...)
	}
	for c.Plant == EarlyAssignment && len(state.Pending) > 0 && state.Pending[0].Assigns {
		early, more := c.Config.Handle(state, group.Durable{}, time.Time{})
		state, fx = early, append(fx, more...)
	}
	l.State = state
	return c.perform(l, fx)
}

// perform turns the machine's effects into messages, records and timers.
func (c coordinator) perform(l local, fx []group.Effect) (local, []explore.Effect) {
	var out []explore.Effect
	for _, f := range fx {
		switch f := f.(type) {
		case group.Append:
			out = append(out, explore.Append{Record: entry{Group: f.Record}})
		case group.Joined:
			a := answer{request: requestOf(f.Request), Code: f.Code, ID: f.MemberID, Generation: max(f.Generation, 0), Roster: roster(f.Members)}
			out = append(out, reply(a, fatal(f.Code))...)
		case group.Synced:
			a := answer{request: requestOf(f.Request), Code: f.Code, Parts: string(f.Assignment)}
			if m := l.Member(l.Leader); c.Plant == MixedAssignment && m != nil && f.Code == group.OK {
				a.Parts = string(m.Assignment)
			}
			out = append(out, reply(a, fatal(f.Code))...)
		case group.Answer:
			a := answer{request: requestOf(f.Request), Code: f.Code}
			if f.Code != group.OK { // of a heartbeat that says nothing; of a commit it comes when the offsets are durable
				out = append(out, reply(a, fatal(f.Code))...)
			}
		case group.SetTimer:
			if c.Plant == ForgottenTimers && l.term > 1 {
				continue
			}
			l.timers = with(l.timers, due{f.Kind, f.Member})
		case group.ClearTimer:
			l.timers = without(l.timers, due{f.Kind, f.Member})
		}
	}
	return l, out
}

// fatal answers end a client for good, or take what it has from a member, so only a certain coordinator gives them.
func fatal(code group.Code) bool {
	return code == group.FencedInstanceID || code == group.GroupIDNotFound || code == group.UnknownMemberID || code == group.IllegalGeneration
}

func reply(a answer, confirm bool) []explore.Effect {
	if a.Code == group.NotCoordinator {
		return nil // who is told to ask again asks again
	}
	return []explore.Effect{explore.Send{To: memberID(a.Member), Body: a, Confirm: confirm}}
}

func roster(members []group.Joiner) string {
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = m.MemberID
	}
	return strings.Join(ids, ",")
}

func compare(a, b due) int {
	if a.Kind != b.Kind {
		return int(a.Kind) - int(b.Kind)
	}
	return strings.Compare(a.Member, b.Member)
}

func with(timers []due, t due) []due {
	at, found := slices.BinarySearchFunc(timers, t, compare)
	if found {
		return timers
	}
	return slices.Insert(slices.Clone(timers), at, t)
}

func without(timers []due, t due) []due {
	at, found := slices.BinarySearchFunc(timers, t, compare)
	if !found {
		return timers
	}
	return slices.Delete(slices.Clone(timers), at, at+1)
}
