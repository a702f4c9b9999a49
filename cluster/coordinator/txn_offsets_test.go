package coordinator

import (
	"testing"

	"gopherlog/cluster/partition"
	"gopherlog/txn/group"
	"gopherlog/txn/kafkatx"
)

// A code that a client does not expect behind TxnOffsetCommit ends it for good, and one that it takes for an end of the transaction costs
// the work: what another try may mend is COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR, which clients of every kind try again.
func TestWhyOffsetsDidNotBecomePartOfATransactionIsSaidInWordsThatClientsExpect(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		err  error
		want kafkatx.Code
	}{
		{nil, kafkatx.OK},
		{partition.ErrConcurrentTransactions, kafkatx.Code(NotAvailable)},
		{partition.ErrNotEnoughReplicas, kafkatx.Code(NotAvailable)},
		{partition.ErrNotEnoughReplicasAfterAppend, kafkatx.Code(NotAvailable)},
		{partition.ErrTimeout, kafkatx.Code(NotAvailable)},
		{partition.ErrInvalidTxnState, kafkatx.TransactionAbortable},
		{partition.ErrTransactionAborted, kafkatx.TransactionAbortable},
		{partition.ErrInvalidProducerEpoch, kafkatx.InvalidProducerEpoch},
		{partition.ErrProducerFenced, kafkatx.ProducerFenced},
		{partition.ErrInvalidProducerIDMapping, kafkatx.InvalidProducerIDMapping},
		{partition.ErrStorage, kafkatx.NotCoordinator},
	} {
		r.part.change(func(p *fakeShard) { p.refuse = c.err })
		got := make(chan kafkatx.Code, 1)
		r.g.CommitTxn("g", group.Commit{Generation: -1}, Transaction{ID: "x", ProducerID: 7}, []Offset{at(0, 5)}, func(code kafkatx.Code) { got <- code })
		if code := wait(t, got); code != c.want {
			t.Errorf("%v: code %d, want %d", c.err, code, c.want)
		}
	}
}
