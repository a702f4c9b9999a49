package report

import (
	"fmt"
	"math"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"gopherlog/bench/result"
)

// achievedShare is the share of the offered load below which a point is drawn
// hollow: the system did not keep up, so its latency is mostly queueing.
const achievedShare = 0.99

// loadCurve is chart C2: latency against offered load, p50 solid and p99 dashed.
func loadCurve(r *result.Run, guarantees []string, metric string) *Chart {
	p := newPlot("offered load, thousand records a second", "ms until "+metricNames[metric])
	p.Add(grid{})
	data := Table{Head: []string{"guarantee", "offered_per_s", "achieved_per_s", "p50_ms", "p50_lo", "p50_hi", "p99_ms", "p99_lo", "p99_hi", "trials"}}
	lo, hi := math.Inf(1), 0.0
	for _, g := range guarantees {
		var med, tail, kept, missed plotter.XYs
		for _, c := range cells(r, g) {
			ts := trials(r, c.ID)
			a, okA := summary(ts, latency(metric, steady, p50))
			b, okB := summary(ts, latency(metric, steady, p99))
			got, _ := summary(ts, throughput)
			if !okA {
				continue
			}
			dots := &kept
			if got.Center < achievedShare*c.Rate {
				dots = &missed
			}
			middle := plotter.XY{X: c.Rate / 1000, Y: a.Center}
			med, *dots = append(med, middle), append(*dots, middle)
			lo, hi = math.Min(lo, a.Lo), math.Max(hi, a.Hi)
			row := []string{g, f3(c.Rate), f3(got.Center), f3(a.Center), f3(a.Lo), f3(a.Hi), "too few", "", "", fmt.Sprint(len(ts))}
			if okB {
				slow := plotter.XY{X: c.Rate / 1000, Y: b.Center}
				tail, *dots = append(tail, slow), append(*dots, slow)
				hi = math.Max(hi, b.Hi)
				row[6], row[7], row[8] = f3(b.Center), f3(b.Lo), f3(b.Hi)
			}
			data.Rows = append(data.Rows, row)
		}
		if len(med) == 0 {
			continue
		}
		s := look(g)
		dashed := s
		s.Dashes, dashed.Dashes = nil, []vg.Length{4, 3}
		p.Add(lineOf(med, s, 1.6, true))
		if len(tail) > 0 {
			p.Add(lineOf(tail, dashed, 1.6, true))
		}
		if len(kept) > 0 {
			p.Add(dotsOf(kept, s, false))
		}
		if len(missed) > 0 {
			p.Add(dotsOf(missed, s, true))
		}
	}
	if len(data.Rows) == 0 {
		return nil
	}
	p.X.Min = 0
	setLog(&p.Y, lo, hi)
	return newChart("latency-load-"+metric, "Latency against offered load",
		fmt.Sprintf("Until %s, against offered load: p50 solid, p99 dashed; hollow where less than 99 %% was achieved.", metricNames[metric]),
		"Each point is the median over the trials at that load; the CSV holds the interval. No p99 stands where fewer than ten samples lie beyond it. Only open-loop trials are here: their send times never wait for the system.",
		single(p, halfWidth, plotHeight), data)
}
