package check

import (
	"fmt"

	"gopherlog/bench/history"
)

// duplicates is rule A2. Every copy behind the first one counts. The harness never sends a message twice, so that a copy is the
// protocol's: a retry that the broker appended again, or a batch that it wrote twice.
type duplicates struct {
	finding
	lanes []*lane // of the examples
}

func (f *duplicates) judge(l *ledger, d delivery) {
	if d.first {
		return
	}
	f.add("", func() Example {
		f.lanes = append(f.lanes, d.lane)
		return l.example(d.Record, "")
	})
}

// locate finds the first copies of the examples, which nobody kept.
func (f *duplicates) locate(l *ledger) error {
	if len(f.examples) == 0 {
		return nil
	}
	type message struct {
		lane     *lane
		sequence uint64
	}
	first := map[message]int64{}
	for i, e := range f.examples {
		first[message{f.lanes[i], e.Sequence}] = -1
	}
	err := l.delivered(l.final, func(r *history.Record) {
		if r.Flags != 0 {
			return
		}
		m := message{l.find(r), r.Sequence}
		if at, wanted := first[m]; wanted && at < 0 {
			first[m] = r.Offset
		}
	})
	for i := range f.examples {
		e := &f.examples[i]
		e.What = fmt.Sprintf("stands at offset %d and again at %d", first[message{f.lanes[i], e.Sequence}], e.Offset)
	}
	return err
}
