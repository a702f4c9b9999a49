package coordinator

import (
	"slices"

	"gopherlog/txn/kafkatx"
	"gopherlog/txn/twopc"
)

// Describe is DescribeTransactions of one, in the words of Kafka's protocol.
func (v *Voted) Describe(id string, done func(TxnDescribed, kafkatx.Code)) {
	t, why := v.shards.find(id)
	if t == nil {
		done(TxnDescribed{ID: id}, kafkatx.Code(why))
		return
	}
	m := t.machines.(*votedTerm)
	why = t.ask(func() {
		d := m.describe(id)
		if d == nil {
			done(TxnDescribed{ID: id}, TxnIDNotFound)
			return
		}
		done(*d, kafkatx.OK)
	})
	if why != codeNone {
		done(TxnDescribed{ID: id}, kafkatx.Code(why))
	}
}

// list are the ids of the shard that the filter chooses.
func (t *votedTerm) list(f TxnFilter) (out []TxnDescribed) {
	now := t.now()
	for _, id := range t.table.ids() {
		if d := t.describe(id); d != nil && f.fits(id, &d.Meta, now) {
			out = append(out, *d)
		}
	}
	return out
}

// rested is how an id is shown that is in no transaction. An abort leaves no record: who did not see it knows only that the newest commit is
// not the newest that happened, or whether a transaction of version 0 began behind it. The rest is Empty, as behind InitProducerId.
func rested(ledger twopc.Ledger, l *voted) kafkatx.Status {
	switch {
	case l != nil && l.aborted, !ledger.Begun.None():
		return kafkatx.CompleteAbort
	case ledger.LastIsNewest():
		return kafkatx.CompleteCommit
	}
	return kafkatx.Empty
}

// describe says where a transactional id stands; nil if nobody knows it. What Kafka's states have no word for they call by what may become
// of it: a vote under way is Ongoing.
func (t *votedTerm) describe(id string) *TxnDescribed {
	ledger, l := t.table.ledger(id), t.lives[id]
	if ledger.Owner == twopc.Nobody {
		return nil
	}
	m := kafkatx.Meta{
		Status: rested(ledger, l), ProducerID: ledger.Owner.Producer, Epoch: ledger.Owner.Epoch, LastEpoch: kafkatx.None, Previous: kafkatx.None,
		Next: kafkatx.None, Timeout: ledger.Timeout, Start: kafkatx.None,
	}
	if l == nil {
		return &TxnDescribed{ID: id, Meta: m, Phase: twopc.Ready.String()} // nothing is under way
	}
	d := &TxnDescribed{ID: id, Phase: l.state.Phase.String()}
	switch l.state.Phase {
	case twopc.Open, twopc.Beginning, twopc.Voting: // asked to vote, and not decided
		m.Status = kafkatx.Ongoing
	case twopc.Deciding, twopc.Committing:
		m.Status = kafkatx.PrepareCommit
	case twopc.Aborting, twopc.AbortRaising:
		m.Status = kafkatx.PrepareAbort
	default:
		d.Meta = m
		return d
	}
	if !l.began.IsZero() {
		m.Start = l.began.UnixMilli()
	}
	if !l.asked.IsZero() {
		d.InDoubt = l.asked.UnixMilli()
	}
	for _, member := range l.state.Members {
		if topic, number, ok := memberPartition(member); ok {
			m.Partitions = append(m.Partitions, kafkatx.Partition{Topic: topic, Number: number})
		}
	}
	slices.SortFunc(m.Partitions, kafkatx.Partition.Compare)
	d.Meta = m
	return d
}
