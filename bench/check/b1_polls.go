package check

import (
	"fmt"

	"gopherlog/bench/history"
)

// Rules B1 to B4: what one reader is given of a partition goes on where it ended, without a gap and without a step back, within a poll
// (B1, B2) and from one poll to the next (B3, B4), unless the position was set anew in between.
type polls struct {
	l              *ledger
	b1, b2, b3, b4 finding
}

func newPolls(l *ledger) *polls {
	p := &polls{l: l}
	p.b1.missing, p.b2.missing = "no reader told where a poll ends", "no reader told where a poll ends"
	return p
}

// A watch follows one reader.
type watch struct {
	*polls
	marked bool    // the reader tells where its polls end
	poll   int64   // number of the poll
	last   []int64 // by partition: the last offset; -1 after a reset
	of     []int64 // by partition: in which poll that was
}

// lookForPolls bounds how far into a file the end of a poll is looked for.
const lookForPolls = 1 << 20

func (p *polls) watch(name string) *watch {
	w := &watch{polls: p, last: make([]int64, len(p.l.partitions)), of: make([]int64, len(p.l.partitions))}
	for i := range w.last {
		w.last[i] = -1
	}
	r, err := history.OpenReader(name)
	if err != nil {
		return w
	}
	defer r.Close()
	var rec history.Record
	for n := 0; n < lookForPolls && !w.marked && r.Next(&rec); n++ {
		w.marked = rec.Kind == history.Group && rec.Step == history.PollEnd
	}
	if w.marked {
		p.b1.missing, p.b2.missing = "", ""
	}
	return w
}

func (w *watch) end() { w.poll++ }

// reset says that the reader's position in a partition was set anew.
func (w *watch) reset(partition uint32) { w.last[partition] = -1 }

func (w *watch) resetAll() {
	for i := range w.last {
		w.last[i] = -1
	}
}

func (w *watch) delivered(r *history.Record) {
	last, poll := w.last[r.Partition], w.of[r.Partition]
	w.last[r.Partition], w.of[r.Partition] = r.Offset, w.poll
	v := &w.l.views[r.Partition]
	if last < 0 || v.over {
		return
	}
	skip, back := &w.b3, &w.b4
	if w.marked && poll == w.poll {
		skip, back = &w.b1, &w.b2
	}
	skip.of++
	back.of++
	if r.Offset <= last {
		back.add("", func() Example {
			return w.l.example(r, fmt.Sprintf("came behind offset %d", last))
		})
		return
	}
	if r.Offset == last+1 || w.l.holes {
		return
	}
	if n := v.count(last+1, r.Offset, nil); n > 0 {
		skip.add("", func() Example {
			return w.l.example(r, fmt.Sprintf("came right behind offset %d; the log holds %d messages between them", last, n))
		})
	}
}

func (p *polls) conclude(found map[string]*finding) {
	found["B1"], found["B2"], found["B3"], found["B4"] = &p.b1, &p.b2, &p.b3, &p.b4
}
