package price

import (
	"slices"

	"gopherlog/bench/check"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/bench/stats"
)

// pick takes one figure from a trial; false where it has none.
type pick func(result.Trial) (float64, bool)

// latency picks a percentile of one kind in the measured part. Kinds are named as the run directory names them: "visible" is
// the latency until a reader has a record that it may read.
func latency(kind string, of func(result.Latency) float64) pick {
	return func(t result.Trial) (float64, bool) {
		l, ok := t.Latency[kind][scenario.PhaseSteady]
		return of(l), ok && of(l) > 0
	}
}

func p50(l result.Latency) float64 { return l.P50 }
func p99(l result.Latency) float64 { return l.P99 }

// achieved counts the records of committed transactions where there are any: an open one gives its reader nothing.
func achieved(t result.Trial) (float64, bool) {
	v := t.Achieved
	if t.Txns > 0 {
		v = t.Commits
	}
	return v, v > 0
}

func keptUp(t result.Trial) (float64, bool) {
	v, _ := achieved(t)
	return v / t.Offered, t.Offered > 0
}

func transactions(t result.Trial) (float64, bool) { return t.Txns, t.Txns > 0 }

func perTransaction(t result.Trial) (float64, bool) {
	return t.Commits / t.Txns, t.Txns > 0 && t.Commits > 0
}

// figures are those of one guarantee in one run. A nil interval was not measured.
type figures struct {
	guarantee scenario.Guarantee
	valid     int // trials that were not set aside
	trials    int
	values    map[string]*stats.Interval
	times     map[string]*stats.Interval // the same as multiples of at_least_once, block by block
	totals    check.Totals
	doubtful  int // trials without a verdict
	violated  int
	unread    bool // votes and decisions, which only a cluster that the harness started tells, were not judged
}

// picks are what is told of a run whose offers were fixed, and of one that took what it could get.
var (
	latencyPicks = map[string]pick{"acked p50": latency("ack", p50), "acked p99": latency("ack", p99), "readable p50": latency("visible", p50), "readable p99": latency("visible", p99),
		"commit p50": latency("commit", p50), "commit p99": latency("commit", p99), "transactions/s": transactions, "records/transaction": perTransaction, "kept up": keptUp,
		"end to end p50": latency("end_to_end", p50), "end to end p99": latency("end_to_end", p99)}
	ratePicks = map[string]pick{"records/s": achieved, "transactions/s": transactions, "records/transaction": perTransaction}
)

// figuresOf sums a run up, a guarantee an entry, in the order of the cells.
func figuresOf(r *result.Run, picks map[string]pick) []figures {
	var base []result.Trial
	for _, c := range r.Manifest.Cells {
		if c.Guarantee == string(scenario.AtLeastOnce) {
			base = of(r.Results.Valid(), c.ID)
		}
	}
	var out []figures
	for _, c := range r.Manifest.Cells {
		valid := of(r.Results.Valid(), c.ID)
		f := figures{guarantee: scenario.Guarantee(c.Guarantee), valid: len(valid), values: map[string]*stats.Interval{}, times: map[string]*stats.Interval{}}
		for _, t := range of(r.Results.Trials, c.ID) {
			f.trials++
			f.add(t.Check)
		}
		for name, p := range picks {
			f.values[name], f.times[name] = summary(valid, p), ratio(valid, base, p, r.Manifest.Scenario.Seed)
		}
		out = append(out, f)
	}
	return out
}

func (f *figures) add(v check.Verdict) {
	switch v.Status {
	case check.Violated:
		f.violated++
	case check.Inconclusive:
		f.doubtful++
	}
	if v.Status == check.Inconclusive { // what was not read to its end counts neither as kept nor as lost
		return
	}
	f.unread = f.unread || slices.ContainsFunc(v.Rules, func(r check.RuleResult) bool {
		return r.ID[0] == 'D' && r.Demand == check.MustBeZero && r.Status == check.NotChecked
	})
	f.totals.Acked += v.Totals.Acked
	f.totals.Expired += v.Totals.Expired
	f.totals.Lost += v.Totals.Lost
	f.totals.Unseen += v.Totals.Unseen
	f.totals.Duplicates += v.Totals.Duplicates
}

func of(ts []result.Trial, cell string) []result.Trial {
	var out []result.Trial
	for _, t := range ts {
		if t.Cell == cell {
			out = append(out, t)
		}
	}
	return out
}

func summary(ts []result.Trial, p pick) *stats.Interval {
	var v []float64
	for _, t := range ts {
		if x, ok := p(t); ok {
			v = append(v, x)
		}
	}
	if len(v) == 0 {
		return nil
	}
	s := stats.Summary(v)
	return &s
}

func ratio(ts, base []result.Trial, p pick, seed int64) *stats.Interval {
	byBlock := map[int]float64{}
	for _, t := range base {
		if v, ok := p(t); ok {
			byBlock[t.Block] = v
		}
	}
	var blocks []stats.Block
	for _, t := range ts {
		a, ok := p(t)
		if b := byBlock[t.Block]; ok && a > 0 && b > 0 {
			blocks = append(blocks, stats.Block{A: a, B: b})
		}
	}
	if len(blocks) == 0 {
		return nil
	}
	s := stats.Ratio(blocks, seed)
	return &s
}
