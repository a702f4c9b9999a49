package report

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"gopherlog/bench/result"
	"gopherlog/bench/stats"
)

// sameWithin is the half-width of the zone in which a ratio counts as "no
// difference", when its whole interval lies in it.
const sameWithin = 0.05

// priceRow is one guarantee's ratio to the base.
type priceRow struct {
	guarantee string
	variant   string // what tells it from other rows of the guarantee
	iv        stats.Interval
}

// name is the row's name in the chart.
func (r priceRow) name() string {
	if r.variant == "" {
		return look(r.guarantee).Label
	}
	return look(r.guarantee).Label + ", " + r.variant
}

func (r priceRow) value() string { return times(r.iv.Center) + " ×" }

// prices is chart C11 for one figure: the ratio of each guarantee to at least
// once, or of each system to the other, block by block.
func prices(r *result.Run, guarantees []string, id, what, axis, caption string, pick func(result.Trial) (float64, bool)) *Chart {
	baseCells := cells(r, base(guarantees))
	if len(baseCells) == 0 {
		return nil
	}
	rate := middleRate(r, guarantees)
	atMiddle := slices.DeleteFunc(slices.Clone(baseCells), func(c result.Cell) bool { return c.Rate != rate })
	if len(atMiddle) == 0 {
		return nil
	}
	ref := atMiddle[len(atMiddle)/2]
	var rows []priceRow
	data := Table{Head: []string{"guarantee", "ratio", "low", "high", "bounds", "blocks"}}
	var absent []string
	for _, g := range guarantees {
		var atRate []result.Cell
		for _, c := range cells(r, g) {
			if c.Rate == ref.Rate {
				atRate = append(atRate, c)
			}
		}
		for _, c := range atRate {
			iv, ok := ratio(r, c.ID, ref.ID, pick)
			row := priceRow{guarantee: g, iv: iv}
			if len(atRate) > 1 {
				row.variant = variantOf(c)
			}
			if !ok {
				absent = append(absent, row.name()+" ("+absence(r, c, pick)+")")
				continue
			}
			rows = append(rows, row)
			data.Rows = append(data.Rows, []string{g, f3(iv.Center), f3(iv.Lo), f3(iv.Hi), span(iv), fmt.Sprint(iv.N)})
		}
	}
	if len(rows) < 2 {
		return nil
	}
	width := halfWidth
	for _, r := range rows {
		if r.variant != "" {
			width = fullWidth // room for the longer names
		}
	}
	if len(absent) > 0 {
		caption += " Not in the chart: " + strings.Join(absent, ", ") + "."
	}
	one := ", " + look(base(guarantees)).Label + " = 1"
	what += one
	axis = strings.Replace(axis, " (", one+" (", 1)
	return newChart(id, what, caption,
		"Each block runs every guarantee once; the ratio is taken within the block, then the median over blocks. The line shows "+span(rows[0].iv)+". Hollow: the whole of it lies within ± 5 % of 1.",
		single(priceplot(rows, axis, width), width, vg.Length(30*len(rows)+62)), data)
}

// absence says why there is no ratio for a cell.
func absence(r *result.Run, c result.Cell, pick func(result.Trial) (float64, bool)) string {
	ts := trials(r, c.ID)
	if len(ts) == 0 {
		return "none of its trials was sound"
	}
	for _, t := range ts {
		if _, ok := pick(t); ok {
			return "in none of its blocks was there something to compare it with"
		}
	}
	return "its trials were too small for this figure"
}

func priceplot(rows []priceRow, axis string, width vg.Length) *plot.Plot {
	p := newPlot(axis, "")
	p.HideY()
	p.Y.Min, p.Y.Max = -0.5, float64(len(rows))-0.5
	lo, hi := 0.5, 2.0
	var names, values []string
	for _, r := range rows {
		lo, hi = math.Min(lo, r.iv.Lo), math.Max(hi, r.iv.Hi)
		names, values = append(names, r.name()), append(values, r.value())
	}
	p.X.Min, p.X.Max = lo, hi
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, doubling{lo * 0.99, hi * 1.01}
	makeRoom(&p.X, widest(10, names)+rowGap, widest(10, values)+rowGap, width-rightMargin)
	if hi/lo > 30 { // as far apart, tenths do
		p.X.Tick.Marker = within{logTicks{}, lo}
	}
	p.Add(priceMarks(rows))
	return p
}

// doubling labels … 0.25, 0.5, 1, 2, 4 … inside [lo, hi].
type doubling struct{ lo, hi float64 }

func (d doubling) Ticks(_, _ float64) []plot.Tick {
	var out []plot.Tick
	for e := -8; e <= 12; e++ {
		if v := math.Pow(2, float64(e)); v >= d.lo && v <= d.hi {
			out = append(out, plot.Tick{Value: v, Label: compact(v)})
		}
	}
	return out
}

// priceMarks draws the rows: name, interval, marker, value.
type priceMarks []priceRow

func (rows priceMarks) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	one := draw.LineStyle{Color: softColor, Width: vg.Points(0.8), Dashes: []vg.Length{2, 2}}
	c.StrokeLine2(one, tx(1), c.Min.Y, tx(1), c.Max.Y)
	for i, r := range rows {
		y := ty(float64(len(rows) - 1 - i))
		s := look(r.guarantee)
		c.StrokeLine2(draw.LineStyle{Color: s.Color, Width: vg.Points(2.4)}, tx(r.iv.Lo), y, tx(r.iv.Hi), y)
		if r.iv.Lo >= 1-sameWithin && r.iv.Hi <= 1+sameWithin {
			s.Shape = draw.RingGlyph{}
		}
		c.DrawGlyph(draw.GlyphStyle{Color: s.Color, Radius: vg.Points(4), Shape: s.Shape}, vg.Point{X: tx(r.iv.Center), Y: y})
		c.FillText(words(10, inkColor, draw.XLeft), vg.Point{X: c.Min.X, Y: y}, r.name())
		c.FillText(words(10, inkColor, draw.XLeft), vg.Point{X: tx(r.iv.Hi) + 8, Y: y}, r.value())
	}
}

// words is a text style, centred vertically on its point.
func words(size float64, c color.Color, align text.XAlignment) text.Style {
	return text.Style{Color: c, Font: font.Font{Typeface: plot.DefaultFont.Typeface, Variant: "Sans", Size: vg.Points(size)},
		XAlign: align, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
}
