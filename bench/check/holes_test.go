package check

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"gopherlog/bench/history"
)

// A history that misses records must convict nobody and acquit nobody.
func TestRecordsThatTheHistoryMissesProveNothing(t *testing.T) {
	for name, bend := range map[string]func(w *world){
		"of the final read": func(w *world) { w.drain = slices.Delete(w.drain, 100, 200) },
		"of the last sends": func(w *world) { w.sends = w.sends[:len(w.sends)-50] },
		"of the outcomes":   func(w *world) { w.acks = slices.Delete(w.acks, 100, 200) },
		"of the reads":      func(w *world) { w.reads = slices.Delete(w.reads, 100, 200) },
		"of the last ends":  func(w *world) { w.ends = w.ends[:len(w.ends)-worldPartitions] },
	} {
		w, o := perfect(), strict()
		bend(w)
		o.Dropped = 100
		if v := w.judge(t, o); v.Status != Inconclusive {
			t.Errorf("%s: %s %q", name, v.Status, v.Reasons)
		}
	}
}

func TestADamagedFinalReadConvictsNobodyOfLoss(t *testing.T) {
	dir := perfect().write(t)
	name := filepath.Join(dir, "drain.hist")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-10] ^= 1
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if v, err := Judge(dir, strict()); err != nil || v.Status != Inconclusive || v.Totals.Lost != 0 {
		t.Errorf("%v %s %q %+v", err, v.Status, v.Reasons, v.Totals)
	}
}

func TestAPlantedDuplicateIsSeenThroughHoles(t *testing.T) {
	w, o := perfect(), strict()
	again := w.drain[len(w.drain)-1]
	again.Offset = perLane * worldProducers
	w.drain, o.Dropped = append(w.drain, again), 1
	if v := w.judge(t, o); v.Status != Violated || v.Totals.Duplicates != 1 {
		t.Errorf("%s %q", v.Status, v.Reasons)
	}
}

func TestALogThatLostItsHeadWithoutRetentionLostMessages(t *testing.T) {
	w, o := perfect(), strict()
	w.drain = slices.DeleteFunc(w.drain, func(r history.Record) bool { return r.Partition == 1 && r.Offset < 300 })
	w.ends = append(w.ends, history.Record{Kind: history.StartAnswer, Partition: 1, Offset: 300, Epoch: 1, Asked: time.Hour, At: time.Hour})
	if v := w.judge(t, o); v.Status != Violated || v.Totals.Lost != 300 || v.Totals.Expired != 0 {
		t.Errorf("%s %q %+v", v.Status, v.Reasons, v.Totals)
	}
	o.Expires = true
	told := w.ends
	w.ends = w.ends[:len(w.ends)-1]
	if v := w.judge(t, o); v.Status != Inconclusive || v.Totals.Lost != 0 {
		t.Errorf("with retention, and nobody told how far it went: %s %q %+v", v.Status, v.Reasons, v.Totals)
	}
	w.ends = told
	v := w.judge(t, o)
	if v.Status != Pass || v.Totals.Expired != 300 {
		t.Errorf("with retention: %s %q %+v", v.Status, v.Reasons, v.Totals)
	}
	for _, r := range v.Rules {
		if r.ID == "A4" && r.Denominator != v.Totals.Acked-300 {
			t.Errorf("the denominator of A4 is %d of %d acknowledged, 300 of which nobody could look for", r.Denominator, v.Totals.Acked)
		}
	}
}

func TestNothingAcknowledgedIsNothingHeld(t *testing.T) {
	w, o := &world{}, strict()
	w.ends, o.MinAcked = perfect().ends, 0
	for i := range w.ends {
		w.ends[i].Offset = 0
	}
	if v := w.judge(t, o); v.Status != Inconclusive || !strings.Contains(strings.Join(v.Reasons, " "), "nothing to judge") {
		t.Errorf("%s %q", v.Status, v.Reasons)
	}
}

func TestWithoutARuleThereIsNoVerdict(t *testing.T) {
	o := strict()
	o.Rules = []string{}
	if v := perfect().judge(t, o); v.Status != Inconclusive {
		t.Errorf("%s %q", v.Status, v.Reasons)
	}
}

// Whatever a history says, however little sense it makes, is judged and does not end the judge.
func TestNonsenseIsJudgedWithoutAPanic(t *testing.T) {
	for range 30 {
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, 1))
		w := perfectTxns()
		nonsense := func(list []history.Record) []history.Record {
			for range 1 + rnd.IntN(40) {
				r := history.Record{Kind: history.Kind(1 + rnd.IntN(9)), Producer: uint16(rnd.IntN(6)), Session: uint16(rnd.IntN(3)), Partition: uint32(rnd.IntN(txnPartitions)),
					Sequence: uint64(rnd.IntN(300)), Txn: uint32(rnd.IntN(100)), Offset: int64(rnd.IntN(400)), Epoch: int32(rnd.IntN(4)) - 1, At: time.Duration(rnd.IntN(5000)) * time.Millisecond}
				switch r.Kind {
				case history.Transaction:
					r.Step = history.Inited + history.Step(rnd.IntN(7))
				case history.Group:
					r.Step, r.Offset = history.Assigned+history.Step(rnd.IntN(12)), r.Offset-1
				case history.Outcome:
					r.Result = history.Result(1 + rnd.IntN(3))
				case history.Delivered:
					r.Flags = uint8(rnd.IntN(8))
				}
				list = slices.Insert(slices.Clone(list), rnd.IntN(len(list)+1), r)
			}
			return list
		}
		for _, m := range []map[uint16][]history.Record{w.sends, w.acks, w.txns, w.group} {
			for p := range m {
				m[p] = nonsense(m[p])
			}
		}
		w.reads, w.drain, w.raw, w.ends, w.positions = nonsense(w.reads), nonsense(w.drain), nonsense(w.raw), nonsense(w.ends), nonsense(w.positions)
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Fatalf("seed %d: %v\n%s", seed, p, debug.Stack())
				}
			}()
			w.judge(t, strictTxns())
		}()
	}
}
