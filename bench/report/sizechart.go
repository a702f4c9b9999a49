package report

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"gopherlog/bench/result"
)

// drawnOn is how far beyond the largest size, as a factor, a curve is drawn on to where it reaches one half.
const drawnOn = 10

// transactionSize is chart C4: throughput relative to the same producers without transactions, against records a transaction.
func transactionSize(r *result.Run) *Chart {
	var lines []*sizeLine
	for _, l := range sizeLines(r) {
		if l.sizes[0].known {
			lines = append(lines, l)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	p := newPlot("records a transaction", "throughput, share of that without transactions")
	extent := extentOf(lines)
	extent.axes(p)
	p.Add(grid{}, halfLine{})
	legend := plot.NewLegend()
	legend.TextStyle, legend.Top, legend.Left = p.Legend.TextStyle, true, true
	legend.Padding = vg.Points(2)
	data := Table{Head: []string{"guarantee", "variant", "records", "ratio", "low", "high", "bounds", "transactions_per_s", "fitted", "blocks"}}
	seen := map[color.RGBA]int{}
	var halves halfTicks
	for _, l := range lines {
		s := look(l.guarantee)
		s.Dashes = variantDashes[min(seen[s.Color], len(variantDashes)-1)]
		seen[s.Color]++
		dots := l.draw(p, s, extent)
		legend.Add(l.name(), lineOf(dots, s, 1.7, true), dotsOf(dots, s, false))
		if h := l.fit.Half.Center; l.drawsCurve() && h >= extent.lo && h <= extent.top {
			halves = append(halves, halfTick{h, s.Color})
		}
		data.Rows = append(data.Rows, l.rows()...)
	}
	p.Add(halves)
	return newChart("transaction-size", "Throughput against the size of a transaction",
		fmt.Sprintf("Records of committed transactions a second, 1 = %s by the same producers. %s", look(lines[0].base).Label, shape(r)),
		"Marks: median over blocks of the ratio within a block, with "+span(lines[0].sizes[0].ratio)+". Curve: T(n) = a + b·n fitted to what a transaction of n records took. Transactions of fewer records than partitions have fewer participants and are not in the fit. The ticks on the dotted line stand at n50, the size at which half of the rate without transactions is reached; where the curve is thin it is drawn on by the formula, to sizes that are not in the fit or were not measured. Both axes are logarithmic. One point holds for its size only; the curve is the price.",
		under(legend, len(lines), halfBand, single(p, fullWidth, plotHeight+30)), data)
}

// A sizeExtent is what the chart of sizes shows.
type sizeExtent struct {
	lo, top float64 // sizes: the smallest that was measured, the largest that was or to which a curve is drawn on
	low     float64 // the smallest ratio
}

func extentOf(lines []*sizeLine) sizeExtent {
	e := sizeExtent{lo: math.Inf(1), low: 0.5}
	hi := 0.0
	for _, l := range lines {
		for _, z := range l.sizes {
			e.lo, hi, e.low = math.Min(e.lo, float64(z.records)), math.Max(hi, float64(z.records)), math.Min(e.low, z.ratio.Lo)
		}
	}
	e.top = hi
	for _, l := range lines {
		if l.beyond() && l.fit.Half.Center <= drawnOn*hi {
			e.top = math.Max(e.top, l.fit.Half.Center*1.2)
		}
	}
	return e
}

func (e sizeExtent) axes(p *plot.Plot) {
	setLog(&p.X, e.lo, e.top)
	p.X.Min, p.X.Max = e.lo*0.8, e.top*1.25
	setLog(&p.Y, e.low, 1)
	p.Y.Max = 1.25
}

// drawsCurve says whether the line follows its fit; else it joins what was measured.
func (l *sizeLine) drawsCurve() bool { return l.fitted && l.fit.Over }

// draw adds the line to the plot, its marks last, and returns where those stand.
func (l *sizeLine) draw(p *plot.Plot, s series, e sizeExtent) (dots plotter.XYs) {
	var bars whiskers
	for _, z := range l.sizes {
		n := float64(z.records)
		dots = append(dots, plotter.XY{X: n, Y: z.ratio.Center})
		bars = append(bars, whisker{n, z.ratio.Lo, z.ratio.Hi, s.Color})
	}
	if l.drawsCurve() {
		for _, piece := range l.pieces(e.top) {
			p.Add(lineOf(l.curve(piece.from, piece.to), s, piece.width, true))
		}
	} else {
		p.Add(lineOf(dots, s, 1.2, true))
	}
	p.Add(bars, dotsOf(dots, s, false))
	return dots
}

// A piece of a curve: wide where it was fitted.
type piece struct {
	from, to float64
	width    float64
}

// pieces are what the curve is drawn of: wide over the sizes in the fit, thin below and beyond, where it is the formula's word.
func (l *sizeLine) pieces(top float64) (all []piece) {
	const wide, thin = 1.7, 0.8
	first, last := float64(l.sizes[0].records), float64(l.sizes[len(l.sizes)-1].records)
	from := first
	if i := slices.IndexFunc(l.sizes, l.fits); i > 0 {
		from = float64(l.sizes[i].records)
		all = append(all, piece{first, from, thin})
	}
	all = append(all, piece{from, last, wide})
	if l.beyond() && top > last {
		all = append(all, piece{last, top, thin})
	}
	return all
}

// rows is the line as the table beside the chart shows it.
func (l *sizeLine) rows() (all [][]string) {
	for _, z := range l.sizes {
		fitted := ""
		if l.fits(z) {
			fitted = f3(l.relative(float64(z.records)))
		}
		all = append(all, []string{l.guarantee, l.variant, fmt.Sprint(z.records), f3(z.ratio.Center), f3(z.ratio.Lo), f3(z.ratio.Hi), span(z.ratio), f3(z.rate.Center), fitted, fmt.Sprint(z.ratio.N)})
	}
	return all
}

func (l *sizeLine) curve(from, to float64) (xy plotter.XYs) {
	const steps = 80
	for i := range steps + 1 {
		n := from * math.Pow(to/from, float64(i)/steps)
		xy = append(xy, plotter.XY{X: n, Y: l.relative(n)})
	}
	return xy
}

// variantDashes tell the lines of one guarantee apart.
var variantDashes = [][]vg.Length{nil, {5, 2.5}, {1.5, 2.5}, {7, 2, 1.5, 2}, {9, 4}}

// whisker is an interval at one x.
type whisker struct {
	x, lo, hi float64
	color     color.RGBA
}

type whiskers []whisker

func (ws whiskers) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for _, w := range ws {
		c.StrokeLine2(draw.LineStyle{Color: w.color, Width: vg.Points(1.2)}, tx(w.x), ty(w.lo), tx(w.x), ty(w.hi))
	}
}

// halfLine marks one half.
type halfLine struct{}

func (halfLine) Plot(c draw.Canvas, p *plot.Plot) {
	_, ty := p.Transforms(&c)
	c.StrokeLine2(draw.LineStyle{Color: softColor, Width: vg.Points(0.8), Dashes: []vg.Length{1.5, 2.5}}, c.Min.X, ty(0.5), c.Max.X, ty(0.5))
}

// halfTick marks where a curve reaches one half.
type halfTick struct {
	x     float64
	color color.RGBA
}

// halfTicks are those of a chart. Their words stand in one row above it, where no curve is, as near to their ticks as they have room.
type halfTicks []halfTick

const (
	halfTickLong = 7  // to either side of the line
	halfGap      = 14 // between words: a reader's font may be a quarter wider than the one that is measured here
	halfBand     = 22 // above the chart, for the words and the lines to them
)

func (hs halfTicks) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	hs = slices.SortedStableFunc(slices.Values(hs), func(a, b halfTick) int { return cmp.Compare(a.x, b.x) })
	var at, wide []vg.Length
	for _, h := range hs {
		at, wide = append(at, tx(h.x)), append(wide, words(9, h.color, draw.XCenter).Width(h.word()))
	}
	y, foot := ty(0.5), c.Max.Y+halfBand-12
	for i, x := range spread(at, wide, c.Min.X, c.Max.X) {
		h := hs[i]
		c.StrokeLine2(draw.LineStyle{Color: h.color, Width: vg.Points(2.2)}, at[i], y-halfTickLong, at[i], y+halfTickLong)
		c.StrokeLines(draw.LineStyle{Color: h.color, Width: vg.Points(0.5)}, []vg.Point{{X: at[i], Y: y}, {X: at[i], Y: c.Max.Y}, {X: x, Y: foot}})
		c.FillText(words(9, h.color, draw.XCenter), vg.Point{X: x, Y: foot + 6}, h.word())
	}
}

func (h halfTick) word() string { return "n50 " + sig(h.x) }

// spread moves the middles of words, which belong to ascending places, apart until none touch, between two borders and by the least sum of
// squares: words that crowd stand around the mean of their places.
func spread(at, wide []vg.Length, low, high vg.Length) []vg.Length {
	type crowd struct {
		sum vg.Length
		n   int
	}
	mean := func(c crowd) vg.Length { return c.sum / vg.Length(c.n) }
	shift := make([]vg.Length, len(at)) // of each one from the first, where they stand as close as they may
	var crowds []crowd
	for i := range at {
		if i > 0 {
			shift[i] = shift[i-1] + wide[i-1]/2 + halfGap + wide[i]/2
		}
		last := crowd{at[i] - shift[i], 1}
		for len(crowds) > 0 && mean(crowds[len(crowds)-1]) > mean(last) {
			before := crowds[len(crowds)-1]
			crowds, last = crowds[:len(crowds)-1], crowd{before.sum + last.sum, before.n + last.n}
		}
		crowds = append(crowds, last)
	}
	var out []vg.Length
	for _, c := range crowds {
		for range c.n {
			i := len(out)
			end := len(at) - 1
			x := max(min(mean(c), high-wide[end]/2-shift[end]), low+wide[0]/2)
			out = append(out, x+shift[i])
		}
	}
	return out
}

// under puts a legend of so many lines over a picture, where it covers nothing, and leaves a band between them.
func under(legend plot.Legend, lines int, band vg.Length, pic picture) picture {
	high := vg.Length(lines)*(legend.TextStyle.Height("Mg")+legend.Padding) + band
	return picture{w: pic.w, h: pic.h + high, draw: func(c draw.Canvas) {
		legend.Draw(draw.Crop(c, legendIndent, 0, pic.h, -4))
		pic.draw(draw.Crop(c, 0, 0, 0, -high))
	}}
}

const legendIndent = 40 // about where the axis begins
