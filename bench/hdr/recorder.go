// Package hdr records latencies into one histogram per interval, merges them over workers, and writes .hlog and .hgrm files.
// It knows durations and intervals; it knows nothing of phases, messages or charts, and never clamps or drops a value silently.
package hdr

import (
	"fmt"
	"sync"
	"time"

	hdrhistogram "github.com/HdrHistogram/hdrhistogram-go"
)

const (
	digits    = 3
	trackable = 24 * time.Hour   // what a sparse histogram holds costs nothing until it is used
	hotMax    = 60 * time.Second // range of the dense histogram of the current interval
	// maxIntervals bounds the memory that a wrong timestamp can claim: 12 days of seconds.
	maxIntervals = 1 << 20
)

// A Recorder takes the latencies of one worker. Recording is cheap where samples arrive roughly in the order of their intervals;
// late ones find their interval too. Safe for concurrent use, though meant for one recording goroutine.
type Recorder struct {
	interval time.Duration

	mu     sync.Mutex // guards the rest, never held across more than a fold of one interval
	hot    *hdrhistogram.Histogram
	hotAt  int // interval that hot stands for; -1 none
	sparse []*hdrhistogram.PackedHistogram
	series Series // only its counters
}

// NewRecorder records into intervals of the given length.
func NewRecorder(interval time.Duration) *Recorder {
	if interval <= 0 {
		panic(fmt.Sprintf("hdr: interval %v", interval))
	}
	return &Recorder{interval: interval, hot: hdrhistogram.New(1, int64(hotMax), digits), hotAt: -1}
}

func newPacked() *hdrhistogram.PackedHistogram {
	return hdrhistogram.NewPacked(1, int64(trackable), digits)
}

// Record adds one latency to the interval that holds the moment at (since the run's zero; earlier moments count into the first).
// A negative latency is recorded as zero and one beyond a day as a day; both are counted apart.
func (r *Recorder) Record(at, latency time.Duration) {
	i := int(max(at, 0) / r.interval)
	r.mu.Lock()
	defer r.mu.Unlock()
	if i >= maxIntervals {
		panic(fmt.Sprintf("hdr: moment %v is beyond interval %d of %v", at, maxIntervals, r.interval))
	}
	switch {
	case latency < 0:
		latency, r.series.negative = 0, r.series.negative+1
	case latency > trackable:
		latency, r.series.beyond = trackable, r.series.beyond+1
	}
	if i > r.hotAt {
		r.fold()
		r.hotAt = i
	}
	if i == r.hotAt && latency <= hotMax {
		mustRecord(r.hot.RecordValue(int64(latency)))
		return
	}
	mustRecord(r.slot(i).RecordValue(int64(latency)))
}

// mustRecord panics where a value within the range was refused: a lost sample would be a lie in every chart.
func mustRecord(err error) {
	if err != nil {
		panic(fmt.Sprintf("hdr: %v", err))
	}
}

func (r *Recorder) slot(i int) *hdrhistogram.PackedHistogram {
	for len(r.sparse) <= i {
		r.sparse = append(r.sparse, nil)
	}
	if r.sparse[i] == nil {
		r.sparse[i] = newPacked()
	}
	return r.sparse[i]
}

// fold moves the dense histogram's counts to their interval.
func (r *Recorder) fold() {
	if r.hotAt < 0 || r.hot.TotalCount() == 0 {
		return
	}
	if n := r.slot(r.hotAt).MergeFrom(r.hot); n != 0 {
		panic(fmt.Sprintf("hdr: %d samples of interval %d did not fit", n, r.hotAt))
	}
	r.hot.Reset()
}

// mergeInto adds what was recorded so far to s.
func (r *Recorder) mergeInto(s *Series) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fold()
	for i, h := range r.sparse {
		if h != nil {
			s.add(i, h)
		}
	}
	s.negative += r.series.negative
	s.beyond += r.series.beyond
}

// mergeInterval adds what was recorded so far for interval i to h.
func (r *Recorder) mergeInterval(i int, h *hdrhistogram.PackedHistogram) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i == r.hotAt {
		r.fold()
	}
	if i >= 0 && i < len(r.sparse) && r.sparse[i] != nil {
		mustMerge(h, r.sparse[i])
	}
}
