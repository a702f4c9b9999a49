package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"gonum.org/v1/plot"

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
					name := role(e.Target) + " " + faultName(e.Kind, e.Shape)
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

// readerStall is chart C10: the share of faults after which every reader had gone on within so many seconds.
func (s *set) readerStall() *Chart {
	lines := s.stalls()
	if len(lines) == 0 {
		return nil
	}
	p := newPlot("seconds for which a reader got nothing of a partition with waiting records", "share of the faults")
	p.Add(grid{})
	data := Table{Head: []string{"fault", "guarantee", "variant", "stall_s", "share"}}
	lo, hi := 1.0, shortestStall*10
	several := false
	for _, l := range lines {
		several = several || l.fault != lines[0].fault
	}
	seen := map[string]int{}
	var worst ends
	for _, l := range lines {
		look := look(l.guarantee)
		look.Dashes = variantDashes[min(seen[l.guarantee], len(variantDashes)-1)]
		seen[l.guarantee]++
		steps := plotter.XYs{}
		n := float64(len(l.seconds))
		for i, v := range l.seconds {
			x := math.Max(v, shortestStall)
			lo, hi = math.Min(lo, x), math.Max(hi, x)
			steps = append(steps, plotter.XY{X: x, Y: float64(i) / n}, plotter.XY{X: x, Y: float64(i+1) / n})
			data.Rows = append(data.Rows, []string{l.fault, l.guarantee, l.variant, f3(v), f3(float64(i+1) / n)})
		}
		name := l.name()
		if several {
			name += ": " + l.fault
		}
		line := lineOf(steps, look, 1.8, true)
		p.Add(line)
		p.Legend.Add(fmt.Sprintf("%s (%d)", name, len(l.seconds)), line)
		worst = append(worst, end{steps[len(steps)-1], look})
	}
	p.Add(worst)
	lo = math.Min(lo, hi/10) // a decade at least, so that the axis has figures
	setLog(&p.X, lo, hi)
	p.Y.Min, p.Y.Max = 0, 1.02
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Points(2)
	p.X.Min /= math.Pow(p.X.Max/p.X.Min, 0.75) // room for the legend
	p.X.Tick.Marker = within{logTicks{}, lo * 0.9}
	caption := "Share of the faults after which every reader had gone on within so many seconds"
	if !several {
		caption += ", " + lines[0].fault
	}
	return newChart("reader-stall", "How long did readers wait?", caption+".",
		"A reader of committed records stops at the first record of a transaction that nobody has ended. One step a fault, its worst partition; in brackets the number of faults. A marker ends each line at the longest stall. A fault that stalled nobody stands at the left edge.",
		single(p, fullWidth, plotHeight+vg.Length(12*len(lines))), data)
}

// end is where a line ends.
type end struct {
	plotter.XY
	look series
}

type ends []end

func (es ends) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for _, e := range es {
		c.DrawGlyph(draw.GlyphStyle{Color: e.look.Color, Radius: vg.Points(3.4), Shape: e.look.Shape}, vg.Point{X: tx(e.X), Y: ty(e.Y)})
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
