package check

import (
	"fmt"
	"math"
	"time"

	"gopherlog/bench/history"
)

// Rule A10: what was sent after another message of its partition had been acknowledged stands behind it. To see that at a glance, the
// greatest offset acknowledged is kept by milliseconds for each partition, and for each lane the earliest send and the least offset of so
// many messages in a row that the lane needs no more than some kilobytes. Times that fall together and messages that lie together hide an
// inversion, and never make one. Only where something shows are sends and outcomes read again, and each message is judged for itself.

const (
	maxSpans    = 1 << 11 // of a lane: 32 KiB
	maxTicks    = 1 << 14 // of a partition: 128 KiB
	tick        = time.Millisecond
	maxSuspects = 1 << 20
)

// A span is some messages in a row of a lane.
type span struct {
	sent   time.Duration // the earliest; never: none
	offset int64         // the least that was acknowledged; MaxInt64: none
}

// spans of a lane, each of 1<<shift messages.
type spans struct {
	list  []span
	shift uint8
}

func (s *spans) at(sequence uint64) *span {
	for sequence>>s.shift >= maxSpans {
		n := (len(s.list) + 1) / 2
		for i := range n {
			a := s.list[2*i]
			if 2*i+1 < len(s.list) {
				b := s.list[2*i+1]
				a = span{min(a.sent, b.sent), min(a.offset, b.offset)}
			}
			s.list[i] = a
		}
		s.list = s.list[:n]
		s.shift++
	}
	i := int(sequence >> s.shift)
	for len(s.list) <= i {
		s.list = append(s.list, span{never, math.MaxInt64})
	}
	return &s.list[i]
}

// ticks hold one past the greatest offset of a partition that was acknowledged within each tick<<shift; 0: none.
type ticks struct {
	list  []int64
	shift uint8
}

func (t *ticks) add(at time.Duration, offset int64) {
	i := max(0, int64(at/tick)) >> t.shift
	for ; i >= maxTicks; i >>= 1 {
		n := (len(t.list) + 1) / 2
		for j := range n {
			v := t.list[2*j]
			if 2*j+1 < len(t.list) {
				v = max(v, t.list[2*j+1])
			}
			t.list[j] = v
		}
		t.list = t.list[:n]
		t.shift++
	}
	for int64(len(t.list)) <= i {
		t.list = append(t.list, 0)
	}
	t.list[i] = max(t.list[i], offset+1)
}

// sum makes each tick hold what was acknowledged in it or before.
func (t *ticks) sum() {
	for i := 1; i < len(t.list); i++ {
		t.list[i] = max(t.list[i], t.list[i-1])
	}
}

// before is the greatest offset acknowledged before the tick of at began; -1: none. After sum.
func (t *ticks) before(at time.Duration) int64 {
	i := min(max(0, int64(at/tick))>>t.shift, int64(len(t.list)))
	if i == 0 {
		return -1
	}
	return t.list[i-1] - 1
}

// order is what A10 keeps beside the lanes' spans.
type order struct {
	ticks []ticks // by partition
	of    int64
}

func (o *order) acked(a *lane, r *history.Record) {
	if r.Offset < 0 {
		return
	}
	o.of++
	o.ticks[r.Partition].add(r.At, r.Offset)
	s := a.spans.at(r.Sequence)
	s.offset = min(s.offset, r.Offset)
}

// judgeOrder is rule A10. Messages that are not in the log are A4's or A6's, and make no order.
func judgeOrder(l *ledger, found map[string]*finding) error {
	f := &finding{of: l.order.of}
	found["A10"] = f
	for i := range l.order.ticks {
		l.order.ticks[i].sum()
	}
	suspects := map[uint32]bool{} // by lane
	for _, a := range l.lanes {
		for _, s := range a.spans.list {
			if s.sent != never && s.offset < l.order.ticks[a.partition].before(s.sent) {
				suspects[a.index] = true
				break
			}
		}
	}
	if len(suspects) == 0 {
		return nil
	}
	return l.inverted(f, suspects)
}

// inverted looks at every message of the suspects.
func (l *ledger) inverted(f *finding, suspects map[uint32]bool) error {
	acked := func(fn func(a *lane, r *history.Record)) error {
		return l.each(history.RoleAcks, history.Outcome, func(r *history.Record) {
			if a := l.find(r); a != nil && r.Result == history.OK && r.Offset >= 0 && a.seen.has(r.Sequence) {
				fn(a, r)
			}
		})
	}
	known := make([]ticks, len(l.partitions))
	if err := acked(func(_ *lane, r *history.Record) { known[r.Partition].add(r.At, r.Offset) }); err != nil {
		return err
	}
	for i := range known {
		known[i].sum()
	}
	type message struct {
		lane     uint32
		sequence uint64
	}
	late := map[message]int64{} // sent when this offset had been acknowledged
	err := l.each(history.RoleSends, history.Sent, func(r *history.Record) {
		a := l.find(r)
		if a == nil || !suspects[a.index] {
			return
		}
		s, before := a.spans.at(r.Sequence), known[r.Partition].before(r.At)
		if s.offset >= before { // nor does any message near it
			return
		}
		if len(late) == maxSuspects {
			f.missing = fmt.Sprintf("more than %d messages were sent when greater offsets had been acknowledged", maxSuspects)
			return
		}
		late[message{a.index, r.Sequence}] = before
	})
	if err != nil {
		return err
	}
	return acked(func(a *lane, r *history.Record) {
		if before, ok := late[message{a.index, r.Sequence}]; ok && r.Offset < before {
			f.add("", func() Example {
				return l.example(r, fmt.Sprintf("stands at offset %d, and was sent when offset %d had been acknowledged", r.Offset, before))
			})
		}
	})
}
