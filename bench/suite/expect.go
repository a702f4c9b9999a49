package suite

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"gopherlog/bench/check"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/bench/stats"
)

// Outcomes of an expectation.
const (
	met       = "met"
	missed    = "missed"
	undecided = "undecided"
)

// figure is a metric's value in one trial; ok is false where it was not measured.
type figure func(t result.Trial, phase string) (v float64, ok bool)

// figures are the metrics that an expect line may name. Durations in seconds.
var figures = map[string]figure{
	"violations":     func(t result.Trial, _ string) (float64, bool) { return float64(violations(t)), true },
	"lost":           func(t result.Trial, _ string) (float64, bool) { return float64(t.Check.Totals.Lost), true },
	"duplicates":     func(t result.Trial, _ string) (float64, bool) { return float64(t.Check.Totals.Duplicates), true },
	"failed":         func(t result.Trial, _ string) (float64, bool) { return float64(t.Counts.Failed), true },
	"shed":           func(t result.Trial, _ string) (float64, bool) { return float64(t.Counts.Shed), true },
	"late":           func(t result.Trial, _ string) (float64, bool) { return float64(t.Counts.Late), true },
	"throughput":     func(t result.Trial, _ string) (float64, bool) { return t.Achieved, t.Achieved > 0 },
	"achieved_ratio": func(t result.Trial, _ string) (float64, bool) { return t.Achieved / t.Offered, t.Offered > 0 },
	"rss": func(t result.Trial, _ string) (float64, bool) {
		return float64(t.Usage.BrokerRSS), t.Usage.BrokerRSS > 0
	},
	"broker_cpu_per_record": func(t result.Trial, _ string) (float64, bool) {
		return t.Usage.BrokerCPU / float64(max(t.Usage.Records, 1)), t.Usage.Records > 0
	},
	"outage.max":           outage(func(o result.Outage) float64 { return o.Load }, slicesMax),
	"outage.median":        outage(func(o result.Outage) float64 { return o.Load }, median),
	"outage_prober.max":    outage(func(o result.Outage) float64 { return o.Prober }, slicesMax),
	"outage_prober.median": outage(func(o result.Outage) float64 { return o.Prober }, median),
	// what the aimed-at partition acknowledged a second, right before the fault: the least of all faults
	"pace_before_fault.min": leastPace,
	"committed":             func(t result.Trial, _ string) (float64, bool) { return float64(t.Counts.Committed), true },
	"transformed":           func(t result.Trial, _ string) (float64, bool) { return float64(t.Counts.Transformed), true },
	"in_doubt":              func(t result.Trial, _ string) (float64, bool) { return float64(t.Counts.TxnsInDoubt), true },
	"committed_records":     func(t result.Trial, _ string) (float64, bool) { return t.CommittedRate(), t.CommittedRate() > 0 },
	"transactions":          func(t result.Trial, _ string) (float64, bool) { return t.Txns, t.Txns > 0 },
	"faults":                provenFaults,
	"stall.max":             stall(slicesMax),
	"stall.median":          stall(median),
}

func provenFaults(t result.Trial, _ string) (n float64, _ bool) {
	for _, e := range t.Faults {
		if e.Proved() {
			n++
		}
	}
	return n, true
}

// stall is the longest wait of readers around each fault.
func stall(over func([]float64) float64) figure {
	return func(t result.Trial, _ string) (float64, bool) {
		worst := make([]float64, len(t.Faults))
		for _, s := range t.Stalls {
			if s.Fault >= 0 {
				worst[s.Fault] = max(worst[s.Fault], s.Seconds)
			}
		}
		if len(worst) == 0 {
			return 0, false
		}
		return over(worst), true
	}
}

// summed are counts: an expectation on them is about all trials together.
var summed = map[string]bool{"violations": true, "lost": true, "duplicates": true, "failed": true, "shed": true, "late": true,
	"committed": true, "transformed": true, "in_doubt": true, "faults": true}

// worstOf are figures of which the largest trial decides.
var worstOf = map[string]bool{"outage.max": true, "outage_prober.max": true, "stall.max": true, "rss": true}

func violations(t result.Trial) (n int64) {
	for _, r := range t.Check.Rules {
		if r.Status == check.Violated && !r.Tolerated {
			n += r.Count
		}
	}
	return n
}

func outage(of func(result.Outage) float64, over func([]float64) float64) figure {
	return func(t result.Trial, _ string) (float64, bool) {
		var v []float64
		for _, o := range t.Outages {
			if g := of(o); o.Affected && g >= 0 {
				v = append(v, g)
			}
		}
		if len(v) == 0 {
			return 0, false
		}
		return over(v), true
	}
}

func leastPace(t result.Trial, _ string) (float64, bool) {
	least, ok := math.Inf(1), false
	for _, e := range t.Faults {
		if e.Pace != nil {
			least, ok = min(least, *e.Pace), true
		}
	}
	return least, ok
}

func slicesMax(v []float64) float64 {
	m := v[0]
	for _, x := range v {
		m = math.Max(m, x)
	}
	return m
}

func median(v []float64) float64 { return stats.Summary(v).Center }

// lookUp finds a figure by name; latencies are metric.percentile.
func lookUp(name string) (figure, bool) {
	if f, ok := figures[name]; ok {
		return f, true
	}
	metric, which, _ := strings.Cut(name, ".")
	pick := map[string]func(result.Latency) float64{
		"p50": func(l result.Latency) float64 { return l.P50 }, "p90": func(l result.Latency) float64 { return l.P90 },
		"p99": func(l result.Latency) float64 { return l.P99 }, "p999": func(l result.Latency) float64 { return l.P999 },
		"max": func(l result.Latency) float64 { return l.Max },
	}[which]
	if pick == nil {
		return nil, false
	}
	return func(t result.Trial, phase string) (float64, bool) {
		if phase == "" {
			phase = scenario.PhaseSteady
		}
		l, ok := t.Latency[metric][phase]
		v := pick(l) / 1000
		return v, ok && v > 0
	}, true
}

// asks says whether a line is about a cell at all: not about one that its system cannot run, and of transactions only where there are some.
func asks(e scenario.Expect, c result.Cell) bool {
	if c.Absent != "" {
		return false
	}
	switch metric, _, _ := strings.Cut(e.Metric, "."); metric {
	case "commit", "end_txn", "transactions", "committed", "in_doubt":
		return c.Txn != nil
	}
	return true
}

// judgeExpectations decides every line. An absolute line must hold for every
// cell, on the median over its trials (on the sum for counts, on the largest
// for maxima); it is undecided where a cell has no sound trial. For ratios see judgeRatio.
func judgeExpectations(lines []scenario.Expect, r *result.Run) []result.Expectation {
	var out []result.Expectation
	for _, e := range lines {
		x := result.Expectation{Line: e.Raw, Open: e.Open}
		if e.A != "" {
			x.Ratio, x.Outcome, x.Got = judgeRatio(e, r)
		} else {
			x.Outcome, x.Got = judgeAbsolute(e, r)
		}
		out = append(out, x)
	}
	return out
}

func judgeAbsolute(e scenario.Expect, r *result.Run) (outcome, got string) {
	f, ok := lookUp(e.Metric)
	if !ok {
		return undecided, "no such metric"
	}
	outcome = met
	whole := len(r.Manifest.Cells) > 0
	var said, values []string
	for _, c := range r.Manifest.Cells {
		if !asks(e, c) {
			continue
		}
		var v []float64
		for _, t := range eligible(e.Metric, r) {
			if x, ok := f(t, e.Phase); ok && t.Cell == c.ID {
				v = append(v, x)
			}
		}
		if len(v) == 0 {
			said, values, whole = append(said, cellName(c)+": not measured"), append(values, "not measured"), false
			continue
		}
		x := fold(e.Metric, v)
		values = append(values, printed(x, e.Unit))
		said = append(said, cellName(c)+": "+values[len(values)-1])
		if !e.Holds(x) {
			outcome = missed
		}
	}
	if len(said) == 0 {
		return undecided, "no cell that this could be measured in"
	}
	if outcome == met && !whole {
		outcome = undecided
	}
	if same := slices.Compact(values); len(same) == 1 && len(said) > 1 {
		return outcome, fmt.Sprintf("%s in each of %d cells", same[0], len(said))
	}
	return outcome, strings.Join(said, ", ")
}

// eligible are the trials that a metric is read from: a trial that is set aside
// has no sound latency or rate, but its records were judged like any other's, and
// the prober does not share the load client's schedule.
func eligible(metric string, r *result.Run) []result.Trial {
	switch {
	case summed[metric]:
		return r.Results.Trials
	case strings.HasPrefix(metric, "outage_prober."), metric == "pace_before_fault.min":
		return r.Results.Judged()
	}
	return r.Results.Valid()
}

func fold(metric string, v []float64) float64 {
	switch {
	case metric == "pace_before_fault.min":
		return slices.Min(v)
	case summed[metric]:
		var sum float64
		for _, x := range v {
			sum += x
		}
		return sum
	case worstOf[metric]:
		return slicesMax(v)
	}
	return median(v)
}

func cellName(c result.Cell) string {
	name := strings.ReplaceAll(c.Guarantee, "_", " ")
	if s, swept := c.Sweep["target.system"]; swept {
		name = s + " " + name
	}
	var keys []string
	for k := range c.Sweep {
		if k != "guarantee" && k != "target.system" {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for _, k := range keys {
		name += " " + c.Sweep[k]
	}
	return name
}

func printed(v float64, u scenario.Unit) string {
	switch u {
	case scenario.UnitSeconds:
		return time.Duration(v * float64(time.Second)).Round(10 * time.Microsecond).String()
	case scenario.UnitBytes:
		return fmt.Sprintf("%.1f MiB", v/(1<<20))
	case scenario.UnitRate:
		return fmt.Sprintf("%.0f/s", v)
	}
	return fmt.Sprintf("%.4g", v)
}
