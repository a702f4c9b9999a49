package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gopherlog/engine/failpoint"
	"gopherlog/engine/log"
	"gopherlog/engine/record"
)

func baseAt(offset int64) log.Base { return log.Base{NextOffset: offset} }

func setSequence(b record.Batch, seq int32) { binary.BigEndian.PutUint32(b[53:], uint32(seq)) }

func read(offset int64) ReadRequest {
	return ReadRequest{Offset: offset, MaxBytes: 1 << 20, MinOne: true, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch}
}

// fetch reads the batches that one request returns.
func (h *harness) fetch(t testing.TB, r ReadRequest) ([]record.Batch, ReadResult) {
	t.Helper()
	out, res, err := h.tryFetch(t, r)
	if err != nil {
		t.Fatalf("read %+v: %v", r, err)
	}
	return out, res
}

func (h *harness) tryFetch(t testing.TB, r ReadRequest) ([]record.Batch, ReadResult, error) {
	t.Helper()
	res, err := h.Read(r)
	if err != nil || res.Slice == nil {
		return nil, res, err
	}
	defer res.Slice.Release()
	data, err := res.Slice.ReadAll(nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) != res.Slice.Bytes {
		t.Fatalf("slice says %d bytes and has %d", res.Slice.Bytes, len(data))
	}
	var out []record.Batch
	for len(data) > 0 {
		b, rest, err := record.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		out, data = append(out, b), rest
	}
	return out, res, nil
}

// batches reads the whole committed log as a consumer does.
func (h *harness) batches(t testing.TB) []record.Batch {
	t.Helper()
	all, err := h.tryBatches(t)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (h *harness) tryBatches(t testing.TB) (all []record.Batch, err error) {
	t.Helper()
	for offset := h.LogStart(); offset < h.HighWatermark(); {
		got, _, err := h.tryFetch(t, read(offset))
		if err != nil {
			return nil, err
		}
		if len(got) == 0 {
			t.Fatalf("nothing at %d below the high watermark %d", offset, h.HighWatermark())
		}
		all = append(all, got...)
		offset = got[len(got)-1].NextOffset()
	}
	return all, nil
}

func TestReadReturnsWholeBatchesUpToTheHighWatermark(t *testing.T) {
	h := open(t, manual)
	h.send(plain(3), AcksAll)
	h.send(plain(3), AcksAll)
	h.proposed(t, 2)
	if got, res := h.fetch(t, read(0)); len(got) != 0 || res.HighWatermark != 0 {
		t.Fatalf("uncommitted data was returned: %d batches", len(got))
	}
	if got, _ := h.fetch(t, read(4)); len(got) != 0 {
		t.Fatal("between high watermark and log end there is nothing, and no error")
	}
	h.g.commit(1)
	got, res := h.fetch(t, read(1))
	if len(got) != 1 || got[0].BaseOffset() != 0 || res.HighWatermark != 3 {
		t.Fatalf("offset 1 must return the batch that contains it: %d batches, high watermark %d", len(got), res.HighWatermark)
	}
	h.g.commit(1)
	r := read(2)
	r.MaxBytes = 1
	if got, _ = h.fetch(t, r); len(got) != 1 {
		t.Fatal("one batch is returned even above the limit")
	}
	r.MinOne = false
	if got, _ = h.fetch(t, r); len(got) != 0 {
		t.Fatal("unless the request forbids it")
	}
	for _, offset := range []int64{-1, 7} {
		if _, err := h.Read(read(offset)); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Fatalf("offset %d: %v", offset, err)
		}
	}
}

func TestEpochsAreFencedOnRead(t *testing.T) {
	h := open(t)
	h.must(t, plain(1))
	h.g.depose(4, "2.0000000000000001", false)
	if _, err := h.Read(read(0)); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("follower: %v", err)
	}
	if node, epoch, ready := h.Leader(); node != 2 || epoch != 4 || ready {
		t.Fatalf("leader %d epoch %d ready %v", node, epoch, ready)
	}
	h.g.lead(5)
	for epoch, want := range map[int32]error{4: ErrFencedEpoch, 5: nil, 6: ErrUnknownEpoch, NoEpoch: nil} {
		r := read(0)
		r.CurrentEpoch = epoch
		res, err := h.Read(r)
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Fatalf("epoch %d: %v, want %v", epoch, err, want)
		}
		if res.Slice != nil {
			res.Slice.Release()
		}
	}
}

func TestDivergingConsumersAreToldWhereTheirEpochEnded(t *testing.T) {
	h := open(t)
	h.must(t, plain(3)) // epoch 1: [0, 3)
	h.g.depose(4, "", false)
	h.g.lead(5)
	h.must(t, plain(2)) // epoch 5: [3, 5)
	h.g.depose(8, "", false)
	h.g.lead(9) // an epoch without data
	for _, c := range []struct {
		offset      int64
		epoch       int32
		wantEpoch   int32
		wantOffsets int64
	}{
		{3, 1, -1, -1}, {5, 5, -1, -1}, {5, 9, -1, -1}, // in line
		{4, 1, 1, 3}, // read beyond what epoch 1 became
		{4, 3, 1, 3}, // an epoch that is not in this log
		{8, 1, 1, 3}, // even above the log end
	} {
		r := read(c.offset)
		r.LastFetchedEpoch = c.epoch
		res, err := h.Read(r)
		if err != nil || res.DivergingEpoch != c.wantEpoch || res.DivergingEnd != c.wantOffsets {
			t.Errorf("offset %d epoch %d: diverging (%d, %d) %v, want (%d, %d)",
				c.offset, c.epoch, res.DivergingEpoch, res.DivergingEnd, err, c.wantEpoch, c.wantOffsets)
		}
		if res.Slice != nil {
			res.Slice.Release()
		}
	}
	r := read(5)
	r.LastFetchedEpoch = 10 // newer than anything here
	if _, err := h.Read(r); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Fatalf("unknown epoch: %v", err)
	}
	if e, end := h.EpochEnd(9); e != 9 || end != 5 {
		t.Fatalf("the epoch without data: (%d, %d), want (9, 5)", e, end)
	}
}

func TestADeposedLeaderAnswersParkedFetches(t *testing.T) {
	h := open(t)
	w := NewWaiter()
	if !h.Park(w, 0, 1, ReadUncommitted) {
		t.Fatal("not parked")
	}
	h.g.depose(2, "2.0000000000000001", true)
	<-w.C
	if _, err := h.Read(read(0)); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("%v", err)
	}
	if h.Park(w, 0, 1, ReadUncommitted) {
		t.Fatal("parked on a follower")
	}
}

func TestParkedFetchesWakeAtTheCommitNotBefore(t *testing.T) {
	h := open(t, manual)
	w := NewWaiter()
	if !h.Park(w, 0, 1, ReadUncommitted) {
		t.Fatal("not parked")
	}
	h.send(plain(1), AcksNone)
	h.proposed(t, 1)
	select {
	case <-w.C:
		t.Fatal("woken by uncommitted data")
	default:
	}
	h.g.commit(1)
	<-w.C
	if h.Park(w, 0, 1, ReadUncommitted) {
		t.Fatal("parked behind the high watermark")
	}
	if h.parked.Load() != 0 {
		t.Fatal("still registered")
	}
}

// A consumer that parks whenever it finds nothing gets every batch, however the commit falls between its read and its park.
func TestNoWakeUpIsLost(t *testing.T) {
	h := open(t)
	const total = 3000
	var sender sync.WaitGroup
	sender.Go(func() {
		for range total {
			h.send(plain(1), AcksNone)
		}
	})
	t.Cleanup(sender.Wait)
	w := NewWaiter()
	for offset := int64(0); offset < total; {
		got, res := h.fetch(t, read(offset))
		if len(got) > 0 {
			offset = got[len(got)-1].NextOffset()
			continue
		}
		if h.Park(w, res.HighWatermark, res.LeaderEpoch, ReadUncommitted) {
			select {
			case <-w.C:
			case <-time.After(time.Minute):
				t.Fatalf("asleep at %d, high watermark %d", offset, h.HighWatermark())
			}
		}
	}
}

func TestDeleteRecordsMovesTheLogStart(t *testing.T) {
	h := open(t)
	for range 4 {
		h.must(t, plain(5))
	}
	ctx := context.Background()
	for _, c := range []struct{ offset, want int64 }{{7, 7}, {3, 7}, {-1, 20}} {
		if got, err := h.DeleteRecords(ctx, c.offset); err != nil || got != c.want {
			t.Fatalf("delete to %d: %d, %v, want %d", c.offset, got, err, c.want)
		}
		if _, err := h.Read(read(c.want - 1)); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Fatalf("below the log start: %v", err)
		}
	}
	if _, err := h.DeleteRecords(ctx, 21); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Fatalf("above the high watermark: %v", err)
	}
	if base := h.must(t, plain(1)); base != 20 {
		t.Fatalf("offsets go on at %d, want 20", base)
	}
	h.g.depose(2, "", true)
	if _, err := h.DeleteRecords(ctx, 21); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("follower: %v", err)
	}
}

func TestLogStartIsPartOfTheSnapshot(t *testing.T) {
	h := open(t)
	h.must(t, plain(5))
	if _, err := h.DeleteRecords(context.Background(), 3); err != nil {
		t.Fatal(err)
	}
	state := machine{h.Partition}.Snapshot()
	other := &Partition{label: "other"}
	if err := (machine{other}).Restore(state, log.Base{Index: 9, NextOffset: 5}); err != nil {
		t.Fatal(err)
	}
	if other.LogStart() != 3 || other.HighWatermark() != 5 || other.applied.Load() != 9 {
		t.Fatalf("start %d, high watermark %d, applied %d", other.LogStart(), other.HighWatermark(), other.applied.Load())
	}
	if err := (machine{other}).Restore([]byte{9, 0, 0}, log.Base{}); err == nil {
		t.Fatal("an unknown version was accepted")
	}
	if err := (machine{other}).Restore(nil, log.Base{NextOffset: 4, LogStart: 2}); err != nil || other.LogStart() != 2 {
		t.Fatalf("empty state: %v, start %d", err, other.LogStart())
	}
}

// Retention rolls the active segment of an idle partition first, so that it can go as well.
func TestRetentionEmptiesAnIdlePartition(t *testing.T) {
	s := defaults()
	s.RetentionTime = time.Hour
	h := open(t, settings(s))
	for range 10 {
		h.must(t, batchOf(nil, 10, 500)) // timestamps of 1970
	}
	if err := h.retain(context.Background(), time.Now(), func(*Partition) bool { return false }); err != nil || h.LogStart() != 0 {
		t.Fatalf("a live follower that lags must delay it: start %d, %v", h.LogStart(), err)
	}
	if err := h.retain(context.Background(), time.Now(), func(*Partition) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if h.LogStart() != 100 {
		t.Fatalf("log start %d, want 100", h.LogStart())
	}
	if base := h.must(t, plain(1)); base != 100 {
		t.Fatalf("offsets go on at %d", base)
	}
}

func TestRetentionRules(t *testing.T) {
	now := time.UnixMilli(100_000)
	seg := func(base, bytes, ts int64) log.SegmentInfo {
		return log.SegmentInfo{BaseOffset: base, Bytes: bytes, MaxTimestamp: ts}
	}
	three := []log.SegmentInfo{seg(0, 100, 10_000), seg(10, 100, 50_000), seg(20, 100, 90_000)}
	for _, c := range []struct {
		name       string
		segments   []log.SegmentInfo
		hw, end    int64
		age, bytes int64
		want       int64
		roll       bool
	}{
		{"nothing asked", three, 30, 30, -1, -1, 0, false},
		{"by age", three, 30, 30, 60_000, -1, 10, false},
		{"by age, two", three, 30, 30, 30_000, -1, 20, false},
		{"by age, the active one too", three, 30, 30, 5_000, -1, 30, true},
		{"not above the high watermark", three, 15, 30, 5_000, -1, 10, false},
		{"not the active one while it grows", three, 25, 30, 5_000, -1, 20, false},
		{"by size", three, 30, 30, -1, 200, 10, false},
		{"by size, never below it", three, 30, 30, -1, 201, 0, false},
		{"by size, never the active one", three, 30, 30, -1, 0, 20, false},
		{"young segments shield nothing behind them", []log.SegmentInfo{seg(0, 1, 99_000), seg(10, 1, 1_000), seg(20, 1, 99_000)}, 30, 30, 5_000, -1, 0, false},
		{"an empty log", []log.SegmentInfo{seg(0, 0, -1)}, 0, 0, 0, 0, 0, false},
	} {
		s := defaults()
		s.RetentionTime, s.RetentionBytes = time.Duration(c.age)*time.Millisecond, c.bytes
		if c.age < 0 {
			s.RetentionTime = -1
		}
		if got, roll := retention(c.segments, 0, c.hw, c.end, now, &s); got != c.want || roll != c.roll {
			t.Errorf("%s: %d roll %v, want %d %v", c.name, got, roll, c.want, c.roll)
		}
	}
}

func TestSilentProducersExpireByAReplicatedEntry(t *testing.T) {
	s := defaults()
	s.ProducerExpiry = 24 * time.Hour
	h := open(t, settings(s))
	ctx, now := context.Background(), time.Now()
	h.must(t, sequence(1, 0, 0, 1))
	expire := func(after time.Duration) {
		t.Helper()
		if err := h.expireProducers(ctx, now.Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	expire(0)
	h.must(t, sequence(2, 0, 0, 1))
	expire(23 * time.Hour)
	if h.ProducerCount() != 2 {
		t.Fatalf("%d producers, want 2", h.ProducerCount())
	}
	expire(24*time.Hour + time.Second)
	if h.ProducerCount() != 1 {
		t.Fatalf("%d producers, want 1: the first was silent for a day", h.ProducerCount())
	}
	if base := h.must(t, sequence(2, 0, 1, 1)); base != 2 {
		t.Fatalf("the other one goes on at %d", base)
	}
	h.g.depose(2, "", true)
	expire(50 * time.Hour)
	h.g.lead(3)
	expire(51 * time.Hour)
	if h.ProducerCount() != 1 {
		t.Fatal("a new leader must not expire before it has watched for a day")
	}
}

func TestOffsetsByTimestampStopAtTheHighWatermark(t *testing.T) {
	h := open(t, manual)
	h.send(plain(2), AcksNone)
	h.proposed(t, 1)
	if _, _, _, ok, err := h.OffsetForTimestamp(0, ReadUncommitted); ok || err != nil {
		t.Fatalf("found uncommitted data: %v", err)
	}
	h.g.commit(1)
	offset, ts, epoch, ok, err := h.OffsetForTimestamp(0, ReadUncommitted)
	if !ok || err != nil || offset != 0 || ts != 1000 || epoch != 1 {
		t.Fatalf("%d %d %d %v %v", offset, ts, epoch, ok, err)
	}
	if _, _, _, ok, _ = h.OffsetForTimestamp(1001, ReadUncommitted); ok {
		t.Fatal("nothing is that new")
	}
}

// The planted faults: each does its damage, and nothing does while it is off (every other test).

func TestSabotageAckBeforeCommitAnswersWhatIsNotInTheLog(t *testing.T) {
	h := open(t, sabotaged(failpoint.AckBeforeCommit, 60_000))
	h.must(t, plain(2))
	if base := h.must(t, plain(1)); base != 2 {
		t.Fatalf("predicted offset %d, want 2", base)
	}
	if h.EndOffset() != 0 {
		t.Fatal("the batches were not kept back")
	}
}

func TestSabotageAckBeforeCommitAppendsInTheEnd(t *testing.T) {
	h := open(t, sabotaged(failpoint.AckBeforeCommit, 30))
	h.must(t, plain(2))
	h.must(t, plain(1))
	eventually(t, "appended", func() bool { return h.HighWatermark() == 3 })
}

func TestSabotageSkipDedupeAppendsRepeats(t *testing.T) {
	h := open(t, sabotaged(failpoint.SkipDedupe, 1))
	h.must(t, sequence(7, 0, 0, 1))
	h.must(t, sequence(7, 0, 1, 1))
	h.must(t, sequence(7, 0, 0, 1))
	h.must(t, sequence(7, 0, 2, 1))
	if h.HighWatermark() != 4 {
		t.Fatalf("high watermark %d, want 4", h.HighWatermark())
	}
}

func TestSabotageAppendTwice(t *testing.T) {
	h := open(t, sabotaged(failpoint.AppendTwice, 1))
	if a, b := h.must(t, sequence(7, 0, 0, 1)), h.must(t, sequence(7, 0, 1, 1)); a != 0 || b != 2 {
		t.Fatalf("offsets %d and %d, want 0 and 2", a, b)
	}
	h = open(t, sabotaged(failpoint.AppendTwice, 20))
	for i := range int32(400) {
		h.must(t, sequence(7, 0, i, 1))
	}
	if extra := h.HighWatermark() - 400; extra < 4 || extra > 60 {
		t.Fatalf("%d of 400 batches were doubled, want about 20", extra)
	}
}

func TestSabotageHideBatchesHidesTheSameOnesFromEveryReader(t *testing.T) {
	h := open(t)
	for range 400 {
		h.must(t, plain(1))
	}
	h.failpoints = failpoint.New()
	if err := h.failpoints.SetSabotage(failpoint.HideBatches, true, 20); err != nil {
		t.Fatal(err)
	}
	seen := func(maxBytes int) (offsets map[int64]bool) {
		offsets = map[int64]bool{}
		for offset := int64(0); offset < 400; {
			r := read(offset)
			r.MaxBytes = maxBytes
			got, _ := h.fetch(t, r)
			if len(got) == 0 {
				t.Fatalf("stuck at %d", offset)
			}
			for _, b := range got {
				offsets[b.BaseOffset()] = true
			}
			offset = got[len(got)-1].NextOffset()
		}
		return offsets
	}
	small, large := seen(1), seen(1<<20)
	if hid := 400 - len(small); hid < 4 || hid > 60 {
		t.Fatalf("%d of 400 hidden, want about 20", hid)
	}
	for o := range int64(400) {
		if small[o] != large[o] {
			t.Fatalf("offset %d is hidden from one reader only", o)
		}
	}
}

// BenchmarkParkAndWake is the cost of a long poll that is answered.
func BenchmarkParkAndWake(b *testing.B) {
	h := open(b)
	var hw atomic.Int64
	w := NewWaiter()
	b.ReportAllocs()
	for b.Loop() {
		h.Park(w, hw.Load(), 1, ReadUncommitted)
		h.wake()
		<-w.C
	}
}
