package check

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gopherlog/bench/history"
	"gopherlog/bench/scenario"
)

// world is a run as it should have been: three partitions, two producers, and what each witness tells. Tests bend it.
type world struct {
	sends, acks, reads, drain, ends []history.Record
}

const (
	worldPartitions = 3
	worldProducers  = 2
	perLane         = 300
)

// perfect is a run without any anomaly: everything sent was acknowledged at the offset at which it is read, twice.
func perfect() *world {
	w := &world{}
	at := time.Duration(0)
	for seq := range uint64(perLane) {
		for p := range uint32(worldPartitions) {
			for producer := range uint16(worldProducers) {
				at += 100 * time.Microsecond
				offset := int64(seq)*worldProducers + int64(producer)
				r := history.Record{Kind: history.Sent, Producer: producer, Partition: p, Sequence: seq, At: at}
				w.sends = append(w.sends, r)
				r.Kind, r.Result, r.Offset, r.At = history.Outcome, history.OK, offset, at+time.Millisecond
				w.acks = append(w.acks, r)
				r.Kind, r.Result, r.At = history.Delivered, 0, at+2*time.Millisecond
				w.reads = append(w.reads, r)
				r.At = at + time.Minute
				w.drain = append(w.drain, r)
			}
			if seq%50 == 0 {
				w.ends = append(w.ends, history.Record{Kind: history.EndAnswer, Partition: p, Offset: int64(seq) * worldProducers, Epoch: 1, Asked: at, At: at + time.Microsecond})
			}
		}
	}
	for p := range uint32(worldPartitions) {
		w.ends = append(w.ends, history.Record{Kind: history.EndAnswer, Partition: p, Offset: perLane * worldProducers, Epoch: 1, Asked: at + time.Minute, At: at + time.Minute})
	}
	return w
}

// find is the index of the record of a message; the lane (producer 1, partition 1) is the one that tests bend.
func find(t *testing.T, list []history.Record, seq uint64) int {
	t.Helper()
	i := slices.IndexFunc(list, func(r history.Record) bool { return r.Producer == 1 && r.Partition == 1 && r.Sequence == seq })
	if i < 0 {
		t.Fatalf("no sequence %d", seq)
	}
	return i
}

func remove(t *testing.T, list *[]history.Record, seq uint64) {
	t.Helper()
	i := find(t, *list, seq)
	*list = slices.Delete(*list, i, i+1)
}

func (w *world) write(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "history")
	parts := make([]history.Partition, worldPartitions)
	for i := range parts {
		parts[i] = history.Partition{Topic: "in", Partition: int32(i)}
	}
	hw, err := history.Create(dir, 1, parts)
	if err != nil {
		t.Fatal(err)
	}
	for role, list := range map[string][]history.Record{history.RoleSends: w.sends, history.RoleAcks: w.acks, history.RoleReads: w.reads, history.RoleDrain: w.drain, history.RoleEnds: w.ends} {
		s, err := hw.Stream(role, role)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			s.Append(r)
		}
	}
	if err := hw.Close(); err != nil {
		t.Fatal(err)
	}
	if d := hw.Stats().Dropped; d > 0 {
		t.Fatalf("%d records dropped", d)
	}
	return dir
}

func (w *world) judge(t testing.TB, o Options) Verdict {
	t.Helper()
	v, err := Judge(w.write(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func rule(t testing.TB, v Verdict, id string) RuleResult {
	t.Helper()
	for _, r := range v.Rules {
		if r.ID == id {
			return r
		}
	}
	t.Fatalf("no rule %s in %+v", id, v)
	return RuleResult{}
}

func strict() Options {
	return Options{Guarantee: scenario.Idempotent, MinAcked: 1000, Drained: true}
}

// planted bends a perfect run in one way; the rules named must count exactly that much, all others nothing.
type planted struct {
	name   string
	bend   func(t *testing.T, w *world)
	counts map[string]int64
	shape  string
}

var faults = []planted{
	{"another message at an acknowledged offset", func(t *testing.T, w *world) {
		i := find(t, w.acks, 100)
		w.acks[i].Offset += 2
	}, map[string]int64{"A1": 1}, "changed"},
	{"a message read at an offset that later held another", func(t *testing.T, w *world) {
		i, j := find(t, w.reads, 100), find(t, w.reads, 101)
		w.reads[i].Sequence, w.reads[j].Sequence = 101, 100
	}, map[string]int64{"A1": 2}, "changed"},
	{"a message that was visible and vanished", func(t *testing.T, w *world) {
		w.sends = append(w.sends, history.Record{Kind: history.Sent, Producer: 1, Partition: 1, Sequence: perLane, At: time.Second})
		w.reads = append(w.reads, history.Record{Kind: history.Delivered, Producer: 1, Partition: 1, Sequence: perLane, Offset: perLane * worldProducers, At: time.Second})
	}, map[string]int64{"A1": 1}, "vanished"},
	{"a batch appended twice", func(t *testing.T, w *world) {
		for i := range uint64(5) {
			w.drain = append(w.drain, history.Record{Kind: history.Delivered, Producer: 1, Partition: 1, Sequence: 200 + i, Offset: perLane*worldProducers + int64(i), At: time.Minute})
		}
	}, map[string]int64{"A2": 5}, ""},
	{"a message that was never sent", func(t *testing.T, w *world) {
		w.drain = append(w.drain, history.Record{Kind: history.Delivered, Producer: 1, Partition: 1, Sequence: perLane, Offset: perLane * worldProducers, At: time.Minute})
	}, map[string]int64{"A3": 1}, "never sent"},
	{"a message of an unknown producer", func(t *testing.T, w *world) {
		w.drain = append(w.drain, history.Record{Kind: history.Delivered, Producer: 77, Partition: 1, Offset: perLane * worldProducers, At: time.Minute})
	}, map[string]int64{"A3": 1}, "never sent"},
	{"a flipped bit in a value", func(t *testing.T, w *world) {
		w.drain = append(w.drain, history.Record{Kind: history.Delivered, Flags: history.BadChecksum, Partition: 1, Offset: perLane * worldProducers, At: time.Minute})
	}, map[string]int64{"A3": 1}, "corrupt"},
	{"a message in the wrong partition", func(t *testing.T, w *world) {
		w.drain = append(w.drain, history.Record{Kind: history.Delivered, Flags: history.WrongPartition, Producer: 1, Partition: 1, Sequence: 7, Offset: perLane * worldProducers, At: time.Minute})
	}, map[string]int64{"A3": 1}, "wrong partition"},
	{"a stranger's message", func(t *testing.T, w *world) {
		w.drain = append(w.drain, history.Record{Kind: history.Delivered, Flags: history.Foreign, Partition: 1, Offset: perLane * worldProducers, At: time.Minute})
	}, map[string]int64{"A3": 1}, "foreign"},
	{"a message that had failed for certain", func(t *testing.T, w *world) {
		i := find(t, w.acks, 100)
		w.acks[i].Result, w.acks[i].Offset, w.acks[i].Class = history.Failed, -1, 1
	}, map[string]int64{"A3": 2}, "resurrected"}, // in the run and in the final read
	{"a lost message in the middle", func(t *testing.T, w *world) {
		remove(t, &w.drain, 100)
		remove(t, &w.reads, 100)
	}, map[string]int64{"A4": 1, "A7": 1}, "middle"},
	{"an acknowledgement that survived its message", func(t *testing.T, w *world) {
		remove(t, &w.drain, 100)
	}, map[string]int64{"A1": 1, "A4": 1, "A7": 1}, "middle"}, // it was visible, too
	{"a lost message whose offset is unknown", func(t *testing.T, w *world) {
		remove(t, &w.drain, 100)
		remove(t, &w.reads, 100)
		w.acks[find(t, w.acks, 100)].Offset = -1
	}, map[string]int64{"A4": 1, "A7": 1}, "middle"},
	{"the first messages of a lane lost", func(t *testing.T, w *world) {
		for seq := range uint64(3) {
			remove(t, &w.drain, seq)
			remove(t, &w.reads, seq)
		}
	}, map[string]int64{"A4": 3, "A7": 3}, "prefix"},
	{"a lost tail", func(t *testing.T, w *world) {
		for seq := uint64(perLane - 3); seq < perLane; seq++ {
			remove(t, &w.drain, seq)
			remove(t, &w.reads, seq)
		}
		shrink(w, 1, (perLane-3)*worldProducers)
	}, map[string]int64{"A6": 6, "A7": 6}, "suffix"},
	{"two messages swapped", func(t *testing.T, w *world) {
		for _, list := range [][]history.Record{w.drain, w.reads, w.acks} {
			i, j := find(t, list, 100), find(t, list, 101)
			if list[i].Kind == history.Outcome {
				list[i].Offset, list[j].Offset = list[j].Offset, list[i].Offset
				continue
			}
			list[i].Sequence, list[j].Sequence = 101, 100
		}
	}, map[string]int64{"A9": 1}, ""},
	{"an end that went back", func(t *testing.T, w *world) {
		last := w.ends[len(w.ends)-1]
		last.Offset, last.Asked, last.At = 3, last.At+time.Second, last.At+2*time.Second
		again := w.ends[len(w.ends)-1]
		again.Asked, again.At = last.At+time.Second, last.At+2*time.Second
		w.ends = append(w.ends, last, again)
	}, map[string]int64{"A11": 1}, ""},
}

// shrink cuts a partition's log at an offset: nothing at or beyond it is read, and the last answer says so, in a newer epoch.
func shrink(w *world, partition uint32, end int64) {
	cut := func(r history.Record) bool { return r.Partition == partition && r.Offset >= end }
	w.drain = slices.DeleteFunc(w.drain, cut)
	w.reads = slices.DeleteFunc(w.reads, cut)
	for i := range w.ends {
		if r := &w.ends[i]; r.Partition == partition && r.Offset >= end {
			r.Offset = end
		}
	}
}

func TestEveryPlantedFaultIsCaughtByItsRuleAlone(t *testing.T) {
	caught := map[string]bool{}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			w := perfect()
			f.bend(t, w)
			v := w.judge(t, strict())
			if v.Status != Violated {
				t.Errorf("status %s, %q", v.Status, v.Reasons)
			}
			for _, r := range v.Rules {
				if r.Count != f.counts[r.ID] {
					t.Errorf("%s counts %d, not %d: %+v", r.ID, r.Count, f.counts[r.ID], r.Examples)
				}
				if want := min(f.counts[r.ID], MaxExamples); int64(len(r.Examples)) != want {
					t.Errorf("%s has %d witnesses", r.ID, len(r.Examples))
				}
				if f.counts[r.ID] > 0 {
					caught[r.ID] = true
				}
			}
			if f.shape != "" {
				ok := false
				for _, r := range v.Rules {
					ok = ok || r.Shapes[f.shape] > 0
				}
				if !ok {
					t.Errorf("no shape %q", f.shape)
				}
			}
		})
	}
	for _, id := range RuleIDs() {
		if id != "A5" && !caught[id] {
			t.Errorf("no planted fault was caught by %s", id)
		}
	}
}

func TestCleanHistoriesPass(t *testing.T) {
	clean := map[string]func(w *world){
		"perfect":              func(*world) {},
		"reader stopped early": func(w *world) { w.reads = w.reads[:len(w.reads)/2] },
		"reader saw nothing":   func(w *world) { w.reads = nil },
		"the final read was reset and read again": func(w *world) {
			w.drain = append(w.drain, w.drain[:300]...)
		},
		"an unknown outcome that landed": func(w *world) {
			w.acks[10].Result, w.acks[10].Offset, w.acks[10].Class = history.Unknown, -1, 1
		},
		"an unknown outcome that did not land": func(w *world) {
			w.sends = append(w.sends, history.Record{Kind: history.Sent, Producer: 1, Partition: 1, Sequence: perLane, At: time.Second})
			w.acks = append(w.acks, history.Record{Kind: history.Outcome, Result: history.Unknown, Class: 1, Producer: 1, Partition: 1, Sequence: perLane, Offset: -1, At: time.Second})
		},
		"a send without any outcome": func(w *world) {
			w.sends = append(w.sends, history.Record{Kind: history.Sent, Producer: 1, Partition: 1, Sequence: perLane, At: time.Second})
		},
		"acknowledged without an offset": func(w *world) { w.acks[10].Offset = -1 },
		"a deposed leader told an old end": func(w *world) {
			last := w.ends[len(w.ends)-1]
			last.Epoch, last.Offset, last.Asked, last.At = 0, 3, 50*time.Millisecond, 51*time.Millisecond
			w.ends = append([]history.Record{last}, w.ends...)
		},
		"retention deleted the head of a partition": func(w *world) {
			w.drain = slices.DeleteFunc(w.drain, func(r history.Record) bool { return r.Partition == 1 && r.Offset < 300 })
			w.ends = append(w.ends, history.Record{Kind: history.StartAnswer, Partition: 1, Offset: 300, Epoch: 1, Asked: time.Hour, At: time.Hour})
		},
		"end answers that overlap": func(w *world) {
			a := w.ends[len(w.ends)-1]
			a.Offset, a.Asked, a.At = a.Offset-5, a.Asked-time.Second, a.At+time.Second
			w.ends = append([]history.Record{a}, w.ends...)
			w.ends = append(w.ends, w.ends[len(w.ends)-1])
			w.ends[len(w.ends)-1].Asked += 2 * time.Second
			w.ends[len(w.ends)-1].At += 3 * time.Second
		},
		"a second session counts anew": func(w *world) {
			for i := range int64(3) {
				at := int64(perLane*worldProducers) + i
				r := history.Record{Kind: history.Sent, Producer: 1, Session: 1, Partition: 1, Sequence: uint64(i), At: time.Second}
				w.sends = append(w.sends, r)
				r.Kind, r.Result, r.Offset = history.Outcome, history.OK, at
				w.acks = append(w.acks, r)
				r.Kind, r.Result = history.Delivered, 0
				w.drain = append(w.drain, r)
			}
		},
	}
	for name, bend := range clean {
		t.Run(name, func(t *testing.T) {
			w := perfect()
			bend(w)
			for _, g := range []scenario.Guarantee{scenario.AtMostOnce, scenario.AtLeastOnce, scenario.Idempotent} {
				o := strict()
				o.Guarantee = g
				v := w.judge(t, o)
				if v.Status != Pass {
					t.Errorf("%s: %s %q", g, v.Status, v.Reasons)
				}
				for _, r := range v.Rules {
					if r.Count != 0 {
						t.Errorf("%s: %s counts %d: %+v", g, r.ID, r.Count, r.Examples)
					}
				}
			}
		})
	}
}

func TestEachGuaranteeIsJudgedByItsOwnTable(t *testing.T) {
	lostOne := func(t *testing.T, w *world) {
		remove(t, &w.drain, 100)
		remove(t, &w.reads, 100)
	}
	twice := faults[3].bend
	swapped := faults[len(faults)-2].bend
	for _, c := range []struct {
		guarantee scenario.Guarantee
		bend      func(*testing.T, *world)
		want      Status
	}{
		{scenario.AtMostOnce, lostOne, Pass}, {scenario.AtLeastOnce, lostOne, Violated}, {scenario.Idempotent, lostOne, Violated},
		{scenario.AtMostOnce, twice, Violated}, {scenario.AtLeastOnce, twice, Pass}, {scenario.Idempotent, twice, Violated},
		{scenario.AtMostOnce, swapped, Pass}, {scenario.AtLeastOnce, swapped, Pass}, {scenario.Idempotent, swapped, Violated},
	} {
		w := perfect()
		c.bend(t, w)
		o := strict()
		o.Guarantee = c.guarantee
		if v := w.judge(t, o); v.Status != c.want {
			t.Errorf("%s: %s, not %s: %q", c.guarantee, v.Status, c.want, v.Reasons)
		}
	}
	if DemandOf("transactional", "A1") != NotApplicable || DemandOf(scenario.Idempotent, "B1") != NotApplicable {
		t.Error("a demand for what is not judged")
	}
}

func TestAnAcknowledgedMessageThatANewLeaderReplacedIsLostAndNotAnInconsistentOffset(t *testing.T) {
	w := perfect() // acks=1: another message took the offset
	w.sends = append(w.sends, history.Record{Kind: history.Sent, Producer: 1, Partition: 1, Sequence: perLane, At: time.Second})
	w.acks = append(w.acks, history.Record{Kind: history.Outcome, Result: history.OK, Producer: 1, Partition: 1, Sequence: perLane, Offset: 40, At: time.Second})
	o := strict()
	o.Guarantee = scenario.AtMostOnce
	v := w.judge(t, o)
	if v.Status != Pass || rule(t, v, "A1").Count != 0 || rule(t, v, "A4").Count != 1 || v.Totals.Lost != 1 {
		t.Errorf("%s %q %+v", v.Status, v.Reasons, v.Totals)
	}
}

func TestDoubtIsNeverAPass(t *testing.T) {
	for name, c := range map[string]struct {
		bend func(w *world, o *Options)
	}{
		"final read incomplete":    {func(w *world, o *Options) { o.Drained = false; w.drain = w.drain[:len(w.drain)-60] }},
		"too few acknowledgements": {func(w *world, o *Options) { o.MinAcked = 1 << 40 }},
		"an unproven fault":        {func(w *world, o *Options) { o.Invalid = []string{"the fault did not bite"} }},
		"holes in the history":     {func(w *world, o *Options) { w.sends = slices.Delete(w.sends, 50, 60) }},
		"outcomes that nobody sent": {func(w *world, o *Options) {
			w.acks = append(w.acks, history.Record{Kind: history.Outcome, Result: history.OK, Producer: 9})
		}},
		"the same outcome twice over": {func(w *world, o *Options) { w.acks = append(w.acks, w.acks[5]) }},
	} {
		w, o := perfect(), strict()
		c.bend(w, &o)
		if v := w.judge(t, o); v.Status != Inconclusive || len(v.Reasons) == 0 {
			t.Errorf("%s: %s %q", name, v.Status, v.Reasons)
		}
	}
}

func TestAnUnreadMessageIsUnknownUntilTheEndIsKnown(t *testing.T) {
	w, o := perfect(), strict()
	o.Drained = false
	w.drain = slices.DeleteFunc(w.drain, func(r history.Record) bool { return r.Partition == 1 && r.Offset >= perLane*worldProducers-100 })
	v := w.judge(t, o)
	if r := rule(t, v, "A5"); r.Count != 100 || r.Status != Inconclusive || v.Totals.Unseen != 100 || v.Totals.Lost != 0 || v.Status != Inconclusive {
		t.Errorf("%s, A5 %+v, %+v", v.Status, r.Count, v.Totals)
	}
}

func TestAViolationOutranksDoubtAndToleranceHidesNothing(t *testing.T) {
	w, o := perfect(), strict()
	remove(t, &w.drain, 100)
	remove(t, &w.reads, 100)
	o.Invalid = []string{"the fault did not bite"}
	if v := w.judge(t, o); v.Status != Violated || len(v.Reasons) != 2 {
		t.Errorf("%s %q", v.Status, v.Reasons)
	}
	o.Invalid, o.Tolerate = nil, []string{"A4"}
	v := w.judge(t, o)
	if r := rule(t, v, "A4"); v.Status != Pass || r.Count != 1 || !r.Tolerated || r.Status != Violated {
		t.Errorf("%s %+v", v.Status, r)
	}
	o.Rules = []string{"A2", "A9"}
	if v := w.judge(t, o); len(v.Rules) != 2 || v.Status != Pass {
		t.Errorf("%s %+v", v.Status, v.Rules)
	}
}

func TestAZeroStandsWithItsDenominatorAndBound(t *testing.T) {
	v := perfect().judge(t, strict())
	for _, r := range v.Rules {
		if r.Denominator == 0 || r.Upper95 <= 0 || r.Upper95 > 0.2 || r.Of == "" || r.Name == "" {
			t.Errorf("%+v", r)
		}
	}
	if n := int64(worldPartitions * worldProducers * perLane); v.Totals.Acked != n || v.Totals.Drained != n || v.Totals.Lanes != worldPartitions*worldProducers {
		t.Errorf("%+v", v.Totals)
	}
}

func TestADamagedHistoryIsInconclusiveAndAnAbsentOneAnError(t *testing.T) {
	dir := perfect().write(t)
	name := filepath.Join(dir, "acks.hist")
	b, _ := os.ReadFile(name)
	b[len(b)-10] ^= 1
	os.WriteFile(name, b, 0o644)
	v, err := Judge(dir, strict())
	if err != nil || v.Status != Inconclusive {
		t.Errorf("%v %+v", err, v.Reasons)
	}
	if _, err := Judge(filepath.Join(dir, "absent"), strict()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// The slow twin: random runs with random faults, judged by a checker that keeps everything in maps.
func TestAgreesWithASlowTwinOnRandomHistories(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		seed := rand.Uint64()
		w := randomWorld(rand.New(rand.NewPCG(seed, 1)))
		v := w.judge(t, strict())
		for id, want := range twin(w) {
			if got := rule(t, v, id).Count; got != want {
				t.Errorf("seed %d: %s counts %d, the twin %d", seed, id, got, want)
			}
		}
	}
}

func randomWorld(rnd *rand.Rand) *world {
	w := perfect()
	var drain []history.Record
	next := [worldPartitions]int64{}
	for _, r := range w.drain {
		p := r.Partition
		put := func(r history.Record) {
			r.Offset = next[p]
			next[p]++
			drain = append(drain, r)
		}
		switch x := rnd.IntN(1000); {
		case x < 10: // lost
		case x < 20:
			put(r)
			put(r)
		case x < 25:
			r.Sequence += uint64(rnd.IntN(2 * perLane))
			put(r)
		default:
			put(r)
		}
	}
	w.drain = drain
	for i := range w.ends {
		w.ends[i].Offset = min(w.ends[i].Offset, next[w.ends[i].Partition])
	}
	for p := range uint32(worldPartitions) {
		w.ends = append(w.ends, history.Record{Kind: history.EndAnswer, Partition: p, Offset: next[p], Epoch: 2, Asked: time.Hour, At: time.Hour})
	}
	for i := range w.acks {
		if rnd.IntN(100) == 0 {
			w.acks[i].Result, w.acks[i].Offset, w.acks[i].Class = history.Unknown, -1, 1
		}
	}
	return w
}

func twin(w *world) map[string]int64 {
	type message struct {
		producer  uint16
		partition uint32
		sequence  uint64
	}
	id := func(r history.Record) message { return message{r.Producer, r.Partition, r.Sequence} }
	sent, copies, last := map[message]bool{}, map[message]int64{}, map[message]uint64{}
	at := map[string]message{}
	n := map[string]int64{"A1": 0, "A2": 0, "A3": 0, "A4": 0, "A5": 0, "A6": 0, "A7": 0, "A9": 0}
	ends := map[uint32]int64{}
	place := func(r history.Record) string { return fmt.Sprint(r.Partition, "/", r.Offset) }
	for _, r := range w.sends {
		sent[id(r)] = true
	}
	for _, r := range w.drain {
		at[place(r)] = id(r)
		ends[r.Partition] = r.Offset + 1
		if !sent[id(r)] {
			n["A3"]++
			continue
		}
		if copies[id(r)]++; copies[id(r)] > 1 {
			n["A2"]++
			continue
		}
		lane := message{r.Producer, r.Partition, 0}
		if r.Sequence+1 < last[lane] {
			n["A9"]++
		}
		last[lane] = r.Sequence + 1
	}
	for _, r := range w.reads {
		if at[place(r)] != id(r) {
			n["A1"]++
		}
	}
	for _, r := range w.acks {
		if r.Result != history.OK {
			continue
		}
		switch held, ok := at[place(r)]; {
		case copies[id(r)] == 0 && r.Offset < ends[r.Partition]:
			n["A4"]++
			n["A7"]++
		case copies[id(r)] == 0:
			n["A6"]++
			n["A7"]++
		case !ok || held != id(r):
			n["A1"]++
		}
	}
	return n
}

func BenchmarkJudge(b *testing.B) {
	w := &world{}
	for seq := range uint64(150_000) {
		for p := range uint32(worldPartitions) {
			at := time.Duration(seq) * 10 * time.Microsecond
			r := history.Record{Kind: history.Sent, Partition: p, Sequence: seq, At: at}
			w.sends = append(w.sends, r)
			r.Kind, r.Result, r.Offset = history.Outcome, history.OK, int64(seq)
			w.acks = append(w.acks, r)
			r.Kind, r.Result = history.Delivered, 0
			w.reads, w.drain = append(w.reads, r), append(w.drain, r)
		}
	}
	dir := w.write(b)
	operations := len(w.sends) + len(w.acks) + len(w.reads) + len(w.drain)
	b.ResetTimer()
	for b.Loop() {
		if v, err := Judge(dir, Options{Guarantee: scenario.Idempotent, Drained: true}); err != nil || v.Status != Pass {
			b.Fatal(err, v.Status, v.Reasons)
		}
	}
	b.ReportMetric(float64(operations)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mop/s")
}
