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

// farAway stands for a size that is never reached, where a finite one is needed.
const farAway = 1e9

// HalfRatio is the size at which one side reaches half of its rate without transactions, to that of the other: both fitted over all blocks
// that measured both, with a percentile bootstrap that draws the same blocks for both. Below six blocks the bounds are the range of the
// single blocks'. A side that never gets there is as good as infinitely far from it, and counts. It says no where neither does, and where no
// block measured enough of both.
func HalfRatio(a, b map[int]CostBlock, seed int64) (Interval, bool) {
	var both []int
	for _, block := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[block]; ok && a[block].Plain > 0 && b[block].Plain > 0 {
			both = append(both, block)
		}
	}
	center, ok := halfOf(a, b, both)
	if !ok {
		return Interval{}, false
	}
	out := Interval{Center: center, Lo: center, Hi: center, N: len(both)}
	var draws []float64
	if len(both) < leastForInterval {
		for _, block := range both {
			if v, ok := halfOf(a, b, []int{block}); ok {
				draws = append(draws, v)
			}
		}
		out.Lo, out.Hi = min(center, slices.Min(append(draws, center))), max(center, slices.Max(append(draws, center)))
		return out, true
	}
	const wanted = 2000
	rng := rand.New(rand.NewPCG(uint64(seed), 3))
	drawn := make([]int, len(both))
	for tries := 0; len(draws) < wanted && tries < 2*wanted; tries++ {
		for i := range drawn {
			drawn[i] = both[rng.IntN(len(both))]
		}
		if v, ok := halfOf(a, b, drawn); ok {
			draws = append(draws, v)
		}
	}
	slices.Sort(draws)
	tail := int((1 - confidence) / 2 * float64(len(draws)))
	if len(draws) > 0 {
		out.Lo, out.Hi, out.Confidence = min(center, draws[tail]), max(center, draws[len(draws)-1-tail]), confidence
	}
	return out, true
}

// halfOf is the ratio over some blocks.
func halfOf(a, b map[int]CostBlock, blocks []int) (float64, bool) {
	half := func(of map[int]CostBlock) (float64, bool) {
		var some []CostBlock
		for _, block := range blocks {
			some = append(some, of[block])
		}
		f, ok := fit(some)
		return min(f.half, farAway), ok && f.half > 0
	}
	x, okx := half(a)
	y, oky := half(b)
	return x / y, okx && oky && min(x, y) < farAway
}
