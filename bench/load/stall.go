package load

import (
	"sync"
	"time"
)

// A stallTracker watches how long the reader of one partition gets nothing although there is something that it should get: what is
// acknowledged, or, in transactions, what a commit was asked for. It counts in offsets, so that it does not matter who learns first.
type stallTracker struct {
	mu      sync.Mutex
	wanted  int64 // the reader should get as far
	got     int64 // it got as far
	pending bool
	since   time.Duration // valid while pending
	spans   []Outage
}

// want tells that everything below offset should become readable.
func (t *stallTracker) want(offset int64, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted = max(t.wanted, offset)
	if !t.pending && t.wanted > t.got {
		t.pending, t.since = true, now
	}
}

// read tells that the reader got as far as offset.
func (t *stallTracker) read(offset int64, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if offset <= t.got {
		return
	}
	t.got = offset
	t.note(now, false)
	t.pending, t.since = t.wanted > t.got, now
}

func (t *stallTracker) note(now time.Duration, open bool) {
	if t.pending && now-t.since >= outageFrom && len(t.spans) < maxOutages {
		t.spans = append(t.spans, Outage{Start: t.since, End: now, Open: open})
	}
}

// finish closes the books.
func (t *stallTracker) finish(now time.Duration, topic string, partition int32) []Outage {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.note(now, true)
	t.pending = false
	for i := range t.spans {
		t.spans[i].Topic, t.spans[i].Partition = topic, partition
	}
	return t.spans
}
