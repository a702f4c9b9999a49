package voted

import (
	"time"

	"gopherlog/txn/twopc"
)

// planted is what a participant does in place of its machine under the planted fault; done: it did.
func (p partition) planted(l twopc.Participant, e twopc.Event) (_ twopc.Participant, fx []twopc.Effect, done bool) {
	switch p.Plant {
	case LonelyAbort:
		if t, ok := e.(twopc.Timer); ok && t.Kind == twopc.TimerTransaction && l.Stage == twopc.Prepared {
			l, fx = p.Participate(l, twopc.Outcome{Txn: l.Txn, Epoch: l.Txn.Owner.Epoch}, time.Time{})
			return l, fx, true
		}
	case RefusedMarker:
		o, ok := e.(twopc.Outcome)
		return l, nil, ok && o.Txn.Compare(l.Ended) <= 0
	case EarlyVote:
		if _, ok := e.(twopc.Prepare); ok && (l.Stage == twopc.Working || l.Stage == twopc.Idle) {
			if l, fx = p.Participate(l, e, time.Time{}); l.Stage == twopc.Promising {
				fx = append(fx, twopc.Report{Message: twopc.Vote{Txn: l.Txn, From: l.Self, Yes: true}})
			}
			return l, fx, true
		}
	case IgnorantEnded:
		if o, ok := e.(twopc.Outcome); ok && l.Stage == twopc.Idle {
			return l, []twopc.Effect{twopc.Report{Message: twopc.Ended{Txn: o.Txn, From: l.Self}}}, true
		}
	case AdoptedOrphan:
		b, ok := e.(twopc.Batch)
		if ok && l.Stage == twopc.Working && b.Verified.Compare(l.Txn) > 0 {
			l.Txn = b.Verified
			return l, []twopc.Effect{twopc.Answer{Request: b.Request, Result: twopc.Admitted}}, true
		}
	}
	return l, nil, false
}
