package voted

import (
	"gopherlog/txn/explore"
	"gopherlog/txn/twopc"
)

// spent says that a message can do nothing any more. Every case rests on something that never goes back: the client's place in its
// script, a transaction that a coordinator is done with, a transaction that is over in a partition.
func (in invariants) spent(v explore.View, m explore.Message) bool {
	switch b := m.Body.(type) {
	case answer:
		l := v.Local(clientID).(clientLocal)
		return !l.awaits(b.Request)
	case produced:
		l := v.Local(clientID).(clientLocal)
		return l.Move != producing || l.Txn != b.Txn || l.Part != b.Part
	case add:
		return (in.OnlyEndsLate || in.Punctual) && !v.Local(clientID).(clientLocal).awaits(b.Request)
	case end:
		return in.Punctual && !v.Local(clientID).(clientLocal).awaits(b.Request)
	case produce:
		return in.Punctual && !v.Local(clientID).(clientLocal).produces(b.Txn)
	case initialise:
		return in.answered(v, b.Request)
	case verify:
		if (in.OnlyEndsLate || in.Punctual) && !v.Local(clientID).(clientLocal).produces(b.Txn) {
			return true
		}
		return has(v, explore.ID(b.Part)+firstPartition, b.Txn)
	case verified:
		if in.Punctual && !v.Local(clientID).(clientLocal).produces(b.Txn) {
			return true
		}
		return has(v, m.To, b.Txn)
	case protocol:
		return in.spentProtocol(v, m.From, m.To, b.Message)
	}
	return false
}

// answered says that an InitProducerId has done what it can: a copy that comes later is as good as one more new instance, of which there
// is no end.
func (in invariants) answered(v explore.View, r twopc.Request) bool {
	return !v.Local(clientID).(clientLocal).awaits(r) || v.Flying(func(m explore.Message) bool {
		a, ok := m.Body.(answer)
		return ok && a.Request == r && a.Result == twopc.Done
	})
}

// produces says that the client waits for an acknowledgement of the batch.
func (l clientLocal) produces(txn int) bool { return l.Move == producing && l.Txn == txn }

// awaits says that the answer to the request would tell the client something.
func (l clientLocal) awaits(r twopc.Request) bool {
	return r == clientRequest(l.Txn, int(l.Move)*10+l.Part)
}

// has says that the batch is durable in the partition. An incarnation that was deposed may lack it, and nothing of what it does lasts.
func has(v explore.View, p explore.ID, txn int) bool {
	return v.Local(p).(partitionLocal).durable&(1<<txn) != 0 && v.Deposed(p) == nil
}

func (in invariants) spentProtocol(v explore.View, from, to explore.ID, m twopc.Message) bool {
	switch m := m.(type) {
	case twopc.Vote:
		return in.nobody(v, func(c twopc.Coordinator) bool {
			return c.Txn == m.Txn && (c.Phase == twopc.Open || c.Phase == twopc.Voting)
		})
	case twopc.Ended:
		return in.nobody(v, func(c twopc.Coordinator) bool { return c.Txn == m.Txn })
	case twopc.Query:
		return over(v, from, m.Txn)
	case twopc.Prepare:
		return over(v, to, m.Txn) && in.nobody(v, func(c twopc.Coordinator) bool { return c.Txn == m.Txn && c.Phase == twopc.Voting })
	case twopc.Outcome:
		return over(v, to, m.Txn) && in.nobody(v, func(c twopc.Coordinator) bool { return c.Txn == m.Txn })
	}
	return false
}

// nobody says that neither the coordinator nor one that was deposed is so.
func (in invariants) nobody(v explore.View, so func(twopc.Coordinator) bool) bool {
	if so(v.Local(coordinatorID).(twopc.Coordinator)) {
		return false
	}
	d := v.Deposed(coordinatorID)
	return d == nil || !so(d.(twopc.Coordinator))
}

// over says that the transaction is over in every incarnation of the partition.
func over(v explore.View, p explore.ID, t twopc.Txn) bool {
	if t.Compare(v.Local(p).(partitionLocal).Ended) > 0 {
		return false
	}
	d := v.Deposed(p)
	return d == nil || t.Compare(d.(partitionLocal).Ended) <= 0
}
