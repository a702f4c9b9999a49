package rpc

import (
	"slices"
	"time"
)

// pongWindow is the number of recent round trips that the threshold looks at.
const pongWindow = 128

// roundTrips is a window of recent ping times.
type roundTrips struct {
	recent [pongWindow]time.Duration
	n, at  int
	since  int // added since p99 was computed
	cached time.Duration
}

func (r *roundTrips) add(d time.Duration) {
	r.recent[r.at] = d
	r.at = (r.at + 1) % pongWindow
	r.n = min(r.n+1, pongWindow)
	r.since++
}

// p99 is recomputed every 16 round trips: it moves slowly, and so may we.
func (r *roundTrips) p99() time.Duration {
	if r.n == 0 {
		return 0
	}
	if r.cached == 0 || r.since >= 16 {
		sorted := slices.Clone(r.recent[:r.n])
		slices.Sort(sorted)
		r.cached = sorted[(r.n*99-1)/100]
		r.since = 0
	}
	return r.cached
}

// deadThreshold is the silence after which a peer counts as dead: a node whose
// answers are slow under load is given five times its slow answers.
func deadThreshold(floor, p99 time.Duration) time.Duration { return max(floor, 5*p99) }

// silence decides what a silent peer is. A node that did not come to send
// pings itself, because it was stopped or starved, must not blame others: it
// gives them another threshold.
func silence(sincePong, sinceOwnTick, threshold, pingEvery time.Duration) (dead bool, again time.Duration) {
	if sincePong < threshold {
		return false, threshold - sincePong
	}
	if sinceOwnTick > 2*pingEvery {
		return false, threshold
	}
	return true, 0
}
