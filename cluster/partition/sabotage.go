package partition

import (
	"time"

	"gopherlog/engine/failpoint"
	"gopherlog/engine/log"
	"gopherlog/engine/record"
	"gopherlog/txn/producer"
	"gopherlog/txn/twopc"
)

// Planted faults, off unless a test arms them through the control port: each breaks one promise so rarely, or so briefly,
// that only a check of every message can see it. A harness that does not turn red under them proves nothing.

const (
	defaultHold = 300 * time.Millisecond // how long ack-before-commit keeps a batch from being proposed
	defaultOdds = 5000                   // the others act on one in so many
	hideSalt    = 0x9e3779b97f4a7c15     // so that offset 0 is not always among the hidden
)

// ackBeforeCommit answers an acks=all request with the offset that the batch will get, and keeps the batch back: what a
// crash within the hold would have been acknowledged and is gone.
func (l *leadership) ackBeforeCommit(f *inflight, base int64, now time.Time) {
	on, millis := l.p.failpoints.Sabotage(failpoint.AckBeforeCommit)
	if !on || f.req.Acks != AcksAll {
		return
	}
	hold := defaultHold
	if millis > 0 {
		hold = time.Duration(millis) * time.Millisecond
	}
	f.earliest = now.Add(hold)
	f.answer(base, nil)
}

// releaseHeld proposes what was kept back long enough, in order.
func (l *leadership) releaseHeld(now time.Time) {
	n := 0
	for n < len(l.held) && !l.held[n].earliest.After(now) {
		l.ready(l.held[n])
		n++
	}
	l.held = shift(l.held, n)
}

// skipDedupe lets repeats through, one in so many, and whatever follows them.
func (p *Partition) skipDedupe(b record.Batch, v producer.Verdict) producer.Verdict {
	if v.Kind == producer.Append {
		return v
	}
	on, odds := p.failpoints.Sabotage(failpoint.SkipDedupe)
	if !on || v.Reason == producer.InvalidEpoch {
		return v
	}
	if v.Kind == producer.Duplicate && odds > 1 && mix(uint64(b.CRC()))%uint64(odds) != 0 {
		return v
	}
	return producer.Verdict{Kind: producer.Append}
}

// skipEpochCheck lets batches of a producer through that was fenced.
func (p *Partition) skipEpochCheck(v producer.Verdict) producer.Verdict {
	if v.Reason != producer.InvalidEpoch {
		return v
	}
	if on, _ := p.failpoints.Sabotage(failpoint.SkipEpochCheck); on {
		return producer.Verdict{Kind: producer.Append}
	}
	return v
}

// appendTwice returns a second proposal of the same bytes for one in so many batches, nil for the others.
func (l *leadership) appendTwice(f *inflight) *inflight {
	on, odds := l.p.failpoints.Sabotage(failpoint.AppendTwice)
	if !on || mix(uint64(f.batch.CRC()))%oddsOf(odds) != 0 {
		return nil
	}
	return &inflight{p: l.p, producer: -1, batch: append(record.Batch(nil), f.batch...)}
}

// hidden says whether hide-batches keeps the batch at this offset from every reader.
func hidden(base int64, odds uint64) bool { return mix(uint64(base)+hideSalt)%odds == 0 }

// hide cuts the hidden batches out of a slice. The last batch below limit is left in place, or a reader would wait for it for
// ever. It owns s and returns another one, or nil and the offset at which to read on if nothing is left.
func (p *Partition) hide(s *log.Slice, limit int64) (left *log.Slice, next int64, err error) {
	on, odds := p.failpoints.Sabotage(failpoint.HideBatches)
	if !on {
		return s, 0, nil
	}
	data, err := s.ReadAll(nil)
	if err != nil {
		s.Release()
		return nil, 0, err
	}
	cut := cutter{ranges: s.Ranges}
	for len(data) > 0 {
		b, rest, err := record.Parse(data)
		if err != nil {
			break
		}
		gone := b.NextOffset() < limit && hidden(b.BaseOffset(), oddsOf(odds))
		cut.take(int64(b.Length()), !gone)
		data, next = rest, b.NextOffset()
	}
	if cut.bytes == 0 {
		s.Release()
		return nil, next, nil
	}
	s.Ranges, s.Bytes = cut.kept, int(cut.bytes)
	return s, 0, nil
}

// cutter walks over file ranges and keeps parts of them.
type cutter struct {
	ranges, kept []log.FileRange
	bytes        int64
}

// take passes over n bytes.
func (c *cutter) take(n int64, keep bool) {
	for n > 0 && len(c.ranges) > 0 {
		head := &c.ranges[0]
		part := *head
		part.Len = min(n, head.Len)
		head.Pos, head.Len, n = head.Pos+part.Len, head.Len-part.Len, n-part.Len
		if head.Len == 0 {
			c.ranges = c.ranges[1:]
		}
		if keep {
			c.kept, c.bytes = append(c.kept, part), c.bytes+part.Len
		}
	}
}

func oddsOf(arg int64) uint64 {
	if arg <= 0 {
		return defaultOdds
	}
	return uint64(arg)
}

// obey lets a participant take an outcome for its own that it never promised.
func (b *ballots) obey(t *ballot, e twopc.Event) {
	o, told := e.(twopc.Outcome)
	if !told || !o.Commit || t.state.Stage != twopc.Working || t.state.Txn != o.Txn {
		return
	}
	if on, _ := b.p.failpoints.Sabotage(failpoint.CommitBeforeVotes); on {
		t.state.Stage = twopc.Prepared
	}
}

// mix spreads the bits of x.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}
