package group

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var clock = time.UnixMilli(1_000_000)

// rig is one machine with its log.
type rig struct {
	t       *testing.T
	cfg     Config
	state   State
	log     []*Record // durable
	pending []*Record
	now     time.Time
	// slow: records of generations become durable when Durable says so. Otherwise they are at once, if nothing is before them.
	slow bool
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, cfg: Defaults(), now: clock}
	r.cfg.InitialDelay, r.cfg.MaxMembers = 0, 5
	r.state, _ = r.cfg.Boot(nil, r.now)
	return r
}

func (r *rig) step(e Event) []Effect {
	r.t.Helper()
	effects := r.one(e)
	if r.slow || len(r.pending) != 1 || r.pending[0] == nil || !r.pending[0].Unassigned {
		return effects
	}
	effects = slices.DeleteFunc(effects, func(f Effect) bool { a, ok := f.(Append); return ok && a.Record == r.pending[0] })
	return append(effects, r.one(Durable{})...)
}

// one is step without anything that follows of itself.
func (r *rig) one(e Event) []Effect {
	r.t.Helper()
	before := r.state.String()
	next, effects := r.cfg.Handle(r.state, e, r.now)
	if r.state.String() != before {
		r.t.Fatalf("%T changed the state that it was given:\n%s\n%s", e, before, r.state)
	}
	r.state = next
	for _, f := range effects {
		if a, ok := f.(Append); ok {
			r.pending = append(r.pending, a.Record)
		}
	}
	if _, ok := e.(Durable); ok && len(r.pending) > 0 {
		r.log = append(r.log, r.pending[0])
		r.pending = r.pending[1:]
	}
	return effects
}

func (r *rig) do(e Event) string {
	r.t.Helper()
	return effectText(r.step(e))
}

// reload is a new leader that finds what was durable.
func (r *rig) reload() string {
	r.t.Helper()
	var newest *Record
	if len(r.log) > 0 {
		newest = r.log[len(r.log)-1]
	}
	newest, err := DecodeRecord(newest.Encode())
	if err != nil {
		r.t.Fatal(err)
	}
	var effects []Effect
	r.pending = nil
	r.state, effects = r.cfg.Boot(newest, r.now)
	return effectText(effects)
}

func effectText(effects []Effect) string {
	out := make([]string, len(effects))
	for i, e := range effects {
		out[i] = fmt.Sprint(e)
	}
	return strings.Join(out, "; ")
}

// expect compares effects, timers left out.
func (r *rig) expect(e Event, want string) {
	r.t.Helper()
	var got []string
	for _, f := range r.step(e) {
		switch f.(type) {
		case SetTimer, ClearTimer:
		default:
			got = append(got, fmt.Sprint(f))
		}
	}
	if g := strings.Join(got, "; "); g != want {
		r.t.Fatalf("%T%+v\nin   %s\ngot  %s\nwant %s", e, e, r.state, g, want)
	}
}

// join is a JoinGroup of a dynamic member of the first versions: it needs no id first. An id of the form x@i is instance i's.
func join(req Request, member string, protocols ...string) Join {
	e := Join{Request: req, ClientID: "c", ClientHost: "/h", Session: 10 * time.Second, Rebalance: time.Minute, ProtocolType: "consumer"}
	e.MemberID, e.Instance, _ = strings.Cut(member, "@")
	if len(protocols) == 0 {
		protocols = []string{"range:1"}
	}
	for _, p := range protocols {
		name, metadata, _ := strings.Cut(p, ":")
		e.Protocols = append(e.Protocols, Protocol{name, []byte(metadata)})
	}
	return e
}

// enter is join without a member id, which the machine takes from the event.
func enter(req Request, id string, protocols ...string) Join {
	e := join(req, id, protocols...)
	e.NewID, e.MemberID = e.MemberID, ""
	return e
}

func sync(req Request, member string, generation int32, assignments ...string) Sync {
	e := Sync{Request: req, Generation: generation}
	e.MemberID, e.Instance, _ = strings.Cut(member, "@")
	for _, a := range assignments {
		id, bytes, _ := strings.Cut(a, ":")
		if e.Assignments == nil {
			e.Assignments = map[string][]byte{}
		}
		e.Assignments[id] = []byte(bytes)
	}
	return e
}

func beat(req Request, member string, generation int32) Heartbeat {
	e := Heartbeat{Request: req, Generation: generation}
	e.MemberID, e.Instance, _ = strings.Cut(member, "@")
	return e
}

func commit(req Request, member string, generation int32, transactional bool) Commit {
	e := Commit{Request: req, Generation: generation, Transactional: transactional}
	e.MemberID, e.Instance, _ = strings.Cut(member, "@")
	return e
}

func leave(req Request, members ...string) Leave {
	e := Leave{Request: req}
	for _, m := range members {
		id, instance, _ := strings.Cut(m, "@")
		e.Members = append(e.Members, Leaver{id, instance})
	}
	return e
}

// two is a stable group in generation 2: a leads, b follows; each has its own name as assignment. Names may be static (a@i).
func two(t *testing.T, a, b string) *rig {
	r := newRig(t)
	idA, _, _ := strings.Cut(a, "@")
	idB, _, _ := strings.Cut(b, "@")
	r.do(enter(1, a))
	r.do(enter(2, b))
	r.do(join(3, a))
	r.do(sync(4, a, 2, idA+":"+idA, idB+":"+idB))
	r.do(sync(5, b, 2))
	r.do(Durable{})
	if r.state.Status != Stable || r.state.Generation != 2 || r.state.Leader != idA || len(r.state.Members) != 2 {
		t.Fatal(r.state)
	}
	return r
}
