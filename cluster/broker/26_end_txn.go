package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/txn/kafkatx"
)

var endTxnAPI = api{
	key: 26, name: "EndTxn", min: 0, max: 5,
	maxFrame: maxControlFrame,
	serve:    whenReady(endTxn),
	notes: []string{
		"Answered when the decision is committed on a majority of the transactional id's shard of __transaction_state; the markers follow by themselves.",
		"Below version 5 a request that is delayed may decide a later transaction of the same producer epoch, as in Kafka (KAFKA-17754).",
		"From version 5 on the answer names the producer id and epoch of the next transaction, and to abort one that was never begun is allowed.",
	},
}

// firstRaisingEnd is the version from which on the end of a transaction raises the producer's epoch (transaction version 2).
const firstRaisingEnd = 5

func endTxn(c *call, req *kmsg.EndTxnRequest, answer func(kmsg.Response)) {
	e := kafkatx.EndTxn{ProducerID: req.ProducerID, Epoch: req.ProducerEpoch, Commit: req.Commit, Version: kafkatx.Version0}
	if c.version >= firstRaisingEnd {
		e.Version = kafkatx.Version2
	}
	c.settleTxn(req.TransactionalID)
	c.cfg.Transactions.EndTxn(req.TransactionalID, e, func(a kafkatx.Answer) {
		resp := kmsg.NewPtrEndTxnResponse()
		resp.ErrorCode = c.refuse(int16(a.Code.For(kafkatx.APIEndTxn, c.version)))
		resp.ProducerID, resp.ProducerEpoch = a.ProducerID, a.Epoch
		answer(resp)
	})
}
