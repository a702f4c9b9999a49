package suite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
)

// twoSystems measured transactions of several sizes, and none; those of the second cost ten times as much.
func twoSystems(blocks int) *result.Run {
	r := &result.Run{}
	add := func(system, guarantee string, records int, txns float64) {
		c := result.Cell{ID: fmt.Sprint(len(r.Manifest.Cells)), System: system, Guarantee: guarantee, Model: "closed", Producers: 1,
			Sweep: map[string]string{"target.system": system, "guarantee": guarantee}}
		if records > 0 {
			c.Txn, c.Sweep["producers.transaction.records"] = &result.Txn{Records: records}, fmt.Sprint(records)
		}
		r.Manifest.Cells = append(r.Manifest.Cells, c)
		for block := range blocks {
			t := result.Trial{Cell: c.ID, Block: block, Achieved: 100_000}
			if records > 0 {
				t.Counts.Txns, t.Txns, t.Commits = 1, txns, txns*float64(records)
			}
			r.Results.Trials = append(r.Results.Trials, t)
		}
	}
	for system, a := range map[string]float64{"gopherlog": 0.001, "kafka": 0.01} {
		add(system, "idempotent", 0, 0)
		for _, n := range []int{1, 100, 1000} {
			add(system, "transactional", n, 1/(a+float64(n)/100_000))
		}
	}
	return r
}

func TestRatioSpeaksOnlyOfTheCellsThatItsConditionsName(t *testing.T) {
	r := twoSystems(3)
	e := scenario.Expect{Metric: "transactions", A: "gopherlog", B: "kafka", Op: ">=", Value: 5}
	if _, got, said := judgeRatio(e, r); got != missed || strings.Count(said, "over 3 blocks") != 3 {
		t.Errorf("of all sizes: %s (%s)", got, said)
	}
	e.Where = []scenario.Axis{{Key: "producers.transaction.records", Value: "1"}, {Key: "guarantee", Value: "transactional"}}
	if q, got, said := judgeRatio(e, r); got != met || len(q.Groups) != 1 {
		t.Errorf("of one record: %s (%s)", got, said)
	}
}

func TestHalfOfTheRateIsComparedOverAllSizesOfASystem(t *testing.T) {
	e := scenario.Expect{Metric: scenario.Half, A: "gopherlog", B: "kafka", Op: "<=", Value: 0.11}
	for blocks, want := range map[int]string{2: undecided, 3: met, 6: met} {
		q, got, said := judgeRatio(e, twoSystems(blocks))
		if got != want || len(q.Groups) != 1 || q.Groups[0].Name != "guarantee=transactional" {
			t.Errorf("%d blocks: %s (%s)", blocks, got, said)
		}
	}
	e.Value = 0.09
	if _, got, said := judgeRatio(e, twoSystems(3)); got != missed {
		t.Errorf("%s (%s)", got, said)
	}
}

func TestAClusterIsWarmedByTransactionsWhereTrialsHaveSome(t *testing.T) {
	cells := func(more string) []scenario.Cell {
		file := filepath.Join(t.TempDir(), "x.yaml")
		err := os.WriteFile(file, []byte("version: 1\nname: x\nruns: {fresh_cluster: false}\nguarantee: [idempotent"+more+"]\n"), 0o644)
		if err != nil {
			t.Fatal(err)
		}
		s, err := scenario.Parse(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s.Expand()
	}
	const d = 90 * time.Second
	s := &run{cells: cells("")}
	if l := s.warmLoads(s.cells[0], d); len(l) != 1 || l[0].Phases.Steady != d {
		t.Errorf("without transactions: %d loads", len(l))
	}
	s = &run{cells: cells(", transactional, two_phase_commit")}
	l := s.warmLoads(s.cells[1], d)
	if len(l) != 3 || l[0].Guarantee != scenario.Idempotent || l[1].Guarantee != scenario.Transactional || l[2].Guarantee != scenario.TwoPhaseCommit {
		t.Fatalf("%d loads", len(l))
	}
	if all := l[0].Phases.Steady + l[1].Phases.Steady + l[2].Phases.Steady; all != d || l[1].Phases.Steady != 15*time.Second || l[2].Producers.Transaction.Records != 1 {
		t.Errorf("%s in all, %s of transactions", all, l[1].Phases.Steady)
	}
}
