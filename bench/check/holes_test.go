package check

import (
	"os"
	"path/filepath"
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
	if v := w.judge(t, o); v.Status != Pass || v.Totals.Expired != 300 {
		t.Errorf("with retention: %s %q %+v", v.Status, v.Reasons, v.Totals)
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
