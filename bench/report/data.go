// Package report turns run directories into charts and one self-contained page.
//
// It is a pure function of the files in those directories: it measures nothing,
// asks no system anything, and can be run again at any time. It knows how to
// read a figure honestly (ranges, denominators, what is set aside) and how to
// draw it; it does not know how the figure came about.
package report

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"gopherlog/bench/fault"
	"gopherlog/bench/result"
	"gopherlog/bench/stats"
)

// Metrics and phases as the run directory names them.
const (
	ack      = "ack"
	commit   = "commit"
	visible  = "visible"
	endTxn   = "end_txn"
	endToEnd = "end_to_end"
	steady   = "steady"
)

// set is the runs of one report, with look-ups that more than one part needs.
type set struct {
	runs []*result.Run
}

// guarantees lists those that occur in any run, from weak to strong, each on each
// system where these are told apart.
func (s *set) guarantees() []string {
	seen := map[string]bool{}
	for _, r := range s.runs {
		for _, c := range r.Manifest.Cells {
			seen[c.Guarantee] = true
		}
	}
	out := keysOf(seen)
	slices.SortStableFunc(out, order)
	return out
}

// cells returns a run's cells of one guarantee, by rising rate.
func cells(r *result.Run, guarantee string) []result.Cell {
	var out []result.Cell
	for _, c := range r.Manifest.Cells {
		if c.Guarantee == guarantee {
			out = append(out, c)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Rate < out[j].Rate })
	return out
}

// trials returns the trials of a cell that were not set aside.
func trials(r *result.Run, cell string) []result.Trial {
	var out []result.Trial
	for _, t := range r.Results.Valid() {
		if t.Cell == cell {
			out = append(out, t)
		}
	}
	return out
}

// recorded returns all trials of a cell: one that is set aside has no sound
// latency, but its records were judged like any other's.
func recorded(r *result.Run, cell string) []result.Trial {
	var out []result.Trial
	for _, t := range r.Results.Trials {
		if t.Cell == cell {
			out = append(out, t)
		}
	}
	return out
}

// summary is the median over trials of one figure; a trial for which pick says
// no is left out.
func summary(ts []result.Trial, pick func(result.Trial) (float64, bool)) (stats.Interval, bool) {
	var v []float64
	for _, t := range ts {
		if x, ok := pick(t); ok {
			v = append(v, x)
		}
	}
	if len(v) == 0 {
		return stats.Interval{}, false
	}
	return stats.Summary(v), true
}

// latency picks one percentile of one metric in one phase, in milliseconds.
func latency(metric, phase string, of func(result.Latency) float64) func(result.Trial) (float64, bool) {
	return func(t result.Trial) (float64, bool) {
		l, ok := t.Latency[metric][phase]
		v := of(l)
		return v, ok && v > 0
	}
}

func p50(l result.Latency) float64 { return l.P50 }
func p99(l result.Latency) float64 { return l.P99 }

// throughput is what a reader of the guarantee's isolation can count on: records of transactions count when these are committed.
func throughput(t result.Trial) (float64, bool) { return committedRate(t) }

// ratio compares two cells block by block.
func ratio(r *result.Run, cell, base string, pick func(result.Trial) (float64, bool)) (stats.Interval, bool) {
	byBlock := map[int]float64{}
	for _, t := range trials(r, base) {
		if v, ok := pick(t); ok {
			byBlock[t.Block] = v
		}
	}
	var blocks []stats.Block
	for _, t := range trials(r, cell) {
		a, ok := pick(t)
		if b, have := byBlock[t.Block]; ok && have && b > 0 {
			blocks = append(blocks, stats.Block{A: a, B: b})
		}
	}
	if len(blocks) == 0 {
		return stats.Interval{}, false
	}
	return stats.Ratio(blocks, r.Manifest.Scenario.Seed), true
}

// struck names a fault: "leader of load/0 killed".
func struck(e fault.Event) string {
	name := role(e.Target) + " " + faultName(e.Kind, e.Shape)
	if e.Failpoint != "" {
		name += " at " + e.Failpoint
	}
	return name
}

// faultName names what a run does to the system, for column heads.
func faultName(kind, shape string) string {
	switch {
	case kind == "kill":
		return "killed"
	case kind == "pause":
		return "frozen"
	case shape == "isolate":
		return "isolated"
	case shape == "halves":
		return "and half of the clients cut off"
	}
	return strings.TrimSpace(kind + " " + shape)
}

// role is the selector's role: "leader of load/0" for leader(load/0).
func role(target string) string {
	name, rest, found := strings.Cut(strings.TrimSuffix(target, ")"), "(")
	name = strings.TrimPrefix(strings.ReplaceAll(name, "txn_coordinator", transactionCoordinator), "the ")
	name = strings.ReplaceAll(name, "group_coordinator", "group coordinator")
	if strings.HasSuffix(name, " coordinator") {
		return name
	}
	if !found {
		return map[string]string{"all": "every node"}[name]
	}
	if name == "node" || name == "worker" {
		return name + " " + rest
	}
	return name + " of " + rest
}

// span says what the brackets of an interval mean.
func span(iv stats.Interval) string {
	if iv.Confidence == 0 {
		return "lowest to highest"
	}
	return fmt.Sprintf("%.0f %% interval", math.Round(iv.Confidence*100))
}
