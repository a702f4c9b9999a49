package check

import "gopherlog/bench/history"

// phantoms is rule A3: what is in the log and should not be.
type phantoms struct{ finding }

// judge says whether r is a message that was sent to where it was read; a is its lane, nil where there is none. Reads of the run count too: a broker must not hand out what it
// later hides.
func (f *phantoms) judge(l *ledger, r *history.Record, a *lane, final bool) bool {
	shape, what := "", ""
	switch {
	case r.Flags&history.BadChecksum != 0:
		shape, what = "corrupt", "its checksum does not match"
	case r.Flags&history.Foreign != 0:
		shape, what = "foreign", "is no message of this run"
	case r.Flags&history.WrongPartition != 0:
		shape, what = "wrong partition", "was sent to another partition"
	case (a == nil || r.Sequence >= a.sent) && l.holes:
		return false // its send may be one of those that the history misses
	case a == nil || r.Sequence >= a.sent:
		shape, what = "never sent", "was never sent"
	case a.failed[r.Sequence]:
		shape, what = "resurrected", "had failed for certain"
	default:
		return true
	}
	if !final {
		what += " (read during the run)"
	}
	f.add(shape, func() Example { return l.example(r, what) })
	return shape == "resurrected"
}
