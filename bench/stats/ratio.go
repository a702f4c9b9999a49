package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// resamples is how often the bootstrap draws the blocks again.
const resamples = 10_000

// A Block is one value of each side, measured next to each other in time.
type Block struct{ A, B float64 }

// Ratio is the median of A/B over blocks, with a percentile bootstrap over blocks from the seed. Below six blocks the bounds
// are the range. Values must be positive. Blocks, not messages, are drawn: messages of a trial are correlated.
func Ratio(blocks []Block, seed int64) Interval {
	if len(blocks) == 0 {
		panic("stats: ratio of no blocks")
	}
	logs := make([]float64, len(blocks))
	for i, b := range blocks {
		if b.A <= 0 || b.B <= 0 {
			panic(fmt.Sprintf("stats: ratio of %g and %g", b.A, b.B))
		}
		logs[i] = math.Log(b.A / b.B)
	}
	out := Interval{Center: math.Exp(median(logs)), N: len(blocks)}
	if len(blocks) < leastForInterval {
		out.Lo, out.Hi = math.Exp(slices.Min(logs)), math.Exp(slices.Max(logs))
		return out
	}
	rng := rand.New(rand.NewPCG(uint64(seed), 0))
	medians, draw := make([]float64, resamples), make([]float64, len(logs))
	for i := range medians {
		for j := range draw {
			draw[j] = logs[rng.IntN(len(logs))]
		}
		medians[i] = median(draw)
	}
	slices.Sort(medians)
	tail := (1 - confidence) / 2
	out.Lo, out.Hi = math.Exp(medians[int(tail*resamples)]), math.Exp(medians[int((1-tail)*resamples)-1])
	out.Confidence = confidence
	return out
}
