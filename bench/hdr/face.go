// Package hdr records latencies into one histogram per interval, merges them over workers, and writes .hlog and .hgrm files.
// It knows durations and intervals; it knows nothing of phases, messages or charts, and never clamps or drops a value silently.
package hdr

import (
	"io"
	"time"
)

// A Recorder takes the latencies of one worker. Safe for use by a recording and a reading goroutine.
type Recorder struct{ soon int }

// NewRecorder records into intervals of the given length.
func NewRecorder(interval time.Duration) *Recorder { panic("soon") }

// Record adds one latency to the interval that holds the moment `at` (since the run's zero). Negative values are counted apart, never dropped.
func (r *Recorder) Record(at, latency time.Duration) { panic("soon") }

// A Series is a histogram per interval.
type Series struct{ soon int }

// Merge adds up recorders of equal interval; the recorders may go on recording.
func Merge(recorders ...*Recorder) *Series { panic("soon") }

// MergeSeries adds up series of equal interval.
func MergeSeries(series ...*Series) *Series { panic("soon") }

// Interval is the length of an interval.
func (s *Series) Interval() time.Duration { panic("soon") }

// Len is the number of intervals, the empty ones included.
func (s *Series) Len() int { panic("soon") }

// At is the histogram of interval i; empty, never nil.
func (s *Series) At(i int) *Histogram { panic("soon") }

// Range merges the intervals that begin in [from, to).
func (s *Series) Range(from, to time.Duration) *Histogram { panic("soon") }

// All merges every interval.
func (s *Series) All() *Histogram { panic("soon") }

// Negative counts latencies below zero, which were recorded as zero.
func (s *Series) Negative() int64 { panic("soon") }

// Beyond counts latencies above the trackable maximum, which were recorded as that maximum.
func (s *Series) Beyond() int64 { panic("soon") }

// WriteLog writes an .hlog V2 file, one line an interval, with the tag; start is the wall-clock time of the run's zero.
func (s *Series) WriteLog(w io.Writer, tag string, start time.Time) error { panic("soon") }

// ReadLog reads what WriteLog wrote: the series by tag, and the start time.
func ReadLog(r io.Reader) (map[string]*Series, time.Time, error) { panic("soon") }

// A Histogram is a merged distribution of latencies.
type Histogram struct{ soon int }

// Count is the number of samples.
func (h *Histogram) Count() int64 { panic("soon") }

// Max is the largest sample, to three digits.
func (h *Histogram) Max() time.Duration { panic("soon") }

// Min is the smallest sample, to three digits.
func (h *Histogram) Min() time.Duration { panic("soon") }

// Mean is the arithmetic mean, for sums and plausibility only.
func (h *Histogram) Mean() time.Duration { panic("soon") }

// Percentile answers p in (0, 100]; ok is false where fewer than ten samples lie beyond it, and then the value must not be printed.
func (h *Histogram) Percentile(p float64) (d time.Duration, ok bool) { panic("soon") }

// Enough is the number of samples from which Percentile answers p.
func Enough(p float64) int64 { panic("soon") }

// Points are (percentile, value) pairs for a spectrum chart, cut where fewer than ten samples lie beyond.
func (h *Histogram) Points() []Point { panic("soon") }

// A Point is one step of a latency spectrum.
type Point struct {
	Percentile float64
	Value      time.Duration
	Count      int64 // samples at or below
}

// WritePercentiles writes the .hgrm text, values in milliseconds.
func (h *Histogram) WritePercentiles(w io.Writer) error { panic("soon") }
