package report

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"sort"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"gopherlog/bench/hdr"
	"gopherlog/bench/result"
)

// metricWords say what a metric measures.
var metricWords = map[string]string{
	ack:      "Until the producer has its acknowledgement.",
	commit:   "From the end of a transaction being due until the producer knows it.",
	visible:  "Until a reader of the guarantee's isolation has the record.",
	endToEnd: "From the input's send being due until a reader has what a worker made of it.",
}

// metricNames are what stands under a chart and at its axis.
var metricNames = map[string]string{ack: "acknowledged", commit: "committed", visible: "visible", endToEnd: "through the pipeline"}

// measuredIn lists the metrics that any trial of a run measured.
func measuredIn(r *result.Run) (out []string) {
	for _, m := range []string{ack, commit, visible, endToEnd} {
		for _, t := range r.Results.Trials {
			if t.Latency[m][steady].Count > 0 {
				out = append(out, m)
				break
			}
		}
	}
	return out
}

// nines maps a percentile to its place on the axis: 50 → 0.3, 99 → 2, 99.9 → 3.
func nines(p float64) float64 { return -math.Log10(1 - p/100) }

// ninesTicks labels the axis where readers look.
type ninesTicks struct{}

func (ninesTicks) Ticks(lo, hi float64) []plot.Tick {
	var out []plot.Tick
	for _, p := range []float64{50, 90, 99, 99.9, 99.99, 99.999} {
		if x := nines(p); x >= lo-1e-9 && x <= hi+1e-9 {
			out = append(out, plot.Tick{Value: x, Label: fmt.Sprint(p)})
		}
	}
	return out
}

// curve is one trial's or cell's latency at the percentiles of the grid.
type curve map[float64]float64 // percentile → ms

// percentiles is the grid on which trials are compared, dense enough for a
// smooth line.
var percentiles = func() (out []float64) {
	for x := nines(50); x <= 5.0001; x += 0.1 {
		out = append(out, 100*(1-math.Pow(10, -x)))
	}
	return out
}()

// readCurve merges the steady-phase histograms of one metric of one trial.
func readCurve(r *result.Run, t result.Trial, metric string) (*hdr.Histogram, error) {
	f, err := os.Open(r.Latency(t.ID + ".hlog"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	tagged, _, err := hdr.ReadLog(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	s, ok := tagged[metric]
	if !ok {
		return nil, fmt.Errorf("%s: no series %q: %w", f.Name(), metric, fs.ErrNotExist)
	}
	from, to := steadySpan(t)
	return s.Range(from, to), nil
}

func steadySpan(t result.Trial) (from, to time.Duration) {
	for _, p := range t.Phases {
		if p.Phase == steady {
			return time.Duration(p.Start * float64(time.Second)), time.Duration(p.End * float64(time.Second))
		}
	}
	return 0, 0
}

func onGrid(h *hdr.Histogram) curve {
	c := curve{}
	for _, p := range percentiles {
		if d, ok := h.Percentile(p); ok && d > 0 {
			c[p] = float64(d) / float64(time.Millisecond)
		}
	}
	return c
}

// spectrum is chart C1: latency by percentile, one line a guarantee from the
// merged trials of one offered load, with the band between lowest and highest
// trial.
func spectrum(r *result.Run, guarantees []string, rate float64, metric string) (*Chart, error) {
	p := newPlot("percentile", "ms until "+metricNames[metric])
	p.X.Tick.Marker = ninesTicks{}
	p.X.Min, p.X.Max = nines(50), nines(50)
	p.Add(grid{})
	data := Table{Head: []string{"guarantee", "percentile", "ms", "lowest_ms", "highest_ms"}}
	lo, hi := math.Inf(1), 0.0
	for _, g := range guarantees {
		merged, low, high, err := spectrumOf(r, g, rate, metric)
		if err != nil {
			return nil, err
		}
		line, lower, upper := points(merged), points(low), points(high)
		if len(line) < 2 {
			continue
		}
		if len(lower) == len(upper) && len(lower) > 1 {
			p.Add(band(lower, upper, look(g)))
		}
		p.Add(lineOf(line, look(g), 1.8, true))
		p.X.Max = math.Max(p.X.Max, line[len(line)-1].X)
		for _, q := range sortedKeys(merged) {
			lo, hi = math.Min(lo, merged[q]), math.Max(hi, math.Max(merged[q], high[q]))
			data.Rows = append(data.Rows, []string{g, fmt.Sprintf("%.4f", q), f3(merged[q]), f3(low[q]), f3(high[q])})
		}
	}
	if len(data.Rows) == 0 {
		return nil, nil
	}
	setLog(&p.Y, lo, hi)
	return newChart("latency-spectrum-"+metric, "Latency by percentile",
		fmt.Sprintf("Until %s, by percentile at %s records a second offered; band: lowest to highest trial.", metricNames[metric], compact(rate))+together(r, guarantees, rate),
		metricWords[metric]+" Every record counts from the moment it was due to be sent, so waiting for a slow system is included. A line ends where fewer than ten records lie beyond it.",
		single(p, halfWidth, plotHeight), data), nil
}

// together names the cells that a line of the spectrum merges because they differ in more than the load.
func together(r *result.Run, guarantees []string, rate float64) (out string) {
	for _, g := range guarantees {
		var variants []string
		for _, c := range cells(r, g) {
			if c.Rate == rate && len(trials(r, c.ID)) > 0 {
				c.Sweep = maps.Clone(c.Sweep)
				delete(c.Sweep, "load.rate")
				variants = append(variants, variantOf(c))
			}
		}
		if len(variants) > 1 {
			out += fmt.Sprintf(" The line of %s is of these together: %s.", look(g).Label, strings.Join(variants, "; "))
		}
	}
	return out
}

// spectrumOf returns the merged curve of a guarantee's trials at one rate, and
// the lowest and highest trial at each percentile.
func spectrumOf(r *result.Run, g string, rate float64, metric string) (merged, low, high curve, err error) {
	low, high = curve{}, curve{}
	var all []*hdr.Histogram
	for _, c := range cells(r, g) {
		if c.Rate != rate {
			continue
		}
		for _, t := range trials(r, c.ID) {
			h, err := readCurve(r, t, metric)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, nil, nil, err
			}
			all = append(all, h)
			for q, v := range onGrid(h) {
				if old, ok := low[q]; !ok || v < old {
					low[q] = v
				}
				high[q] = math.Max(high[q], v)
			}
		}
	}
	return onGrid(hdr.MergeHistograms(all...)), low, high, nil
}

func points(c curve) plotter.XYs {
	var out plotter.XYs
	for _, q := range sortedKeys(c) {
		out = append(out, plotter.XY{X: nines(q), Y: c[q]})
	}
	return out
}

func sortedKeys(c curve) []float64 {
	var out []float64
	for q := range c {
		out = append(out, q)
	}
	sort.Float64s(out)
	return out
}
