package hdr

import (
	"math"
	"time"

	hdrhistogram "github.com/HdrHistogram/hdrhistogram-go"
)

// beyondEnough is the number of samples that must lie beyond a percentile for it to be told.
const beyondEnough = 10

// A Histogram is a merged distribution of latencies. It does not change after it was made.
type Histogram struct{ h *hdrhistogram.PackedHistogram }

// Count is the number of samples.
func (h *Histogram) Count() int64 { return h.h.TotalCount() }

// Max is the largest sample, to three digits.
func (h *Histogram) Max() time.Duration { return time.Duration(h.h.Max()) }

// Min is the smallest sample, to three digits.
func (h *Histogram) Min() time.Duration {
	if h.h.TotalCount() == 0 {
		return 0
	}
	return time.Duration(h.h.Min())
}

// Mean is the arithmetic mean, for sums and plausibility only.
func (h *Histogram) Mean() time.Duration { return time.Duration(h.h.Mean()) }

// Percentile answers p in (0, 100]; ok is false where fewer than ten samples lie beyond it, and then the value must not be printed.
// p = 100 is the maximum and needs one sample.
func (h *Histogram) Percentile(p float64) (d time.Duration, ok bool) {
	return time.Duration(h.h.ValueAtPercentile(p)), h.Count() >= Enough(p)
}

// Enough is the number of samples from which Percentile answers p: 20 for p50, 1,000 for p99, 10,000 for p99.9.
func Enough(p float64) int64 {
	if p >= 100 {
		return 1
	}
	return int64(math.Ceil(beyondEnough/(1-p/100) - 1e-6))
}

// A Point is one step of a latency spectrum.
type Point struct {
	Percentile float64
	Value      time.Duration
	Count      int64 // samples at or below
}

const ticksPerHalfDistance = 5

// Points are (percentile, value) pairs for a spectrum chart: five to each halving of the distance to 100, cut where fewer than ten
// samples lie beyond.
func (h *Histogram) Points() []Point {
	n := h.Count()
	var ps []float64
	for half := 1.0; ; half /= 2 { // distance to 1 at the start of this stretch
		for tick := range ticksPerHalfDistance {
			p := 100 * (1 - half*(1-float64(tick)/(2*ticksPerHalfDistance)))
			if n < Enough(p) {
				return h.points(ps)
			}
			ps = append(ps, p)
		}
	}
}

func (h *Histogram) points(ps []float64) []Point {
	points := make([]Point, len(ps))
	for i, v := range h.h.ValueAtPercentilesSlice(ps) {
		points[i] = Point{Percentile: ps[i], Value: time.Duration(v), Count: int64(math.Round(ps[i] / 100 * float64(h.Count())))}
	}
	return points
}

// MergeHistograms adds up histograms; nil ones count as empty.
func MergeHistograms(histograms ...*Histogram) *Histogram {
	sum := newPacked()
	for _, h := range histograms {
		if h != nil {
			mustMerge(sum, h.h)
		}
	}
	return &Histogram{sum}
}

// Above counts the samples greater than d, to three digits.
func (h *Histogram) Above(d time.Duration) (n int64) {
	for value, count := range h.h.ForEachBucket {
		if time.Duration(value) > d {
			n += count
		}
	}
	return n
}
