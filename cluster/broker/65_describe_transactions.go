package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/txn/kafkatx"
)

var describeTransactionsAPI = api{
	key: 65, name: "DescribeTransactions", min: 0, max: 0,
	maxFrame: maxControlFrame,
	serve:    whenReady(describeTransactions),
	notes:    []string{"Answered by the coordinator of each transactional id. Partitions of a decided transaction are shown until it has ended."},
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
