package check

import (
	"fmt"

	"gopherlog/bench/history"
)

// asked is rule B7: a commit names nothing that the member has not processed.
func (m *member) asked(v *life, r *history.Record) {
	h, w := v.hold(r.Partition), &m.l.views[r.Partition]
	from := max(h.processed+1, h.position)
	if h.processed < 0 && h.position < 0 {
		from = h.first
	}
	if from < 0 || w.over {
		return
	}
	m.f.b7.of++
	if n := w.count(from, r.Offset, nil); n > 0 {
		m.f.b7.add("", func() Example {
			return m.g.example(m.l, r.Partition, r.Offset, v.who, r.At, fmt.Sprintf("%d was to be committed with %d messages not processed, from offset %d on", r.Offset, n, from))
		})
	}
}
