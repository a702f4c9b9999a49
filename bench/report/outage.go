package report

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"gopherlog/bench/check"
	"gopherlog/bench/result"
)

// gapRow holds every trial's gap for one guarantee under one kind of fault.
type gapRow struct {
	name, guarantee string
	load, prober    []float64
}

// label is what stands at the left of the row.
func (r gapRow) label() string { return r.name + " · " + look(r.guarantee).Label }

// rowGap is between the names of rows and their marks.
const rowGap = 14 * vg.Length(1)

// gaps collects the rows over all runs, sorted by fault, then by guarantee.
func (s *set) gaps() []gapRow {
	byName := map[string]*gapRow{}
	var names []string
	for _, r := range s.runs {
		for _, c := range r.Manifest.Cells {
			for _, t := range recorded(r, c.ID) {
				for i, e := range t.Faults {
					load, prober := gapOf(t, i)
					if !e.Proved() || load < 0 && prober < 0 {
						continue
					}
					name := struck(e)
					key := name + "\x00" + fmt.Sprint(rank(c.Guarantee)) + c.Guarantee
					row := byName[key]
					if row == nil {
						row = &gapRow{name: name, guarantee: c.Guarantee}
						byName[key] = row
						names = append(names, key)
					}
					if load >= 0 {
						row.load = append(row.load, load)
					}
					if prober >= 0 {
						row.prober = append(row.prober, prober)
					}
				}
			}
		}
	}
	sort.Strings(names)
	var out []gapRow
	for _, n := range names {
		out = append(out, *byName[n])
	}
	return out
}

// gapOf is the worst gap under a fault as far as the trial can tell: one that is
// set aside has no sound gap of the load client, one that could not be judged none.
func gapOf(t result.Trial, faultIndex int) (load, prober float64) {
	load, prober = worst(t, faultIndex)
	if len(t.Invalid) > 0 {
		load = -1
		if t.Check.Status == check.Inconclusive {
			prober = -1
		}
	}
	return load, prober
}

func rank(guarantee string) int {
	for i, g := range guaranteeOrder {
		if g == guarantee {
			return i
		}
	}
	return len(guaranteeOrder)
}

// unavailability is chart C7: every trial's gap, with the median.
func (s *set) unavailability() *Chart {
	rows := s.gaps()
	if len(rows) == 0 {
		return nil
	}
	data := Table{Head: []string{"fault", "guarantee", "seen_by", "gap_s"}}
	lo, hi := math.Inf(1), 0.0
	for _, r := range rows {
		for _, side := range []struct {
			who string
			v   []float64
		}{{"load client", r.load}, {"prober", r.prober}} {
			for _, g := range side.v {
				lo, hi = math.Min(lo, math.Max(g, 0.001)), math.Max(hi, g)
				data.Rows = append(data.Rows, []string{r.name, r.guarantee, side.who, f3(g)})
			}
		}
	}
	p := newPlot("seconds without an acknowledgement on a partition that the fault hit", "")
	p.HideY()
	p.Y.Min, p.Y.Max = -0.5, float64(len(rows))-0.5
	setLog(&p.X, lo, hi)
	p.X.Tick.Marker = within{logTicks{}, lo * 0.9}
	var names []string
	for _, r := range rows {
		names = append(names, r.label())
	}
	makeRoom(&p.X, widest(9.5, names)+rowGap, 0, fullWidth-rightMargin)
	p.Add(gapMarks(rows))
	return newChart("unavailability", "How long was a partition without acknowledgements?",
		"One mark a trial: filled, the load client (where its trial is sound); hollow, a prober with connections of its own to every node. The bar is the median.",
		"The load client waits for its own back-off and metadata refresh; the prober tries every node each 5 ms, so it shows the system's part of the gap. A gap of less than 1 ms stands at 0.001.",
		single(p, fullWidth, vg.Length(26*len(rows)+62)), data)
}

// within hides the ticks below lo, where the names stand.
type within struct {
	plot.Ticker
	lo float64
}

func (w within) Ticks(lo, hi float64) []plot.Tick {
	return w.Ticker.Ticks(math.Max(lo, w.lo), hi)
}

type gapMarks []gapRow

func (rows gapMarks) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for i, r := range rows {
		y := ty(float64(len(rows) - 1 - i))
		s := look(r.guarantee)
		c.FillText(words(9.5, inkColor, draw.XLeft), vg.Point{X: c.Min.X, Y: y}, r.label())
		strip(c, tx, y+3, r.load, draw.GlyphStyle{Color: s.Color, Radius: vg.Points(3), Shape: draw.CircleGlyph{}})
		strip(c, tx, y-5, r.prober, draw.GlyphStyle{Color: s.Color, Radius: vg.Points(3), Shape: draw.RingGlyph{}})
	}
}

// strip draws one mark a trial, and a bar at the median.
func strip(c draw.Canvas, tx func(float64) vg.Length, y vg.Length, v []float64, g draw.GlyphStyle) {
	if len(v) == 0 {
		return
	}
	sorted := append([]float64(nil), v...)
	sort.Float64s(sorted)
	for _, x := range sorted {
		c.DrawGlyph(g, vg.Point{X: tx(math.Max(x, 0.001)), Y: y})
	}
	m := tx(math.Max((sorted[(len(sorted)-1)/2]+sorted[len(sorted)/2])/2, 0.001))
	c.StrokeLine2(draw.LineStyle{Color: g.Color, Width: vg.Points(2)}, m, y-5, m, y+5)
}

// ledgerRow and ledger are table C9: what became of the records, by guarantee
// and by what was done to the system.
type ledgerCell struct {
	Mark string // ✓ ≈ ✗ ?
	Text string
}

type ledger struct {
	Columns []string
	Rows    []ledgerRow
}

// Note says what the bounds of the ledger are of.
func (l ledger) Note() string {
	note := "Bounds are of 95 %, of records as if each were lost or doubled for itself"
	if !slices.ContainsFunc(l.Columns, func(c string) bool { return c != noFault }) {
		return note + "."
	}
	return note + "; and of faults, because what one fault does it may do to many records at once: after 0 of 3 faults, up to 63 % of such faults might."
}

// table is the ledger without its colours.
func (l ledger) table() Table {
	t := Table{Head: append([]string{"guarantee"}, l.Columns...)}
	for _, r := range l.Rows {
		row := []string{r.Guarantee}
		for _, c := range r.Cells {
			row = append(row, strings.TrimSpace(c.Mark+" "+c.Text))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

type ledgerRow struct {
	Guarantee string
	Cells     []ledgerCell
}

// safety builds the ledger over all runs. A column is one combination of faults.
func (s *set) safety() ledger {
	var l ledger
	groups := map[string]map[string][]result.Trial{} // column → guarantee → trials
	absent := map[string]string{}
	for _, r := range s.runs {
		for _, c := range r.Manifest.Cells {
			if c.Absent != "" {
				absent[c.Guarantee] = c.Absent
			}
			for _, t := range recorded(r, c.ID) {
				col := faultColumn(t)
				if groups[col] == nil {
					groups[col] = map[string][]result.Trial{}
					l.Columns = append(l.Columns, col)
				}
				groups[col][c.Guarantee] = append(groups[col][c.Guarantee], t)
			}
		}
	}
	sort.SliceStable(l.Columns, func(i, j int) bool { return l.Columns[i] == noFault && l.Columns[j] != noFault })
	for _, g := range s.guarantees() {
		row := ledgerRow{Guarantee: look(g).Label}
		for _, col := range l.Columns {
			cell := judge(groups[col][g])
			if why := absent[g]; why != "" && len(groups[col][g]) == 0 {
				cell.Text = notApplicable + strings.TrimPrefix(why, notApplicable)
			}
			row.Cells = append(row.Cells, cell)
		}
		l.Rows = append(l.Rows, row)
	}
	return l
}

const (
	noFault       = "no fault"
	notApplicable = "not applicable: "
)

func faultColumn(t result.Trial) string {
	if len(t.Faults) == 0 {
		return noFault
	}
	var kinds []string
	for _, e := range t.Faults {
		kinds = append(kinds, roleOnly(e.Target)+" "+faultName(e.Kind, e.Shape))
	}
	return strings.Join(unique(kinds, len(kinds)), ", ")
}

func roleOnly(target string) string {
	r := role(target)
	if strings.HasSuffix(r, " coordinator") {
		return r
	}
	for i := range r {
		if r[i] == ' ' && r[:i] != "node" && r[:i] != "every" {
			return r[:i]
		}
	}
	return r
}
