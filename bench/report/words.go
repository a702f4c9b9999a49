package report

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"gopherlog/bench/result"
	"gopherlog/bench/stats"
)

func upper(kn [2]int64) float64 { return stats.UpperBound(min(kn[0], kn[1]), kn[1]) }

// outcome answers a scenario's question in figures.
func (s *set) outcome(r *result.Run) string {
	var parts []string
	gs := (&set{runs: []*result.Run{r}}).guarantees()
	if len(systems(r)) > 1 {
		return comparedOutcome(r)
	}
	if told := sizeOutcome(r); told != "" {
		return told + "."
	}
	if r.Manifest.Scenario.Model == "closed" {
		for _, g := range gs {
			for _, c := range cells(r, g) {
				if iv, ok := summary(trials(r, c.ID), throughput); ok {
					parts = append(parts, fmt.Sprintf("%s: %s records/s", cellName(c), compact(iv.Center)))
				}
			}
		}
		return strings.Join(parts, ", ") + "."
	}
	parts = append(parts, latencyOutcome(r), pipelineOutcome(r), stallOutcome(r))
	for _, e := range r.Results.Expectations {
		if e.Outcome == "met" && len(r.Results.Expectations) > 1 {
			parts = append(parts, "met: "+e.Line)
			continue
		}
		parts = append(parts, fmt.Sprintf("%s: %s (%s)", e.Outcome, e.Line, e.Got))
	}
	parts = slices.DeleteFunc(parts, func(told string) bool { return told == "" })
	if len(parts) == 0 {
		return "no expectation was stated; verdict: " + string(r.Results.Verdict) + "."
	}
	return strings.Join(parts, "; ") + "."
}

// latencyOutcome answers a scenario that asks how long records take, which is one without faults and groups: the median at each load.
func latencyOutcome(r *result.Run) string {
	var rates, names []string
	medians := map[string]map[string]string{} // name → rate → median
	for _, c := range r.Manifest.Cells {
		ts := trials(r, c.ID)
		for _, t := range ts {
			if _, piped := ruleOf(ts, "C7"); piped || len(t.Faults) > 0 {
				return ""
			}
		}
		iv, ok := summary(ts, latency(visible, steady, p50))
		if !ok {
			continue
		}
		name, rate := cellName(c), compact(c.Rate)
		if medians[name] == nil {
			medians[name], names = map[string]string{}, append(names, name)
		}
		if !slices.Contains(rates, rate) {
			rates = append(rates, rate)
		}
		medians[name][rate] = sig(iv.Center)
	}
	var parts []string
	for _, name := range names {
		var told []string
		for _, rate := range rates {
			told = append(told, cmp.Or(medians[name][rate], "not measured"))
		}
		parts = append(parts, fmt.Sprintf("%s: %s ms", name, listed(told)))
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("half of the records visible at %s records/s within: %s", listed(rates), strings.Join(parts, "; "))
}

// listed joins with commas and a last and.
func listed(what []string) string {
	if len(what) < 2 {
		return strings.Join(what, "")
	}
	return strings.Join(what[:len(what)-1], ", ") + " and " + what[len(what)-1]
}

// comparedOutcome counts the lines of a scenario that compares systems: the table
// beside it has the figures.
func comparedOutcome(r *result.Run) string {
	n := map[string]int{}
	for _, e := range r.Results.Expectations {
		n[e.Outcome]++
	}
	out := fmt.Sprintf("%d of %d lines met", n["met"], len(r.Results.Expectations))
	for _, o := range []string{"missed", "undecided"} {
		if n[o] > 0 {
			out += fmt.Sprintf(", %d %s", n[o], o)
		}
	}
	return out + "; the figures are in the table."
}

// saturation lists the closed runs' throughput and what a record cost.
func (s *set) saturation() Table {
	t := Table{Head: []string{"scenario", "guarantee", "records/s", "blocks", "MB/s", "broker CPU µs/record", "client CPU µs/record", "copies at the acknowledgement"}}
	if s.transacts() {
		t.Head = append(t.Head, "producers, transactions")
	}
	for _, r := range s.runs {
		if r.Manifest.Scenario.Model != "closed" {
			continue
		}
		for _, c := range r.Manifest.Cells {
			ts := trials(r, c.ID)
			iv, ok := summary(ts, throughput)
			if !ok || c.Bound == 1 {
				continue
			}
			name := cellName(c)
			if s.transacts() {
				name = cellName(c, toldByTxnWords...)
			}
			row := []string{r.Manifest.Scenario.Name, name, valueOf(iv, true, compact), fmt.Sprint(iv.N),
				sig(iv.Center * float64(recordBytes(r, c)) / 1e6), cpuOf(ts, func(u result.Usage) float64 { return u.BrokerCPU }),
				cpuOf(ts, func(u result.Usage) float64 { return u.ClientCPU }), copiesOf(ts[0].Usage.CopiesAtAck)}
			if s.transacts() {
				row = append(row, txnWords(c))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// toldByTxnWords are the swept keys that txnWords tells.
var toldByTxnWords = []string{"producers.count", "producers.transaction.partitions"}

// txnWords says what a cell's producers put into a transaction.
func txnWords(c result.Cell) string {
	var out []string
	if c.Producers > 0 {
		out = append(out, sweptWord("producers.count", fmt.Sprint(c.Producers)))
	}
	if c.Txn == nil {
		return strings.Join(append(out, "none"), ", ")
	}
	out = append(out, records(c.Txn.Records))
	if c.Txn.Partitions > 0 {
		out = append(out, sweptWord("producers.transaction.partitions", fmt.Sprint(c.Txn.Partitions)))
	}
	if c.Txn.AbortShare > 0 {
		out = append(out, fmt.Sprintf("%.0f %% aborted on purpose", 100*c.Txn.AbortShare))
	}
	return strings.Join(out, ", ")
}

// inFlight lists the runs in which one record at a time was outstanding: the
// one closed model whose latency is no queueing.
func (s *set) inFlight() Table {
	t := Table{Head: []string{"guarantee", "p50, ms", "p99, ms", "records/s", "blocks", "broker CPU µs/record", "copies at the acknowledgement"}}
	for _, r := range s.runs {
		for _, c := range r.Manifest.Cells {
			ts := trials(r, c.ID)
			mid, ok := summary(ts, latency(ack, steady, p50))
			if !ok || c.Bound != 1 {
				continue
			}
			rate, _ := summary(ts, throughput)
			tail, far := summary(ts, latency(ack, steady, p99))
			t.Rows = append(t.Rows, []string{cellName(c), valueOf(mid, true, millis), valueOf(tail, far, millis), compact(rate.Center), fmt.Sprint(mid.N),
				cpuOf(ts, func(u result.Usage) float64 { return u.BrokerCPU }), copiesOf(ts[0].Usage.CopiesAtAck)})
		}
	}
	return t
}

func cpuOf(ts []result.Trial, of func(result.Usage) float64) string {
	iv, ok := summary(ts, func(t result.Trial) (float64, bool) {
		return of(t.Usage) * 1e6 / float64(max(t.Usage.Records, 1)), t.Usage.Records > 0
	})
	if !ok {
		return "not measured"
	}
	return fmt.Sprintf("%.1f", iv.Center)
}

// thresholds lists every expect line with its outcome.
func (s *set) thresholds() Table {
	t := Table{Head: []string{"scenario", "threshold", "outcome", "measured"}}
	for _, r := range s.runs {
		for _, e := range r.Results.Expectations {
			t.Rows = append(t.Rows, []string{r.Manifest.Scenario.Name, e.Line, outcomeWords[e.Outcome], e.Got})
		}
	}
	return t
}

func keysOf[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// markdown is the page in words, for terminals and pull requests.
func (p *page) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n", p.Title, p.Subtitle)
	for _, q := range p.Questions {
		fmt.Fprintf(&b, "%s\n\n", strings.TrimSpace(strings.Join([]string{q.Question, "Hypothesis: " + q.Hypothesis, "Outcome: " + q.Outcome}, " ")))
	}
	for _, c := range p.Cards {
		fmt.Fprintf(&b, "- %s **%s**: %s\n", c.Mark, c.Head, c.Text)
	}
	for _, x := range slices.Concat(p.Goals, p.Beside) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n%s\n", x.Title, mdTable(x.Table), strings.Join(x.Notes, " "))
	}
	for _, c := range p.Sizes {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s", c.Title, c.Caption, mdTable(c.Table))
	}
	if len(p.SizeTable.Rows) > 0 {
		fmt.Fprintf(&b, "\n## What a transaction costs\n\nTime for a transaction of n records: T(n) = a + b·n.\n\n%s", mdTable(p.SizeTable))
	}
	if len(p.Claims) > 0 {
		fmt.Fprintf(&b, "\n## What is commonly said\n\n%s", mdTable(claimTable(p.Claims)))
	}
	if len(p.Ledger.Rows) > 0 {
		fmt.Fprintf(&b, "\n## Did it hold?\n\n%s\n\n%s", p.Ledger.Note(), mdTable(p.Ledger.table()))
	}
	for _, x := range []struct {
		title string
		table Table
	}{{"Each latency apart", p.Latencies}, {"What became of the inputs", p.Pipelines}} {
		if len(x.table.Rows) > 0 {
			fmt.Fprintf(&b, "\n## %s\n\n%s", x.title, mdTable(x.table))
		}
	}
	if len(p.Stalls.Rows) > 0 {
		fmt.Fprintf(&b, "\n## How long did readers wait?\n\n%s", mdTable(p.Stalls))
	}
	for _, c := range p.Prices {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s", c.Title, c.Caption, mdTable(c.Table))
	}
	if len(p.Sent.Rows) > 0 {
		fmt.Fprintf(&b, "\n## What became of the records\n\n%s", mdTable(p.Sent))
	}
	if len(p.Errors.Rows) > 0 {
		fmt.Fprintf(&b, "\n%s", mdTable(p.Errors))
	}
	if len(p.Saturation.Rows) > 0 {
		fmt.Fprintf(&b, "\n## Saturation\n\n%s", mdTable(p.Saturation))
	}
	if len(p.InFlight.Rows) > 0 {
		fmt.Fprintf(&b, "\n## One record in flight\n\n%s", mdTable(p.InFlight))
	}
	if len(p.Thresholds.Rows) > 0 {
		fmt.Fprintf(&b, "\n## Thresholds\n\n%s", mdTable(p.Thresholds))
	}
	b.WriteString("\n## Limits\n\n")
	for _, l := range p.Limits {
		fmt.Fprintf(&b, "- %s\n", l)
	}
	return b.String()
}

func mdTable(t Table) string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.Head)
	line(strings.Split(strings.Repeat("--- ", len(t.Head)-1)+"---", " "))
	for _, r := range t.Rows {
		line(r)
	}
	return b.String()
}
