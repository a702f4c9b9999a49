package check

import "gopherlog/bench/history"

// lossShape is rule A7: what is lost between messages that arrived is worse than what is lost at an end.
type lossShape struct{ finding }

func (f *lossShape) count(l *ledger, a *lane, r *history.Record) {
	shape := "middle"
	switch {
	case !a.any:
		shape = "whole lane"
	case r.Sequence < a.low:
		shape = "prefix"
	case r.Sequence > a.high:
		shape = "suffix"
	}
	f.add(shape, func() Example { return l.example(r, shape) })
}
