package log

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gopherlog/engine/record"
	"gopherlog/engine/vfs"
)

// recycle bounds the page cache that a benchmark fills: both loops start their file anew behind it.
const recycle = 128 << 20

// BenchmarkAppend16K appends one 16 KiB batch at a time beside a bare loop that writes the same bytes to a
// plain file: compare the two sub-benchmarks of one run, alternating with -count.
func BenchmarkAppend16K(b *testing.B) {
	const size = 16 << 10
	b.Run("bare", func(b *testing.B) { benchBare(b, size) })
	b.Run("log", func(b *testing.B) { benchLog(b, size, false) })
}

// BenchmarkAppend1M is the same with what clients send at saturation.
func BenchmarkAppend1M(b *testing.B) {
	const size = 1 << 20
	b.Run("bare", func(b *testing.B) { benchBare(b, size) })
	b.Run("log", func(b *testing.B) { benchLog(b, size, false) })
}

// BenchmarkAppend100B is what one record in flight costs.
func BenchmarkAppend100B(b *testing.B) {
	const size = 170
	b.Run("bare", func(b *testing.B) { benchBare(b, size) })
	b.Run("log", func(b *testing.B) { benchLog(b, size, false) })
}

// BenchmarkAppendStamped16K is the follower's side: stamps and checksum are verified.
func BenchmarkAppendStamped16K(b *testing.B) { benchLog(b, 16<<10, true) }

func benchBare(b *testing.B, size int) {
	f, err := os.OpenFile(filepath.Join(b.TempDir(), "bare"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	buf := sizedBatch(size)
	pos := int64(0)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		if pos > recycle {
			b.StopTimer()
			if err := f.Truncate(0); err != nil {
				b.Fatal(err)
			}
			pos = 0
			b.StartTimer()
		}
		n, err := f.WriteAt(buf, pos)
		if err != nil {
			b.Fatal(err)
		}
		pos += int64(n)
	}
}

func benchLog(b *testing.B, size int, stamped bool) {
	side := newMemSidecar()
	root := b.TempDir()
	life := 0
	open := func() *Log {
		life++
		l, _, err := Open(Config{FS: vfs.OS(), Dir: fmt.Sprintf("%s/%d", root, life), Sidecar: side})
		if err != nil {
			b.Fatal(err)
		}
		return l
	}
	l := open()
	buf := record.Batch(sizedBatch(size))
	entries := []Entry{{Index: 1, Term: 1, Data: buf}}
	pos := int64(0)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		if pos > recycle {
			b.StopTimer()
			if err := l.Remove(); err != nil {
				b.Fatal(err)
			}
			l, pos, entries[0].Index = open(), 0, 1
			b.StartTimer()
		}
		if buf.SetBaseOffset(-1); stamped {
			copyStamp(buf, l.EndOffset(), 1)
		}
		if err := l.Append(entries); err != nil {
			b.Fatal(err)
		}
		entries[0].Index++
		pos += int64(len(buf))
	}
	b.StopTimer()
	if err := l.Remove(); err != nil {
		b.Fatal(err)
	}
}

func sizedBatch(size int) []byte {
	b := batch(1, size-80, 1)
	return b[:len(b):len(b)]
}

// TestAppendAllocatesAtMostThreeTimes a batch; what grows with the log is amortised.
func TestAppendAllocatesAtMostThreeTimes(t *testing.T) {
	l, _, err := Open(Config{FS: vfs.OS(), Dir: t.TempDir() + "/p", Sidecar: newMemSidecar()})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	buf := sizedBatch(4 << 10)
	entries := []Entry{{Index: 1, Term: 1, Data: buf}}
	n := testing.AllocsPerRun(2000, func() {
		record.Batch(buf).SetBaseOffset(-1)
		if err := l.Append(entries); err != nil {
			t.Fatal(err)
		}
		entries[0].Index++
	})
	if n > 3 {
		t.Fatalf("%.1f allocations a batch", n)
	}
}

// BenchmarkSlice finds a 1 MiB answer in sealed data, without sending it.
func BenchmarkSlice(b *testing.B) {
	l, _, err := Open(Config{FS: vfs.OS(), Dir: b.TempDir() + "/p", Sidecar: newMemSidecar(), SegmentBytes: 16 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for i := uint64(1); i <= 4096; i++ {
		if err := l.Append([]Entry{{Index: i, Term: 1, Data: sizedBatch(16 << 10)}}); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Checkpoint(4096); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	at, end := int64(0), l.EndOffset()
	for b.Loop() {
		s, err := l.Slice(at, end, 1<<20, true)
		if err != nil {
			b.Fatal(err)
		}
		if at = s.Next; at >= end {
			at = 0
		}
		s.Release()
	}
}
