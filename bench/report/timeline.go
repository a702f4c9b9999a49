package report

import (
	"fmt"
	"math"
	"sort"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"gopherlog/bench/fault"
	"gopherlog/bench/result"
)

// timeline is chart C6: one trial through its faults, second by second: rate on
// top, latency in the middle, what is not yet visible at the bottom.
func timeline(r *result.Run, c result.Cell, t result.Trial) (*Chart, error) {
	rows, err := r.Seconds(t.ID)
	if err != nil {
		return nil, err
	}
	rows = whileSending(rows)
	s := look(c.Guarantee)
	marks := faultMarks{trial: t}
	rate, lat, lag := newPlot("", "thousand/s"), newPlot("", "ms"), newPlot("seconds", "records not\nyet visible")
	for _, p := range []*plot.Plot{rate, lat, lag} {
		p.Add(grid{}, marks)
		p.X.Min, p.X.Max = 0, math.Max(t.Seconds, 1)
	}
	marks.named = true
	rate.Add(marks)
	offered, acked := steps(rows, func(x result.Second) float64 { return float64(x.Sent) / 1000 }), steps(rows, func(x result.Second) float64 { return float64(x.Acked) / 1000 })
	sent := lineOf(offered, series{Color: softColor}, 1, false)
	rate.Add(sent, lineOf(acked, s, 1.6, false))
	rate.Y.Min = 0
	rate.Y.Max = 1.45 * math.Max(maxY(offered), maxY(acked))
	drawLatency(lat, rows, s)
	waiting := steps(rows, func(x result.Second) float64 { return float64(x.Lag) })
	lag.Add(lineOf(waiting, s, 1.4, false))
	lag.Y.Min, lag.Y.Max = 0, math.Max(1, 1.05*maxY(waiting))
	pic := stacked(fullWidth, []vg.Length{150, 150, 110}, rate, lat, lag)
	return newChart("timeline-"+c.ID, cellName(c)+" through the faults", faultStory(t),
		"Top: sent (thin) and acknowledged records a second. Middle: p50, p99 and maximum of the latency until the acknowledgement, counted from the intended send time, so that records which waited for a new leader are in it. Bottom: acknowledged records that no reader has seen yet, without those of aborted transactions. Shaded: the fault, from injection until it was healed; small ticks on the top edge: a partition changed its leader.",
		pic, secondsTable(rows)), nil
}

// whileSending leaves out the end of a trial: the seconds in which next to nothing is sent and answered any more, as sending is over.
func whileSending(rows []result.Second) []result.Second {
	for len(rows) > 1 {
		last, before := rows[len(rows)-1], rows[len(rows)-2]
		if 10*(last.Sent+last.Acked+last.Failed) > before.Sent+before.Acked+before.Failed {
			break
		}
		rows = rows[:len(rows)-1]
	}
	return rows
}

func drawLatency(p *plot.Plot, rows []result.Second, s series) {
	lo, hi := math.Inf(1), 0.0
	styles := []struct {
		of     func(result.Second) float64
		dashes []vg.Length
		width  float64
	}{
		{func(x result.Second) float64 { return x.AckP50 }, nil, 1.6},
		{func(x result.Second) float64 { return x.AckP99 }, []vg.Length{4, 3}, 1.4},
		{func(x result.Second) float64 { return x.AckMax }, []vg.Length{1.2, 2.2}, 1.2},
	}
	for i, st := range styles {
		xy := positive(rows, st.of)
		if len(xy) == 0 {
			continue
		}
		for _, pt := range xy {
			lo, hi = math.Min(lo, pt.Y), math.Max(hi, pt.Y)
		}
		l := lineOf(xy, s, st.width, false)
		l.Dashes = st.dashes
		p.Add(l)
		p.Legend.Add([]string{"p50", "p99", "max"}[i], l)
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.YOffs, p.Legend.Padding = vg.Points(6), vg.Points(-3), vg.Points(2)
	p.Legend.ThumbnailWidth = vg.Points(18)
	setLog(&p.Y, lo, hi*10) // the legend stands in the upper part
}

func steps(rows []result.Second, of func(result.Second) float64) plotter.XYs {
	out := plotter.XYs{{X: 0, Y: 0}}[:0]
	for _, s := range rows {
		out = append(out, plotter.XY{X: s.At + 0.5, Y: of(s)})
	}
	if len(out) == 0 {
		out = append(out, plotter.XY{})
	}
	return out
}

// positive leaves out seconds without a sample: a log axis has no place for 0.
func positive(rows []result.Second, of func(result.Second) float64) plotter.XYs {
	var out plotter.XYs
	for _, s := range rows {
		if v := of(s); v > 0 {
			out = append(out, plotter.XY{X: s.At + 0.5, Y: v})
		}
	}
	return out
}

func maxY(xy plotter.XYs) (m float64) {
	for _, p := range xy {
		m = math.Max(m, p.Y)
	}
	return m
}

// faultMarks shades the faults and ticks the leader changes.
type faultMarks struct {
	trial result.Trial
	named bool
}

func (f faultMarks) Plot(c draw.Canvas, p *plot.Plot) {
	tx, _ := p.Transforms(&c)
	for i, e := range f.trial.Faults {
		from, to, ok := faultSpan(f.trial, e)
		if !ok {
			continue
		}
		a, b := clamp(tx(from), c), clamp(tx(to), c)
		if f.named {
			label := struck(e)
			y := c.Max.Y - vg.Points(7+10*float64(i%2))
			c.FillText(words(8.5, softColor, draw.XLeft), vg.Point{X: a + 3, Y: y}, label)
			continue
		}
		c.FillPolygon(fade(faultColor, 0.13), []vg.Point{{X: a, Y: c.Min.Y}, {X: b, Y: c.Min.Y}, {X: b, Y: c.Max.Y}, {X: a, Y: c.Max.Y}})
	}
	for _, l := range f.trial.Leaders {
		x := tx(l.At)
		if x >= c.Min.X && x <= c.Max.X {
			c.StrokeLine2(draw.LineStyle{Color: softColor, Width: vg.Points(0.8)}, x, c.Max.Y-3, x, c.Max.Y)
		}
	}
}

func clamp(x vg.Length, c draw.Canvas) vg.Length { return max(c.Min.X, min(c.Max.X, x)) }

// faultSpan is a fault's place on the trial's clock.
func faultSpan(t result.Trial, e fault.Event) (from, to float64, ok bool) {
	if e.Injected.IsZero() {
		return 0, 0, false
	}
	from = e.Injected.Sub(t.Started).Seconds()
	to = t.Seconds
	if !e.Healed.IsZero() {
		to = e.Healed.Sub(t.Started).Seconds()
	}
	return from, to, true
}

// faultStory says in a sentence what each fault did to the acknowledgements.
func faultStory(t result.Trial) string {
	var out string
	for i, e := range t.Faults {
		at, _, ok := faultSpan(t, e)
		name := struck(e)
		switch {
		case e.Skipped:
			out += fmt.Sprintf("%s: skipped. ", name)
		case !ok || !e.Proved():
			out += fmt.Sprintf("%s: not proven to have happened. ", name)
		default:
			out += fmt.Sprintf("%s at %.0f s: %s. ", name, at, gapStory(t, i))
		}
	}
	return out
}

func gapStory(t result.Trial, faultIndex int) string {
	load, prober := worst(t, faultIndex)
	stall, open := stallOf(t, faultIndex)
	if load < 0 && prober < 0 && stall > 0 { // it hit no partition's leader that is known
		return stallStory(stall, open)
	}
	s := fmt.Sprintf("longest gap between acknowledgements %s as the load client saw it", seconds(load))
	if prober >= 0 {
		s += fmt.Sprintf(", %s as a prober on all nodes saw it", seconds(prober))
	}
	if stall > 0 {
		s += ", " + stallStory(stall, open)
	}
	return s
}

func stallStory(stall float64, open bool) string {
	s := "a reader waited " + seconds(stall)
	if open {
		s += " and had not gone on at the end"
	}
	return s
}

// worst is the longest gap of the partitions that a fault hit; -1 unknown.
func worst(t result.Trial, faultIndex int) (load, prober float64) {
	load, prober = -1, -1
	for _, o := range t.Outages {
		if o.Fault == faultIndex && o.Affected {
			load, prober = math.Max(load, o.Load), math.Max(prober, o.Prober)
		}
	}
	return load, prober
}

func seconds(s float64) string {
	switch {
	case s < 0:
		return "unknown"
	case s < 1:
		return fmt.Sprintf("%.0f ms", s*1000)
	}
	return fmt.Sprintf("%.1f s", s)
}

func secondsTable(rows []result.Second) Table {
	t := Table{Head: []string{"at_s", "sent", "acked", "failed", "ack_p50_ms", "ack_p99_ms", "ack_max_ms", "lag_records"}}
	for _, s := range rows {
		t.Rows = append(t.Rows, []string{f3(s.At), fmt.Sprint(s.Sent), fmt.Sprint(s.Acked), fmt.Sprint(s.Failed), f3(s.AckP50), f3(s.AckP99), f3(s.AckMax), fmt.Sprint(s.Lag)})
	}
	return t
}

// middleTrial picks the trial whose worst gap is the median: neither the
// luckiest nor the unluckiest stands for the cell.
func middleTrial(ts []result.Trial) result.Trial {
	gap := func(t result.Trial) (g float64) {
		for i := range t.Faults {
			l, _ := worst(t, i)
			g = math.Max(g, l)
		}
		return g
	}
	sorted := append([]result.Trial(nil), ts...)
	sort.SliceStable(sorted, func(i, j int) bool { return gap(sorted[i]) < gap(sorted[j]) })
	return sorted[len(sorted)/2]
}
