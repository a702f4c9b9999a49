package report

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sizes of the charts, in points: half a column, and the full width of the page.
const (
	halfWidth  = 360 * vg.Length(1)
	fullWidth  = 760 * vg.Length(1)
	plotHeight = 210 * vg.Length(1)
)

// newPlot returns an empty plot in the house style.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle.Color, a.LineStyle.Width = softColor, vg.Points(0.7)
		a.Tick.LineStyle.Color, a.Tick.LineStyle.Width = softColor, vg.Points(0.5)
		a.Tick.Length = vg.Points(3)
		a.Tick.Label.Color, a.Label.TextStyle.Color = softColor, softColor
		a.Tick.Label.Font, a.Label.TextStyle.Font = sans(9), sans(9.5)
		a.Padding = vg.Points(4)
		a.Tick.Marker = linearTicks{}
	}
	p.Legend.TextStyle.Font, p.Legend.TextStyle.Color = sans(9), softColor
	return p
}

func sans(size float64) font.Font {
	return font.Font{Typeface: plot.DefaultFont.Typeface, Variant: "Sans", Size: vg.Points(size)}
}

// grid draws horizontal lines at the major ticks of the y axis.
type grid struct{}

func (grid) Plot(c draw.Canvas, p *plot.Plot) {
	_, ty := p.Transforms(&c)
	style := draw.LineStyle{Color: gridColor, Width: vg.Points(0.6)}
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if !t.IsMinor() && t.Value >= p.Y.Min && t.Value <= p.Y.Max {
			c.StrokeLine2(style, c.Min.X, ty(t.Value), c.Max.X, ty(t.Value))
		}
	}
}

// picture is a chart drawn once per medium.
type picture struct {
	draw func(draw.Canvas)
	w, h vg.Length
}

// rightMargin keeps the last tick's label inside the picture.
const rightMargin = 18 * vg.Length(1)

// single draws one plot. Labels of logarithmic axes are drawn here: the library reckons with them at the middle value, far up, and shrinks the
// plot for what would stick out there.
func single(p *plot.Plot, w, h vg.Length) picture {
	xl, yl := logLabel(&p.X), logLabel(&p.Y)
	return picture{w: w, h: h, draw: func(c draw.Canvas) {
		c = draw.Crop(c, 0, -rightMargin, 0, -4)
		inner := c
		xs, ys := p.X.Label.TextStyle, p.Y.Label.TextStyle
		if xl != "" {
			inner.Min.Y += xs.Height(xl) + p.X.Label.Padding
		}
		high, descent := ys.Height(yl), ys.FontExtents().Descent
		if yl != "" {
			inner.Min.X += high + descent + p.Y.Label.Padding
		}
		p.Draw(inner)
		area := p.DataCanvas(inner)
		if xl != "" {
			c.FillText(xs, vg.Point{X: (area.Min.X + area.Max.X) / 2, Y: c.Min.Y + xs.FontExtents().Descent}, xl)
		}
		if yl != "" {
			ys.Rotation += math.Pi / 2
			c.FillText(ys, vg.Point{X: c.Min.X + high - descent, Y: (area.Min.Y + area.Max.Y) / 2}, yl)
		}
	}}
}

// logLabel takes the label of a logarithmic axis off it.
func logLabel(a *plot.Axis) (label string) {
	if _, log := a.Scale.(plot.LogScale); log {
		label, a.Label.Text = a.Label.Text, ""
	}
	return label
}

// stacked draws plots under each other with their x axes aligned.
func stacked(w vg.Length, heights []vg.Length, plots ...*plot.Plot) picture {
	var total vg.Length
	for _, h := range heights {
		total += h
	}
	return picture{w: w, h: total, draw: func(c draw.Canvas) {
		c = draw.Crop(c, 0, -rightMargin, 0, 0)
		var left vg.Length
		for _, p := range plots {
			left = max(left, p.DataCanvas(c).Min.X-c.Min.X)
		}
		top := c.Max.Y
		for i, p := range plots {
			part := c
			part.Max.Y, part.Min.Y = top-4, top-heights[i]
			top -= heights[i]
			// shift each plot so that all data areas begin at the same x
			part.Min.X += left - (p.DataCanvas(part).Min.X - part.Min.X)
			p.Draw(part)
		}
	}}
}

var svgHead = regexp.MustCompile(`(?s)^.*?<svg [^>]*>`)

func (pic picture) svg() string {
	c := vgsvg.NewWith(vgsvg.UseWH(pic.w, pic.h))
	pic.draw(draw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		panic(fmt.Sprintf("report: write an SVG to memory: %v", err))
	}
	return b.String()
}

// inline returns the SVG for the page: themed, scalable, with title and description.
func (pic picture) inline(title, desc string) template.HTML {
	head := fmt.Sprintf(`<svg viewBox="0 0 %.4g %.4g" role="img" xmlns="http://www.w3.org/2000/svg" aria-label="%s"><title>%s</title><desc>%s</desc>`,
		pic.w.Points(), pic.h.Points(), esc(title), esc(title), esc(desc))
	return template.HTML(themed.Replace(svgHead.ReplaceAllLiteralString(pic.svg(), head)))
}

func esc(s string) string { return template.HTMLEscapeString(s) }

// file returns the SVG for a file of its own.
func (pic picture) file() []byte { return []byte(plain.Replace(pic.svg())) }

// png returns the chart as an image on white.
func (pic picture) png() ([]byte, error) {
	c := vgimg.NewWith(vgimg.UseWH(pic.w, pic.h), vgimg.UseDPI(144), vgimg.UseBackgroundColor(color.White))
	pic.draw(draw.New(tinted{c}))
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(&b)
	return b.Bytes(), err
}

// tinted paints in the fixed colours that files outside the page have.
type tinted struct{ *vgimg.Canvas }

func (t tinted) SetColor(c color.Color) {
	if own, ok := c.(color.RGBA); ok {
		if fixed, ok := fixedColors[own]; ok {
			c = fixed
		}
	}
	t.Canvas.SetColor(c)
}

// makeRoom widens a logarithmic axis that is to be drawn this wide, so that so much of it stays free left and right of what it spans.
func makeRoom(a *plot.Axis, left, right, width vg.Length) {
	span := math.Log(a.Max/a.Min) / (1 - math.Min(0.9, float64((left+right)/width)))
	a.Min, a.Max = a.Min/math.Exp(span*float64(left/width)), a.Max*math.Exp(span*float64(right/width))
}

// widest is the room that the longest of some words takes.
func widest(size float64, texts []string) (w vg.Length) {
	for _, x := range texts {
		w = max(w, words(size, inkColor, draw.XLeft).Width(x))
	}
	return w
}

// linearTicks are four to eight round values.
type linearTicks struct{}

func (linearTicks) Ticks(lo, hi float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/4)))
	for _, m := range []float64{1, 2, 5, 10} {
		if (hi-lo)/(step*m) <= 7 {
			step *= m
			break
		}
	}
	var out []plot.Tick
	for v := math.Ceil(lo/step) * step; v <= hi+step*1e-9; v += step {
		out = append(out, plot.Tick{Value: v, Label: compact(math.Round(v/step) * step)})
	}
	return out
}

// logTicks are 1, 10, 100 … with unlabelled minor ticks at 2 to 9. Where the
// range spans less than two decades, 2 and 5 are labelled too.
type logTicks struct{}

func (logTicks) Ticks(lo, hi float64) []plot.Tick {
	if lo <= 0 || hi <= lo {
		panic(fmt.Sprintf("report: log axis from %g to %g", lo, hi))
	}
	narrow := math.Log10(hi/lo) < 2
	var out []plot.Tick
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for m := 1.0; m < 10; m++ {
			v := m * math.Pow(10, e)
			if v < lo*0.999 || v > hi*1.001 {
				continue
			}
			t := plot.Tick{Value: v}
			if m == 1 || narrow && (m == 2 || m == 5) {
				t.Label = compact(v)
			}
			out = append(out, t)
		}
	}
	return out
}

// setLog makes an axis logarithmic over [lo, hi] widened to whole steps.
func setLog(a *plot.Axis, lo, hi float64) {
	if lo <= 0 || math.IsInf(lo, 0) {
		lo = 0.1
	}
	if hi <= lo {
		hi = lo * 10
	}
	a.Min, a.Max = math.Pow(10, math.Floor(math.Log10(lo)*2)/2), math.Pow(10, math.Ceil(math.Log10(hi)*2)/2)
	a.Scale, a.Tick.Marker = plot.LogScale{}, logTicks{}
}

// compact prints an axis value: 0.25, 1, 50, 1,000.
func compact(v float64) string {
	if v >= 1000 {
		return thousands(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
