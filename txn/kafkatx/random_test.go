package kafkatx

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// before lists the states from which Kafka lets each state be entered.
var before = map[Status][]Status{
	Empty:          {Empty, CompleteCommit, CompleteAbort},
	Ongoing:        {Ongoing, Empty, CompleteCommit, CompleteAbort, PrepareCommit, PrepareAbort},
	PrepareCommit:  {Ongoing},
	PrepareAbort:   {Ongoing, Empty, CompleteCommit, CompleteAbort},
	CompleteCommit: {PrepareCommit},
	CompleteAbort:  {PrepareAbort},
}

// TestRandomHistoriesKeepTheRules drives one machine through random requests, repeats, timers, acknowledgements, losses of its term and
// reloads, and checks every record and every answer.
func TestRandomHistoriesKeepTheRules(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	rounds := 150
	if testing.Short() {
		rounds = 40
	}
	for range rounds {
		w := &walk{t: t, rng: rng, rig: newRig(t)}
		if rng.IntN(3) == 0 {
			w.rig = from(t, meta(Status(rng.IntN(6)), int16(lastEpoch-rng.IntN(3)), Version2*Version(rng.IntN(2)), 1))
		}
		for range 200 {
			w.step()
		}
	}
}

type walk struct {
	t   *testing.T
	rng *rand.Rand
	rig *rig
	req Request
}

func (w *walk) step() {
	r := w.rig
	was := r.state
	e := w.event()
	logged := len(r.log)
	next, effects := r.cfg.Handle(r.state, e, r.now)
	r.do(e) // the same again, for the rig's books
	if next.String() != r.state.String() {
		w.t.Fatalf("%T%+v in %s is not deterministic:\n%s\n%s", e, e, was, next, r.state)
	}
	newest := was.Meta
	for _, f := range effects {
		switch f := f.(type) {
		case Append:
			w.record(newest, f.Record)
			w.owed(was, newest, f.Record)
			newest = f.Record
		case WriteMarker:
			early := !was.settled() && len(r.log) == logged || len(r.state.Pending) > 0
			if early && !r.state.owing() || f.Epoch != r.state.Meta.Epoch {
				w.t.Fatalf("%T%+v in %s: marker %v before its decision", e, e, was, f)
			}
		case Answer:
			w.answer(was, e, f)
		}
	}
	if w.rng.IntN(40) == 0 {
		w.reload()
	}
}

func (w *walk) reload() {
	r := w.rig
	if w.rng.IntN(2) == 0 {
		for len(r.pending) > 0 { // what was pending may have become durable
			r.log = append(r.log, r.pending[0])
			r.pending = r.pending[1:]
		}
	}
	r.reload()
	if len(r.log) > 0 && r.newest() != nil {
		want := r.newest()
		if got, err := DecodeValue(want.EncodeValue()); err != nil || !reflect.DeepEqual(got, want) {
			w.t.Fatalf("reloaded %+v, %v, want %+v", got, err, want)
		}
	}
}

// record: states follow each other as Kafka's do; an epoch never falls for a producer id; a decided transaction keeps its partitions.
func (w *walk) record(was, is *Meta) {
	switch {
	case is == nil:
		if was == nil || !was.Status.resting() {
			w.t.Fatalf("%v was forgotten", was)
		}
		return
	case was == nil:
		if is.Status != Empty {
			w.t.Fatalf("unknown became %v", is)
		}
		return
	}
	legal := false
	for _, s := range before[is.Status] {
		legal = legal || s == was.Status
	}
	switch {
	case !legal:
		w.t.Fatalf("%v became %v", was, is)
	case is.ProducerID == was.ProducerID && is.Epoch < was.Epoch, is.ProducerID != was.ProducerID && is.Epoch != 0:
		w.t.Fatalf("epoch went back: %v became %v", was, is)
	case is.Status.Decided() && was.Status == Ongoing && !reflect.DeepEqual(is.Partitions, was.Partitions):
		w.t.Fatalf("a decision changed its participants: %v became %v", was, is)
	case is.Status == Ongoing && is.Epoch > lastEpoch:
		w.t.Fatalf("no epoch is left to fence %v", is)
	}
}

// owed: a transaction begins beside the one before only if its record says all that is missing of that, and nothing but more partitions
// comes before that is paid.
func (w *walk) owed(state State, was, is *Meta) {
	switch {
	case was != nil && was.Status.Decided() && is.Status == Ongoing:
		if o := is.Owed; o == nil || o.Commit != (was.Status == PrepareCommit) || !reflect.DeepEqual(o.Partitions, state.Unmarked) || is.Epoch != was.Epoch {
			w.t.Fatalf("%v of %s became %v", was, state, is)
		}
	case is != nil && is.Owed != nil && (was.Owed == nil || was.Owed.Commit != is.Owed.Commit || !reflect.DeepEqual(is.Owed.Partitions, state.Unmarked)):
		w.t.Fatalf("%v of %s became %v", was, state, is)
	case state.owing() && (is == nil || is.Owed == nil):
		w.t.Fatalf("what %s owes is forgotten by %v", state, is)
	}
}

// answer: what a client is given is in the log, and nobody may write beside what is still owed.
func (w *walk) answer(was State, e Event, a Answer) {
	if a.Code == OK && w.rig.state.owing() {
		w.t.Fatalf("%T%+v in %s: %v while %s owes", e, e, was, a, w.rig.state)
	}
	if a.Code != OK || a.ProducerID == None {
		return
	}
	r := w.rig
	known := false
	for _, m := range r.log {
		if m != nil {
			id, epoch := m.final()
			known = known || id == a.ProducerID && epoch == a.Epoch
		}
	}
	if !known && len(r.log) > 0 {
		w.t.Fatalf("%T%+v in %s: %v is not in the log", e, e, was, a)
	}
}

func (w *walk) event() Event {
	r := w.rig
	w.req++
	id, epoch := int64(7), int16(w.rng.IntN(3))
	if m := r.state.Meta; m != nil {
		id, epoch = m.final()
		if w.rng.IntN(4) == 0 {
			id = m.Previous
			epoch = lastEpoch
		} else if w.rng.IntN(3) == 0 {
			epoch = max(0, epoch-int16(w.rng.IntN(3)))
		}
		if id == None {
			id = m.ProducerID
		}
	}
	v := Version2 * Version(w.rng.IntN(2))
	switch w.rng.IntN(12) {
	case 0:
		return r.init(w.req)
	case 1:
		return r.resume(w.req, id, epoch)
	case 2, 3:
		return r.add(w.req, id, epoch, v, int32(w.rng.IntN(3)), int32(w.rng.IntN(3)))
	case 4, 5:
		return r.end(w.req, id, epoch, w.rng.IntN(2) == 0, v)
	case 6:
		return Verify{w.req, id, epoch, parts(int32(w.rng.IntN(3)))}
	case 7:
		return Timer{TimerKind(1 + w.rng.IntN(3))}
	case 8, 9:
		if len(r.state.Unmarked) > 0 {
			return Marked{r.state.Unmarked[w.rng.IntN(len(r.state.Unmarked))], r.state.Meta.ProducerID, r.state.Meta.Epoch}
		}
	}
	return Durable{}
}
