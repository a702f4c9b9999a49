// Package stats sums up repeated trials: medians with intervals, ratios over blocks, drift, bounds on zeros, and the order of trials.
// It knows numbers and seeds; it knows nothing of messages or brokers, and never treats samples within a trial as independent.
package stats

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
	"gonum.org/v1/gonum/mathext"
)

const (
	confidence = 0.95
	// leastForInterval is the smallest number of values whose range covers the median with 95 %.
	leastForInterval = 6
)

// An Interval is an estimate and its bounds.
type Interval struct {
	Center     float64 `json:"center"`
	Lo         float64 `json:"lo"`
	Hi         float64 `json:"hi"`
	Confidence float64 `json:"confidence"` // 0: the bounds are the range of too few trials, not an interval
	N          int     `json:"n"`
}

// Summary is the median with its order-statistic interval. Below six values the bounds are the range and Confidence is 0.
// It panics on no values: the caller knows that nothing was measured.
func Summary(values []float64) Interval {
	if len(values) == 0 {
		panic("stats: summary of no values")
	}
	if len(values) < leastForInterval {
		return Interval{Center: median(values), Lo: slices.Min(values), Hi: slices.Max(values), N: len(values)}
	}
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds), confidence)
	return Interval{Center: s.Center, Lo: s.Lo, Hi: s.Hi, Confidence: s.Confidence, N: len(values)}
}

func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}

// UpperBound is the one-sided 95 % upper bound of a share when k of n were seen: exact, about 3/n for k = 0. 1 for n = 0.
// It is the bound of Clopper and Pearson: the share at which seeing so few has a probability of 5 %.
func UpperBound(k, n int64) float64 {
	switch {
	case k < 0 || k > n:
		panic(fmt.Sprintf("stats: upper bound of %d of %d", k, n))
	case k == n:
		return 1
	case k == 0:
		return -math.Expm1(math.Log(1-confidence) / float64(n))
	}
	return mathext.InvRegIncBeta(float64(k+1), float64(n-k), confidence)
}
