package suite

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/bench/stats"
)

// leastBlocks is how many blocks a ratio needs before it decides anything.
const leastBlocks = 3

// judgeRatio compares the cells that differ in the ratio's key alone, each group
// of them by itself: a ratio at one load says nothing of another. The line is met
// where every group's whole interval holds, missed where a whole interval is on
// the wrong side, else undecided.
func judgeRatio(e scenario.Expect, r *result.Run) (q *result.Ratio, outcome, got string) {
	q = &result.Ratio{Metric: e.Metric, A: e.A, B: e.B, Op: e.Op, Value: e.Value}
	f, ok := lookUp(e.Metric)
	if !ok && e.Metric != scenario.Half {
		return q, undecided, "no such metric"
	}
	var groups []group
	if e.Metric == scenario.Half {
		groups = halfGroups(e, r)
	} else {
		groups = ratioGroups(e, r, f)
	}
	if len(groups) == 0 {
		return q, undecided, "no block measured both above zero"
	}
	worst := map[string]int{met: 0, undecided: 1, missed: 2}
	outcome = met
	var said []string
	for _, g := range groups {
		one, text := decideRatio(e, g, r.Manifest.Scenario.Seed)
		q.Groups = append(q.Groups, one)
		if g.name != "" {
			text = g.name + ": " + text
		}
		said = append(said, text)
		if worst[one.Outcome] > worst[outcome] {
			outcome = one.Outcome
		}
	}
	return q, outcome, strings.Join(said, "; ")
}

func decideRatio(e scenario.Expect, g group, seed int64) (out result.RatioGroup, got string) {
	out = result.RatioGroup{Name: g.name, Outcome: undecided}
	iv, ok := g.interval(seed)
	if !ok {
		return out, "no block measured both above zero"
	}
	out.Blocks, out.Center, out.Lo, out.Hi = iv.N, iv.Center, iv.Lo, iv.Hi
	got = fmt.Sprintf("%.3f [%.3f, %.3f] over %d blocks", iv.Center, iv.Lo, iv.Hi, iv.N)
	lo, center, hi := e.Holds(iv.Lo), e.Holds(iv.Center), e.Holds(iv.Hi)
	switch {
	case iv.N < leastBlocks:
		got += fmt.Sprintf(", and fewer than %d decide nothing", leastBlocks)
	case lo && center && hi:
		out.Outcome = met
	case !lo && !center && !hi:
		out.Outcome = missed
	}
	return out, got
}

// group holds the blocks of the cells that agree in all keys but the ratio's. A
// cell agrees with every value of a key that it was not swept over, since that
// says nothing to its guarantee.
type group struct {
	name   string // the other keys' values, where they differ between groups
	blocks []stats.Block
	whole  stats.Interval // of n50: fitted over all blocks at once
	fitted bool
}

// interval is the group's ratio; false where nothing says it.
func (g group) interval(seed int64) (stats.Interval, bool) {
	if g.fitted || len(g.blocks) == 0 {
		return g.whole, g.fitted
	}
	return stats.Ratio(g.blocks, seed), true
}

// ratioGroups pairs both sides of a ratio by block and by their other keys, in
// the order of the cells.
func ratioGroups(e scenario.Expect, r *result.Run, f figure) []group {
	byBlock := func(c result.Cell) map[int]float64 {
		m := map[int]float64{}
		for _, t := range r.Results.Valid() {
			if v, measured := f(t, e.Phase); measured && v > 0 && t.Cell == c.ID {
				m[t.Block] = v
			}
		}
		return m
	}
	var out []group
	for _, a := range r.Manifest.Cells {
		rest, ok := besides(a, e.A)
		if !ok || !asks(e, a) || !where(e, a) {
			continue
		}
		for _, b := range r.Manifest.Cells {
			other, ok := besides(b, e.B)
			if !ok || !agree(rest, other) || !asks(e, b) || !where(e, b) {
				continue
			}
			g := group{name: groupName(rest, other)}
			va, vb := byBlock(a), byBlock(b)
			for _, block := range slices.Sorted(maps.Keys(va)) {
				if w, ok := vb[block]; ok {
					g.blocks = append(g.blocks, stats.Block{A: va[block], B: w})
				}
			}
			out = append(out, g)
		}
	}
	return out
}

// where says whether a cell is one of those that a line speaks of.
func where(e scenario.Expect, c result.Cell) bool {
	for _, w := range e.Where {
		if v, swept := c.Sweep[w.Key]; swept && v != w.Value || !swept && w.Key == "guarantee" && c.Plain() != w.Value {
			return false
		}
	}
	return true
}

// sizeKey is what the cells of one line of transactions of several sizes differ in.
const sizeKey = "producers.transaction.records"

// halfGroups are the groups of a ratio of n50.
func halfGroups(e scenario.Expect, r *result.Run) []group {
	type line struct {
		rest  map[string]string
		cells []result.Cell
	}
	lines := func(value string) (out []*line) {
		for _, c := range r.Manifest.Cells {
			rest, ok := besides(c, value)
			if !ok || c.Txn == nil || c.Absent != "" || !where(e, c) {
				continue
			}
			delete(rest, sizeKey)
			i := slices.IndexFunc(out, func(l *line) bool { return maps.Equal(l.rest, rest) })
			if i < 0 {
				i, out = len(out), append(out, &line{rest: rest})
			}
			out[i].cells = append(out[i].cells, c)
		}
		return out
	}
	var groups []group
	for _, a := range lines(e.A) {
		for _, b := range lines(e.B) {
			if agree(a.rest, b.rest) {
				x, _ := r.SizeCosts(a.cells)
				y, _ := r.SizeCosts(b.cells)
				g := group{name: groupName(a.rest, b.rest)}
				g.whole, g.fitted = stats.HalfRatio(x, y, r.Manifest.Scenario.Seed)
				groups = append(groups, g)
			}
		}
	}
	return groups
}

// besides says whether a cell has the value on one of its swept keys, and what
// its other swept keys are.
func besides(c result.Cell, value string) (rest map[string]string, ok bool) {
	ok = c.Guarantee == value
	on := "guarantee"
	for k, v := range c.Sweep {
		if !ok && v == value {
			on, ok = k, true
		}
	}
	rest = maps.Clone(c.Sweep)
	delete(rest, on)
	return rest, ok
}

// agree says whether no key has two values.
func agree(a, b map[string]string) bool {
	for k, v := range a {
		if w, both := b[k]; both && w != v {
			return false
		}
	}
	return true
}

func groupName(a, b map[string]string) string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	var out []string
	for k, v := range all {
		out = append(out, k+"="+v)
	}
	sort.Strings(out)
	return strings.Join(out, " ")
}
