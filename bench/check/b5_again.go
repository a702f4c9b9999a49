package check

import (
	"fmt"

	"gopherlog/bench/history"
)

// delivered is rules B5 and B11.
func (m *member) delivered(v *life, r *history.Record) {
	m.watch.delivered(r)
	m.l.totals.GroupReads++
	if a := m.l.find(r); a != nil && r.Flags == 0 && r.Sequence < a.sent {
		m.l.book.runs.judge(a, r)
	}
	h, p := v.hold(r.Partition), m.g.at(r.Partition)
	m.resumed(v, h, r)
	if h.first < 0 {
		h.first = r.Offset
	}
	h.high = r.Offset
	m.f.b5.of++
	p.level(&m.l.views[r.Partition], r.Offset)
	covered := h.covered
	if h.since != never {
		covered = max(covered, p.committedBy(h.since))
	}
	if r.Offset < covered {
		m.f.b5.add("after a commit", func() Example {
			return m.g.example(m.l, r.Partition, r.Offset, v.who, r.At, fmt.Sprintf("was delivered although %d had been committed before", covered))
		})
	}
}

// level notes a delivery: the first, the second, or a further one.
func (p *groupPartition) level(v *view, offset int64) {
	if !v.has(offset) {
		return
	}
	i := uint64(offset - v.base)
	for k := range p.delivered {
		if !p.delivered[k].has(i) {
			p.delivered[k].set(i)
			return
		}
	}
}
