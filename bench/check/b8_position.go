package check

import (
	"fmt"

	"gopherlog/bench/history"
)

// told is rule B8: a position that was told after a commit had returned does not lie before it.
func (m *member) told(v *life, r *history.Record) {
	h := v.hold(r.Partition)
	h.position, h.first = r.Offset, -1
	m.reset(v, r.Partition)
	p := m.g.at(r.Partition)
	if h.since == never {
		return
	}
	m.f.b8.of++
	if c := p.committedBy(h.since); max(r.Offset, 0) < c {
		m.f.b8.add("", func() Example {
			return m.g.example(m.l, r.Partition, r.Offset, v.who, r.At, fmt.Sprintf("%d was committed before, and %d told", c, r.Offset))
		})
	}
}
