package group

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestRandomGroupsKeepTheRules drives one machine with members that join, sync, beat, leave, commit, vanish, come back under their
// instance ids, and with coordinators that are reloaded, and checks every step: each request is answered once; an assignment is the one
// that the generation's leader made; generations never go back; offsets are committed by members of the generation only; and whatever
// happens, timers alone bring the group to rest with nobody left waiting.
func TestRandomGroupsKeepTheRules(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 5))
	rounds := 400
	if testing.Short() {
		rounds = 80
	}
	for range rounds {
		w := &walk{t: t, rng: rng, rig: newRig(t), open: map[Request]string{}, asker: map[Request]string{}, timers: map[Timer]bool{}, made: map[string]string{}}
		w.rig.slow = true
		w.rig.cfg.InitialDelay = time.Duration(rng.IntN(2)) * time.Second
		for range 150 {
			w.step(w.event())
			if rng.IntN(60) == 0 {
				w.reload()
			}
		}
		w.rest()
	}
}

type walk struct {
	t      *testing.T
	rng    *rand.Rand
	rig    *rig
	req    Request
	ids    int
	open   map[Request]string // what each request is, until it has an answer
	asker  map[Request]string
	timers map[Timer]bool
	made   map[string]string // generation and member → what its leader assigned
	known  []string          // members that a client may believe to be, "id@instance"
	gen    int32
}

func (w *walk) step(e Event) {
	r := w.rig
	was := r.state
	effects := r.step(e)
	for _, f := range effects {
		w.effect(was, e, f)
	}
	s := r.state
	if s.Silent {
		return
	}
	if s.Generation < w.gen && !(s.Generation == 0 && !s.Known) {
		w.t.Fatalf("%T%+v: generation went back from %d: %s", e, e, w.gen, s)
	}
	w.gen = s.Generation
	w.shape(e)
}

// shape: what is true of every state.
func (w *walk) shape(e Event) {
	s := w.rig.state
	ids, instances := map[string]bool{}, map[string]bool{}
	for _, m := range s.Members {
		switch {
		case ids[m.ID], m.Instance != "" && instances[m.Instance]:
			w.t.Fatalf("%T%+v: a member is there twice: %s", e, e, s)
		case m.Joining != 0 && s.Status != PreparingRebalance, m.Syncing != 0 && s.Status != CompletingRebalance:
			w.t.Fatalf("%T%+v: %s waits in vain: %s", e, e, m.ID, s)
		case m.Joining == 0 && m.Syncing == 0 && !w.timers[Timer{TimerSession, m.ID}]:
			w.t.Fatalf("%T%+v: nobody would notice if %s went: %s", e, e, m.ID, s)
		}
		ids[m.ID], instances[m.Instance] = true, true
	}
	switch {
	case len(s.Members) > 0 && !ids[s.Leader], s.Status == Empty && len(s.Members) > 0:
		w.t.Fatalf("%T%+v: %s", e, e, s)
	case s.Status == PreparingRebalance && !w.timers[Timer{Kind: TimerRebalance}]:
		w.t.Fatalf("%T%+v: the rebalance has no end: %s", e, e, s)
	case s.Status == CompletingRebalance && !w.timers[Timer{Kind: TimerSync}] && len(s.Pending) == 0:
		w.t.Fatalf("%T%+v: the assignment may stay away for ever: %s", e, e, s)
	}
}

func (w *walk) effect(was State, e Event, f Effect) {
	switch f := f.(type) {
	case SetTimer:
		w.timers[Timer{f.Kind, f.Member}] = true
	case ClearTimer:
		delete(w.timers, Timer(f))
	case Joined:
		w.close(f.Request, e)
		if f.Code == OK || f.Code == MemberIDRequired {
			w.remember(f)
		}
	case Synced:
		w.close(f.Request, e)
		member := w.asker[f.Request]
		if want, ok := w.made[fmt.Sprint(w.rig.state.Generation, " ", member)]; f.Code == OK && ok && string(f.Assignment) != want {
			w.t.Fatalf("%T%+v: %s got %q, its leader had made %q", e, e, member, f.Assignment, want)
		}
	case Left:
		w.close(f.Request, e)
	case Answer:
		w.close(f.Request, e)
		if c, ok := e.(Commit); ok && f.Code == OK && c.Generation >= 0 && (was.Member(c.MemberID) == nil || c.Generation != was.Generation && !w.before(was, c)) {
			w.t.Fatalf("%+v was admitted in %s", c, was)
		}
	}
}

// before: the commit is of a generation before one that has no assignment yet, nor has one between.
func (w *walk) before(was State, c Commit) bool {
	for _, p := range was.Pending {
		if p.Record != nil && !p.Record.Unassigned && p.Record.Generation > c.Generation {
			return false
		}
	}
	newest := int32(0)
	for _, r := range w.rig.log {
		switch {
		case r == nil:
			newest = 0
		case !r.Unassigned:
			newest = r.Generation
		}
	}
	return was.Status != Stable && newest <= c.Generation && c.Generation < was.Generation
}

func (w *walk) remember(f Joined) {
	instance := ""
	if m := w.rig.state.Member(f.MemberID); m != nil && m.Instance != "" {
		instance = "@" + m.Instance
	}
	w.known = append(w.known, f.MemberID+instance)
	if len(w.known) > 6 {
		w.known = w.known[1:]
	}
}

// close: a request is answered once.
func (w *walk) close(r Request, e Event) {
	if r == 0 {
		return
	}
	if _, ok := w.open[r]; !ok || w.open[r] == "" {
		w.t.Fatalf("%T%+v answers request %d, which waits for nothing", e, e, r)
	}
	w.open[r] = ""
}

func (w *walk) ask(what, member string) Request {
	w.req++
	w.open[w.req] = what
	w.asker[w.req] = member
	return w.req
}

func (w *walk) somebody() string {
	if len(w.known) == 0 || w.rng.IntN(10) == 0 {
		return "stranger"
	}
	return w.known[w.rng.IntN(len(w.known))]
}

func (w *walk) event() Event {
	s := w.rig.state
	generation := s.Generation - int32(w.rng.IntN(8)/7)
	switch w.rng.IntN(14) {
	case 0, 1:
		w.ids++
		id := fmt.Sprint("m", w.ids)
		if w.rng.IntN(2) == 0 {
			id += fmt.Sprint("@i", w.rng.IntN(3))
		}
		e := enter(w.ask("join", id), id, fmt.Sprint("range:", w.rng.IntN(2)))
		e.RequireID = w.rng.IntN(3) == 0
		return e
	case 2, 3, 4:
		m := w.somebody()
		return join(w.ask("join", m), m, fmt.Sprint("range:", w.rng.IntN(2)))
	case 5, 6:
		m := w.somebody()
		e := sync(w.ask("sync", m), m, generation)
		w.asker[e.Request] = e.MemberID
		if e.MemberID == s.Leader && w.rng.IntN(5) > 0 {
			w.assign(&e)
		}
		return e
	case 7:
		m := w.somebody()
		return beat(w.ask("beat", m), m, generation)
	case 8:
		m := w.somebody()
		return leave(w.ask("leave", m), m)
	case 9:
		m := w.somebody()
		return commit(w.ask("commit", m), m, generation, w.rng.IntN(2) == 0)
	case 10:
		if w.rng.IntN(10) == 0 {
			return Remove{w.ask("remove", "")}
		}
		return w.anyTimer()
	}
	return Durable{}
}

// assign makes an assignment; if the machine takes this one, that is what the members of the generation must get.
func (w *walk) assign(e *Sync) {
	s := w.rig.state
	e.Assignments = map[string][]byte{}
	taken := s.Status == CompletingRebalance && e.Generation == s.Generation && e.MemberID == s.Leader && (&step{State: s}).check(e.MemberID, e.Instance) == OK
	for _, p := range s.Pending {
		taken = taken && !(p.Assigns && p.Record.Generation == s.Generation)
	}
	for _, m := range s.Members {
		b := fmt.Sprint(w.req, m.ID)
		e.Assignments[m.ID] = []byte(b)
		if taken {
			w.made[fmt.Sprint(s.Generation, " ", m.ID)] = b
		}
	}
}

func (w *walk) anyTimer() Event {
	for t := range w.timers {
		delete(w.timers, t)
		return t
	}
	return Durable{}
}

func (w *walk) reload() {
	r := w.rig
	w.step(Lost{})
	for req, what := range w.open {
		if what != "" {
			w.t.Fatalf("request %d (%s) has no answer after the term", req, what)
		}
	}
	if w.rng.IntN(2) == 0 {
		for len(r.pending) > 0 { // what was pending may have become durable
			r.log = append(r.log, r.pending[0])
			r.pending = r.pending[1:]
		}
	}
	r.pending = nil
	clear(w.timers)
	clear(w.made) // a generation that was never durable is counted once more
	var newest *Record
	if len(r.log) > 0 {
		newest = r.log[len(r.log)-1]
	}
	state, effects := r.cfg.Boot(newest, r.now)
	r.state, w.gen = state, state.Generation
	for _, f := range effects {
		w.effect(state, nil, f)
	}
}

// rest lets only timers and the log go on: nobody may be left waiting.
func (w *walk) rest() {
	for i := 0; len(w.timers) > 0 || len(w.rig.state.Pending) > 0; i++ {
		if i > 1000 {
			w.t.Fatalf("no rest: %s, timers %v", w.rig.state, w.timers)
		}
		if len(w.rig.state.Pending) > 0 {
			w.step(Durable{})
		} else {
			w.step(w.anyTimer())
		}
	}
	for req, what := range w.open {
		if what != "" {
			w.t.Fatalf("request %d (%s) waits for ever in %s", req, what, w.rig.state)
		}
	}
	if s := w.rig.state; s.Status != Empty || len(s.Members)+len(s.Promised) > 0 {
		w.t.Fatalf("not empty at rest: %s", s)
	}
}
