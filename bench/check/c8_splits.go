package check

import (
	"fmt"

	"gopherlog/bench/history"
)

// splits is rule C8: outputs of a transaction and its offsets go together.
type splits struct {
	l     *ledger
	lines []pipeline
	wrong map[int32]string
	of    map[int32]bool
	lost  []readEdge // inputs below the position of transactions whose outputs are not readable; judged in the end
}

func (s *splits) output(txn int32, readable bool, input *history.Record) {
	p := &s.lines[input.Partition]
	if p.position < 0 {
		return
	}
	if s.of == nil {
		s.of = map[int32]bool{}
	}
	s.of[txn] = true
	switch below := input.Offset < p.position; {
	case readable && !below:
		s.wrong[txn] = fmt.Sprintf("what it made of offset %d is readable, the group stands at %d", input.Offset, p.position)
	case !readable && below && len(s.lost) < maxReads:
		s.lost = append(s.lost, readEdge{input.Offset, input.Partition, txn})
	}
}

func (s *splits) conclude(o Options) *finding {
	f := &finding{of: int64(len(s.of)), missing: "no transaction has inputs below a known position of its group"}
	if why := s.l.complete(o); why != "" {
		f.missing = why
		return f
	}
	if f.of > 0 {
		f.missing = ""
	}
	last := map[[2]int64]int32{} // who tried an input last, of those that show nothing of it
	for _, e := range s.lost {
		if v := &s.l.views[e.partition]; !v.has(e.offset) || s.lines[e.partition].once.has(uint64(e.offset-v.base)) {
			continue // not readable itself, or another transaction did it
		}
		last[[2]int64{int64(e.partition), e.offset}] = e.reader
	}
	for place, txn := range last {
		if s.wrong[txn] == "" {
			s.wrong[txn] = fmt.Sprintf("nothing that was made of offset %d is readable, the group stands at %d", place[1], s.lines[place[0]].position)
		}
	}
	for txn, what := range s.wrong {
		f.add("", func() Example { return s.l.book.txns[txn].example(what) })
	}
	return f
}
