package suite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"gopherlog/bench/check"
	"gopherlog/bench/fault"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/bench/target"
)

// onFake is an in-process fake of Kafka, and a run of a scenario text against it.
func onFake(t *testing.T, body string) (addrs []string, cfg Config) {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	file := filepath.Join(t.TempDir(), "s.yaml")
	text := fmt.Sprintf("version: 1\nname: on-a-fake\nseed: 7\ntarget: {system: external, external: {bootstrap: [%s]}}\n%s", strings.Join(fake.ListenAddrs(), ", "), body)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	sc, err := scenario.Parse(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return fake.ListenAddrs(), Config{Scenario: sc, File: file, Out: filepath.Join(t.TempDir(), "run"), NetReason: "a test"}
}

func runOn(t *testing.T, body string) *result.Run {
	t.Helper()
	_, cfg := onFake(t, body)
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const shortPhases = "phases: {warmup: 200ms, steady: 2s, drain: 20s}\nchecks: {min_acked: 100}\nruns: {repeats: 1, cooldown: 0s}\n"

func TestOpenLoopRunOnAFakeIsJudgedAndWritten(t *testing.T) {
	r := runOn(t, "guarantee: [at_least_once, idempotent]\nload: {model: open, rate: 1k/s, value: {size: 200B}}\nexpect:\n  - violations == 0\n"+shortPhases)
	if r.Results.Verdict != check.Pass || r.Results.ExitCode != ExitPass {
		t.Fatalf("verdict %s, exit code %d: %+v", r.Results.Verdict, r.Results.ExitCode, r.Results.Trials)
	}
	for _, tr := range r.Results.Trials {
		if tr.Check.Totals.Acked < 1500 || tr.Counts.Delivered == 0 || len(tr.Invalid) == 0 && tr.Latency["visible"]["steady"].Count == 0 {
			t.Errorf("trial %s: %+v, %+v", tr.ID, tr.Check.Totals, tr.Counts)
		}
		for _, f := range []string{r.Samples(tr.ID + ".csv"), r.Latency(tr.ID + ".hlog"), r.Latency(tr.ID + "-ack.hgrm")} {
			if s, err := os.Stat(f); err != nil || s.Size() == 0 {
				t.Errorf("%s: %v", f, err)
			}
		}
	}
	again, err := result.Load(r.Path)
	if err != nil || len(again.Results.Trials) != 2 || len(again.Manifest.Cells[0].Client) == 0 {
		t.Fatalf("read back: %v, %+v", err, again)
	}
	_, unknown := target.ReadMachine()
	for _, tr := range again.Results.Trials {
		if tr.Usage.Stolen == nil && unknown == nil {
			t.Errorf("trial %s does not say what the machine's host took from it", tr.ID)
		}
	}
}

func TestUnprovenFaultMakesTheRunUnusable(t *testing.T) {
	unproven := result.Trial{Faults: []fault.Event{{Kind: "kill", Error: "nothing happened"}}, Check: check.Verdict{Status: check.Inconclusive, Reasons: []string{"fault kill not proven"}}}
	r := &result.Run{Results: result.Results{Verdict: check.Inconclusive, Trials: []result.Trial{unproven}}}
	if got := exitCode(r); got != ExitUnusable {
		t.Errorf("exit code %d, want %d: a fault that did not bite proves nothing", got, ExitUnusable)
	}
	unproven.Faults[0] = fault.Event{Kind: "partition", Skipped: true, Error: "skipped: no namespace"}
	r.Results.Trials[0] = unproven
	if got := exitCode(r); got != ExitPass {
		t.Errorf("exit code %d, want %d: what this machine cannot inject is skipped, not failed", got, ExitPass)
	}
}

func TestViolationsOutrankMissedThresholds(t *testing.T) {
	bad := result.Trial{Check: check.Verdict{Status: check.Violated}}
	r := &result.Run{Results: result.Results{Verdict: check.Violated, Trials: []result.Trial{bad}, Expectations: []result.Expectation{{Outcome: missed}}}}
	if got := exitCode(r); got != ExitViolation {
		t.Errorf("exit code %d, want %d", got, ExitViolation)
	}
	r.Results.Verdict, r.Results.Trials[0].Check.Status = check.Pass, check.Pass
	if got := exitCode(r); got != ExitThreshold {
		t.Errorf("exit code %d, want %d", got, ExitThreshold)
	}
}

func TestUndecidedLineIsNoPassUnlessItSaysSo(t *testing.T) {
	sound := result.Trial{Check: check.Verdict{Status: check.Pass}}
	aside := result.Trial{Check: check.Verdict{Status: check.Pass}, Invalid: []string{"too late"}}
	open, tolerant := result.Expectation{Outcome: undecided}, result.Expectation{Outcome: undecided, Open: true}
	for name, c := range map[string]struct {
		trial result.Trial
		lines []result.Expectation
		want  int
	}{
		"met":                                   {sound, []result.Expectation{{Outcome: met}}, ExitPass},
		"undecided":                             {sound, []result.Expectation{{Outcome: met}, open}, ExitUnusable},
		"undecided, which is said to be enough": {sound, []result.Expectation{{Outcome: met}, tolerant}, ExitPass},
		"missed, which no other line hides":     {sound, []result.Expectation{open, {Outcome: missed}}, ExitThreshold},
		"missed in spite of or undecided":       {sound, []result.Expectation{{Outcome: missed, Open: true}}, ExitThreshold},
		"or undecided without a sound trial":    {aside, []result.Expectation{{Outcome: met}, tolerant}, ExitUnusable},
	} {
		r := &result.Run{Dir: result.Dir{Path: t.TempDir()}, Results: result.Results{Verdict: check.Pass, Trials: []result.Trial{c.trial}, Expectations: c.lines}}
		if got := exitCode(r); got != c.want {
			t.Errorf("%s: exit code %d, want %d", name, got, c.want)
		}
	}
	r := &result.Run{Dir: result.Dir{Path: t.TempDir()}, Results: result.Results{Expectations: []result.Expectation{open, tolerant}}}
	if err := writeJUnit(r); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(r.File(result.JUnitFile)); err != nil || !strings.Contains(string(b), `failures="1" skipped="1"`) {
		t.Errorf("%v: %s", err, b)
	}
}

func TestTrialSetAsideStillAnswersForItsRecords(t *testing.T) {
	r := &result.Run{Manifest: result.Manifest{Cells: []result.Cell{{ID: "a"}}}}
	r.Results.Trials = []result.Trial{{Cell: "a", Invalid: []string{"too late"}, Check: check.Verdict{Status: check.Pass}}}
	r.Results.Expectations = judgeExpectations([]scenario.Expect{{Raw: "violations == 0", Metric: "violations", Op: "=="}}, r)
	if got := r.Results.Expectations[0].Outcome; got != met || exitCode(r) != ExitPass {
		t.Errorf("outcome %s, exit code %d; want met and %d", got, exitCode(r), ExitPass)
	}
	r.Results.Trials[0].Outages = []result.Outage{{Prober: 0.2, Load: 9, Affected: true}}
	r.Results.Expectations = judgeExpectations([]scenario.Expect{{Raw: "outage_prober.max < 1s", Metric: "outage_prober.max", Op: "<", Value: 1}}, r)
	if got := r.Results.Expectations[0].Outcome; got != met || exitCode(r) != ExitPass {
		t.Errorf("outcome %s, exit code %d; want met: the prober is not late when the load client is", got, exitCode(r))
	}
	r.Results.Expectations = judgeExpectations([]scenario.Expect{{Raw: "ack.p99 < 1ms", Metric: "ack.p99", Op: "<", Value: 0.001}}, r)
	if got := exitCode(r); got != ExitUnusable {
		t.Errorf("exit code %d, want %d: a latency of a trial that is set aside decides nothing", got, ExitUnusable)
	}
}

func TestRatioIsMissedOnlyWhenItsWholeIntervalIsBeyond(t *testing.T) {
	r := &result.Run{Manifest: result.Manifest{Cells: []result.Cell{{ID: "a", Guarantee: "idempotent"}, {ID: "b", Guarantee: "at_least_once"}}}}
	for i, v := range []float64{0.9, 1.0, 0.8, 0.7, 0.95, 0.85} {
		r.Results.Trials = append(r.Results.Trials, result.Trial{Cell: "a", Block: i, Achieved: v}, result.Trial{Cell: "b", Block: i, Achieved: 1})
	}
	e := scenario.Expect{Metric: "throughput", A: "idempotent", B: "at_least_once", Op: ">"}
	for limit, want := range map[float64]string{0.5: met, 0.8: undecided, 0.9: undecided, 1.5: missed} {
		e.Value = limit
		if _, got, said := judgeRatio(e, r); got != want {
			t.Errorf("ratio > %g: %s (%s), want %s", limit, got, said, want)
		}
	}
}

func TestFewBlocksDecideNoRatio(t *testing.T) {
	r := &result.Run{Manifest: result.Manifest{Cells: []result.Cell{{ID: "a", Sweep: map[string]string{"target.system": "gopherlog"}}, {ID: "b", Sweep: map[string]string{"target.system": "kafka"}}}}}
	e := scenario.Expect{Metric: "throughput", A: "gopherlog", B: "kafka", Op: ">=", Value: 1.2}
	for block, want := range []string{undecided, undecided, met} {
		r.Results.Trials = append(r.Results.Trials, result.Trial{Cell: "a", Block: block, Achieved: 2}, result.Trial{Cell: "b", Block: block, Achieved: 1})
		if _, got, said := judgeRatio(e, r); got != want {
			t.Errorf("%d blocks: %s (%s), want %s", block+1, got, said, want)
		}
	}
}

func TestUsageIsInterpolatedToTheSpan(t *testing.T) {
	t0 := time.Unix(0, 0)
	var ss []target.Sample
	for i := range 5 {
		ss = append(ss, target.Sample{At: t0.Add(time.Duration(i) * time.Second), Proc: target.ProcSample{CPU: time.Duration(i) * 100 * time.Millisecond, WriteBytes: int64(i) * 10}})
	}
	cpu, written := between(ss, t0.Add(1500*time.Millisecond), t0.Add(3500*time.Millisecond))
	if cpu != 200*time.Millisecond || written != 20 {
		t.Errorf("got %s and %d bytes, want 200ms and 20", cpu, written)
	}
}

func TestThresholdIsNotMetWhereACellHasNoSoundTrial(t *testing.T) {
	r := &result.Run{Manifest: result.Manifest{Cells: []result.Cell{{ID: "a"}, {ID: "b"}}}}
	r.Results.Trials = []result.Trial{{Cell: "a", Achieved: 10}, {Cell: "b", Achieved: 10, Invalid: []string{"too late"}}}
	for limit, want := range map[float64]string{5: undecided, 20: missed} {
		e := scenario.Expect{Metric: "throughput", Op: ">", Value: limit}
		if got, said := judgeAbsolute(e, r); got != want || !strings.Contains(said, "not measured") {
			t.Errorf("throughput > %g: %s (%s), want %s", limit, got, said, want)
		}
	}
}

func TestRatioComparesCellsThatDifferInItsKeyAlone(t *testing.T) {
	r := &result.Run{}
	for i, g := range []string{"idempotent", "at_least_once"} {
		for j, rate := range []string{"1k/s", "2k/s"} {
			id := g + rate
			r.Manifest.Cells = append(r.Manifest.Cells, result.Cell{ID: id, Guarantee: g, Sweep: map[string]string{"guarantee": g, "load.rate": rate}})
			for block := range 3 {
				r.Results.Trials = append(r.Results.Trials, result.Trial{Cell: id, Block: block, Achieved: float64((i + 1) * (3*j + 1))})
			}
		}
	}
	for _, c := range []struct {
		a, b string
		want float64
	}{{"idempotent", "at_least_once", 0.5}, {"2k/s", "1k/s", 4}} {
		e := scenario.Expect{Metric: "throughput", A: c.a, B: c.b, Op: "==", Value: c.want}
		if _, got, said := judgeRatio(e, r); got != met || strings.Count(said, "over 3 blocks") != 2 {
			t.Errorf("ratio(throughput, %s, %s): %s (%s), want %g", c.a, c.b, got, said, c.want)
		}
	}
	r.Results.Trials[0].Achieved = 1000 // at one load only
	e := scenario.Expect{Metric: "throughput", A: "idempotent", B: "at_least_once", Op: "==", Value: 0.5}
	if _, got, said := judgeRatio(e, r); got != undecided || !strings.Contains(said, "load.rate=2k/s: 0.500") {
		t.Errorf("one load of two decides for both: %s (%s)", got, said)
	}
	zero := scenario.Expect{Metric: "lost", A: "idempotent", B: "at_least_once", Op: "<", Value: 1}
	if _, got, _ := judgeRatio(zero, r); got != undecided {
		t.Errorf("a ratio of zeros is %s", got)
	}
}

func TestRatioComparesACellWithAllValuesOfAKeyThatSaysNothingToIt(t *testing.T) {
	r := &result.Run{}
	add := func(achieved float64, sweep map[string]string) {
		id := fmt.Sprint(len(r.Manifest.Cells))
		r.Manifest.Cells = append(r.Manifest.Cells, result.Cell{ID: id, Guarantee: sweep["guarantee"], Sweep: sweep})
		for block := range 3 {
			r.Results.Trials = append(r.Results.Trials, result.Trial{Cell: id, Block: block, Achieved: achieved})
		}
	}
	for _, producers := range []string{"1", "8"} {
		add(100, map[string]string{"guarantee": "idempotent", "producers.count": producers})
		for records, achieved := range map[string]float64{"1": 10, "10": 50} {
			add(achieved, map[string]string{"guarantee": "transactional", "producers.count": producers, "producers.transaction.records": records})
		}
	}
	e := scenario.Expect{Metric: "throughput", A: "transactional", B: "idempotent", Op: ">", Value: 0}
	_, got, said := judgeRatio(e, r)
	if got != met || strings.Count(said, "over 3 blocks") != 4 || strings.Count(said, "producers.count=8 producers.transaction.records=10: 0.500") != 1 {
		t.Errorf("%s: %s", got, said)
	}
}

func TestJUnitFailsWhatCouldNotBeJudgedAndNotWhatIsTolerated(t *testing.T) {
	r := &result.Run{Dir: result.Dir{Path: t.TempDir()}}
	tolerated := check.RuleResult{ID: "A4", Status: check.Violated, Tolerated: true}
	r.Results.Trials = []result.Trial{
		{ID: "x", Check: check.Verdict{Status: check.Pass, Rules: []check.RuleResult{tolerated}}},
		{ID: "y", Check: check.Verdict{Status: check.Inconclusive, Reasons: []string{"the trial was interrupted"}}},
	}
	if err := writeJUnit(r); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(r.File(result.JUnitFile))
	if text := string(b); err != nil || !strings.Contains(text, `failures="1" skipped="0"`) || !strings.Contains(text, "the trial was interrupted") {
		t.Errorf("%v: %s", err, text)
	}
}
