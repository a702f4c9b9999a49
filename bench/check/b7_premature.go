package check

import (
	"fmt"

	"gopherlog/bench/history"
)

// asked is rule B7: a commit names nothing that the member has not processed. One that lost the partition on the way to the commit, and got it
// back, has processed what it asks for all the same; whether the commit may be done is another rule's.
func (m *member) asked(v *life, r *history.Record) {
	h, w := v.hold(r.Partition), &m.l.views[r.Partition]
	from := max(h.processed+1, h.position)
	if h.processed < 0 && h.position < 0 {
		from = h.first
	}
	if last, ok := v.worked[r.Partition]; ok {
		from = max(from, last+1)
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
