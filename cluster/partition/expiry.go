package partition

import (
	"context"
	"sync"
	"time"
)

const (
	// MaxProducers bounds the producer ids remembered per partition; above it those that were silent longest go.
	MaxProducers = 100_000
	// producersKept is what such a cut leaves.
	producersKept = MaxProducers * 9 / 10
	// marksPerExpiry is how finely the leader remembers when the log was how long.
	marksPerExpiry = 24
)

// offsetMarks remembers where the high watermark was when. A leader keeps them in memory only: after a change of leader
// producers live longer, never shorter.
type offsetMarks struct {
	mu    sync.Mutex
	marks []offsetMark
}

type offsetMark struct {
	at     time.Time
	offset int64
}

// note records the high watermark unless the last mark is fresh, and returns the newest mark at least age old (offset 0
// if none): what was written below it was written longer ago than age.
func (m *offsetMarks) note(now time.Time, hw int64, age time.Duration) (below int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.marks); n == 0 || now.Sub(m.marks[n-1].at) >= age/marksPerExpiry {
		m.marks = append(m.marks, offsetMark{at: now, offset: hw})
	}
	old := 0
	for old < len(m.marks) && now.Sub(m.marks[old].at) >= age {
		below = m.marks[old].offset
		old++
	}
	if old > 1 {
		m.marks = append(m.marks[:0], m.marks[old-1:]...)
	}
	return below
}

// reset forgets the marks.
func (m *offsetMarks) reset() {
	m.mu.Lock()
	m.marks = nil
	m.mu.Unlock()
}

// expireProducers proposes to forget producers that were silent for the configured time, or that are too many. Only a
// leader does.
func (p *Partition) expireProducers(ctx context.Context, now time.Time) error {
	if p.lead.Load() == nil {
		p.marks.reset()
		return nil
	}
	p.stateMu.Lock()
	known, crowded := p.producers.Len()+len(p.standings.of), int64(0)
	if p.producers.Len() > MaxProducers {
		crowded = p.producers.ExpireBound(producersKept)
	}
	p.stateMu.Unlock()
	if known == 0 {
		p.marks.reset()
		return nil
	}
	below := max(crowded, p.marks.note(now, p.HighWatermark(), p.settings.Load().ProducerExpiry))
	if !p.hasProducerBelow(below) {
		return nil
	}
	return p.control(ctx, commandExpire, below, false)
}

func (p *Partition) hasProducerBelow(offset int64) bool {
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	return p.producers.AnyBelow(offset) || p.standings.anyBelow(offset)
}

// ProducerCount is the number of producer ids remembered.
func (p *Partition) ProducerCount() int {
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	return p.producers.Len()
}
