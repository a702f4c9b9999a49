package check

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gopherlog/bench/history"
	"gopherlog/bench/scenario"
)

func TestEveryPlantedFaultIsCaughtByItsRuleAlone(t *testing.T) {
	caught := map[string]bool{}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			w := perfect()
			f.bend(t, w)
			v := w.judge(t, strict())
			if want := map[bool]Status{true: Pass, false: Violated}[f.counts["A12"] > 0]; v.Status != want { // who is late has broken nothing
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
		if id[0] == 'A' && id != "A5" && !caught[id] {
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
				o.Guarantee, o.Expires = g, true
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
	swapped := faults[slices.IndexFunc(faults, func(f planted) bool { return f.name == "two messages swapped" })].bend
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
	if DemandOf("exactly_always", "A1") != NotApplicable || DemandOf(scenario.Idempotent, "C1") != NotApplicable || DemandOf(transactional, "D1") != NotApplicable {
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
		if r.Status == NotChecked {
			if r.ID[0] == 'A' || r.Denominator != 0 || r.Upper95 != 1 || r.Why == "" {
				t.Errorf("%+v", r)
			}
			continue
		}
		if r.Denominator == 0 || r.Upper95 <= 0 || r.Upper95 > 0.2 && r.ID != "A12" || r.Of == "" || r.Name == "" {
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
