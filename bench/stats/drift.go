package stats

import (
	"math"

	"golang.org/x/perf/benchmath"
)

// alpha is the level at which a drift is believed.
const alpha = 0.05

// A Drift is the answer of DriftTest.
type Drift struct {
	Change   float64 `json:"change"` // relative change from the first to the second half
	P        float64 `json:"p"`
	Drifting bool    `json:"drifting"`
}

// DriftTest asks whether the second half of a series of intervals differs from the first by more than limit (0.05 = 5 %): by
// the medians and, against chance, by Mann and Whitney's U test. A series below eight intervals is too short to tell.
func DriftTest(series []float64, limit float64) Drift {
	half := len(series) / 2
	if half < 4 {
		return Drift{P: 1}
	}
	first, second := series[:half], series[len(series)-half:]
	a, b := median(first), median(second)
	d := Drift{P: 1}
	if a != 0 {
		d.Change = b/a - 1
	}
	d.P = benchmath.AssumeNothing.Compare(sample(first), sample(second)).P
	d.Drifting = math.Abs(d.Change) > limit && d.P < alpha
	return d
}

func sample(v []float64) *benchmath.Sample {
	return benchmath.NewSample(append([]float64(nil), v...), &benchmath.DefaultThresholds)
}
