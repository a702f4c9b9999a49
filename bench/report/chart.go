package report

import (
	"encoding/csv"
	"fmt"
	"html/template"
	"math"
	"os"
	"strings"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"gopherlog/bench/result"
)

// Chart is one figure of the page with the data it was drawn from.
type Chart struct {
	ID      string // file name without suffix
	Title   string
	Caption string
	HowTo   string // how to read it, shown on demand
	Wide    bool
	SVG     template.HTML
	Table   Table
	pic     picture
}

// Table is a chart's data, or a table of the page.
type Table struct {
	Head []string
	Rows [][]string
}

func newChart(id, title, caption, howTo string, pic picture, data Table) *Chart {
	return &Chart{ID: id, Title: title, Caption: caption, HowTo: howTo, Wide: pic.w == fullWidth,
		SVG: pic.inline(title, caption), Table: data, pic: pic}
}

// write leaves the chart as SVG, PNG and CSV in a run directory.
func (c *Chart) write(d *result.Dir) error {
	png, err := c.pic.png()
	if err != nil {
		return fmt.Errorf("draw %s: %w", c.ID, err)
	}
	for name, b := range map[string][]byte{c.ID + ".svg": c.pic.file(), c.ID + ".png": png, c.ID + ".csv": c.Table.csv()} {
		if err := os.WriteFile(d.Charts(name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (t Table) csv() []byte {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write(t.Head)
	_ = w.WriteAll(t.Rows)
	return []byte(b.String())
}

// lineOf draws points as a line in a guarantee's look.
func lineOf(xy plotter.XYs, s series, width float64, dashed bool) *plotter.Line {
	l, err := plotter.NewLine(xy)
	if err != nil {
		panic(fmt.Sprintf("report: line of %d points: %v", len(xy), err))
	}
	l.LineStyle = draw.LineStyle{Color: s.Color, Width: vg.Points(width)}
	if dashed {
		l.Dashes = s.Dashes
	}
	return l
}

// dotsOf draws points as a guarantee's marker; hollow ones are ringed.
func dotsOf(xy plotter.XYs, s series, hollow bool) *plotter.Scatter {
	sc, err := plotter.NewScatter(xy)
	if err != nil {
		panic(fmt.Sprintf("report: markers of %d points: %v", len(xy), err))
	}
	shape := s.Shape
	if hollow {
		shape = draw.RingGlyph{}
	}
	sc.GlyphStyle = draw.GlyphStyle{Color: s.Color, Radius: vg.Points(3.2), Shape: shape}
	return sc
}

// band fills between two curves of equal x.
func band(lo, hi plotter.XYs, s series) *plotter.Polygon {
	outline := append(plotter.XYs(nil), hi...)
	for i := len(lo) - 1; i >= 0; i-- {
		outline = append(outline, lo[i])
	}
	p, err := plotter.NewPolygon(outline)
	if err != nil {
		panic(fmt.Sprintf("report: band of %d points: %v", len(outline), err))
	}
	p.Color = fade(s.Color, 0.16)
	p.LineStyle.Width = 0
	return p
}

// f3 prints three decimals, or three digits of what these would all but round away.
func f3(v float64) string {
	if v != 0 && math.Abs(v) < 0.01 {
		return fmt.Sprintf("%.3g", v)
	}
	return fmt.Sprintf("%.3f", v)
}
