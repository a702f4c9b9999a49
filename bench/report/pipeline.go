package report

import (
	"fmt"
	"maps"
	"strings"

	"gopherlog/bench/check"
	"gopherlog/bench/result"
	"gopherlog/bench/stats"
)

// pipelines lists what groups made of what they read: inputs whose output is missing or there twice, and what was given to a group more
// than once. A row is a cell whose trials had a group.
func (s *set) pipelines() Table {
	t := Table{Head: []string{"scenario", "guarantee", "offered/s", "inputs", "output lost", "output doubled", "≤ per million (95 %)", "given to the group twice", "three times or more"}}
	for _, r := range s.runs {
		for _, c := range r.Manifest.Cells {
			ts := recorded(r, c.ID)
			again, grouped := ruleOf(ts, "B5")
			made, piped := ruleOf(ts, "C7")
			if !grouped && !piped {
				continue
			}
			load := "closed model"
			if c.Model != "closed" {
				load = compact(c.Rate)
			}
			row := []string{r.Manifest.Scenario.Name, cellName(c), load, "no pipeline", "", "", "", thousands(again.Shapes["delivered twice"]), thousands(again.Shapes["delivered three times or more"])}
			if piped {
				row[3], row[4], row[5] = thousands(made.Denominator), thousands(made.Shapes["lost"]), thousands(made.Shapes["doubled"])
				row[6] = perMillion(stats.UpperBound(min(made.Count, made.Denominator), made.Denominator))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// pipelineOutcome answers a scenario that asks what became of the inputs.
func pipelineOutcome(r *result.Run) string {
	var names []string
	all := map[string][]result.Trial{} // at all loads
	for _, c := range r.Manifest.Cells {
		name := cellName(c)
		if all[name] == nil {
			names = append(names, name)
		}
		all[name] = append(all[name], recorded(r, c.ID)...)
	}
	var parts []string
	for _, name := range names {
		if made, ok := ruleOf(all[name], "C7"); ok {
			parts = append(parts, fmt.Sprintf("%s: %s lost and %s doubled of %s inputs", name, thousands(made.Shapes["lost"]), thousands(made.Shapes["doubled"]), thousands(made.Denominator)))
		}
	}
	return strings.Join(parts, "; ")
}

// cellName is the guarantee of a cell and what else it was swept over, but the load and what else is told beside it.
func cellName(c result.Cell, but ...string) string {
	c.Sweep = maps.Clone(c.Sweep)
	for _, key := range append(but, "load.rate") {
		delete(c.Sweep, key)
	}
	if v := variantOf(c); v != "" {
		return look(c.Guarantee).Label + ", " + v
	}
	return look(c.Guarantee).Label
}

// ruleOf sums one rule over trials; ok is false where none of them checked it.
func ruleOf(ts []result.Trial, id string) (sum check.RuleResult, ok bool) {
	sum.Shapes = map[string]int64{}
	for _, t := range ts {
		for _, x := range t.Check.Rules {
			if x.ID != id || x.Status == check.NotChecked {
				continue
			}
			ok = true
			sum.Count += x.Count
			sum.Denominator += x.Denominator
			for k, n := range x.Shapes {
				sum.Shapes[k] += n
			}
		}
	}
	return sum, ok
}

// latencyWords is the median of a metric's p50 and p99 over the sound trials of a cell.
func latencyWords(r *result.Run, c result.Cell, metric string) []string {
	if c.Model == "closed" {
		return []string{"closed model", "closed model"}
	}
	mid, okMid := summary(trials(r, c.ID), latency(metric, steady, p50))
	tail, okTail := summary(trials(r, c.ID), latency(metric, steady, p99))
	if okMid && !okTail { // measured, and too few to tell
		return []string{valueOf(mid, okMid, sig), "too few"}
	}
	return []string{valueOf(mid, okMid, sig), valueOf(tail, okTail, sig)}
}

// latencies lists the latencies of what has transactions, each apart: nothing adds them up.
func (s *set) latencies() Table {
	t := Table{Head: []string{"scenario", "guarantee", "offered/s"}}
	shown := []string{ack, commit, visible, endToEnd}
	for _, m := range shown {
		t.Head = append(t.Head, metricNames[m]+" p50, ms", "p99, ms")
	}
	if !s.transacts() {
		return Table{}
	}
	for _, r := range s.runs {
		for _, c := range r.Manifest.Cells {
			if c.Model == "closed" || len(trials(r, c.ID)) == 0 {
				continue
			}
			name := cellName(c)
			row := []string{r.Manifest.Scenario.Name, name, compact(c.Rate)}
			for _, m := range shown {
				if m == commit && c.Txn == nil || m == endToEnd && !measuredBy(r, c, m) {
					row = append(row, "–", "–")
					continue
				}
				row = append(row, latencyWords(r, c, m)...)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

func measuredBy(r *result.Run, c result.Cell, metric string) bool {
	for _, t := range trials(r, c.ID) {
		if t.Latency[metric][steady].Count > 0 {
			return true
		}
	}
	return false
}
