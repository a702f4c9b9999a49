package producer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"gopherlog/engine/record"
)

const maxSequence = 1<<31 - 1

// batch returns a batch of count records of producer id, header as a client sends it.
func batch(id int64, epoch int16, first int32, count int) record.Batch {
	b := record.Builder{Producer: &record.Producer{ID: id, Epoch: epoch, Sequence: first}}
	for range count {
		b.Append(record.Record{Value: []byte("v")})
	}
	return b.Finish()
}

func at(base int64, b record.Batch) record.Batch {
	b.SetBaseOffset(base)
	return b
}

func (v Verdict) String() string {
	switch {
	case v.Kind == Append:
		return "append"
	case v.Kind == Reject && v.Reason == OutOfOrder:
		return "out of order"
	case v.Kind == Reject && v.Reason == InvalidEpoch:
		return "invalid epoch"
	case v.InFlight != nil:
		return fmt.Sprintf("repeat of flight %v", v.InFlight)
	}
	return fmt.Sprintf("repeat at %d", v.BaseOffset)
}

// TestVerdictsAreKafkas is the rule book. Each case runs lines in order: "commit E S N" applies a batch with epoch E, first
// sequence S and N records; "fly E S N" adds one to the overlay as flight 1, 2, …; "land" commits the oldest flight;
// "retire" removes the oldest landed flight from the overlay; "marker E" commits a transaction marker;
// "check E S N = verdict" asks.
func TestVerdictsAreKafkas(t *testing.T) {
	cases := map[string]string{
		"no state accepts any first sequence": `
			check 0 0 1 = append
			check 0 1234 5 = append
			check 7 99 1 = append`,
		"the next sequence is appended, a gap is not": `
			commit 0 0 3
			check 0 3 1 = append
			check 0 4 1 = out of order
			check 0 2 1 = out of order`,
		"a repeat gets the original's offset": `
			commit 0 0 3
			commit 0 3 2
			check 0 0 3 = repeat at 0
			check 0 3 2 = repeat at 3`,
		"a repeat must match first and last sequence": `
			commit 0 0 3
			check 0 0 2 = out of order
			check 0 1 2 = out of order`,
		"five batches are remembered, not six": `
			commit 0 0 1
			commit 0 1 1
			commit 0 2 1
			commit 0 3 1
			commit 0 4 1
			check 0 0 1 = repeat at 0
			commit 0 5 1
			check 0 0 1 = out of order
			check 0 1 1 = repeat at 1`,
		"an older epoch is fenced, repeats included": `
			commit 1 0 1
			check 0 0 1 = invalid epoch
			check 0 1 1 = invalid epoch`,
		"a newer epoch starts at sequence zero and clears the window": `
			commit 0 0 2
			check 1 2 1 = out of order
			check 1 0 1 = append
			commit 1 0 1
			check 0 0 2 = invalid epoch
			check 1 0 1 = repeat at 2
			check 1 1 1 = append`,
		"sequences wrap to zero between batches": `
			commit 0 2147483646 2
			check 0 0 1 = append
			check 0 1 1 = out of order`,
		"sequences wrap inside a batch": `
			commit 0 2147483646 4
			check 0 2 1 = append
			check 0 2147483646 4 = repeat at 0
			commit 0 2 1
			check 0 2147483646 4 = repeat at 0
			check 0 3 1 = append`,
		"negative sequences are never accepted": `
			check 0 -1 1 = out of order`,
		"what is in flight counts": `
			fly 0 0 1
			fly 0 1 2
			check 0 3 1 = append
			check 0 1 1 = out of order
			check 0 4 1 = out of order`,
		"a repeat of a batch in flight waits for it": `
			fly 0 0 1
			fly 0 1 2
			check 0 0 1 = repeat of flight 1
			check 0 1 2 = repeat of flight 2`,
		"a landed flight is one batch, not two": `
			fly 0 0 1
			fly 0 1 1
			land
			check 0 0 1 = repeat of flight 1
			check 0 2 1 = append
			retire
			check 0 0 1 = repeat at 0
			check 0 2 1 = append
			land
			retire
			check 0 1 1 = repeat at 1
			check 0 2 1 = append`,
		"committed repeats are found under flights": `
			commit 0 0 1
			fly 0 1 1
			check 0 0 1 = repeat at 0
			check 0 2 1 = append`,
		"an epoch bump in flight fences": `
			fly 0 0 1
			fly 1 0 1
			check 0 1 1 = invalid epoch
			check 0 0 1 = invalid epoch
			check 1 0 1 = repeat of flight 2
			check 1 1 1 = append
			check 2 1 1 = out of order
			check 2 0 1 = append`,
		"a marker with a newer epoch starts it": `
			commit 0 0 2
			marker 1
			check 0 2 1 = invalid epoch
			check 1 2 1 = out of order
			check 1 0 1 = append`,
		"sequences run on over a marker of the same epoch, but what lies before it is repeated no more": `
			commit 0 0 2
			marker 0
			check 0 0 2 = out of order
			check 0 2 1 = append`,
	}
	for name, script := range cases {
		t.Run(name, func(t *testing.T) { runScript(t, script) })
	}
}

func runScript(t *testing.T, script string) {
	const id = 42
	s, o, end, flights := New(), NewOverlay(), int64(0), 0
	var flying []record.Batch
	commit := func(b record.Batch) {
		s.Apply(at(end, b))
		end = b.NextOffset()
	}
	for line := range strings.Lines(strings.TrimSpace(script)) {
		line = strings.TrimSpace(line)
		var verb string
		var epoch int16
		var first int32
		var count int
		fmt.Sscan(line, &verb, &epoch, &first, &count)
		switch verb {
		case "commit":
			commit(batch(id, epoch, first, count))
		case "fly":
			flights++
			b := batch(id, epoch, first, count)
			flying = append(flying, b)
			o.Add(b, flights)
		case "land":
			commit(flying[0])
			flying = flying[1:]
		case "retire":
			o.Done(id)
		case "marker":
			commit(record.BuildControl(record.Commit, id, epoch, 0, 0))
		case "check":
			_, want, _ := strings.Cut(line, "= ")
			if got := s.Check(batch(id, epoch, first, count), o).String(); got != want {
				t.Fatalf("%s: got %q", line, got)
			}
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
}

// TestBatchesWithoutProducerAreAlwaysNew: plain producers are not judged and leave no state.
func TestBatchesWithoutProducerAreAlwaysNew(t *testing.T) {
	s, o := New(), NewOverlay()
	b := batch(-1, -1, -1, 2)
	for range 3 {
		if v := s.Check(b, o); v.Kind != Append {
			t.Fatalf("got %v", v)
		}
		o.Add(b, nil)
		s.Apply(b)
		o.Done(-1)
	}
	if s.Len() != 0 || o.Len() != 0 {
		t.Fatalf("state %d, overlay %d, want empty", s.Len(), o.Len())
	}
}

// model is the rule by definition over the whole history of one producer, slow on purpose.
type model struct {
	committed, flying []modelBatch
}

type modelBatch struct {
	epoch int16
	first int64 // unwrapped
	count int
	base  int64
	ref   int
}

func (m *model) verdict(epoch int16, first int64, count int) string {
	all := append(append([]modelBatch(nil), m.committed...), m.flying...)
	if len(all) == 0 {
		return "append"
	}
	newest := all[len(all)-1]
	if epoch < newest.epoch {
		return "invalid epoch"
	}
	if epoch > newest.epoch {
		if first == 0 {
			return "append"
		}
		return "out of order"
	}
	for i := len(m.flying) - 1; i >= 0; i-- {
		if b := m.flying[i]; b.epoch == epoch && b.first == first && b.count == count {
			return fmt.Sprintf("repeat of flight %d", b.ref)
		}
	}
	var same []modelBatch
	for _, b := range m.committed {
		if b.epoch == epoch {
			same = append(same, b)
		}
	}
	for i := len(same) - 1; i >= max(0, len(same)-Window); i-- {
		if b := same[i]; b.first == first && b.count == count {
			return fmt.Sprintf("repeat at %d", b.base)
		}
	}
	if first == newest.first+int64(newest.count) {
		return "append"
	}
	return "out of order"
}

// TestRandomHistoriesAgreeWithTheDefinition drives many producers through commits, flights, lost terms, restarts and
// repeats, and compares every verdict with the rule spelled out over whole histories.
func TestRandomHistoriesAgreeWithTheDefinition(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	steps := 60_000
	if testing.Short() {
		steps = 10_000
	}
	twin := newTwin(rng)
	for step := range steps {
		twin.step(t, step)
	}
}

type twin struct {
	rng    *rand.Rand
	state  *State
	over   *Overlay
	models map[int64]*model
	queue  []flownBatch // all flights in order
	end    int64
	refs   int
}

type flownBatch struct {
	id int64
	b  record.Batch
	m  modelBatch
}

func newTwin(rng *rand.Rand) *twin {
	return &twin{rng: rng, state: New(), over: NewOverlay(), models: map[int64]*model{}}
}

// wrap gives the sequence on the wire: the unwrapped number counted from close to the end of the range.
func wrap(first int64) int32 { return int32((first) & maxSequence) }

func (w *twin) step(t *testing.T, step int) {
	id := int64(w.rng.IntN(6))
	m := w.models[id]
	if m == nil {
		m = &model{}
		w.models[id] = m
	}
	switch w.rng.IntN(12) {
	case 0, 1, 2: // commit the oldest flights
		for range w.rng.IntN(4) {
			w.land()
		}
	case 3:
		if w.rng.IntN(20) == 0 { // the term is lost: nothing in flight survives
			for _, m := range w.models {
				m.flying = nil
			}
			w.queue = nil
			w.over.Reset()
		}
	case 4:
		if w.rng.IntN(20) == 0 { // restart
			decoded, rest, err := Decode(w.state.Encode(nil))
			if err != nil || len(rest) != 0 {
				t.Fatalf("step %d: decode: %v, %d bytes left", step, err, len(rest))
			}
			w.state = decoded
		}
	default:
		w.ask(t, step, id, m)
	}
}

func (w *twin) land() {
	if len(w.queue) == 0 {
		return
	}
	f := w.queue[0]
	w.queue = w.queue[1:]
	m := w.models[f.id]
	f.m.base = w.end
	w.state.Apply(at(w.end, f.b))
	w.end = f.b.NextOffset()
	w.over.Done(f.id)
	m.committed, m.flying = append(m.committed, f.m), m.flying[1:]
}

// ask checks a batch that is new, a repeat, a gap or of another epoch, and appends it if the verdict says so.
func (w *twin) ask(t *testing.T, step int, id int64, m *model) {
	epoch, first, count := w.propose(m)
	b := batch(id, epoch, wrap(first), count)
	want := m.verdict(epoch, first, count)
	if got := w.state.Check(b, w.over).String(); got != want {
		t.Fatalf("step %d: producer %d epoch %d first %d count %d: got %q want %q", step, id, epoch, first, count, got, want)
	}
	if want == "append" {
		w.refs++
		mb := modelBatch{epoch: epoch, first: first, count: count, ref: w.refs}
		m.flying = append(m.flying, mb)
		w.over.Add(b, w.refs)
		w.queue = append(w.queue, flownBatch{id, b, mb})
	}
}

func (w *twin) propose(m *model) (epoch int16, first int64, count int) {
	all := append(append([]modelBatch(nil), m.committed...), m.flying...)
	count = 1 + w.rng.IntN(4)
	if len(all) == 0 {
		return 0, maxSequence - 10, count // so that the wrap is met often
	}
	newest := all[len(all)-1]
	switch w.rng.IntN(10) {
	case 0: // a repeat, recent or old
		b := all[max(0, len(all)-1-w.rng.IntN(9))]
		return b.epoch, b.first, b.count
	case 1: // a gap or an overlap
		return newest.epoch, max(0, newest.first+int64(newest.count)+int64(w.rng.IntN(7))-3), count
	case 2:
		if w.rng.IntN(10) == 0 && newest.epoch < 100 {
			return newest.epoch + 1, int64(w.rng.IntN(2)), count
		}
		return max(0, newest.epoch-1), newest.first, newest.count
	}
	return newest.epoch, newest.first + int64(newest.count), count
}

// TestReplicasThatAppliedTheSameLogAreEqual: also when one of them restarted from a snapshot in the middle.
func TestReplicasThatAppliedTheSameLogAreEqual(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	a, b := New(), New()
	for offset := range int64(3000) {
		switch rng.IntN(50) {
		case 0:
			below := offset - int64(rng.IntN(500))
			if a.Expire(below) != b.Expire(below) {
				t.Fatal("expiry differs")
			}
		case 1:
			var err error
			if b, _, err = Decode(b.Encode(nil)); err != nil {
				t.Fatal(err)
			}
		case 2, 3, 4, 5:
			x := at(offset, record.BuildControl(record.ControlType(rng.IntN(2)), int64(rng.IntN(40)), int16(rng.IntN(3)), int32(rng.IntN(3)), 0))
			a.Apply(x)
			b.Apply(x)
		case 6:
			start := offset - int64(rng.IntN(500))
			a.Trim(start)
			b.Trim(start)
		case 7, 8, 9, 10, 11:
			x := at(offset, txnBatch(int64(rng.IntN(40)), int16(rng.IntN(3)), int32(rng.IntN(100)), 1))
			a.Apply(x)
			b.Apply(x)
		default:
			x := at(offset, batch(int64(rng.IntN(40)), int16(rng.IntN(3)), int32(rng.IntN(100)), 1))
			a.Apply(x)
			b.Apply(x)
		}
		if !bytes.Equal(a.Encode(nil), b.Encode(nil)) {
			t.Fatalf("offset %d: states differ", offset)
		}
	}
}

// TestTheWindowOfFiveSurvivesARestart: Kafka's own snapshot keeps one batch, and a retry of the first of five in flight then
// fails with 45, upon which the client bumps its epoch and duplicates.
func TestTheWindowOfFiveSurvivesARestart(t *testing.T) {
	s := New()
	for i := range int32(5) {
		s.Apply(at(int64(i)*2, batch(9, 3, i*2, 2)))
	}
	restored, _, err := Decode(s.Encode(nil))
	if err != nil {
		t.Fatal(err)
	}
	for i := range int32(5) {
		if v := restored.Check(batch(9, 3, i*2, 2), nil); v.Kind != Duplicate || v.BaseOffset != int64(i)*2 {
			t.Fatalf("batch %d: %v", i, v)
		}
	}
}

// TestExpiryGoesByPlaceInTheLog: no clock and no timestamp of a client takes part.
func TestExpiryGoesByPlaceInTheLog(t *testing.T) {
	s := New()
	for i := range int64(10) {
		s.Apply(at(i*10, batch(i, 0, 0, 1)))
	}
	if !s.AnyBelow(31) || s.AnyBelow(0) {
		t.Fatal("AnyBelow is wrong")
	}
	if n := s.Expire(31); n != 4 || s.Len() != 6 {
		t.Fatalf("expired %d, left %d, want 4 and 6", n, s.Len())
	}
	if below := s.ExpireBound(2); below != 71 {
		t.Fatalf("bound to keep 2: %d, want 71", below)
	}
	if below := s.ExpireBound(6); below != 0 {
		t.Fatalf("bound to keep all: %d, want 0", below)
	}
	s.Expire(s.ExpireBound(2))
	if got := s.Producers(); len(got) != 2 || got[0].ID != 8 || got[1].LastOffset != 90 {
		t.Fatalf("left %+v", got)
	}
}

// TestUnknownVersionIsRefusedAsAVersion and damage as damage.
func TestUnknownVersionIsRefusedAsAVersion(t *testing.T) {
	s := New()
	s.Apply(at(0, batch(1, 0, 0, 1)))
	good := s.Encode(nil)
	bad := append([]byte(nil), good...)
	bad[0] = 9
	if _, _, err := Decode(bad); err == nil || !strings.Contains(err.Error(), "version 9") {
		t.Fatalf("got %v", err)
	}
	for n := range good {
		if _, _, err := Decode(good[:n]); err == nil {
			t.Fatalf("%d of %d bytes were accepted", n, len(good))
		}
	}
}

// TestStaleOverlayPanics: a retire without a flight is a broken invariant, not input.
func TestStaleOverlayPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	NewOverlay().Done(7)
}

// FuzzDecode: no input panics or allocates more than it describes, and what decodes encodes back.
func FuzzDecode(f *testing.F) {
	s := New()
	f.Add(s.Encode(nil))
	for i := range int64(7) {
		s.Apply(at(i, batch(i%3, 0, int32(i), 1)))
	}
	f.Add(s.Encode(nil))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		s, rest, err := Decode(data)
		if err != nil {
			return
		}
		got := s.Encode(nil)
		if data[0] == oldVersion {
			if s, rest, err = Decode(got); err != nil {
				t.Fatalf("%x decoded and encoded is %x: %v", data, got, err)
			}
			data = append(got, rest...)
			got = s.Encode(nil)
		}
		if !bytes.Equal(got, data[:len(data)-len(rest)]) {
			t.Fatalf("%x decoded and encoded is %x", data, got)
		}
	})
}

// BenchmarkCheck is the decision on the produce path: budget 100 ns, no allocation.
func BenchmarkCheck(b *testing.B) {
	s, o := New(), NewOverlay()
	for id := range int64(1000) {
		for i := range int32(5) {
			s.Apply(at(int64(i), batch(id, 0, i, 1)))
		}
		o.Add(batch(id, 0, 5, 1), 1)
	}
	next := make([]record.Batch, 1000)
	for id := range next {
		next[id] = batch(int64(id), 0, 6, 1)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if s.Check(next[i%1000], o).Kind != Append {
			b.Fatal("not new")
		}
	}
}

// BenchmarkApply is the same for the state machine, bounded to what a partition of a thousand producers does.
func BenchmarkApply(b *testing.B) {
	s := New()
	batches := make([]record.Batch, 1000)
	for id := range batches {
		batches[id] = batch(int64(id), 0, 0, 1)
		s.Apply(batches[id])
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Apply(batches[i%1000])
	}
}
