package load

import (
	"sync"
	"time"
)

const (
	outageFrom = 50 * time.Millisecond // shorter waits are latency, not outage
	maxOutages = 10_000                // per partition; more are counted into the last
)

// outageTracker watches one partition over all producers.
type outageTracker struct {
	mu      sync.Mutex
	waiting int           // messages without an outcome
	since   time.Duration // from when something waited without an acknowledgement; valid while pending
	pending bool
	spans   []Outage
}

// sent tells that a message is on its way, due at intended.
func (t *outageTracker) sent(intended time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting++
	if !t.pending {
		t.pending, t.since = true, intended
	}
}

// acked tells that a message was acknowledged now.
func (t *outageTracker) acked(now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting--
	t.end(now, false)
	t.pending, t.since = t.waiting > 0, now
}

// gaveUp tells that a message ended without an acknowledgement. What waited goes on waiting.
func (t *outageTracker) gaveUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting--
}

func (t *outageTracker) end(now time.Duration, open bool) {
	if !t.pending || now-t.since < outageFrom {
		return
	}
	if len(t.spans) == maxOutages {
		t.spans[maxOutages-1].End = now
		return
	}
	t.spans = append(t.spans, Outage{Start: t.since, End: now, Open: open})
}

// finish closes the books at the end of sending.
func (t *outageTracker) finish(now time.Duration, topic string, partition int32) []Outage {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end(now, true)
	t.pending = false
	for i := range t.spans {
		t.spans[i].Topic, t.spans[i].Partition = topic, partition
	}
	return t.spans
}
