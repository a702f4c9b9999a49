package producer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gopherlog/engine/record"
)

func txnBatch(id int64, epoch int16, first int32, count int) record.Batch {
	b := record.Builder{Producer: &record.Producer{ID: id, Epoch: epoch, Sequence: first}, Transactional: true}
	for range count {
		b.Append(record.Record{Value: []byte("v")})
	}
	return b.Finish()
}

// TestTransactionsAreOpenedAndEndedAsWritten is the rule book of transactions. "P E S N" is a batch of producer P, epoch E, first
// sequence S, N records, transactional unless "plain" follows. commit applies, fly adds to the overlay, land applies the oldest flight,
// retire removes it from the overlay; "end P E C commit|abort" applies a marker of coordinator epoch C, flyend adds one to the overlay;
// ask, yes (version V) and no verify; check, marker ("P E C V"), stable, aborted compare.
func TestTransactionsAreOpenedAndEndedAsWritten(t *testing.T) {
	cases := map[string]string{
		"a batch that opens a transaction is verified first": `
			check 1 0 0 1 = verify
			ask 1 0
			check 1 0 0 1 = hold
			yes 1 0
			check 1 0 0 1 = append
			fly 1 0 0 1
			check 1 0 1 1 = append`,
		"batches behind a batch under verification keep their place": `
			commit 1 0 0 2
			end 1 0 0 commit
			check 1 0 2 1 = verify
			ask 1 0
			check 1 0 3 1 = hold
			yes 1 0
			fly 1 0 2 1
			check 1 0 3 1 = append`,
		"a refused verification leaves the question open": `
			ask 1 0
			no 1
			check 1 0 0 1 = verify`,
		"a marker voids what was verified": `
			ask 1 0
			yes 1 0
			marker 1 0 0 0 = append
			check 1 0 0 1 = verify`,
		"a marker voids a question under way": `
			ask 1 0
			marker 1 0 0 0 = append
			late 1 0
			check 1 0 0 1 = verify`,
		"a marker in flight voids what was verified before it": `
			ask 1 0
			yes 1 0
			flyend 1 0 0 abort
			check 1 0 0 1 = verify`,
		"a newer epoch asks again": `
			ask 1 0
			check 1 1 0 1 = verify
			ask 1 1
			yes 1 0
			check 1 1 0 1 = append`,
		"a batch with the sequences of an ended transaction is no repeat: its records may be others": `
			commit 1 0 0 2
			check 1 0 0 2 = repeat at 0
			end 1 0 0 abort
			check 1 0 0 2 = out of order
			ask 1 0
			yes 1 0
			check 1 0 0 2 = out of order
			check 1 0 2 1 = append
			commit 1 0 2 1
			check 1 0 2 1 = repeat at 3
			check 1 0 0 2 = out of order`,
		"nor is one with those of a transaction whose end is in flight": `
			commit 1 0 0 2
			fly 1 0 2 1
			check 1 0 2 1 = repeat of flight 1
			flyend 1 0 0 abort
			check 1 0 0 2 = out of order
			check 1 0 2 1 = out of order
			ask 1 0
			yes 1 0
			fly 1 0 3 1
			check 1 0 3 1 = repeat of flight 3
			check 1 0 2 1 = out of order
			land
			land
			retire
			check 1 0 2 1 = out of order
			check 1 0 3 1 = repeat of flight 3
			retire
			check 1 0 0 2 = out of order
			check 1 0 2 1 = out of order
			check 1 0 3 1 = repeat of flight 3
			land
			retire
			check 1 0 2 1 = out of order
			check 1 0 3 1 = repeat at 4`,
		"verification at version 2 finds a missing first batch": `
			ask 1 0
			yes 1 2
			check 1 0 1 1 = out of order
			check 1 0 0 1 = append`,
		"verification before version 2 accepts any first sequence of an unknown producer": `
			ask 1 0
			yes 1 0
			check 1 0 7 1 = append`,
		"a coordinator's batch without sequence is verified like others, never a repeat, and leaves the sequences alone": `
			check 1 0 -1 2 = verify
			ask 1 0
			check 1 0 -1 2 = hold
			yes 1 2
			check 1 0 -1 2 = append
			fly 1 0 -1 2
			check 1 0 -1 2 = append
			check 1 0 0 1 = append
			land
			check 1 0 -1 2 = append
			retire
			check 1 0 -1 2 = append
			check 1 0 0 1 = append
			stable 5 = 0
			flyend 1 1 0 commit
			check 1 0 -1 2 = invalid epoch
			land
			retire
			check 1 0 -1 2 = invalid epoch
			check 1 1 -1 2 = verify
			check 1 1 -1 1 plain = out of order
			stable 5 = 5`,
		"a coordinator's batch does not join an older epoch's transaction": `
			commit 1 0 -1 1
			check 1 1 -1 1 = still ending`,
		"a plain batch does not join its producer's transaction": `
			commit 1 0 0 1
			check 1 0 1 1 plain = invalid transaction state
			fly 2 0 0 1
			check 2 0 1 1 plain = invalid transaction state
			end 1 0 0 commit
			check 1 0 1 1 plain = append`,
		"a newer epoch does not join an older epoch's transaction": `
			commit 1 0 0 1
			check 1 1 0 1 = still ending
			check 1 1 0 1 plain = still ending
			fly 2 0 0 1
			check 2 1 0 1 = still ending
			end 1 1 0 abort
			check 1 1 0 1 = verify`,
		"sequences run on over a marker of the same epoch": `
			commit 1 0 0 3
			flyend 1 0 0 commit
			ask 1 0
			yes 1 0
			check 1 0 3 1 = append
			check 1 0 0 1 = out of order
			check 1 0 0 3 = out of order
			land
			check 1 0 3 1 = append
			retire
			check 1 0 3 1 = append`,
		"sequences begin again behind a marker of a raised epoch": `
			commit 1 0 0 3
			flyend 1 1 0 commit
			check 1 0 3 1 = invalid epoch
			ask 1 1
			yes 1 2
			check 1 1 3 1 = out of order
			check 1 1 0 1 = append
			land
			check 1 1 0 1 = append
			retire
			check 1 1 0 1 = append
			check 1 0 3 1 = invalid epoch`,
		"a marker for what was never written fences": `
			marker 1 5 0 2 = append
			end 1 5 0 abort
			check 1 4 0 1 = invalid epoch
			marker 1 5 0 2 = repeat`,
		"a marker of an older epoch is fenced": `
			commit 1 3 0 1
			marker 1 2 0 0 = invalid epoch
			marker 1 2 0 2 = invalid epoch`,
		"a marker sent again after its coordinator was reloaded is a repeat": `
			commit 1 0 0 1
			marker 1 1 4 2 = append
			flyend 1 1 4 commit
			marker 1 1 4 2 = repeat of 1
			land
			retire
			marker 1 1 4 2 = repeat
			marker 1 1 5 2 = repeat
			commit 2 0 0 1
			flyend 2 0 4 abort
			marker 2 0 5 0 = repeat of 2`,
		"before version 2 only a commit proves that nothing is open": `
			commit 1 0 0 1
			end 1 0 4 commit
			marker 1 0 4 0 = append`,
		"at version 2 a late marker does not end the next transaction": `
			commit 1 0 0 1
			end 1 1 0 commit
			commit 1 1 0 1
			marker 1 1 0 2 = invalid epoch
			marker 1 2 0 2 = append`,
		"before version 2 it does": `
			commit 1 0 0 1
			end 1 0 0 commit
			commit 1 0 1 1
			marker 1 0 0 0 = append`,
		"an older coordinator is fenced, in flight too": `
			commit 1 0 0 1
			end 1 0 7 commit
			marker 1 0 6 0 = coordinator fenced
			commit 1 0 1 1
			marker 1 0 6 0 = coordinator fenced
			marker 1 0 7 0 = append
			flyend 1 0 9 commit
			marker 1 0 8 0 = coordinator fenced`,
		"the last stable offset is the first open transaction's": `
			stable 0 = 0
			commit 9 0 0 2 plain
			stable 2 = 2
			commit 1 0 0 3
			commit 2 0 0 1
			stable 6 = 2
			end 1 0 0 commit
			stable 7 = 5
			commit 1 0 3 1
			end 2 0 0 abort
			stable 9 = 7
			end 1 0 0 commit
			stable 10 = 10
			stable 8 = 8`,
		"readers learn the aborted transactions in their range": `
			commit 1 0 0 1
			commit 2 0 0 1
			commit 1 0 1 1
			end 1 0 0 abort
			commit 3 0 0 1
			end 2 0 0 commit
			end 3 0 0 abort
			commit 1 0 2 1
			end 1 0 0 abort
			aborted 0 9 = 1[0,3] 3[4,6] 1[7,8]
			aborted 0 1 = 1[0,3]
			aborted 3 4 = 1[0,3]
			aborted 4 7 = 3[4,6]
			aborted 5 7 = 3[4,6]
			aborted 7 7 = 
			aborted 8 9 = 1[7,8]
			aborted 9 20 = 
			trim 4
			aborted 0 9 = 3[4,6] 1[7,8]
			trim 7
			aborted 0 9 = 1[7,8]`,
		"an empty transaction that was aborted is on no list": `
			end 1 0 0 abort
			aborted 0 9 = `,
		"a producer with an open transaction does not expire": `
			commit 1 0 0 1
			commit 2 0 0 1 plain
			commit 3 0 0 1
			commit 4 0 0 1 plain
			expire 3 = 1
			bound 3 = 0
			bound 2 = 4
			bound 0 = 4
			end 1 0 0 commit
			expire 5 = 2
			stable 5 = 2`,
	}
	for name, script := range cases {
		t.Run(name, func(t *testing.T) { newRig().run(t, script) })
	}
}

// rig runs a script.
type rig struct {
	s       *State
	o       *Overlay
	end     int64
	flights int
	flying  []record.Batch
	landed  []int64
	asked   map[int64]Ask
}

func newRig() *rig { return &rig{s: New(), o: NewOverlay(), asked: map[int64]Ask{}} }

func (r *rig) apply(b record.Batch) {
	r.s.Apply(at(r.end, b))
	r.end = b.NextOffset()
}

func (r *rig) fly(b record.Batch) {
	r.flights++
	r.flying = append(r.flying, b)
	r.o.Add(b, r.flights)
}

func (r *rig) run(t *testing.T, script string) {
	for line := range strings.Lines(strings.TrimSpace(script)) {
		line = strings.TrimSpace(line)
		ask, want, compare := strings.Cut(line, "=")
		want = strings.TrimSpace(want)
		got := r.do(t, strings.Fields(ask))
		if compare && got != want {
			t.Fatalf("%s: got %q", line, got)
		}
	}
}

func (r *rig) do(t *testing.T, words []string) string {
	number := func(i int) (n int64) {
		if i < len(words) {
			fmt.Sscan(words[i], &n)
		}
		return n
	}
	id, epoch := number(1), int16(number(2))
	data := func() record.Batch {
		if words[len(words)-1] == "plain" {
			return batch(id, epoch, int32(number(3)), int(number(4)))
		}
		return txnBatch(id, epoch, int32(number(3)), int(number(4)))
	}
	end := func() record.Batch {
		kind := record.Commit
		if words[4] == "abort" {
			kind = record.Abort
		}
		return record.BuildControl(kind, id, epoch, int32(number(3)), 0)
	}
	switch words[0] {
	case "commit":
		r.apply(data())
	case "end":
		r.apply(end())
	case "fly":
		r.fly(data())
	case "flyend":
		r.fly(end())
	case "land":
		r.landed = append(r.landed, r.flying[0].ProducerID())
		r.apply(r.flying[0])
		r.flying = r.flying[1:]
	case "retire":
		r.o.Done(r.landed[0])
		r.landed = r.landed[1:]
	case "ask":
		r.asked[id] = r.o.Ask(id, epoch)
	case "yes":
		if !r.o.Answer(id, r.asked[id], true, TransactionVersion(number(2))) {
			t.Fatalf("%v: void", words)
		}
	case "no":
		r.o.Answer(id, r.asked[id], false, 0)
	case "late":
		if r.o.Answer(id, r.asked[id], true, 0) {
			t.Fatalf("%v: still stands", words)
		}
	case "check":
		return verdict(r.s.Check(data(), r.o))
	case "marker":
		v := r.s.CheckMarker(Marker{id, epoch, int32(number(3)), TransactionVersion(number(4)), false}, r.o)
		if v.Kind == Duplicate && v.InFlight != nil {
			return fmt.Sprintf("repeat of %v", v.InFlight)
		} else if v.Kind == Duplicate {
			return "repeat"
		}
		return verdict(v)
	case "stable":
		return fmt.Sprint(r.s.LastStable(id))
	case "aborted":
		return list(r.s.AbortedIn(nil, number(1), number(2)))
	case "trim":
		r.s.Trim(id)
	case "expire":
		return fmt.Sprint(r.s.Expire(id))
	case "bound":
		return fmt.Sprint(r.s.ExpireBound(int(id)))
	default:
		t.Fatalf("unknown line %v", words)
	}
	return ""
}

func verdict(v Verdict) string {
	switch {
	case v.Kind == Verify:
		return "verify"
	case v.Kind == Hold:
		return "hold"
	case v.Kind == Reject && v.Reason == InvalidTxnState:
		return "invalid transaction state"
	case v.Kind == Reject && v.Reason == StillEnding:
		return "still ending"
	case v.Kind == Reject && v.Reason == CoordinatorFenced:
		return "coordinator fenced"
	}
	return v.String()
}

func list(as []Aborted) string {
	var out []string
	for _, a := range as {
		out = append(out, fmt.Sprintf("%d[%d,%d]", a.ProducerID, a.First, a.Last))
	}
	return strings.Join(out, " ")
}

// logged is one batch as the slow twin remembers it.
type logged struct {
	id          int64
	first, next int64
	txn         bool
	end         bool
	abort       bool
}

// slowTwin answers by looking through the whole log.
type slowTwin struct{ log []logged }

// open returns the first offset of every transaction that is open after the first n batches.
func (w *slowTwin) open(n int) map[int64]int64 {
	open := map[int64]int64{}
	for _, b := range w.log[:n] {
		if _, ok := open[b.id]; b.txn && !ok {
			open[b.id] = b.first
		}
		if b.end {
			delete(open, b.id)
		}
	}
	return open
}

func (w *slowTwin) stable(n int, end int64) int64 {
	for _, first := range w.open(n) {
		end = min(end, first)
	}
	return end
}

func (w *slowTwin) aborted(from, to int64) (out []Aborted) {
	open := map[int64]int64{}
	for _, b := range w.log {
		first, ok := open[b.id]
		if b.txn && !ok {
			open[b.id] = b.first
		}
		if b.end {
			delete(open, b.id)
			if ok && b.abort && b.first >= from && first < to {
				out = append(out, Aborted{ProducerID: b.id, First: first, Last: b.first})
			}
		}
	}
	return out
}

// TestRandomTransactionsAgreeWithTheWholeLog: last stable offset and aborted lists, over restarts and trims, are those that a walk
// through the whole log finds; the last stable offset never goes back.
func TestRandomTransactionsAgreeWithTheWholeLog(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	steps := 1500
	if testing.Short() {
		steps = 400
	}
	s, w, end, stable, start := New(), &slowTwin{}, int64(0), int64(0), int64(0)
	epochs, sequences := [5]int16{}, [5]int32{}
	for step := range steps {
		id := rng.IntN(5)
		switch rng.IntN(10) {
		case 0, 1, 2: // an end, at version 2 every other time
			if rng.IntN(2) == 0 {
				epochs[id]++
				sequences[id] = 0
			}
			kind := record.ControlType(rng.IntN(2))
			s.Apply(at(end, record.BuildControl(kind, int64(id), epochs[id], 0, 0)))
			w.log = append(w.log, logged{id: int64(id), first: end, next: end + 1, end: true, abort: kind == record.Abort})
			end++
		case 3:
			var err error
			if s, _, err = Decode(s.Encode(nil)); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		case 4:
			if start < stable && rng.IntN(8) == 0 {
				start += rng.Int64N(stable - start)
				s.Trim(start)
			}
		default:
			n := 1 + rng.IntN(3)
			s.Apply(at(end, txnBatch(int64(id), epochs[id], sequences[id], n)))
			sequences[id] += int32(n)
			w.log = append(w.log, logged{id: int64(id), first: end, next: end + int64(n), txn: true})
			end += int64(n)
		}
		got := s.LastStable(end)
		if want := w.stable(len(w.log), end); got != want {
			t.Fatalf("step %d: last stable offset %d, want %d", step, got, want)
		}
		if got < stable {
			t.Fatalf("step %d: last stable offset went back from %d to %d", step, stable, got)
		}
		stable = got
		if stable > start {
			compareAborted(t, s, w, start, stable, rng)
		}
	}
}

func compareAborted(t *testing.T, s *State, w *slowTwin, start, stable int64, rng *rand.Rand) {
	from := start + rng.Int64N(stable-start)
	to := from + 1 + rng.Int64N(stable-from)
	got, want := s.AbortedIn(nil, from, to), w.aborted(from, to)
	for i := range got {
		got[i].LastStable = 0
	}
	if !slices.Equal(got, want) {
		t.Fatalf("aborted in [%d, %d): got %s, want %s", from, to, list(got), list(want))
	}
}

// TestStatesOfTheFirstVersionAreRead: they were written before there were transactions.
func TestStatesOfTheFirstVersionAreRead(t *testing.T) {
	old := []byte{1, 0, 0, 0, 1,
		0, 0, 0, 0, 0, 0, 0, 7, // producer 7
		0, 3, // epoch
		0, 0, 0, 0, 0, 0, 0, 41, // last offset
		0, 0, 0, 0, 0, 0, 0, 9, // timestamp
		1,                      // one batch: sequences 5 and 6 at offset 40
		0, 0, 0, 5, 0, 0, 0, 6, //
		0, 0, 0, 0, 0, 0, 0, 40,
		0xee} // what follows in the snapshot
	s, rest, err := Decode(old)
	if err != nil || !bytes.Equal(rest, []byte{0xee}) {
		t.Fatalf("decode: %v, rest %x", err, rest)
	}
	want := Producer{ID: 7, Epoch: 3, LastSequence: 6, LastOffset: 41, LastTimestamp: 9, CoordinatorEpoch: -1, Transaction: -1}
	if got := s.Producers(); len(got) != 1 || got[0] != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	if v := s.Check(batch(7, 3, 5, 2), nil); v.Kind != Duplicate || v.BaseOffset != 40 {
		t.Fatalf("got %v", v)
	}
	if again, _, err := Decode(s.Encode(nil)); err != nil || again.Producers()[0] != want {
		t.Fatalf("written again: %v", err)
	}
}

// TestDamagedTransactionsAreRefused: what no sequence of Apply can have left is an error, not a state.
func TestDamagedTransactionsAreRefused(t *testing.T) {
	s := New()
	s.Apply(at(0, txnBatch(1, 0, 0, 1)))
	s.Apply(at(1, txnBatch(2, 0, 0, 1)))
	s.Apply(at(2, txnBatch(3, 0, 0, 1)))
	s.Apply(at(3, record.BuildControl(record.Abort, 3, 0, 0, 0)))
	good := s.Encode(nil)
	for name, damage := range map[string]func([]byte){
		"two open at one offset": func(b []byte) { b[stateHeaderLen+producerSize+spanSize+37] = 0 },
		"aborted ends first":     func(b []byte) { b[len(b)-9] = 1 },
		"too many aborted":       func(b []byte) { b[len(b)-abortedSize-1] = 200 },
	} {
		bad := bytes.Clone(good)
		damage(bad)
		if _, _, err := Decode(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, _, err := Decode(good); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkCheckTransactional is the decision for a batch of an open transaction.
func BenchmarkCheckTransactional(b *testing.B) {
	s, o := New(), NewOverlay()
	next := make([]record.Batch, 1000)
	for id := range next {
		s.Apply(at(int64(id), txnBatch(int64(id), 0, 0, 1)))
		o.Add(txnBatch(int64(id), 0, 1, 1), 1)
		next[id] = txnBatch(int64(id), 0, 2, 1)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if s.Check(next[i%1000], o).Kind != Append {
			b.Fatal("not new")
		}
	}
}
