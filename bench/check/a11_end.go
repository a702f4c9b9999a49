package check

import (
	"fmt"
	"slices"

	"gopherlog/bench/history"
)

// judgeEnds is rule A11, for ends and for last stable offsets, and keeps where each partition ends, and where retention let it start.
// Answers are compared only where one was known before the other was asked, and where the later leader epoch is the same or greater: a deposed leader that wakes up tells the end it knew.
func judgeEnds(l *ledger, found map[string]*finding) error {
	byPartition, stable := make([][]history.Record, len(l.partitions)), make([][]history.Record, len(l.partitions))
	var f finding
	err := l.each(history.RoleEnds, 0, func(r *history.Record) {
		switch r.Kind {
		case history.StartAnswer:
			if l.expires {
				l.start[r.Partition] = max(l.start[r.Partition], r.Offset)
			}
			return
		case history.StableAnswer:
			stable[r.Partition] = append(stable[r.Partition], *r)
		case history.EndAnswer:
			byPartition[r.Partition] = append(byPartition[r.Partition], *r)
		}
		f.of++
	})
	for _, answers := range stable {
		endsOf(l, &f, answers, "last stable offset")
	}
	l.book.stable = stable
	for i, answers := range byPartition {
		endsOf(l, &f, answers, "end")
		if n := len(answers); n > 0 {
			last := slices.MaxFunc(answers, func(a, b history.Record) int { return int(a.At - b.At) })
			l.end[i] = last.Offset
		}
	}
	found["A11"] = &f
	return err
}

func endsOf(l *ledger, f *finding, answers []history.Record, what string) {
	known := slices.Clone(answers)
	slices.SortStableFunc(known, func(a, b history.Record) int { return int(a.At - b.At) })
	slices.SortStableFunc(answers, func(a, b history.Record) int { return int(a.Asked - b.Asked) })
	greatest := map[int32]history.Record{} // by epoch, of what was known before
	at := 0
	for i := range answers {
		later := &answers[i]
		for ; at < len(known) && known[at].At < later.Asked; at++ {
			if old, ok := greatest[known[at].Epoch]; !ok || known[at].Offset > old.Offset {
				greatest[known[at].Epoch] = known[at]
			}
		}
		for epoch, earlier := range greatest {
			if (epoch <= later.Epoch || later.Epoch < 0) && earlier.Offset > later.Offset {
				f.add("", func() Example {
					e := l.example(later, fmt.Sprintf("the %s was %d at %.3f s in leader epoch %d, and %d later in epoch %d",
						what, earlier.Offset, seconds(earlier.At), epoch, later.Offset, later.Epoch))
					e.Producer = -1
					return e
				})
				break
			}
		}
	}
}
