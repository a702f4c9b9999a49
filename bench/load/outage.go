package load

import (
	"sync"
	"time"
)

const (
	outageFrom = 50 * time.Millisecond // shorter waits are latency, not outage
	maxOutages = 10_000                // per partition; more are counted into the last
	paceStep   = 100 * time.Millisecond
	maxPaces   = 1 << 20 // per partition: 29 hours
)

// outageTracker watches one partition over all producers.
type outageTracker struct {
	mu      sync.Mutex
	waiting int           // messages without an outcome
	since   time.Duration // from when something waited without an acknowledgement; valid while pending
	pending bool
	spans   []Outage
	paces   []uint32 // acknowledged in each paceStep
}

// pace counts an acknowledgement. mu is held.
func (t *outageTracker) pace(now time.Duration) {
	i := int(max(now, 0) / paceStep)
	if i >= maxPaces {
		return
	}
	for len(t.paces) <= i {
		t.paces = append(t.paces, 0)
	}
	t.paces[i]++
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
	t.pace(now)
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

// A Pace is how many messages one partition had acknowledged in each step of time.
type Pace struct {
	Topic     string
	Partition int32
	Step      time.Duration
	Acked     []uint32
}

// Before is the rate per second over the last whole steps before at that make up span.
func (p Pace) Before(at, span time.Duration) float64 {
	last := int(at / p.Step)
	first := max(last-int(span/p.Step), 0)
	var n uint64
	for i := first; i < min(last, len(p.Acked)); i++ {
		n += uint64(p.Acked[i])
	}
	if last <= first {
		return 0
	}
	return float64(n) / (time.Duration(last-first) * p.Step).Seconds()
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
