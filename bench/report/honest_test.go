package report

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gopherlog/bench/check"
	"gopherlog/bench/fault"
	"gopherlog/bench/result"
)

// oneRun is a set of one run of one cell with these trials.
func oneRun(guarantee string, ts ...result.Trial) *set {
	r := &result.Run{Manifest: result.Manifest{Cells: []result.Cell{{ID: "a", Guarantee: guarantee, Model: "open", Rate: 1000}}}}
	for _, t := range ts {
		t.Cell = "a"
		r.Results.Trials = append(r.Results.Trials, t)
	}
	return &set{runs: []*result.Run{r}}
}

func allRules(change func(*check.RuleResult)) []check.RuleResult {
	var out []check.RuleResult
	for _, id := range check.RuleIDs() {
		r := check.RuleResult{ID: id, Status: check.Pass, Demand: check.MustBeZero, Denominator: 1000}
		change(&r)
		out = append(out, r)
	}
	return out
}

func passed() result.Trial {
	return result.Trial{Check: check.Verdict{Status: check.Pass, Totals: check.Totals{Acked: 1000}, Rules: allRules(func(*check.RuleResult) {})}}
}

func TestOnlyATrialThatWasJudgedWholeIsHeld(t *testing.T) {
	lostOne := func(r *check.RuleResult) {
		if r.ID == "A4" {
			r.Status, r.Count = check.Violated, 1
		}
	}
	violated := passed()
	violated.Check.Status, violated.Check.Rules = check.Violated, allRules(lostOne)
	aside := violated
	aside.Invalid = []string{"too late"}
	tolerated := violated
	tolerated.Check.Status, tolerated.Check.Totals.Lost = check.Pass, 1
	tolerated.Check.Rules = allRules(func(r *check.RuleResult) { lostOne(r); r.Tolerated = r.ID == "A4" })
	without := passed()
	without.Check.Rules = without.Check.Rules[1:]
	doubted := passed()
	doubted.Check.Status = check.Inconclusive
	for name, c := range map[string]struct {
		s          *set
		head, mark string
	}{
		"passed":                       {oneRun("idempotent", passed()), "Delivery held", "✓"},
		"violated":                     {oneRun("idempotent", passed(), violated), "Delivery did not hold", "✗"},
		"violated in one set aside":    {oneRun("idempotent", passed(), aside), "Delivery did not hold", "✗"},
		"tolerated":                    {oneRun("idempotent", tolerated), "Delivery held, with exceptions", "?"},
		"a rule left out":              {oneRun("idempotent", without), "Delivery held, with exceptions", "?"},
		"inconclusive":                 {oneRun("idempotent", passed(), doubted), "1 of 2 trials inconclusive", "?"},
		"nothing ran":                  {oneRun("idempotent"), "Nothing was judged", ""},
		"inconclusive and a violation": {oneRun("idempotent", doubted, violated), "Delivery did not hold", "✗"},
	} {
		if got := c.s.deliveryCard(); got.Head != c.head {
			t.Errorf("%s: the card says %q, want %q", name, got.Head, c.head)
		}
		if l := c.s.safety(); c.mark != "" && (len(l.Rows) != 1 || l.Rows[0].Cells[0].Mark != c.mark) {
			t.Errorf("%s: the ledger says %+v, want %s", name, l.Rows, c.mark)
		}
	}
}

func TestWhatRetentionDeletedIsInNoDenominator(t *testing.T) {
	half := passed()
	half.Check.Totals = check.Totals{Acked: 2_000_000, Expired: 1_000_000}
	s := oneRun("idempotent", half)
	if got, want := s.safety().Rows[0].Cells[0].Text, "0 of 1.00 M, ≤ 3.0 per million; 1,000,000 more deleted by retention before they could be read"; got != want {
		t.Errorf("the ledger says %q, want %q", got, want)
	}
	if got, want := s.deliveryCard().Text, "0 violations in 1.00 M acknowledged records; 1.00 M more records deleted by retention before they could be read"; got != want {
		t.Errorf("the card says %q, want %q", got, want)
	}
}

func TestAZeroUnderFaultsIsBoundedByTheFaultsToo(t *testing.T) {
	struck := passed()
	struck.Faults = []fault.Event{{Kind: "kill", Target: "leader(load/0)", Proof: "gone"}, {Kind: "kill", Target: "leader(load/1)", Proof: "gone"}, {Kind: "kill", Target: "node(2)"}}
	if got, want := judge([]result.Trial{struck, struck, struck}).Text, "0 of 3,000, ≤ 998 per million; after 0 of 6 faults, ≤ 39 %"; got != want {
		t.Errorf("%q, want %q: records of one fault are lost together", got, want)
	}
	for want, tr := range map[bool]result.Trial{true: struck, false: passed()} {
		if got := strings.Contains(oneRun("idempotent", tr).safety().Note(), "what one fault does"); got != want {
			t.Errorf("faults are explained: %v, want %v", got, want)
		}
	}
	struck.Check.Totals.Lost = 7
	if got, want := judge([]result.Trial{struck}).Text, "7 lost, 0 duplicate, of 1,000; 2 faults"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTheCardTellsWhatWasLostWithoutBreakingAPromise(t *testing.T) {
	lossy := passed()
	lossy.Check.Totals.Lost, lossy.Check.Totals.Duplicates = 12, 1
	if got := oneRun("at_most_once", lossy).deliveryCard(); got.Mark != "✓" || !strings.Contains(got.Text, "0 violations in 1,000 acknowledged records; 12 lost and 1 duplicated as their guarantees permit") {
		t.Errorf("%+v", got)
	}
	lossy.Check.Rules = allRules(func(r *check.RuleResult) {
		if r.ID == "A4" {
			r.Status, r.Count, r.Tolerated = check.Violated, 12, true
		}
	})
	if got := oneRun("idempotent", lossy).deliveryCard(); strings.Contains(got.Text, "permit") {
		t.Errorf("%+v: the scenario lets it pass, the guarantee does not", got)
	}
}

func TestCardOfValidityNamesOnlyWhatWasSetAside(t *testing.T) {
	in := func(cell string, invalid ...string) result.Trial {
		return result.Trial{Cell: cell, Invalid: invalid}
	}
	run := func(trials ...result.Trial) *set {
		s := oneRun("idempotent")
		s.runs[0].Results.Trials = trials
		return s
	}
	for name, c := range map[string]struct {
		s          *set
		head, text string
	}{
		"none":        {run(in("a"), in("b")), "Valid, with caution", "no trial's latency and rates set aside; three blocks"},
		"some":        {run(in("a"), in("a", "late"), in("b")), "Valid, with caution", "latency and rates of 1 of 3 trials set aside: late; three blocks"},
		"a cell":      {run(in("a"), in("b", "late")), "Valid in part", "no figures of 1 of 2 cells; latency and rates of 1 of 2 trials set aside"},
		"every trial": {run(in("a", "late"), in("b", "late")), "Latency and rates not valid", "latency and rates of 2 of 2 trials set aside: late"},
	} {
		if got := c.s.validCard(); got.Head != c.head || !strings.HasPrefix(got.Text, c.text) {
			t.Errorf("%s: the card says %q, %q", name, got.Head, got.Text)
		}
	}
}

func TestWhatTheHostTookIsToldAndWarnedOf(t *testing.T) {
	with := func(shares ...float64) *set {
		s := oneRun("idempotent")
		s.runs[0].Manifest.Scenario.Name = "x"
		for i, share := range shares {
			tr := result.Trial{ID: fmt.Sprintf("b%02d", i+1), Cell: "a"}
			if share >= 0 {
				tr.Usage.Stolen = &share
			}
			s.runs[0].Results.Trials = append(s.runs[0].Results.Trials, tr)
		}
		return s
	}
	for name, c := range map[string]struct {
		shares []float64
		card   string
		limit  string
	}{
		"not known": {[]float64{-1, -1}, "", ""},
		"nothing":   {[]float64{0, 0}, "", ""},
		"a little":  {[]float64{0.001, 0.02, -1, 0.004}, "", "x: the machine's host took 0.4 % of its processors' time from the median trial, 2.0 % from the worst (b02)."},
		"too much":  {[]float64{0.03, 0.001, 0.08}, "; the machine's host took more than 2 % of its processors' time in 2", "x: the machine's host took 3.0 % of its processors' time from the median trial, 8.0 % from the worst (b03)."},
	} {
		s := with(c.shares...)
		if got := s.validCard(); !strings.Contains(got.Text, c.card) || c.card == "" && strings.Contains(got.Text, "host") {
			t.Errorf("%s: the card says %q, want %q in it", name, got.Text, c.card)
		}
		if got := strings.Join(hostLimits(s.runs[0]), ""); got != c.limit {
			t.Errorf("%s: the limits say %q, want %q", name, got, c.limit)
		}
	}
}

func TestAClusterThatWasKeptIsToldOfItsOwnScenarioOnly(t *testing.T) {
	run := func(name string, kept, perBlock bool) *result.Run {
		r := oneRun("idempotent").runs[0]
		r.Manifest.Scenario.Name, r.Manifest.System = name, result.System{Name: "gopherlog", Kept: kept, PerBlock: perBlock}
		return r
	}
	for want, runs := range map[string][]*result.Run{
		"One cluster of GopherLog ran through all trials, with topics of their own: it was not warmed.":                        {run("x", true, false), run("y", true, false)},
		"x: one cluster of GopherLog ran through all trials, with topics of their own: it was not warmed.":                     {run("x", true, false), run("y", false, false)},
		"y: each block had a cluster of GopherLog, which ran through its trials, with topics of their own: it was not warmed.": {run("x", true, false), run("y", true, true)},
	} {
		limits := (&set{runs: runs}).limits()
		if !slices.Contains(limits, want) {
			t.Errorf("%q lacks %q", limits, want)
		}
	}
}

func TestThresholdThatSeveralScenariosHaveIsNamedOnce(t *testing.T) {
	s := oneRun("idempotent", passed())
	s.runs[0].Results.Expectations = []result.Expectation{{Line: "x", Outcome: "met"}, {Line: "y", Outcome: "met"}, {Line: "x", Outcome: "met"}}
	if got := s.thresholdCard(); got.Head != "Thresholds 3 of 3" || got.Text != "x, y" {
		t.Errorf("%+v", got)
	}
}

func TestUndecidedThresholdIsNeitherMetNorMissed(t *testing.T) {
	s := oneRun("idempotent", passed())
	s.runs[0].Results.Expectations = []result.Expectation{{Line: "x", Outcome: "met"}, {Line: "y", Outcome: "undecided"}}
	if got := s.thresholdCard(); got.Mark != "?" || got.Class != "w" {
		t.Errorf("%+v", got)
	}
}

func TestDeviationIsMarkedAndLeavesOtherColumnsAlone(t *testing.T) {
	s := oneRun("idempotent")
	s.runs[0].Manifest.Cells = []result.Cell{
		{ID: "a", Guarantee: "at_least_once", Client: map[string]string{"acks": "1"}, Deviates: map[string]string{"acks": "1"}},
		{ID: "b", Guarantee: "idempotent", Client: map[string]string{"acks": "all"}},
	}
	row := s.settings().Rows[0]
	if !strings.HasPrefix(row[1], "1 (deviates") || row[2] != "all" {
		t.Errorf("%q", row)
	}
	if m := strings.Join(s.ackMeaning(), "\n"); !strings.Contains(m, "acks=1 (at least once): one copy") {
		t.Errorf("what an acknowledgement means ignores the deviation: %s", m)
	}
}

func TestSkippedFaultsErrorsAndPlantedFaultsAreTold(t *testing.T) {
	tr := passed()
	tr.Faults = []fault.Event{{Kind: "partition", Shape: "isolate", Target: "leader(load/0)", Skipped: true, Error: "skipped: the kernel says no"},
		{Kind: "kill", Target: "node(2)", Nodes: []int{2}, Injected: time.Unix(3, 0), Healed: time.Unix(5, 0), Proof: "gone", HealProof: "ready"}}
	tr.Started = time.Unix(0, 0)
	tr.Errors = []result.ErrorCount{{What: "NOT_LEADER", Count: 1234}}
	s := oneRun("idempotent", tr)
	s.runs[0].Manifest.Planted = []string{"hide-batches"}
	dir := t.TempDir()
	r := s.runs[0]
	for _, x := range []struct {
		what string
		in   string
	}{
		{"the kernel says no", strings.Join(s.limits(), "\n")},
		{"hide-batches", strings.Join(s.limits(), "\n")},
		{"hide-batches", s.deliveryCard().Text},
		{"– skipped: the kernel says no", string(s.faults().csv())},
		{"2,3.00,2.00,✓ gone; ready", string(s.faults().csv())},
		{"\"1,234\",NOT_LEADER", string(s.errors().csv())},
	} {
		if !strings.Contains(x.in, x.what) {
			t.Errorf("%q is missing in %s", x.what, x.in)
		}
	}
	d, err := result.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WriteManifest(&r.Manifest); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteResults(&r.Results); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteSeconds("", nil); err != nil {
		t.Fatal(err)
	}
	if err := Render([]string{dir}, dir, ""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ledger", "rules", "sent", "errors", "faults", "settings"} {
		if st, err := os.Stat(filepath.Join(dir, "charts", name+".csv")); err != nil || st.Size() == 0 {
			t.Errorf("%s.csv: %v", name, err)
		}
	}
}

func TestChartsOfTwoRunsDoNotOverwriteEachOther(t *testing.T) {
	root := t.TempDir()
	one := sample{"one", "open", []float64{5000}, true}.write(t, root)
	two := sample{"two", "open", []float64{5000}, true}.write(t, root)
	if err := Render([]string{one, two}, root, ""); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, result.ReportFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"timeline-c20", "timeline-c20-2"} {
		if _, err := os.Stat(filepath.Join(root, "charts", id+".csv")); err != nil || !strings.Contains(string(page), "charts/"+id+".csv") {
			t.Errorf("%s: %v, or the page does not name it", id, err)
		}
	}
}

// swept is a run of cells with one sound trial each, in which every record took as many milliseconds as its cell is given.
func swept(model string, cells map[string]float64, key string) *result.Run {
	r := &result.Run{Manifest: result.Manifest{Scenario: result.Scenario{Name: "x", Model: model, Blocks: 1}, System: result.System{Name: "gopherlog", RecordBytes: 100, Partitions: 6}}}
	for i, value := range keysOf(cells) {
		c := result.Cell{ID: fmt.Sprintf("c%d", i), Guarantee: "idempotent", Model: model, Sweep: map[string]string{key: value}}
		if model == "closed" {
			c.Bound = 1000
		}
		r.Manifest.Cells = append(r.Manifest.Cells, c)
		tr := passed()
		tr.Check.Rules = tr.Check.Rules[:1]
		tr.ID, tr.Cell, tr.Achieved, tr.Seconds = "b01-"+c.ID, c.ID, 1000, 10
		tr.Latency = map[string]map[string]result.Latency{visible: {steady: {Count: 1000, P50: cells[value], P99: 2 * cells[value]}}}
		tr.Errors = []result.ErrorCount{{What: "refused", Count: int64(i + 1)}}
		tr.Faults = []fault.Event{{Kind: "kill", Target: "node(1)", Proof: "gone"}}
		r.Results.Trials = append(r.Results.Trials, tr)
	}
	return r
}

func TestRowsOfSweptCellsSayWhichIsWhich(t *testing.T) {
	s := &set{runs: []*result.Run{swept("closed", map[string]float64{"0s": 1, "5ms": 6}, "producers.linger")}}
	for name, table := range map[string]Table{"errors": s.errors(), "faults": s.faults(), "saturation": s.saturation()} {
		all := fmt.Sprint(table.Rows)
		if len(table.Rows) != 2 || !strings.Contains(all, "idempotent, linger 0s") || !strings.Contains(all, "idempotent, linger 5ms") {
			t.Errorf("%s: %s", name, all)
		}
	}
}

func TestMegabytesAreThoseOfTheCellsOwnRecords(t *testing.T) {
	r := swept("closed", map[string]float64{"100B": 1, "10KiB": 2}, "load.value.size")
	r.Manifest.Cells[0].Bytes, r.Manifest.Cells[1].Bytes = 100, 10240
	rows := (&set{runs: []*result.Run{r}}).saturation().Rows
	if len(rows) != 2 || rows[0][4] != "0.1" || rows[1][4] != "10.2" {
		t.Errorf("1,000 records of 100 bytes and of 10 KiB a second: %q", rows)
	}
	if got := shape(r); got != "100 to 10,240 bytes a record, 6 partitions." {
		t.Errorf("%q", got)
	}
	r.Manifest.Cells[0].Bytes, r.Manifest.Cells[1].Bytes = 0, 0 // an older run
	if got := shape(r); got != "100 bytes a record, 6 partitions." {
		t.Errorf("%q", got)
	}
}

func TestAQuestionOfLatencyIsAnsweredWithLatency(t *testing.T) {
	r := swept("open", map[string]float64{"1k/s": 0.5, "9k/s": 2}, "load.rate")
	r.Manifest.Cells[0].Rate, r.Manifest.Cells[1].Rate = 1000, 9000
	r.Results.Expectations = []result.Expectation{{Line: "violations == 0", Outcome: "met"}, {Line: "failed == 0", Outcome: "met"}}
	s := &set{runs: []*result.Run{r}}
	if got := s.outcome(r); strings.Contains(got, "ms") {
		t.Errorf("%q: what was measured around faults answers no such question", got)
	}
	for i := range r.Results.Trials {
		r.Results.Trials[i].Faults = nil
	}
	if got, want := s.outcome(r), "half of the records visible at 1,000 and 9,000 records/s within: idempotent: 0.5 and 2 ms; met: violations == 0; met: failed == 0."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestALineOfSeveralCellsSaysSo(t *testing.T) {
	r := swept("open", map[string]float64{"1": 1, "3": 2}, "target.settings.transaction.voted.replicas")
	if got, want := together(r, []string{"idempotent"}, 0), " The line of idempotent is of these together: coordinator of 1 replica; coordinator of 3 replicas."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.Manifest.Cells[1].Rate = 5
	if got := together(r, []string{"idempotent"}, 0); got != "" {
		t.Errorf("one cell at this load: %q", got)
	}
}

func TestASmallShareIsNotRoundedToNothing(t *testing.T) {
	for want, v := range map[string]float64{"0.000": 0, "0.000141": 0.00014149, "0.010": 0.01, "1.732": 1.7321, "-0.00141": -0.00141} {
		if got := f3(v); got != want {
			t.Errorf("%g is told as %s, want %s", v, got, want)
		}
	}
}

// In doubt is a participant of a vote that promised; a client knows only that it was not told, in Kafka's way too.
func TestATransactionWhoseEndTheClientDoesNotKnowIsNotCalledInDoubt(t *testing.T) {
	s := oneRun("transactional", result.Trial{Counts: result.Counts{Txns: 9, TxnsInDoubt: 2}})
	s.runs[0].Manifest.Cells[0].Txn = &result.Txn{Records: 1}
	table := s.sent()
	last := len(table.Head) - 1
	if table.Head[last] != "end unknown" || table.Rows[0][last] != "2" {
		t.Errorf("%q, %q", table.Head[last], table.Rows[0][last])
	}
}

// calmRun has trials of two guarantees at each of these loads; those at the last one are set aside for idempotent producers.
func calmRun(rates ...float64) *result.Run {
	r := &result.Run{}
	for i, rate := range rates {
		for _, g := range []string{"at_least_once", "idempotent"} {
			id := fmt.Sprint(g, i)
			r.Manifest.Cells = append(r.Manifest.Cells, result.Cell{ID: id, Guarantee: g, Model: "open", Rate: rate})
			t := result.Trial{ID: id, Cell: id, Latency: map[string]map[string]result.Latency{ack: {steady: {P50: 1, P99: 9}}, visible: {steady: {P50: 2, P99: 10}}}}
			if g == "idempotent" && i == len(rates)-1 {
				t.Invalid = []string{"the load client fell behind"}
			}
			r.Results.Trials = append(r.Results.Trials, t)
		}
	}
	return r
}

func TestChartsOfOneLoadShowOneThatAllHaveSoundTrialsOf(t *testing.T) {
	guarantees := []string{"at_least_once", "idempotent"}
	for want, rates := range map[float64][]float64{1000: {1000, 9000}, 2000: {1000, 2000, 9000}} {
		r := calmRun(rates...)
		if got := middleRate(r, guarantees); got != want {
			t.Errorf("of %v, the last one with trials of one guarantee only: %v, want %v", rates, got, want)
		}
		if c := prices(r, guarantees, "x", "x", "x", "x", latency(ack, steady, p50)); c == nil || len(c.Table.Rows) != 2 {
			t.Errorf("%v: the prices lack a guarantee: %+v", rates, c)
		}
	}
}
