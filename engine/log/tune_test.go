package log

import (
	"errors"
	"sync"
	"testing"
)

// TestSegmentLengthChangesWithTheNextAppend of an open log, and a reopened one has the same segments.
func TestSegmentLengthChangesWithTheNextAppend(t *testing.T) {
	r, w := startedRig(t, func(c *Config) { c.SegmentBytes = 1 << 20 })
	for i := uint64(3); i < 8; i++ {
		r.fill(w, data(i, 1, 1, 900))
	}
	if n := len(r.log.Segments()); n != 1 {
		t.Fatalf("%d segments at first", n)
	}
	if err := r.log.Tune(2000, false); err != nil {
		t.Fatal(err)
	}
	for i := uint64(8); i < 14; i++ {
		r.fill(w, data(i, 1, 1, 900))
	}
	if n := len(r.log.Segments()); n != 4 {
		t.Fatalf("%d segments, want the long one and three of two batches", n)
	}
	if err := r.log.Tune(0, false); err != nil {
		t.Fatal(err)
	}
	for i := uint64(14); i < 20; i++ {
		r.fill(w, data(i, 1, 1, 900))
	}
	before := r.log.Segments()
	if n := len(before); n != 4 {
		t.Fatalf("%d segments, want no new one at the default length", n)
	}
	r.kill()
	r.same(w)
	if n := len(r.log.Segments()); n != len(before) {
		t.Fatalf("%d segments after a restart, %d before", n, len(before))
	}
	if err := r.log.Tune(1<<33, false); err == nil {
		t.Error("a length that positions cannot hold is accepted")
	}
}

// TestSyncingBeginsAndEndsWithoutReopening the log: what was appended before it began is durable with it.
func TestSyncingBeginsAndEndsWithoutReopening(t *testing.T) {
	r, w := startedRig(t, func(c *Config) { c.SegmentBytes = 2000 })
	for i := uint64(3); i < 9; i++ {
		r.fill(w, data(i, 1, 1, 900))
	}
	lost := *r
	lost.cutPower(1, 0)
	if lost.log.LastIndex() == w.last() {
		t.Fatal("nothing is lost without a sync: the test tells nothing")
	}
	if err := r.log.Tune(2000, true); err != nil {
		t.Fatal(err)
	}
	kept := *r
	kept.cutPower(2, 0)
	kept.same(w)
	r.fill(w, data(9, 1, 1, 900), data(10, 1, 1, 900), data(11, 1, 1, 900))
	kept = *r
	kept.cutPower(3, 0)
	kept.same(w)
	syncs := r.cfg.Failpoints.Hits(FailSync)
	if err := r.log.Tune(2000, false); err != nil {
		t.Fatal(err)
	}
	r.fill(w, data(12, 1, 1, 100))
	if n := r.cfg.Failpoints.Hits(FailSync); n != syncs {
		t.Errorf("%d syncs after they were ended", n-syncs)
	}
}

// TestTuneWhileOthersAppend, and of a log that is closed.
func TestTuneWhileOthersAppend(t *testing.T) {
	r, _ := startedRig(t, nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint64(3); i < 200; i++ {
			if err := r.log.Append([]Entry{data(i, 1, 1, 100)}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range int64(50) {
		if err := r.log.Tune(1000+i, i%2 == 0); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if err := r.log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.log.Tune(1000, true); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
