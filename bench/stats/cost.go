package stats

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// A Cost is what a transaction of N records took, in seconds.
type Cost struct{ N, Seconds float64 }

// A CostBlock is what one block measured next to each other in time: transactions of several sizes, and what a record took without any.
type CostBlock struct {
	Costs []Cost
	Plain float64 // seconds a record; 0: not measured in this block
}

// A Line is T(n) = A + B·n, fitted to what transactions of n records took.
type Line struct {
	A    Interval // seconds a transaction, whatever its size
	B    Interval // seconds a record
	Half Interval // the size at which records flow half as fast as without transactions; where that is not known, half as fast as in very large ones
	Off  float64  // the largest deviation of a size's median from the line, as a share of it
	Over bool     // Half's base is the measured rate without transactions
}

// FitCost fits a line by least squares of relative deviations to the median cost of each size, with a percentile bootstrap over blocks
// from the seed. Below six blocks the bounds are the range of the single blocks' fits. It says no where fewer than two sizes were
// measured, and where records never flow half as fast: then Half has no meaning.
func FitCost(blocks []CostBlock, seed int64) (Line, bool) {
	all, ok := fit(blocks)
	if !ok {
		return Line{}, false
	}
	var draws []fitted
	if len(blocks) < leastForInterval {
		for _, b := range blocks {
			if f, ok := fit([]CostBlock{b}); ok {
				draws = append(draws, f)
			}
		}
	} else {
		draws = bootstrap(blocks, seed)
	}
	line := Line{Off: all.off, Over: all.over}
	for _, x := range []struct {
		to *Interval
		of func(fitted) float64
	}{{&line.A, func(f fitted) float64 { return f.a }}, {&line.B, func(f fitted) float64 { return f.b }}, {&line.Half, func(f fitted) float64 { return f.half }}} {
		*x.to = bounds(all, draws, x.of, len(blocks))
	}
	return line, true
}

// bootstrap fits the blocks drawn again and again. A draw that cannot be fitted is drawn anew, within reason.
func bootstrap(blocks []CostBlock, seed int64) []fitted {
	const draws = 2000
	rng := rand.New(rand.NewPCG(uint64(seed), 2))
	out, drawn := make([]fitted, 0, draws), make([]CostBlock, len(blocks))
	for tries := 0; len(out) < draws && tries < 2*draws; tries++ {
		for i := range drawn {
			drawn[i] = blocks[rng.IntN(len(blocks))]
		}
		if f, ok := fit(drawn); ok {
			out = append(out, f)
		}
	}
	return out
}

func bounds(all fitted, draws []fitted, of func(fitted) float64, blocks int) Interval {
	iv := Interval{Center: of(all), Lo: of(all), Hi: of(all), N: blocks}
	if len(draws) == 0 {
		return iv
	}
	v := make([]float64, len(draws))
	for i, f := range draws {
		v[i] = of(f)
	}
	slices.Sort(v)
	if blocks < leastForInterval {
		iv.Lo, iv.Hi = min(iv.Lo, v[0]), max(iv.Hi, v[len(v)-1])
		return iv
	}
	tail := (1 - confidence) / 2 * float64(len(v))
	iv.Lo, iv.Hi, iv.Confidence = min(iv.Center, v[int(tail)]), max(iv.Center, v[len(v)-1-int(tail)]), confidence
	return iv
}

// fitted is one fit.
type fitted struct {
	a, b, half, off float64
	over            bool
}

func fit(blocks []CostBlock) (f fitted, ok bool) {
	bySize := map[float64][]float64{}
	var plain []float64
	for _, b := range blocks {
		for _, c := range b.Costs {
			if c.N <= 0 || c.Seconds <= 0 {
				panic(fmt.Sprintf("stats: a transaction of %g records took %g s", c.N, c.Seconds))
			}
			bySize[c.N] = append(bySize[c.N], c.Seconds)
		}
		if b.Plain > 0 {
			plain = append(plain, b.Plain)
		}
	}
	if len(bySize) < 2 {
		return f, false
	}
	// least squares of (a + b·n)/t - 1
	var xx, xy, yy, x, y float64
	sizes := slices.Sorted(maps.Keys(bySize))
	took := make([]float64, len(sizes))
	for i, n := range sizes {
		took[i] = median(bySize[n])
		u, v := 1/took[i], n/took[i]
		xx, xy, yy, x, y = xx+u*u, xy+u*v, yy+v*v, x+u, y+v
	}
	det := xx*yy - xy*xy
	f.a, f.b = (x*yy-y*xy)/det, (y*xx-x*xy)/det
	switch { // a cost is not negative
	case f.a < 0:
		f.a, f.b = 0, y/yy
	case f.b < 0:
		f.a, f.b = x/xx, 0
	}
	for i, n := range sizes {
		f.off = math.Max(f.off, math.Abs(f.a+f.b*n-took[i])/took[i])
	}
	if f.over = len(plain) > 0; f.over {
		// plain·n = (a + b·n)/2
		f.half = f.a / (2*median(plain) - f.b)
	} else {
		f.half = f.a / f.b
	}
	if f.half < 0 || math.IsInf(f.half, 0) || math.IsNaN(f.half) {
		f.half = math.Inf(1)
	}
	return f, true
}
