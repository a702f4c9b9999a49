package hdr

import (
	"fmt"
	"time"

	hdrhistogram "github.com/HdrHistogram/hdrhistogram-go"
)

// A Series is a histogram per interval. It does not change after it was made.
type Series struct {
	interval         time.Duration
	slots            []*hdrhistogram.PackedHistogram
	negative, beyond int64
}

// Merge adds up recorders of equal interval; the recorders may go on recording. Without recorders the series is empty.
func Merge(recorders ...*Recorder) *Series {
	s := &Series{interval: time.Second}
	if len(recorders) > 0 {
		s.interval = recorders[0].interval
	}
	for _, r := range recorders {
		s.mustMatch(r.interval)
		r.mergeInto(s)
	}
	return s
}

// MergeSeries adds up series of equal interval.
func MergeSeries(series ...*Series) *Series {
	s := &Series{interval: time.Second}
	if len(series) > 0 {
		s.interval = series[0].interval
	}
	for _, o := range series {
		s.mustMatch(o.interval)
		for i, h := range o.slots {
			if h != nil {
				s.add(i, h)
			}
		}
		s.negative += o.negative
		s.beyond += o.beyond
	}
	return s
}

func (s *Series) mustMatch(interval time.Duration) {
	if s.interval != interval {
		panic(fmt.Sprintf("hdr: merging intervals of %v and %v", s.interval, interval))
	}
}

func (s *Series) add(i int, h *hdrhistogram.PackedHistogram) {
	for len(s.slots) <= i {
		s.slots = append(s.slots, nil)
	}
	if s.slots[i] == nil {
		s.slots[i] = newPacked()
	}
	mustMerge(s.slots[i], h)
}

func mustMerge(to, from *hdrhistogram.PackedHistogram) {
	if n := to.Merge(from); n != 0 {
		panic(fmt.Sprintf("hdr: %d samples did not fit a merged histogram", n))
	}
}

// Interval is the length of an interval.
func (s *Series) Interval() time.Duration { return s.interval }

// Len is the number of intervals, the empty ones included.
func (s *Series) Len() int { return len(s.slots) }

// At is the histogram of interval i; empty, never nil.
func (s *Series) At(i int) *Histogram {
	if i < 0 || i >= len(s.slots) || s.slots[i] == nil {
		return &Histogram{newPacked()}
	}
	return &Histogram{s.slots[i]}
}

// Range merges the intervals that begin in [from, to).
func (s *Series) Range(from, to time.Duration) *Histogram {
	h := newPacked()
	for i, o := range s.slots {
		if at := time.Duration(i) * s.interval; o != nil && from <= at && at < to {
			mustMerge(h, o)
		}
	}
	return &Histogram{h}
}

// All merges every interval.
func (s *Series) All() *Histogram { return s.Range(0, time.Duration(len(s.slots))*s.interval) }

// Negative counts latencies below zero, which were recorded as zero.
func (s *Series) Negative() int64 { return s.negative }

// Beyond counts latencies above a day, which were recorded as a day.
func (s *Series) Beyond() int64 { return s.beyond }

// MergeLast adds up one interval of several recorders, which go on recording: a glance while a run goes on.
func MergeLast(interval int, recorders ...*Recorder) *Histogram {
	h := newPacked()
	for _, r := range recorders {
		r.mergeInterval(interval, h)
	}
	return &Histogram{h}
}
