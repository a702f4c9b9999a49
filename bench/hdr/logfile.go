package hdr

import (
	"bufio"
	"fmt"
	"io"
	"time"

	hdrhistogram "github.com/HdrHistogram/hdrhistogram-go"
)

// WriteLog writes an .hlog V2 file: one line per interval with samples, each with the tag. start is the wall-clock time of the
// run's zero, kept to the millisecond. Several series may be written one after the other into one file.
func (s *Series) WriteLog(w io.Writer, tag string, start time.Time) error {
	lw := hdrhistogram.NewHistogramLogWriter(w)
	zero := start.UnixMilli()
	for _, step := range []func() error{
		lw.OutputLogFormatVersion,
		func() error { return lw.OutputComment("[values in nanoseconds]") },
		func() error { return writeStart(w, zero) },
		lw.OutputLegend,
	} {
		if err := step(); err != nil {
			return fmt.Errorf("hdr: write log: %w", err)
		}
	}
	lw.SetBaseTime(zero)
	for i, h := range s.slots {
		if h == nil {
			continue
		}
		c := h.Clone()
		c.SetTag(tag)
		c.SetStartTimeMs(zero + (time.Duration(i) * s.interval).Milliseconds())
		c.SetEndTimeMs(zero + (time.Duration(i+1) * s.interval).Milliseconds())
		if err := lw.OutputIntervalPackedHistogram(c); err != nil {
			return fmt.Errorf("hdr: write log: %w", err)
		}
	}
	return nil
}

// writeStart writes the start and base lines itself: the library cuts them to the second.
func writeStart(w io.Writer, zero int64) error {
	seconds := float64(zero) / 1000
	_, err := fmt.Fprintf(w, "#[StartTime: %.3f (seconds since epoch), %s]\n#[BaseTime: %.3f (seconds since epoch)]\n",
		seconds, time.UnixMilli(zero).UTC().Format(time.RFC3339), seconds)
	return err
}

// ReadLog reads what WriteLog wrote: the series by tag, and the start of the first interval's run to the millisecond.
func ReadLog(r io.Reader) (map[string]*Series, time.Time, error) {
	start, body, err := readStart(r)
	if err != nil {
		return nil, time.Time{}, err
	}
	lr := hdrhistogram.NewHistogramLogReader(body)
	byTag := map[string]*Series{}
	for {
		h, err := lr.NextIntervalHistogram()
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("hdr: read log: %w", err)
		}
		if h == nil {
			return byTag, start, nil
		}
		if err := addInterval(byTag, h, start); err != nil {
			return nil, time.Time{}, err
		}
	}
}

func addInterval(byTag map[string]*Series, h *hdrhistogram.Histogram, start time.Time) error {
	length := time.Duration(h.EndTimeMs()-h.StartTimeMs()) * time.Millisecond
	since := time.Duration(h.StartTimeMs()-start.UnixMilli()) * time.Millisecond
	if length <= 0 || since < 0 || since/length >= maxIntervals {
		return fmt.Errorf("hdr: read log: interval of %v at %v", length, since)
	}
	s := byTag[h.Tag()]
	if s == nil {
		s = &Series{interval: length}
		byTag[h.Tag()] = s
	}
	packed := newPacked()
	if n := packed.MergeFrom(h); n != 0 {
		return fmt.Errorf("hdr: read log: %d samples out of range", n)
	}
	s.add(int((since+length/2)/s.interval), packed)
	return nil
}

// readStart finds the start time, which the library's reader does not tell.
func readStart(r io.Reader) (time.Time, io.Reader, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	const headBytes = 4 << 10
	head, err := br.Peek(headBytes)
	if err != nil && err != io.EOF {
		return time.Time{}, nil, fmt.Errorf("hdr: read log: %w", err)
	}
	var seconds float64
	if _, err := fmt.Sscanf(after(string(head), "#[StartTime: "), "%f", &seconds); err != nil {
		return time.Time{}, nil, fmt.Errorf("hdr: read log: no start time within the first %d bytes", len(head))
	}
	return time.UnixMilli(int64(seconds*1000 + 0.5)).UTC(), br, nil
}

func after(s, mark string) string {
	for i := 0; i+len(mark) <= len(s); i++ {
		if s[i:i+len(mark)] == mark {
			return s[i+len(mark):]
		}
	}
	return ""
}

// WritePercentiles writes the .hgrm text that HdrHistogram's plotter reads, values in milliseconds.
func (h *Histogram) WritePercentiles(w io.Writer) error {
	dense := hdrhistogram.New(1, int64(trackable), digits)
	if n := h.h.MergeInto(dense); n != 0 {
		panic(fmt.Sprintf("hdr: %d samples did not fit", n))
	}
	_, err := dense.PercentilesPrint(w, ticksPerHalfDistance, float64(time.Millisecond))
	return err
}
