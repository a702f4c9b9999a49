package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"gopherlog/bench/result"
	"gopherlog/bench/stats"
)

// stallLine is one line of chart C10: for how long readers of the guarantee's isolation got nothing around one kind of fault, the worst
// partition of each fault that was proven.
type stallLine struct {
	fault, guarantee, variant string
	seconds                   []float64
	open                      int // of these, how many had not ended when the trial did
	down                      []float64
}

// stalls collects the lines over all runs.
func (s *set) stalls() []*stallLine {
	byKey := map[string]*stallLine{}
	var keys []string
	for _, r := range s.runs {
		for _, c := range r.Manifest.Cells {
			for _, t := range recorded(r, c.ID) {
				if !watched(t) {
					continue
				}
				for i, e := range t.Faults {
					if !e.Proved() {
						continue
					}
					name := struck(e)
					key := name + "\x00" + fmt.Sprintf("%02d", rank(plainGuarantee(c))) + c.Guarantee + "\x00" + variantOf(c)
					l := byKey[key]
					if l == nil {
						l = &stallLine{fault: name, guarantee: c.Guarantee, variant: variantOf(c)}
						byKey[key], keys = l, append(keys, key)
					}
					longest, open := stallOf(t, i)
					l.seconds = append(l.seconds, longest)
					if open {
						l.open++
					}
					if !e.Healed.IsZero() {
						l.down = append(l.down, e.Healed.Sub(e.Injected).Seconds())
					}
				}
			}
		}
	}
	slices.Sort(keys)
	out := make([]*stallLine, len(keys))
	for i, k := range keys {
		out[i] = byKey[k]
		slices.Sort(out[i].seconds)
	}
	return out
}

// stallOutcome answers a scenario that asks how long readers wait for a coordinator.
func stallOutcome(r *result.Run) string {
	var parts []string
	for _, l := range (&set{runs: []*result.Run{r}}).stalls() {
		if strings.HasPrefix(l.fault, transactionCoordinator) && strings.Contains(l.fault, " at ") {
			parts = append(parts, fmt.Sprintf("%s: readers waited at most %s s (%s)", l.name(), sig(l.seconds[len(l.seconds)-1]), plural(len(l.seconds), "fault")))
		}
	}
	return strings.Join(parts, "; ")
}

const transactionCoordinator = "transaction coordinator" // as a fault's target is named

// watched says whether a trial told its readers' stalls: trials of a guarantee with transactions do.
func watched(t result.Trial) bool { return len(t.Stalls) > 0 || t.Counts.Txns > 0 }

// stallOf is the longest stall around a fault; 0 where no reader stalled.
func stallOf(t result.Trial, faultIndex int) (longest float64, open bool) {
	for _, x := range t.Stalls {
		if x.Fault == faultIndex && x.Seconds > longest {
			longest, open = x.Seconds, x.Open
		}
	}
	return longest, open
}

func (l *stallLine) name() string {
	n := look(l.guarantee).Label
	if l.variant != "" {
		n += ", " + l.variant
	}
	return n
}

// shortestStall stands for "no stall" on the axis.
const shortestStall = 0.001

// label is what stands at the left of the line's row.
func (l *stallLine) label() string { return l.fault + " · " + l.name() }

// readerStall is chart C10: for each fault how long the readers of its worst partition waited, beside how long the fault itself lasted.
func (s *set) readerStall() *Chart {
	lines := s.stalls()
	if len(lines) == 0 {
		return nil
	}
	data := Table{Head: []string{"fault", "guarantee", "variant", "stall_s", "share"}}
	lo, hi := 1.0, shortestStall*10
	var names []string
	for _, l := range lines {
		names = append(names, l.label())
		for i, v := range l.seconds {
			lo, hi = math.Min(lo, math.Max(v, shortestStall)), math.Max(hi, v)
			data.Rows = append(data.Rows, []string{l.fault, l.guarantee, l.variant, f3(v), f3(float64(i+1) / float64(len(l.seconds)))})
		}
		for _, d := range l.down {
			hi = math.Max(hi, d)
		}
	}
	p := newPlot("seconds for which a reader got nothing of a partition with waiting records", "")
	p.HideY()
	p.Y.Min, p.Y.Max = -0.5, float64(len(lines))-0.5
	setLog(&p.X, lo, hi)
	p.X.Tick.Marker = within{logTicks{}, lo * 0.9}
	makeRoom(&p.X, widest(9.5, names)+rowGap, 0, fullWidth-rightMargin)
	p.Add(stallMarks(lines))
	note := "A reader of committed records stops at the first record of a transaction that nobody has ended: where the marks lie at the tick or right of it, readers waited until what had failed was back. A fault that stalled nobody stands at the left edge."
	if slices.ContainsFunc(lines, func(l *stallLine) bool { return strings.Contains(l.variant, sweptWord("voted.replicas", "1")) }) {
		note += " A coordinator of one replica syncs each decision to its disk, whatever the tier; one of several follows the tier. Their rows compare waiting, not durability."
	}
	return newChart("reader-stall", "How long did readers wait?",
		"One mark a fault: for how long its worst partition gave readers nothing although records were waiting. The tick is how long the fault itself lasted.",
		note,
		single(p, fullWidth, vg.Length(20*len(lines)+62)), data)
}

// stallMarks draws the rows: name, duration of the fault, one mark a fault.
type stallMarks []*stallLine

func (rows stallMarks) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for i, l := range rows {
		y, s := ty(float64(len(rows)-1-i)), look(l.guarantee)
		c.FillText(words(9.5, inkColor, draw.XLeft), vg.Point{X: c.Min.X, Y: y}, l.label())
		if len(l.down) > 0 {
			x := tx(stats.Summary(l.down).Center)
			c.StrokeLine2(draw.LineStyle{Color: softColor, Width: vg.Points(1.6)}, x, y-6, x, y+6)
		}
		for _, v := range l.seconds {
			c.DrawGlyph(draw.GlyphStyle{Color: s.Color, Radius: vg.Points(3.4), Shape: s.Shape}, vg.Point{X: tx(math.Max(v, shortestStall)), Y: y})
		}
	}
}

// stallTable is the chart in figures.
func (s *set) stallTable() Table {
	t := Table{Head: []string{"guarantee", "fault", "faults", "median, s", "longest, s", "fault lasted, s", "not over at the end"}}
	for _, l := range s.stalls() {
		iv := stats.Summary(l.seconds)
		down := "not healed"
		if len(l.down) > 0 {
			down = sig(stats.Summary(l.down).Center)
		}
		t.Rows = append(t.Rows, []string{l.name(), strings.TrimSpace(l.fault), fmt.Sprint(len(l.seconds)), brackets(iv, sig), sig(l.seconds[len(l.seconds)-1]), down, fmt.Sprint(l.open)})
	}
	return t
}
