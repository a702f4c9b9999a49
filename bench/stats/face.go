// Package stats sums up repeated trials: medians with intervals, ratios over blocks, drift, bounds on zeros, and the order of trials.
// It knows numbers and seeds; it knows nothing of messages or brokers, and never treats samples within a trial as independent.
package stats

// An Interval is an estimate and its bounds.
type Interval struct {
	Center     float64 `json:"center"`
	Lo         float64 `json:"lo"`
	Hi         float64 `json:"hi"`
	Confidence float64 `json:"confidence"` // 0: the bounds are the range of too few trials, not an interval
	N          int     `json:"n"`
}

// Summary is the median with its order-statistic interval. Below six values the bounds are the range and Confidence is 0.
func Summary(values []float64) Interval { panic("soon") }

// A Block is one value of each side, measured next to each other in time.
type Block struct{ A, B float64 }

// Ratio is the median of A/B over blocks, with a bootstrap over blocks from the seed. Below six blocks the bounds are the range.
func Ratio(blocks []Block, seed int64) Interval { panic("soon") }

// A Drift is the answer of DriftTest.
type Drift struct {
	Change   float64 `json:"change"` // relative change from the first to the second half
	P        float64 `json:"p"`
	Drifting bool    `json:"drifting"`
}

// DriftTest asks whether the second half of a series of intervals differs from the first by more than limit (0.05 = 5 %).
func DriftTest(series []float64, limit float64) Drift { panic("soon") }

// UpperBound is the one-sided 95 % upper bound of a share when k of n were seen: exact, about 3/n for k = 0. 1 for n = 0.
func UpperBound(k, n int64) float64 { panic("soon") }

// Order lists (block, cell) pairs: each block runs every cell once, shuffled from the seed.
func Order(seed int64, cells, repeats int) []Trial { panic("soon") }

// A Trial is one place in the order of a run.
type Trial struct {
	Block int
	Cell  int
	Seed  int64 // of this trial's arrivals and keys: equal for all cells of a block
}
