package check

import (
	"fmt"

	"gopherlog/bench/history"
)

// lostTail is rule A6: acknowledged at an offset that the log, read to its end after the faults, does not have.
type lostTail struct{ finding }

func (f *lostTail) proves(l *ledger, r *history.Record) bool {
	end := l.end[r.Partition]
	return l.drained && !l.holes && end >= 0 && r.Offset >= end
}

func (f *lostTail) count(l *ledger, r *history.Record) {
	f.add("", func() Example {
		return l.example(r, fmt.Sprintf("was acknowledged at offset %d; the log ends at %d", r.Offset, l.end[r.Partition]))
	})
}
