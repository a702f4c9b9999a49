package price

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"gopherlog/bench/check"
	"gopherlog/bench/load"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
)

var update = flag.Bool("update", false, "write the golden files again")

// made is a run with known figures: block n of cell g has latencies base × (1 + n/20).
func made(p *Plan, model string, achieved float64) *result.Run {
	r := &result.Run{}
	r.Manifest.Scenario = result.Scenario{Model: model, Seed: 1}
	for n, g := range p.Priced() {
		id := fmt.Sprintf("c%02d", n+1)
		r.Manifest.Cells = append(r.Manifest.Cells, result.Cell{ID: id, Guarantee: string(g), Bound: 20000})
		for b := range p.Blocks {
			base := (0.4 + 0.02*float64(n)) * (1 + float64(b)/20)
			at := func(x float64) map[string]result.Latency {
				return map[string]result.Latency{scenario.PhaseSteady: {Count: 4000, P50: base * x, P99: base * 9.5 * x}}
			}
			t := result.Trial{ID: "b", Cell: id, Block: b, Offered: 1000, Achieved: achieved * (1 - float64(n)/50), Latency: map[string]map[string]result.Latency{"ack": at(1), "visible": at(1.6)}}
			t.Check = check.Verdict{Status: check.Pass, Totals: check.Totals{Acked: 6000}}
			if g.Transacts() {
				t.Latency["commit"], t.Latency["visible"], t.Txns, t.Commits = at(3), at(120), t.Achieved/50, t.Achieved
			}
			if g == scenario.AtMostOnce && b == 2 {
				t.Check.Totals.Lost = 3
			}
			if b == 5 && n == 2 {
				t.Invalid = []string{"the load client fell behind its schedule: slot lateness p99 3 ms"}
			}
			r.Results.Trials = append(r.Results.Trials, t)
		}
	}
	return r
}

func TestListIsReadableAtEveryWidth(t *testing.T) {
	o := options("broker-1:9092")
	o.Saturate = true
	p, err := NewPlan(o, load.Facts{Brokers: make([]load.Broker, 3)})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Without(Guarantees[len(Guarantees)-1], "this cluster does not serve it."); err != nil {
		t.Fatal(err)
	}
	list := List{Plan: p, Report: &Report{Copies: 3, Effective: map[string]string{"min.insync.replicas": "2"}}, Runs: []*result.Run{made(p, "open", 1000), made(p, "closed", 140_000)}}
	for _, width := range []int{80, 120} {
		got := list.Text(width)
		for line := range strings.Lines(got) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > width {
				t.Errorf("%d columns: %q", n, line)
			}
		}
		golden(t, fmt.Sprintf("testdata/list-%d.golden", width), got)
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != got {
		t.Errorf("%v: %s differs (-update writes it):\n%s", err, file, got)
	}
}

func TestListOfFewBlocksClaimsNoInterval(t *testing.T) {
	o := options("b:1")
	o.Blocks = 3
	p, err := NewPlan(o, load.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	text := List{Plan: p, Runs: []*result.Run{made(p, "open", 1000)}}.Text(80)
	if !strings.Contains(text, "Medians of 3 blocks, in brackets lowest and highest") || strings.Contains(text, "~1") || !strings.Contains(text, "-saturate") {
		t.Error(text)
	}
}

func TestGuaranteeThatFellBehindIsNamed(t *testing.T) {
	p, err := NewPlan(options("b:1"), load.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if text := (List{Plan: p, Runs: []*result.Run{made(p, "open", 960)}}).Text(80); !strings.Contains(text, "! Done in time of what was offered: at least once 94 %, idempotent 92 %,") || strings.Contains(text, "at most once 9") {
		t.Error(text)
	}
}

// The report marks a voted commit whose votes were not read as not known; the list must not call it held.
func TestAVotedCommitWhoseVotesWereNotReadIsNotCalledHeld(t *testing.T) {
	p, err := NewPlan(options("b:1"), load.Facts{VotedPrefix: VotedPrefix})
	if err != nil {
		t.Fatal(err)
	}
	r := made(p, "open", 1000)
	voted := r.Manifest.Cells[len(r.Manifest.Cells)-1]
	if voted.Guarantee != string(scenario.TwoPhaseCommit) {
		t.Fatalf("the last cell is %s", voted.Guarantee)
	}
	for i := range r.Results.Trials {
		if c := &r.Results.Trials[i]; c.Cell == voted.ID {
			c.Check.Rules = []check.RuleResult{{ID: "D1", Demand: check.MustBeZero, Status: check.NotChecked}}
		}
	}
	text := List{Plan: p, Runs: []*result.Run{r}}.Text(100)
	if strings.Count(text, "✓ to clients") != 1 || !strings.Contains(text, "rules D1 to D6") {
		t.Error(text)
	}
}

func TestListOfNothingSaysSo(t *testing.T) {
	p, err := NewPlan(options("b:1"), load.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if text := (List{Plan: p}).Text(80); !strings.Contains(text, "Nothing was measured") {
		t.Error(text)
	}
}

func TestWhatRetentionDeletedBoundsNothing(t *testing.T) {
	p, err := NewPlan(options("broker-1:9092"), load.Facts{Brokers: make([]load.Broker, 3)})
	if err != nil {
		t.Fatal(err)
	}
	r := made(p, "open", 1000)
	for i := range r.Results.Trials {
		r.Results.Trials[i].Check.Totals.Expired = 3000
	}
	list := List{Plan: p, Report: &Report{Copies: 3}, Runs: []*result.Run{r}}
	var b strings.Builder
	if list.held(&b); !strings.Contains(b.String(), "≤ 167 a million") { // 3 of 18,000: six trials, half of 6,000 each
		t.Errorf("36,000 acknowledged, 18,000 of them judged:\n%s", b.String())
	}
}
