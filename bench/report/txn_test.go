package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot/vg"

	"gopherlog/bench/check"
	"gopherlog/bench/fault"
	"gopherlog/bench/hdr"
	"gopherlog/bench/result"
	"gopherlog/bench/stats"
)

// txnSample is a run whose figures are made up: what a transaction costs (closed), or what a coordinator's crash does to readers (open).
type txnSample struct {
	name   string
	blocks int
	voted  bool // the voted two-phase commit ran
	rng    *rand.Rand
	m      result.Manifest
	res    result.Results
}

func newTxnSample(name, model string, blocks int) *txnSample {
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	return &txnSample{name: name, blocks: blocks, voted: true, rng: rand.New(rand.NewPCG(3, 4)), m: result.Manifest{Started: start, Finished: start.Add(9 * time.Minute), Command: "mqbench run scenarios/" + name + ".yaml",
		Scenario: result.Scenario{Name: name, File: "scenarios/" + name + ".yaml", Question: "What does a transaction cost?", Seed: 42, Blocks: blocks, Model: model, Resolved: "version: 1\n"},
		System:   result.System{Name: "gopherlog", Nodes: 3, ReplicationFactor: 3, MinInsync: 2, Tier: "T1", Partitions: 3, RecordBytes: 1024},
		Host:     result.Host{Cores: 2, CPU: "test", Kernel: "test", Namespace: "own", Filesystem: "ext4"}}}
}

func (s *txnSample) noise() float64 { return math.Exp(0.05 * s.rng.NormFloat64()) }

// cell adds a cell and its trials.
func (s *txnSample) cell(c result.Cell, change func(t *result.Trial)) {
	c.ID = fmt.Sprintf("c%02d", len(s.m.Cells))
	s.m.Cells = append(s.m.Cells, c)
	for block := range s.blocks {
		t := result.Trial{ID: fmt.Sprintf("b%d-%s", block, c.ID), Cell: c.ID, Block: block, Started: s.m.Started, Seconds: 20,
			Phases: []result.Span{{Phase: "steady", Start: 2, End: 10}, {Phase: "impact", Start: 10, End: 20}},
			Check:  check.Verdict{Status: check.Pass, Totals: check.Totals{Acked: 100000}, Rules: txnRules(c)},
			Usage:  result.Usage{BrokerCPU: 1, ClientCPU: 0.5, Records: 100000, CopiesAtAck: 2}}
		change(&t)
		s.res.Trials = append(s.res.Trials, t)
	}
}

func txnRules(c result.Cell) (out []check.RuleResult) {
	for _, id := range check.RuleIDs() {
		if (id[0] == 'C' || id[0] == 'D') && c.Txn == nil {
			continue
		}
		r := check.RuleResult{ID: id, Name: "rule " + id, Demand: check.MustBeZero, Status: check.Pass, Denominator: 100000, Of: "messages"}
		switch {
		case (id[0] == 'B' && id != "B5" || id == "C7") && c.Model == "closed":
			r.Status, r.Denominator, r.Why = check.NotChecked, 0, "the run has no consumer group"
		case id == "C7":
			r.Shapes = map[string]int64{"doubled": 0}
		case id == "B5" && c.Model != "closed":
			r.Shapes = map[string]int64{"delivered twice": 17}
		case id == "B5":
			r.Status, r.Denominator, r.Why = check.NotChecked, 0, "the run has no consumer group"
		case id[0] == 'D' && c.Guarantee == "two_phase_commit":
			r.Status, r.Denominator, r.Why = check.NotChecked, 0, "the brokers' record of votes and decisions was not read"
		case id[0] == 'D':
			continue
		}
		out = append(out, r)
	}
	return out
}

// sizes is the closed run: a transaction costs a seconds and b a record, one without costs plain.
func sizes(blocks int, voted bool) *txnSample {
	s := newTxnSample("txn-size", "closed", blocks)
	s.voted = voted
	for _, producers := range []int{1, 8} {
		plain := 9e-6
		count := fmt.Sprint(producers)
		s.cell(result.Cell{Guarantee: "at_least_once", Model: "closed", Producers: producers, Sweep: map[string]string{"producers.count": count}}, func(t *result.Trial) {
			t.Achieved = float64(producers) / plain * math.Pow(s.noise(), 0.1)
		})
		s.cell(result.Cell{Guarantee: "idempotent", Model: "closed", Producers: producers, Sweep: map[string]string{"producers.count": count}}, func(t *result.Trial) {
			t.Achieved = float64(producers) / plain * math.Pow(s.noise(), 0.1)
		})
		for _, g := range []string{"transactional", "two_phase_commit"} {
			a := 0.0012
			if g == "two_phase_commit" {
				if a = 0.0031; !voted {
					continue
				}
			}
			for _, n := range []int{1, 10, 100, 1000} {
				s.cell(result.Cell{Guarantee: g, Model: "closed", Producers: producers, Txn: &result.Txn{Records: n, Partitions: 3},
					Sweep: map[string]string{"guarantee": g, "producers.count": count, "producers.transaction.records": fmt.Sprint(n)}}, func(t *result.Trial) {
					t.Txns = float64(producers) / ((a*math.Sqrt(float64(producers)) + plain*float64(n)) * s.noise())
					t.Commits = t.Txns * float64(n)
					t.Achieved = t.Commits
					t.Counts.Txns = 1000
				})
			}
		}
	}
	return s
}

// crashes is the open run: the coordinator is killed; with one replica, readers wait until it returns.
func crashes(blocks int) *txnSample {
	s := newTxnSample("coordinator-crash", "open", blocks)
	for _, x := range []struct {
		guarantee, replicas string
		stall               float64
	}{{"at_least_once", "", 0}, {"transactional", "3", 0.35}, {"two_phase_commit", "3", 0.3}, {"two_phase_commit", "1", 8.2}} {
		c := result.Cell{Guarantee: x.guarantee, Model: "open", Rate: 2000, Producers: 2, Sweep: map[string]string{}}
		if x.guarantee != "at_least_once" {
			c.Txn = &result.Txn{Records: 100, Partitions: 3}
			c.Sweep["target.settings.transaction.voted.replicas"] = x.replicas
		}
		wait := map[string]float64{"at_least_once": 0, "transactional": 4, "two_phase_commit": 5}[x.guarantee]
		s.cell(c, func(t *result.Trial) {
			t.Offered, t.Achieved = 2000, 1990
			ms := func(v float64) map[string]result.Latency {
				return map[string]result.Latency{"steady": {Count: 10000, P50: v * s.noise(), P99: 5 * v * s.noise(), Max: 50 * v}}
			}
			t.Latency = map[string]map[string]result.Latency{"ack": ms(1), "visible": ms(1.3 + wait)}
			at := s.m.Started.Add(12 * time.Second)
			t.Faults = []fault.Event{{Kind: "kill", Target: "txn_coordinator(load)", Nodes: []int{1}, Injected: at, Effective: at, Healed: at.Add(8 * time.Second), Proof: "seen"}}
			t.Outages = []result.Outage{{Fault: 0, Topic: "load", Load: 0.3 * s.noise(), Prober: 0.1 * s.noise(), Affected: true}}
			if c.Txn != nil {
				t.Commits, t.Txns, t.Counts.Txns = 1985, 20, 400
				t.Latency["commit"] = ms(2)
				t.Latency["end_to_end"] = ms(9)
				t.Stalls = []result.Stall{{Topic: "load", Start: 12.1, Seconds: x.stall * s.noise(), Fault: 0}, {Topic: "load", Partition: 1, Start: 12.1, Seconds: x.stall / 2, Fault: 0}}
			}
		})
	}
	return s
}

func (s *txnSample) write(t *testing.T, root string) string {
	t.Helper()
	d, err := result.Create(filepath.Join(root, s.name))
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range s.res.Trials {
		f, err := os.Create(d.Latency(tr.ID + ".hlog"))
		if err != nil {
			t.Fatal(err)
		}
		for metric, l := range tr.Latency {
			rec := hdr.NewRecorder(time.Second)
			for range 300 {
				at := 2*time.Second + time.Duration(s.rng.Int64N(int64(8*time.Second)))
				rec.Record(at, time.Duration(l["steady"].P50*math.Exp(0.8*s.rng.NormFloat64())*float64(time.Millisecond)))
			}
			if err := hdr.Merge(rec).WriteLog(f, metric, s.m.Started); err != nil {
				t.Fatal(err)
			}
		}
		f.Close()
		var rows []result.Second
		for sec := range 20 {
			rows = append(rows, result.Second{At: float64(sec), Sent: 2000, Acked: 2000, AckP50: 1, AckP99: 5, AckMax: 9})
		}
		if err := d.WriteSeconds(tr.ID, rows); err != nil {
			t.Fatal(err)
		}
	}
	s.res.Verdict = check.Pass
	if err := d.WriteManifest(&s.m); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteResults(&s.res); err != nil {
		t.Fatal(err)
	}
	return d.Path
}

func renderTxns(t *testing.T, root string, samples ...*txnSample) string {
	t.Helper()
	var dirs []string
	for _, s := range samples {
		dirs = append(dirs, s.write(t, root))
	}
	if err := Render(dirs, root, "What does exactly once cost?"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, result.ReportFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPageOfTransactionsHasTheCurveTheClaimsAndTheStalls(t *testing.T) {
	root := t.TempDir()
	if *keep != "" {
		root = *keep + "-txn"
		if err := os.RemoveAll(root); err != nil {
			t.Fatal(err)
		}
	}
	page := renderTxns(t, root, sizes(6, true), crashes(6))
	at := 0
	for _, want := range []string{"What a transaction costs", "n50", "What is commonly said", "Idempotent producers cost 20", "Did it hold?", "<h2>Latency", "Each latency apart", "What became of the inputs", "How long did readers wait?", "A coordinator of one replica syncs each decision"} {
		i := strings.Index(page[at:], want)
		if i < 0 {
			t.Fatalf("%q is missing or out of order", want)
		}
		at += i
	}
	for _, id := range []string{"transaction-size", "reader-stall", "latency-spectrum-ack", "latency-spectrum-commit", "latency-spectrum-visible", "latency-spectrum-end_to_end"} {
		for _, ext := range []string{".svg", ".png", ".csv"} {
			if s, err := os.Stat(filepath.Join(root, "charts", id+ext)); err != nil || s.Size() == 0 {
				t.Errorf("charts/%s%s: %v", id, ext, err)
			}
		}
	}
	if strings.Contains(page, "price-throughput") {
		t.Error("one factor stands for all sizes of transactions")
	}
}

func claimsOf(s ...*txnSample) (marks, told []string) {
	x := &set{}
	for _, one := range s {
		x.runs = append(x.runs, &result.Run{Manifest: one.m, Results: one.res})
	}
	for _, c := range x.claims() {
		marks, told = append(marks, c.Mark), append(told, c.Measured+" | "+c.Judgement)
	}
	return marks, told
}

func TestClaimsAreJudgedOnWhatWasMeasuredAndOnNothingElse(t *testing.T) {
	marks, told := claimsOf(sizes(6, true), crashes(6))
	if got := strings.Join(marks, " "); got != "✗ ≈ ✓ ≈" && got != "✗ ≈ ✗ ≈" && got != "✗ ≈ ? ≈" {
		t.Errorf("%s %q", got, told)
	}
	for i, want := range []string{"within ±\u00a05\u00a0%", "falls as transactions grow", "until visible", "one replica"} {
		if !strings.Contains(told[i], want) {
			t.Errorf("claim %d: %q does not say %q", i, told[i], want)
		}
	}
	marks, told = claimsOf(sizes(6, false))
	if got := strings.Join(marks, " "); got != "✗ ? ? ?" {
		t.Errorf("%s %q", got, told)
	}
	for i := range 3 {
		if !strings.Contains(told[i+1], notMeasured) {
			t.Errorf("claim %d: %q", i+1, told[i+1])
		}
	}
	if marks, _ := claimsOf(newTxnSample("none", "closed", 3)); marks != nil {
		t.Error("claims are judged of a run without transactions")
	}
}

// A record that is sent right before a fault may wait for its end: the slowest records of such a run tell of the fault.
func TestTheClaimOfLatencyIsNotJudgedOnWhatWaitedForAFault(t *testing.T) {
	claim := func(samples ...*txnSample) claim {
		s := &set{}
		for _, x := range samples {
			s.runs = append(s.runs, &result.Run{Manifest: x.m, Results: x.res})
		}
		return s.latencyClaim()
	}
	struck := crashes(6)
	for i := range struck.res.Trials { // what the fault did to the few records before it
		l := struck.res.Trials[i].Latency["visible"]["steady"]
		l.P99 = 5000
		struck.res.Trials[i].Latency["visible"]["steady"] = l
	}
	c := claim(struck)
	if strings.Contains(c.Measured, "p99") || !strings.Contains(c.Measured, "two-phase commit, p50 until visible") || !strings.Contains(c.Conditions, "up to the first fault") {
		t.Errorf("%+v", c)
	}
	calm := crashes(6)
	for i := range calm.res.Trials {
		calm.res.Trials[i].Faults, calm.m.Scenario.Name = nil, "calm"
	}
	for _, both := range [][]*txnSample{{struck, calm}, {calm, struck}} { // whichever ran first
		if c := claim(both...); strings.Count(c.Measured, "p99 until visible") != 2 || strings.Contains(c.Conditions, "fault") {
			t.Errorf("%+v", c)
		}
	}
	if c := claim(calm); strings.Contains(c.Judgement, "block") {
		t.Errorf("six blocks have an interval: %+v", c)
	}
	for blocks, want := range map[int][2]string{1: {"?", "undecided: one block decides nothing"}, 2: {"?", "undecided: 2 blocks decide nothing"}, 3: {"✗", "few blocks: a range, no interval"}} {
		s := crashes(blocks)
		for i, tr := range s.res.Trials { // far beyond what is claimed
			if tr.Counts.Txns > 0 {
				l := tr.Latency["visible"]["steady"]
				l.P50 *= 10
				s.res.Trials[i].Latency["visible"]["steady"] = l
			}
		}
		if c := claim(s); c.Mark != want[0] || !strings.Contains(c.Judgement, want[1]) {
			t.Errorf("%d blocks: %+v", blocks, c)
		}
		s = sizes(blocks, true)
		if c := (&set{runs: []*result.Run{{Manifest: s.m, Results: s.res}}}).slowdownClaim(); !strings.Contains(c.Judgement, want[1]) {
			t.Errorf("%d blocks: %+v", blocks, c)
		}
	}
}

func TestTheClaimOfIdempotenceIsNotDecidedByTwoBlocks(t *testing.T) {
	for blocks, want := range map[int]string{1: "?", 2: "?", 3: "✗"} {
		if mark, judgement := within20to30(stats.Interval{Center: 7, Lo: 6, Hi: 8, N: blocks}); mark != want {
			t.Errorf("%d blocks: %s %s", blocks, mark, judgement)
		}
	}
}

func TestTheClaimOfBlockingNamesTheCoordinatorsThatReadersWaitedFor(t *testing.T) {
	judged := func(stall float64) claim { // of the coordinator of three replicas
		x := crashes(6)
		for i, tr := range x.res.Trials {
			for _, c := range x.m.Cells {
				if c.ID == tr.Cell && c.Guarantee == "two_phase_commit" && c.Sweep["target.settings.transaction.voted.replicas"] == "3" && stall > 0 {
					x.res.Trials[i].Stalls = []result.Stall{{Topic: "load", Start: 12.1, Seconds: stall, Fault: 0}}
				}
				if c.ID == tr.Cell && c.Guarantee == "two_phase_commit" && c.Sweep["target.settings.transaction.voted.replicas"] == "1" && stall > 0 {
					x.res.Trials[i].Stalls = []result.Stall{{Topic: "load", Start: 12.1, Seconds: 0.1, Fault: 0}}
				}
			}
		}
		return (&set{runs: []*result.Run{{Manifest: x.m, Results: x.res}}}).blockingClaim()
	}
	if c := judged(0); !strings.HasPrefix(c.Judgement, "holds where the coordinator has one replica") {
		t.Errorf("only that of one replica blocked: %q", c.Judgement)
	}
	if c := judged(8.2); strings.Contains(c.Judgement, "one replica") || !strings.Contains(c.Judgement, "two-phase commit, coordinator of 3 replicas, transaction coordinator killed") {
		t.Errorf("that of three blocked, that of one did not: %q", c.Judgement)
	}
}

func TestTheSizeAtWhichHalfTheRateIsReachedIsThatOfTheFit(t *testing.T) {
	s := sizes(6, true)
	lines := sizeLines(&result.Run{Manifest: s.m, Results: s.res})
	if len(lines) != 4 {
		t.Fatalf("%d lines, not one for each protocol and number of producers", len(lines))
	}
	l := lines[0] // transactional, one producer: a 1.2 ms, b 9 µs, plain 9 µs
	if !l.fitted || l.base != "idempotent" || math.Abs(l.fit.Half.Center/133.3-1) > 0.2 || l.fit.Half.Lo > 133.3 || l.fit.Half.Hi < 133.3 {
		t.Errorf("%+v", l.fit)
	}
	if z := l.sizes[0]; z.records != 1 || !z.known || math.Abs(z.ratio.Center/(9e-6/(0.0012+9e-6))-1) > 0.2 {
		t.Errorf("%+v", z)
	}
}

func TestTheCurveIsThinWhereASizeIsNotInTheFit(t *testing.T) {
	sample := sizes(6, true)
	for i := range sample.m.Cells {
		if txn := sample.m.Cells[i].Txn; txn != nil {
			txn.Partitions = 3
		}
	}
	s := &set{runs: []*result.Run{{Manifest: sample.m, Results: sample.res}}}
	l := sizeLines(s.runs[0])[0]
	if l.sizes[0].records != 1 || l.sizes[1].records < 3 {
		t.Fatalf("sizes %+v: the sample has one below its three partitions", l.sizes)
	}
	next := float64(l.sizes[1].records)
	if p := l.pieces(0); len(p) != 2 || p[0].from != 1 || p[0].to != next || p[1].from != next || p[0].width >= p[1].width {
		t.Errorf("%+v: not thin up to %g and wide from there", p, next)
	}
	if rows := l.rows(); rows[0][8] != "" || rows[1][8] == "" {
		t.Errorf("%q, %q: a fitted value stands beside exactly the sizes that are in the fit", rows[0], rows[1])
	}
	if table := s.sizeTable(); !strings.HasSuffix(table.Rows[0][len(table.Head)-1], "%, without n = 1") {
		t.Errorf("%q does not say what the fit leaves out", table.Rows[0])
	}
}

func TestRulesThatNothingCouldBeCheckedOfStandTogether(t *testing.T) {
	s := sizes(3, true)
	x := &set{runs: []*result.Run{{Manifest: s.m, Results: s.res}}}
	var folded, zero int
	for _, row := range x.rules().Rows {
		if row[4] == "not checked" {
			folded++
			if row[5] != "–" || row[7] != "–" || row[6] == "" {
				t.Errorf("%q", row)
			}
		} else if row[5] == "0" {
			zero++
		}
	}
	if folded == 0 || zero > 0 {
		t.Errorf("%d rows of what was not checked, %d bare zeros", folded, zero)
	}
	if c := x.deliveryCard(); !strings.Contains(c.Text, "D1 to D6 not checked") || c.Class == "" {
		t.Errorf("%+v", c)
	}
}

func TestLatenciesOfTransactionsAreDrawnAgainstLoadEachForItself(t *testing.T) {
	s := newTxnSample("transactions-under-load", "open", 3)
	for _, g := range []string{"idempotent", "transactional"} {
		for _, rate := range []float64{1000, 5000, 20000} {
			c := result.Cell{Guarantee: g, Model: "open", Rate: rate, Producers: 2, Sweep: map[string]string{"load.rate": fmt.Sprint(rate)}}
			if g == "transactional" {
				c.Txn = &result.Txn{Records: 100, Partitions: 3}
			}
			s.cell(c, func(t *result.Trial) {
				t.Offered, t.Achieved = rate, rate
				ms := func(v float64) map[string]result.Latency {
					return map[string]result.Latency{"steady": {Count: 10000, P50: v * s.noise(), P99: 6 * v * s.noise(), Max: 50 * v}}
				}
				t.Latency = map[string]map[string]result.Latency{"ack": ms(1 + rate/20000), "visible": ms(1.5 + rate/20000)}
				if c.Txn != nil {
					t.Commits, t.Counts.Txns = rate, 100
					t.Latency["commit"], t.Latency["visible"], t.Latency["end_to_end"] = ms(2+rate/9000), ms(60), ms(130)
					if rate == 1000 { // too few commits for a p99
						few := t.Latency["commit"]["steady"]
						few.P99 = 0
						t.Latency["commit"]["steady"] = few
					}
				}
			})
		}
	}
	root := t.TempDir()
	if *keep != "" {
		root = *keep + "-load"
		if err := os.RemoveAll(root); err != nil {
			t.Fatal(err)
		}
	}
	page := renderTxns(t, root, s)
	for _, m := range []string{"ack", "commit", "visible", "end_to_end"} {
		if _, err := os.Stat(filepath.Join(root, "charts", "latency-load-"+m+".png")); err != nil {
			t.Error(err)
		}
	}
	csv, err := os.ReadFile(filepath.Join(root, "charts", "latency-load-commit.csv"))
	if rows := strings.Split(strings.TrimSpace(string(csv)), "\n"); err != nil || len(rows) != 4 || !strings.Contains(rows[1], "transactional,1000.000,") || !strings.Contains(rows[1], ",too few,,,") || strings.Contains(rows[2], "too few") {
		t.Errorf("%v %q", err, rows)
	}
	pipes := (&set{runs: []*result.Run{{Manifest: s.m, Results: s.res}}}).pipelines()
	loads := map[string]int{}
	for _, row := range pipes.Rows {
		loads[row[2]]++
	}
	if len(pipes.Rows) != 6 || loads["1,000"] != 2 || loads["5,000"] != 2 || loads["20,000"] != 2 {
		t.Errorf("%q", pipes.Rows)
	}
	if told := pipelineOutcome(&result.Run{Manifest: s.m, Results: s.res}); strings.Count(told, "transactional: ") != 1 || !strings.Contains(told, "transactional: 0 lost and 0 doubled of 900,000 inputs") {
		t.Errorf("%q", told)
	}
	if strings.Contains(page, "What is commonly said") && !strings.Contains(page, "until visible") {
		t.Error("claims without a measurement")
	}
}

func TestAViolationShowsWhatWasSeen(t *testing.T) {
	s := sizes(3, true)
	x := &s.res.Trials[len(s.res.Trials)-1].Check
	for i := range x.Rules {
		if r := &x.Rules[i]; r.ID == "C3" {
			r.Status, r.Count = check.Violated, 40
			for n := range 32 {
				r.Examples = append(r.Examples, check.Example{Offset: -1, Producer: 1, Sequence: uint64(n), What: fmt.Sprintf("transaction %d of producer 1, session 0: 3 of 6 messages are readable", n), Seconds: 1})
			}
		}
	}
	set := &set{runs: []*result.Run{{Manifest: s.m, Results: s.res}}}
	rows := set.witnesses().Rows
	if len(rows) != shownWitnesses || rows[0][0] != "two-phase commit" || !strings.Contains(rows[0][5], "3 of 6") || rows[0][4] != "" {
		t.Errorf("%q", rows)
	}
	e := check.Example{Topic: "in", Partition: 2, Offset: 7, Producer: 1, Sequence: 9, What: "was never sent"}
	if got := e.String(); got != "in/2 offset 7, producer 1 session 0 sequence 9: was never sent" {
		t.Error(got)
	}
}

func TestWordsOfTheChartOfSizesNeverTouch(t *testing.T) {
	const drawn = 9.0 / 8 // of the width measured, in a browser without that font
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		n := 1 + rng.IntN(7)
		at, wide := make([]vg.Length, n), make([]vg.Length, n)
		for i := range at {
			at[i], wide[i] = vg.Length(rng.Float64()*500), vg.Length(30+rng.Float64()*30)
		}
		slices.Sort(at)
		x := spread(at, wide, 0, 500)
		for i := range x {
			if x[i]-wide[i]/2 < -1e-6 || x[i]+wide[i]/2 > 500+1e-6 || i > 0 && x[i]-drawn*wide[i]/2-(x[i-1]+drawn*wide[i-1]/2) < 4 {
				t.Fatalf("places %v, widths %v: words at %v", at, wide, x)
			}
		}
	}
	if most := widest(9, []string{halfTick{x: 99_999}.word()}) / 4; most > halfGap {
		t.Errorf("in a font that is a quarter wider two words touch: %.1f between them, %.1f more wanted", float64(halfGap), float64(most))
	}
	if x := spread([]vg.Length{100, 300}, []vg.Length{40, 40}, 0, 500); x[0] != 100 || x[1] != 300 {
		t.Errorf("words that have room were moved: %v", x)
	}
	if x := spread([]vg.Length{100, 100}, []vg.Length{40, 40}, 0, 500); x[0]+x[1] != 200 {
		t.Errorf("words of one place do not stand around it: %v", x)
	}
}

// TestAGuaranteeWithoutAFigureIsNamedUnderThePriceChart instead of missing from it without a word.
func TestAGuaranteeWithoutAFigureIsNamedUnderThePriceChart(t *testing.T) {
	s := newTxnSample("short", "open", 6)
	for _, g := range []string{"at_least_once", "idempotent", "transactional", "two_phase_commit"} {
		s.cell(result.Cell{Guarantee: g, Model: "open", Rate: 100}, func(t *result.Trial) {
			l := result.Latency{P50: 1, P99: 3}
			if g == "transactional" { // fewer than ten records lay beyond its p99
				l.P99 = 0
			}
			if g == "two_phase_commit" {
				t.Invalid = []string{"the client fell behind"}
			}
			t.Latency = map[string]map[string]result.Latency{visible: {steady: l}}
		})
	}
	r := &result.Run{Manifest: s.m, Results: s.res}
	c := prices(r, []string{"at_least_once", "idempotent", "transactional", "two_phase_commit"}, "price-visible-p99", "p99", "p99 (lower is better)", "p99.", latency(visible, steady, p99))
	if want := "p99. Not in the chart: transactional (its trials were too small for this figure), two-phase commit (none of its trials was sound)."; c == nil || c.Caption != want || len(c.Table.Rows) != 2 {
		t.Fatalf("chart %+v, want two rows and %q", c, want)
	}
}
