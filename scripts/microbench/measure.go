package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// sample is what one measurement of one side saw.
type sample struct {
	ops   int64
	bytes int64
	wall  time.Duration
	cpu   time.Duration // of whoever does the work; the client of both sides is left out where it is another process
	heap  heap          // allocated per operation; negative: not counted
	p50   time.Duration // for latencies
}

// heap counts allocations and their bytes.
type heap struct{ objects, bytes float64 }

var notCounted = heap{-1, -1}

// since is what was allocated after before, for one of n operations.
func (h heap) since(before heap, n int64) heap {
	n = max(1, n)
	return heap{(h.objects - before.objects) / float64(n), (h.bytes - before.bytes) / float64(n)}
}

// side measures one of the two once. It may use dir, which is fresh and is removed afterwards, outside of the measurement: so neither side
// fills the page cache for the other.
type side func(ctx context.Context, dir string) (sample, error)

// row is one line of the table. Either rate or latency of ours is compared with that of bare; without bare, ours stands alone.
type row struct {
	name   string
	open   func(ctx context.Context, dir string) (bare, ours side, end func(), err error)
	unit   string
	value  func(sample) float64
	limit  float64
	atMost bool // the value or ratio may not exceed limit; otherwise it must reach it
	most   heap // per operation; 0: printed and not judged
	note   string
}

func megabytes(s sample) float64 { return float64(s.bytes) / s.wall.Seconds() / 1e6 }
func perSecond(s sample) float64 { return float64(s.ops) / s.wall.Seconds() }
func micros(s sample) float64    { return float64(s.p50.Nanoseconds()) / 1e3 }

// measure runs a row's pairs, each side first in every other pair, and prints its line.
func measure(ctx context.Context, e *env, r row, out io.Writer) error {
	root := filepath.Join(e.dir, "row")
	defer os.RemoveAll(root)
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	bare, ours, end, err := r.open(ctx, root)
	if end != nil {
		defer end()
	}
	if err != nil {
		return err
	}
	var with, without []sample
	for i := range e.pairs {
		turn := []struct {
			side side
			into *[]sample
		}{{bare, &without}, {ours, &with}}
		if i%2 == 1 {
			slices.Reverse(turn)
		}
		for _, t := range turn {
			if t.side == nil {
				continue
			}
			profile := ""
			if t.into == &with {
				profile = e.profile
			}
			s, err := profiled(profile, r.name, func() (sample, error) { return once(ctx, root, t.side) })
			if err != nil {
				return err
			}
			*t.into = append(*t.into, s)
		}
	}
	fmt.Fprintln(out, r.line(without, with))
	return nil
}

// once gives a side a directory and a heap without the other's garbage.
func once(ctx context.Context, root string, f side) (sample, error) {
	dir, err := os.MkdirTemp(root, "m")
	if err != nil {
		return sample{}, err
	}
	defer os.RemoveAll(dir)
	runtime.GC()
	s, err := f(ctx, dir)
	if err == nil {
		err = ctx.Err()
	}
	return s, err
}

// line is the row as it is printed.
func (r row) line(bare, ours []sample) string {
	got, shown := median(ours, r.value), "-"
	if len(bare) > 0 {
		var ratios []float64
		for i := range ours {
			ratios = append(ratios, r.value(ours[i])/r.value(bare[i]))
		}
		slices.Sort(ratios)
		got = ratios[len(ratios)/2]
		shown = fmt.Sprintf("%.2f", got)
	}
	sign, ok := "≥", got >= r.limit
	if r.atMost {
		sign, ok = "≤", got <= r.limit
	}
	var notes []string
	for _, h := range []struct {
		what  string
		most  float64
		value func(sample) float64
	}{
		{"allocations", r.most.objects, func(s sample) float64 { return s.heap.objects }},
		{"bytes allocated", r.most.bytes, func(s sample) float64 { return s.heap.bytes }},
	} {
		n := median(ours, h.value)
		if n < 0 {
			continue
		}
		text := fmt.Sprintf("%.1f %s", n, h.what)
		if h.most > 0 {
			text += fmt.Sprintf(" (≤ %g)", h.most)
			ok = ok && n <= h.most
		}
		notes = append(notes, text)
	}
	if r.note != "" {
		notes = append(notes, r.note)
	}
	verdict := "MISS"
	if ok {
		verdict = "ok"
	}
	return strings.TrimRight(fmt.Sprintf("%-34s %23s %23s %8s %s %-7.4g %-4s %s",
		r.name, r.side(bare), r.side(ours), shown, sign, r.limit, verdict, strings.Join(notes, "; ")), " ")
}

// side prints the medians of one side.
func (r row) side(all []sample) string {
	if len(all) == 0 {
		return "-"
	}
	text := fmt.Sprintf("%.4g %s", median(all, r.value), r.unit)
	if cpu := median(all, func(s sample) float64 { return float64(s.cpu.Nanoseconds()) / 1e3 / float64(max(1, s.ops)) }); cpu > 0 {
		text += fmt.Sprintf(" (%.3g µs)", cpu)
	}
	return text
}

func median(all []sample, value func(sample) float64) float64 {
	var vs []float64
	for _, s := range all {
		vs = append(vs, value(s))
	}
	slices.Sort(vs)
	return vs[len(vs)/2]
}

// meter takes the differences that make a sample of work in this process.
type meter struct {
	began time.Time
	cpu   time.Duration
	heap  heap
}

func startMeter() meter { return meter{heap: ownHeap(), cpu: ownCPU(), began: time.Now()} }

func (m meter) stop(ops, bytes int64) sample {
	wall, cpu := time.Since(m.began), ownCPU()-m.cpu
	return sample{ops: ops, bytes: bytes, wall: wall, cpu: cpu, heap: ownHeap().since(m.heap, ops)}
}

func ownHeap() heap {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return heap{float64(m.Mallocs), float64(m.TotalAlloc)}
}

// ownCPU is the processor time of this process, kernel's share included.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
