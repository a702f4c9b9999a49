package broker

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/twopc"
)

var describeTransactionsAPI = api{
	key: 65, name: "DescribeTransactions", min: 0, max: 0,
	maxFrame: maxControlFrame,
	serve:    whenReady(describeTransactions),
	notes: []string{
		"Answered by the coordinator of each transactional id. Partitions of a decided transaction are shown until it has ended.",
		"An id that is voted on is shown in Kafka's states: Ongoing until every vote is in, PrepareCommit from then on, PrepareAbort once it is given up, then CompleteCommit or CompleteAbort. An abort leaves no record: after a change of coordinator it is shown as Empty, like an id that was given an epoch and began nothing. Two tagged fields of its state say more; clients that do not know them pass over them: 10000 is what its coordinator is at, by name (Voting, Deciding, Committing …), 10001 (i64, milliseconds since 1970) is when its participants were asked to promise, for as long as one of them may be in doubt. After a change of coordinator both times, this one and the start, are those of the decision: nothing older is written down.",
	},
}

func describeTransactions(c *call, req *kmsg.DescribeTransactionsRequest, answer func(kmsg.Response)) {
	resp := kmsg.NewPtrDescribeTransactionsResponse()
	req.TransactionalIDs = once(req.TransactionalIDs)
	resp.TransactionStates = make([]kmsg.DescribeTransactionsResponseTransactionState, len(req.TransactionalIDs))
	finish := after(len(req.TransactionalIDs), func() { answer(resp) })
	for i, id := range req.TransactionalIDs {
		c.cfg.Transactions.Describe(id, func(d coordinator.TxnDescribed, code kafkatx.Code) {
			out := &resp.TransactionStates[i]
			out.Default()
			out.TransactionalID, out.ErrorCode = id, c.refuse(int16(code))
			out.StartTimestamp, out.ProducerID, out.ProducerEpoch = -1, -1, -1
			if code == kafkatx.OK {
				describeTransaction(out, &d.Meta)
				describeVoted(out, d)
			}
			finish()
		})
	}
}

func describeTransaction(out *kmsg.DescribeTransactionsResponseTransactionState, m *kafkatx.Meta) {
	out.State, out.TimeoutMillis, out.StartTimestamp = m.Status.String(), int32(m.Timeout.Milliseconds()), m.Start
	out.ProducerID, out.ProducerEpoch = m.ProducerID, m.Epoch
	for _, p := range m.Partitions { // sorted
		if n := len(out.Topics); n == 0 || out.Topics[n-1].Topic != p.Topic {
			t := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
			t.Topic = p.Topic
			out.Topics = append(out.Topics, t)
		}
		t := &out.Topics[len(out.Topics)-1]
		t.Partitions = append(t.Partitions, p.Number)
	}
}

// describeVoted says of a transaction that is voted on what Kafka's fields have no place for.
func describeVoted(out *kmsg.DescribeTransactionsResponseTransactionState, d coordinator.TxnDescribed) {
	if d.Phase != "" {
		out.UnknownTags.Set(twopc.TagPhase, []byte(d.Phase))
	}
	if d.InDoubt != 0 {
		out.UnknownTags.Set(twopc.TagInDoubt, binary.BigEndian.AppendUint64(nil, uint64(d.InDoubt)))
	}
}
