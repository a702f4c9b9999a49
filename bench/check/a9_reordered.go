package check

import "fmt"

// reorders is rule A9: within a lane, first copies must stand in the order in which they were sent. Further copies are A2's.
type reorders struct{ finding }

func (f *reorders) judge(l *ledger, d delivery) {
	if !d.first {
		return
	}
	if d.Sequence+1 < d.lane.last {
		before := d.lane.last - 1
		f.add("", func() Example {
			return l.example(d.Record, fmt.Sprintf("stands behind sequence %d of its lane, which was sent later", before))
		})
	}
	d.lane.last = d.Sequence + 1
}
