package check

import (
	"fmt"

	"gopherlog/bench/history"
)

// resumed is rule B11: behind an aborted transaction a member goes on at its first input.
func (m *member) resumed(v *life, h *hold, r *history.Record) {
	if h.aborted < 0 {
		return
	}
	shape, first, last := "rewind", h.aborted, h.highest
	h.aborted = -1
	m.f.b11.of++
	switch w := &m.l.views[r.Partition]; {
	case r.Offset > first && w.count(first, r.Offset, nil) > 0:
		shape = "advance"
	case r.Offset < first:
		shape = "over-rewind"
	}
	if shape == "rewind" {
		m.f.b11.shape(shape)
		return
	}
	m.f.b11.add(shape, func() Example {
		return m.g.example(m.l, r.Partition, r.Offset, v.who, r.At, fmt.Sprintf("%s: the aborted transaction read offsets %d to %d", shape, first, last))
	})
}
