package log

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gopherlog/engine/failpoint"
	"gopherlog/engine/record"
	"gopherlog/engine/vfs"
)

func copyStamp(b []byte, offset int64, epoch int32) {
	record.Batch(b).SetBaseOffset(offset)
	record.Batch(b).SetLeaderEpoch(epoch)
}

// TestSliceReturnsWholeBatches within limit and bytes, from the batch that holds the offset, over segments.
func TestSliceReturnsWholeBatches(t *testing.T) {
	r, w := newRig(t, func(c *Config) { c.SegmentBytes = 1500 }), newTwin()
	rng := rand.New(rand.NewPCG(7, 7))
	for i := uint64(1); i < 300; i++ {
		if i%7 == 0 {
			r.fill(w, side(i, 1))
			continue
		}
		r.fill(w, data(i, 1, 1+rng.IntN(4), rng.IntN(80)))
	}
	check := func() {
		for range 2000 {
			from := rng.Int64N(w.end + 1)
			limit := w.offsets[rng.IntN(len(w.offsets))]
			if rng.IntN(4) == 0 {
				limit = w.end + 5
			}
			maxBytes, minOne := rng.IntN(4000), rng.IntN(2) == 0
			s, err := r.log.Slice(from, limit, maxBytes, minOne)
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.ReadAll([]byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			want, first, next := w.slice(from, limit, maxBytes, minOne)
			if !bytes.Equal(got[1:], want) || s.First != first || s.Next != next || s.Bytes != len(want) {
				t.Fatalf("slice(%d, %d, %d, %v) = [%d, %d) %d bytes, want [%d, %d) %d bytes", from, limit, maxBytes, minOne, s.First, s.Next, s.Bytes, first, next, len(want))
			}
			s.Release()
		}
	}
	check()
	if err := r.log.Checkpoint(200); err != nil { // entries now come from the .ridx files
		t.Fatal(err)
	}
	check()
	for _, from := range []int64{-1, w.end + 1} {
		if _, err := r.log.Slice(from, w.end, 100, true); !errors.Is(err, ErrOutOfRange) {
			t.Fatalf("slice at %d: %v", from, err)
		}
	}
}

// slice is Slice by going through all entries.
func (w *twin) slice(from, limit int64, maxBytes int, minOne bool) (b []byte, first, next int64) {
	first, next = from, from
	if from >= min(limit, w.end) {
		return nil, first, next
	}
	for i, e := range w.entries {
		if !e.IsData() {
			continue
		}
		x := record.Batch(e.Data)
		switch {
		case x.NextOffset() <= from:
			continue
		case w.offsets[i] >= limit, len(b)+len(x) > maxBytes && !(minOne && len(b) == 0):
			return b, first, next
		}
		if len(b) == 0 {
			first = w.offsets[i]
		}
		b, next = append(b, x...), x.NextOffset()
	}
	return b, first, next
}

// TestLargeIndexLookups crosses many blocks of the .ridx, on disk and in memory.
func TestLargeIndexLookups(t *testing.T) {
	r, w := newRig(t, func(c *Config) { c.SegmentBytes = 1 << 20; c.CacheBytes = 1 }), newTwin()
	for w.last() < 3000 {
		var entries []Entry
		for i := w.last() + 1; i <= w.last()+37; i++ {
			if i%50 == 3 {
				entries = append(entries, side(i, 1+i/1000))
			} else {
				entries = append(entries, data(i, 1+i/1000, 1+int(i%3), 1))
			}
		}
		r.fill(w, entries...)
	}
	r.same(w)
	r.kill()
	r.same(w)
	for lo := uint64(1); lo < w.last(); {
		got, err := r.log.Entries(lo, w.last()+1, 9000)
		if err != nil || len(got) == 0 {
			t.Fatal(err)
		}
		for _, e := range got {
			want := w.entries[e.Index-1]
			if e.Index != lo || e.Term != want.Term || !bytes.Equal(e.Data, want.Data) {
				t.Fatalf("entry %d of Entries: %d", lo, e.Index)
			}
			lo++
		}
	}
}

// TestEntriesKeepsToItsBounds of indexes and bytes, from the cache and from the file.
func TestEntriesKeepsToItsBounds(t *testing.T) {
	for _, cacheBytes := range []int64{1, 2000, 1 << 20} {
		r, w := newRig(t, func(c *Config) { c.CacheBytes = cacheBytes }), newTwin()
		for i := uint64(1); i < 60; i++ {
			r.fill(w, data(i, 1, 1, 300))
		}
		one := len(w.entries[0].Data)
		for _, c := range []struct {
			lo, hi   uint64
			maxBytes int
			want     int
		}{{1, 2, 1 << 20, 1}, {1, 60, 10 * one, 10}, {5, 9, 1 << 20, 4}, {30, 60, 1, 1}, {50, 100, 1 << 20, 10}, {40, 60, one + one/2, 1}} {
			got, err := r.log.Entries(c.lo, c.hi, c.maxBytes)
			if err != nil && c.want == 0 || len(got) != c.want || got[0].Index != c.lo {
				t.Errorf("cache %d: Entries(%d, %d, %d) has %d, want %d: %v", cacheBytes, c.lo, c.hi, c.maxBytes, len(got), c.want, err)
			}
		}
		if _, err := r.log.Entries(60, 61, 10); !errors.Is(err, ErrNotFound) {
			t.Errorf("behind the end: %v", err)
		}
	}
}

// TestRetentionWhileReadersHoldSlices: trimmed files stay readable until their last slice is released.
func TestRetentionWhileReadersHoldSlices(t *testing.T) {
	dir := t.TempDir() + "/orders-0"
	l, _, err := Open(Config{FS: vfs.OS(), Dir: dir, Sidecar: newMemSidecar(), SegmentBytes: 2000})
	if err != nil {
		t.Fatal(err)
	}
	r, w := &rig{t: t, log: l}, newTwin()
	for i := uint64(1); i < 40; i++ {
		r.fill(w, data(i, 1, 2, 200))
	}
	snapAll(t, r)
	want, _, next := w.slice(0, w.end, 6000, true)
	s, err := l.Slice(0, w.end, 6000, true)
	if err != nil || s.Next != next {
		t.Fatal(err)
	}
	if _, err := l.TrimTo(60, 100); err != nil {
		t.Fatal(err)
	}
	if l.FirstIndex() < 20 {
		t.Fatalf("first index %d", l.FirstIndex())
	}
	if _, err := l.Slice(0, w.end, 100, true); !errors.Is(err, ErrOutOfRange) {
		t.Fatalf("slice below the log start: %v", err)
	}
	got, err := s.ReadAll(nil)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes of a trimmed slice, want %d: %v", len(got), len(want), err)
	}
	s.Release()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestTrimStopsWhereItMust: at the limit index, at the last .snap, and never beyond the end.
func TestTrimStopsWhereItMust(t *testing.T) {
	r, w := newRig(t, func(c *Config) { c.SegmentBytes = 1000 }), newTwin()
	for i := uint64(1); i < 20; i++ {
		r.fill(w, data(i, 1, 1, 400)) // two to a segment
	}
	if start, err := r.log.TrimTo(10, 100); err != nil || start != 10 || r.log.FirstIndex() != 1 {
		t.Fatalf("without a .snap: start %d, first index %d, %v", start, r.log.FirstIndex(), err)
	}
	snapAll(t, r)
	if _, err := r.log.TrimTo(10, 5); err != nil || r.log.FirstIndex() != 5 {
		t.Fatalf("limit 5: first index %d, %v", r.log.FirstIndex(), err)
	}
	if start, err := r.log.TrimTo(3, 100); err != nil || start != 10 || r.log.FirstIndex() != 11 {
		t.Fatalf("back: start %d, first index %d, %v", start, r.log.FirstIndex(), err)
	}
	r.fill(w, rollSide(20, 1))
	snapAll(t, r)
	if start, err := r.log.TrimTo(1000, 100); err != nil || start != 19 || r.log.FirstIndex() != 21 || r.log.Size() != 0 {
		t.Fatalf("all: start %d, first index %d, size %d, %v", start, r.log.FirstIndex(), r.log.Size(), err)
	}
	r.kill()
	if r.log.StartOffset() != 19 || r.log.EndOffset() != 19 || r.log.FirstIndex() != 21 || r.log.LastIndex() != 20 {
		t.Fatalf("after a restart: [%d, %d) index %d", r.log.StartOffset(), r.log.EndOffset(), r.log.FirstIndex())
	}
	r.append(data(21, 1, 1, 10))
}

// TestNoSnapCountsThatLiesAheadOfItsLog: a .snap is durable before the batches that it stands for are. Whatever a
// power cut keeps of those, a .snap that is left lies within the log.
func TestNoSnapCountsThatLiesAheadOfItsLog(t *testing.T) {
	gaps := 0
	for seed := range uint64(50) {
		r, w := newRig(t, func(c *Config) { c.SegmentBytes = 1000 }), newTwin()
		for i := uint64(1); i < 10; i++ {
			r.fill(w, data(i, 1, 1, 400))
		}
		for _, index := range []uint64{2, 4, 6, 8} {
			if err := r.log.WriteSnap(Base{Index: index, Term: 1, NextOffset: int64(index), State: []byte("s")}); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.log.WriteSnap(Base{Index: 5, Term: 1, NextOffset: 5}); !errors.Is(err, ErrNotFound) {
			t.Fatalf("snap in mid-segment: %v", err)
		}
		r.cutPower(seed, 70)
		last := r.log.LastIndex()
		if last < 8 {
			gaps++
		}
		b, err := r.log.NewestSnap()
		if err == nil && b.Index > last || err != nil && last > 2 {
			t.Fatalf("seed %d: newest snap %d %v, the log ends at %d", seed, b.Index, err, last)
		}
		r.append(data(last+1, 1, 1, 10))
	}
	if gaps == 0 {
		t.Fatal("no power cut took a batch before a .snap: the test shows nothing")
	}
}

// TestResetAdoptsABaseWhateverTheLogHeld, and the log starts there after a restart.
func TestResetAdoptsABaseWhateverTheLogHeld(t *testing.T) {
	base := Base{Index: 5, Term: 3, NextOffset: 3, LogStart: 2, State: []byte("state")}
	for _, fill := range []uint64{0, 3, 30} {
		r, w := newRig(t, nil), newTwin()
		for i := uint64(1); i <= fill; i += 2 {
			r.fill(w, data(i, 1, 1, 400), side(i+1, 1))
		}
		if err := r.log.Reset(base); err != nil {
			t.Fatal(err)
		}
		w = &twin{base: base, end: base.NextOffset}
		for range 2 {
			r.same(w)
			b, err := r.log.OldestSnap()
			if err != nil || b.Index != 5 || string(b.State) != "state" || b.LogStart != 2 {
				t.Fatalf("%+v %v", b, err)
			}
			if e, end := r.log.EpochEnd(3); e != 3 || end != 3 || r.log.LastEpoch() != 3 {
				t.Fatalf("epoch 3 ends at %d/%d", e, end)
			}
			r.cutPower(1, 0)
		}
		r.fill(w, data(6, 4, 2, 10))
		r.kill()
		r.same(w)
	}
}

// TestEpochsWithoutBatchesAreKnown: a term's first entry records it, though it wrote no batch; the table is cut
// and trimmed with the log and survives a restart.
func TestEpochsWithoutBatchesAreKnown(t *testing.T) {
	r, w := newRig(t, func(c *Config) { c.SegmentBytes = 600 }), newTwin()
	r.fill(w, side(1, 2), data(2, 2, 5, 10), side(3, 4), side(4, 5), data(5, 5, 5, 50), data(6, 5, 5, 50), side(7, 9))
	check := func(rows map[int32][2]int64) {
		t.Helper()
		for epoch, want := range rows {
			if e, end := r.log.EpochEnd(epoch); int64(e) != want[0] || end != want[1] {
				t.Errorf("end of epoch %d: %d/%d, want %d/%d", epoch, e, end, want[0], want[1])
			}
		}
	}
	all := map[int32][2]int64{1: {1, 0}, 2: {2, 5}, 3: {2, 5}, 4: {4, 5}, 5: {5, 15}, 7: {5, 15}, 9: {9, 15}, 10: {-1, -1}, -1: {-1, -1}}
	check(all)
	if err := errors.Join(r.log.RecordEpoch(4, 5), r.log.RecordEpoch(9, 15)); err != nil {
		t.Fatal(err)
	}
	if err := r.log.RecordEpoch(5, 6); !errors.Is(err, ErrDivergent) {
		t.Fatal(err)
	}
	r.kill()
	check(all)
	if err := r.log.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := vfs.ReadFile(r.fs, r.fs.PathJoin(r.cfg.Dir, fileEpochs))
	if err != nil || string(text) != "0\n4\n2 0\n4 5\n5 5\n9 15\n" {
		t.Fatalf("%q %v", text, err)
	}
	r.kill()
	check(all)
	if err := r.log.TruncateSuffix(7); err != nil {
		t.Fatal(err)
	}
	check(map[int32][2]int64{5: {5, 15}, 9: {-1, -1}})
	if r.log.LastEpoch() != 5 {
		t.Fatalf("last epoch %d", r.log.LastEpoch())
	}
	snapAll(t, r)
	if _, err := r.log.TrimTo(10, 5); err != nil || r.log.FirstIndex() != 6 {
		t.Fatalf("first index %d %v", r.log.FirstIndex(), err)
	}
	check(map[int32][2]int64{2: {2, 10}, 5: {5, 15}})
	r.kill()
	check(map[int32][2]int64{2: {2, 10}, 5: {5, 15}})
}

// TestTimestampLookups against all records, with timestamps that also fall.
func TestTimestampLookups(t *testing.T) {
	r, w := newRig(t, func(c *Config) { c.SegmentBytes = 2500 }), newTwin()
	rng := rand.New(rand.NewPCG(3, 3))
	type rec struct{ offset, ts int64 }
	var recs []rec
	for i := uint64(1); i < 80; i++ {
		ts := int64(1000) + int64(i)*10 + rng.Int64N(60)
		n := 1 + rng.IntN(4)
		for k := range n {
			recs = append(recs, rec{w.end + int64(k), ts + int64(k)})
		}
		r.fill(w, Entry{Index: i, Term: 1, Data: batch(n, 60, ts)})
	}
	check := func() {
		t.Helper()
		start := r.log.StartOffset()
		for range 500 {
			limit := w.offsets[rng.IntN(len(w.offsets))]
			ts := 900 + rng.Int64N(1200)
			want, largest := rec{-1, -1}, rec{-1, -1}
			for _, x := range recs {
				if x.offset < start || x.offset >= limit {
					continue
				}
				if x.ts >= ts && want.offset < 0 {
					want = x
				}
				if x.ts > largest.ts {
					largest = x
				}
			}
			o, at, epoch, ok, err := r.log.OffsetForTimestamp(ts, limit)
			if err != nil || ok != (want.offset >= 0) || ok && (o != want.offset || at != want.ts || epoch != 1) {
				t.Fatalf("offset for %d below %d: %d at %d %v %v, want %+v", ts, limit, o, at, ok, err, want)
			}
			o, at, err = r.log.MaxTimestamp(limit)
			if err != nil || o != largest.offset || at != largest.ts {
				t.Fatalf("largest below %d: %d at %d %v, want %+v", limit, o, at, err, largest)
			}
		}
	}
	check()
	r.kill()
	check()
	snapAll(t, r)
	if _, err := r.log.TrimTo(w.end/2, 1000); err != nil {
		t.Fatal(err)
	}
	check()
}

// While a suffix is being cut, readers see the shorter log and the old state of its time index: the largest timestamp may be that of
// a batch that is gone. A reader that comes by then and goes on after new batches took the place asks for nothing beyond its own view.
func TestMaxTimestampOfAReaderThatSawASuffixBeingCut(t *testing.T) {
	points := failpoint.New()
	r, w := newRig(t, func(c *Config) { c.SegmentBytes, c.Failpoints = 12000, points }), newTwin()
	for i := uint64(1); len(r.log.Segments()) < 2; i++ {
		r.fill(w, Entry{Index: i, Term: 1, Data: batch(1, 60, int64(1000+i))})
	}
	var seen []timeView
	var start, limit int64
	err := points.Arm(FailTruncateSegment, failpoint.Action{Kind: failpoint.Do, Do: func() (err error) {
		limit = r.log.EndOffset()
		seen, start, err = r.log.allViews(&limit)
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	stale := r.log.Segments()[1].BaseOffset - 1 // the batch with the largest timestamp of the first segment
	if err := r.log.TruncateSuffix(5); err != nil {
		t.Fatal(err)
	}
	defer unpinAll(seen)
	w.truncate(5)
	for i := uint64(5); r.log.EndOffset() <= stale+2; i++ {
		r.fill(w, Entry{Index: i, Term: 2, Data: batch(1, 60, 5)})
	}
	if err := r.log.Checkpoint(r.log.LastIndex()); err != nil { // the new entries are in the index file
		t.Fatal(err)
	}
	v := r.log.segs[0].view()
	defer v.unpin()
	if _, err := v.block(0); err != nil { // and in the block that look-ups share
		t.Fatal(err)
	}
	if offset, ts, err := seen[0].largest(start, limit); err != nil || offset != 3 || ts != 1004 {
		t.Errorf("largest timestamp of the four that stayed: %d at %d, %v", ts, offset, err)
	}
}

// TestReadersBesideTheAppender runs everything that may overlap; the race detector and the checks on what
// is read find what is wrong.
func TestReadersBesideTheAppender(t *testing.T) {
	budget := NewBudget(40 << 10)
	l, _, err := Open(Config{FS: vfs.NewCrashable(), Dir: "/p", Sidecar: newMemSidecar(), SegmentBytes: 60 << 10,
		CacheBytes: 30 << 10, CacheBudget: budget, Committer: NewCommitter(2)})
	if err != nil {
		t.Fatal(err)
	}
	var committed atomic.Uint64 // never truncated
	var hw atomic.Int64
	done := make(chan struct{})
	var wg sync.WaitGroup
	loop := func(fn func(rng *rand.Rand)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
			for {
				select {
				case <-done:
					return
				default:
					fn(rng)
				}
			}
		}()
	}
	for range 2 {
		loop(func(rng *rand.Rand) { readEntry(t, l, rng) })
		loop(func(rng *rand.Rand) { readSlice(t, l, hw.Load(), rng) })
	}
	loop(func(rng *rand.Rand) {
		if _, err := l.Entries(l.FirstIndex()+rng.Uint64N(50), l.LastIndex()+1, 20<<10); err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrTruncated) {
			t.Errorf("entries: %v", err)
		}
	})
	loop(func(rng *rand.Rand) {
		var err error
		switch rng.IntN(4) {
		case 0:
			err = l.Checkpoint(committed.Load())
		case 1:
			for _, s := range l.Segments() {
				if i := s.FirstIndex - 1; i > 0 && i <= committed.Load() && !s.HasSnap {
					term, termErr := l.Term(i)
					if termErr == nil {
						err = l.WriteSnap(Base{Index: i, Term: term, NextOffset: s.BaseOffset})
					}
				}
			}
		case 2:
			_, err = l.TrimTo(hw.Load()/2, committed.Load())
		case 3:
			if _, _, err = l.MaxTimestamp(hw.Load()); errors.Is(err, ErrTruncated) { // it reads, and is cut as others are
				err = nil
			}
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			t.Errorf("upkeep: %v", err)
		}
		time.Sleep(time.Millisecond)
	})
	rng := rand.New(rand.NewPCG(5, 5))
	term := uint64(1)
	for range 1500 {
		index := l.LastIndex() + 1
		switch rng.IntN(12) {
		case 0:
			err = l.Append([]Entry{side(index, term)})
		case 1:
			if last := l.LastIndex(); last > committed.Load() {
				term++
				err = l.TruncateSuffix(committed.Load() + 1 + rng.Uint64N(last-committed.Load()))
			}
		case 2:
			_, next, offErr := l.OffsetOf(l.LastIndex())
			committed.Store(l.LastIndex())
			hw.Store(next)
			err = offErr
		default:
			err = l.Append([]Entry{data(index, term, 2, rng.IntN(900)), data(index+1, term, 1, 5)})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := budget.Used(); n != 0 {
		t.Fatalf("%d bytes still charged", n)
	}
}

func readEntry(t *testing.T, l *Log, rng *rand.Rand) {
	first, last := l.FirstIndex(), l.LastIndex()
	if last < first {
		return
	}
	index := first + rng.Uint64N(last-first+1)
	e, err := l.Entry(index)
	switch {
	case errors.Is(err, ErrNotFound) || errors.Is(err, ErrTruncated):
	case err != nil:
		t.Errorf("entry %d: %v", index, err)
	case e.Index != index || e.IsData() && record.Batch(e.Data).CheckCRC() != nil:
		t.Errorf("entry %d: wrong bytes", index)
	}
}

func readSlice(t *testing.T, l *Log, limit int64, rng *rand.Rand) {
	start := l.StartOffset()
	if start >= limit {
		return
	}
	from := start + rng.Int64N(limit-start)
	s, err := l.Slice(from, limit, rng.IntN(100<<10), true)
	if err != nil {
		if !errors.Is(err, ErrOutOfRange) {
			t.Errorf("slice: %v", err)
		}
		return
	}
	defer s.Release()
	b, err := s.ReadAll(nil)
	if err != nil {
		t.Errorf("slice: %v", err)
	}
	at := s.First
	for len(b) > 0 {
		x, rest, err := record.Parse(b)
		if err != nil || x.BaseOffset() != at || x.CheckCRC() != nil {
			t.Errorf("slice at %d: %v %v", at, x, err)
			return
		}
		at, b = x.NextOffset(), rest
	}
	if at != s.Next || from < s.First {
		t.Errorf("slice [%d, %d) from %d ends at %d", s.First, s.Next, from, at)
	}
}

// TestBorrowedBytesAreNotKept: after AppendBorrowed the caller may overwrite its buffers.
func TestBorrowedBytesAreNotKept(t *testing.T) {
	r, w := newRig(t, nil), newTwin()
	for i := uint64(1); i < 20; i += 3 {
		entries := []Entry{data(i, 1, 2, 100), rollSide(i+1, 1), data(i+2, 1, 1, 900)}
		w.append(entries)
		if err := r.log.AppendBorrowed(entries); err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			clear(e.Data)
			clear(e.Ext)
		}
	}
	before := r.log.cache.bytes
	if err := w.compare(r.log); err != nil {
		t.Fatal(err)
	}
	if h, err := r.log.EntryHeader(1); err != nil || len(h.Data) != record.HeaderSize || before > 21*(slotCharge+100) {
		t.Fatalf("header of %d bytes, %d bytes cached, %v", len(h.Data), before, err)
	}
}

// TestTrimmedEntriesAreGoneFromEveryCache, at once.
func TestTrimmedEntriesAreGoneFromEveryCache(t *testing.T) {
	for _, cacheBytes := range []int64{1, 1 << 20} {
		r, w := newRig(t, func(c *Config) { c.SegmentBytes = 1000; c.CacheBytes = cacheBytes }), newTwin()
		for i := uint64(1); i < 20; i++ {
			r.fill(w, data(i, 1, 1, 400))
		}
		r.same(w)
		snapAll(t, r)
		if _, err := r.log.TrimTo(10, 100); err != nil {
			t.Fatal(err)
		}
		for i := range r.log.FirstIndex() {
			_, err := r.log.Entry(i)
			_, headErr := r.log.EntryHeader(i)
			_, manyErr := r.log.Entries(i, 30, 1000)
			if !errors.Is(err, ErrNotFound) || !errors.Is(headErr, ErrNotFound) || !errors.Is(manyErr, ErrNotFound) {
				t.Fatalf("entry %d: %v, %v, %v", i, err, headErr, manyErr)
			}
		}
	}
}
