package check

import (
	"fmt"

	"gopherlog/bench/history"
)

// lost is rule A4: acknowledged, absent, and a reader proved that it went past.
type lost struct{ finding }

// proves says whether the final read shows that the message is absent: it read on beyond its offset, or, where the offset is not
// known, it read everything and retention deleted nothing.
func (f *lost) proves(l *ledger, r *history.Record) bool {
	if l.holes || l.start[r.Partition] < 0 {
		return false
	}
	if r.Offset < 0 {
		return l.drained && l.start[r.Partition] == 0
	}
	return r.Offset < l.next[r.Partition]
}

func (f *lost) count(l *ledger, r *history.Record) {
	f.add("", func() Example {
		if r.Offset < 0 {
			return l.example(r, "was acknowledged without an offset, and the whole log does not hold it")
		}
		return l.example(r, fmt.Sprintf("was acknowledged at offset %d; the final read went on to %d without it", r.Offset, l.next[r.Partition]))
	})
}

// judgeLoss sorts what was acknowledged and not read under A4, A5 and A6, and tells its shape for A7. Only where something is missing
// are the outcomes read again.
func judgeLoss(l *ledger, found map[string]*finding) error {
	var a4 lost
	var a5 unseen
	var a6 lostTail
	var a7 lossShape
	var missing int64
	for _, a := range l.lanes { // with transactions some of these are aborted, and not owed
		missing += a.acked.without(a.seen)
	}
	if missing > 0 {
		err := l.each(history.RoleAcks, history.Outcome, func(r *history.Record) {
			a := l.find(r)
			if r.Result != history.OK || a == nil || a.seen.has(r.Sequence) {
				return
			}
			l.witnesses.unacked(r, a)
			switch {
			case !l.owed(a, r.Sequence):
				return
			case r.Offset >= 0 && r.Offset < l.start[r.Partition]:
				l.totals.Expired++
				return
			case a4.proves(l, r):
				a4.count(l, r)
			case a6.proves(l, r):
				a6.count(l, r)
			default:
				a5.count(l, r)
				return
			}
			a7.count(l, a, r)
		})
		if err != nil {
			return err
		}
	}
	l.totals.Lost, l.totals.Unseen = a4.finding.count+a6.finding.count, a5.finding.count
	for id, f := range map[string]*finding{"A4": &a4.finding, "A5": &a5.finding, "A6": &a6.finding, "A7": &a7.finding} {
		f.of = l.totals.Judged()
		found[id] = f
	}
	return nil
}

// owed says whether an acknowledged message has to be in the log that was read: where only the committed final read exists, those of
// transactions that were not committed need not.
func (l *ledger) owed(a *lane, sequence uint64) bool {
	if l.raw {
		return true
	}
	t := l.book.of(a, sequence)
	return t == nil || t.state == history.Committed
}
