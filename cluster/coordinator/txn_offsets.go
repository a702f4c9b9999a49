package coordinator

import (
	"errors"
	"time"

	"gopherlog/cluster/partition"
	"gopherlog/engine/record"
	"gopherlog/txn/group"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/producer"
)

// offsetsHold is how long offsets of a transaction wait until it is known to be ongoing and its shard has them.
const offsetsHold = 5 * time.Second

// Transaction is whose transaction offsets are part of.
type Transaction struct {
	ID         string
	ProducerID int64
	Epoch      int16
	Version    producer.TransactionVersion // 2: the shard's partition becomes part of the transaction by itself
}

// CommitTxn is TxnOffsetCommit. The group's machine judges member and generation; then the offsets are part of the transaction, whose end
// decides whether they count. With OK they are committed as pending; done is as for the other requests.
func (g *Groups) CommitTxn(id string, e group.Commit, by Transaction, offsets []Offset, done func(kafkatx.Code)) {
	if by.ID == "" || !fits(by.ID) {
		done(TxnInvalidRequest)
		return
	}
	now := g.cfg.Now()
	pairs := make([]pair, len(offsets))
	for i := range offsets {
		pairs[i] = offsets[i].pair(id, now.UnixMilli())
	}
	e.Transactional = true
	code := g.enter(id, false, func(t *groupTerm) { t.commitTxn(id, e, by, pairs, now.Add(offsetsHold), done) })
	if code != group.OK {
		done(kafkatx.Code(code))
	}
}

func (t *groupTerm) commitTxn(id string, e group.Commit, by Transaction, offsets []pair, deadline time.Time, done func(kafkatx.Code)) {
	l := t.live(id)
	t.request(l, func(effect group.Effect) {
		if code := effect.(group.Answer).Code; code != group.OK || len(offsets) == 0 {
			done(kafkatx.Code(code))
			return
		}
		b := record.Builder{
			BaseTimestamp: t.now().UnixMilli(), Transactional: true,
			Producer: &record.Producer{ID: by.ProducerID, Epoch: by.Epoch, Sequence: record.NoSequence},
		}
		for _, p := range offsets {
			b.Append(record.Record{Key: p.key.Encode(), Value: p.value})
		}
		l.flying++
		t.send(&partition.AppendRequest{Batch: b.Finish(), TransactionalID: by.ID, Version: by.Version, Deadline: deadline}, func(err error) {
			l.flying--
			done(txnCodeOf(err))
			t.settle(l)
		}, func() { done(kafkatx.NotCoordinator) })
	}, func(r group.Request) group.Event {
		e.Request = r
		return e
	})
}

// txnCodeOf is what a client is told whose offsets did not become part of its transaction.
func txnCodeOf(err error) kafkatx.Code {
	switch {
	case errors.Is(err, partition.ErrInvalidTxnState), errors.Is(err, partition.ErrTransactionAborted):
		return kafkatx.TransactionAbortable
	case errors.Is(err, partition.ErrInvalidProducerEpoch):
		return kafkatx.InvalidProducerEpoch
	case errors.Is(err, partition.ErrProducerFenced):
		return kafkatx.ProducerFenced
	case errors.Is(err, partition.ErrInvalidProducerIDMapping):
		return kafkatx.InvalidProducerIDMapping
	case errors.Is(err, partition.ErrConcurrentTransactions):
		return kafkatx.Code(NotAvailable) // clients of every kind ask again; by the other code some give the transaction up
	}
	return kafkatx.Code(codeOf(err))
}
