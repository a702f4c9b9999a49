package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/txn/kafkatx"
)

var initProducerIDAPI = api{
	key: 22, name: "InitProducerId", min: 0, max: 5,
	maxFrame: maxControlFrame,
	serve:    whenReady(initProducerID),
	notes: []string{
		"Without a transactional id: an id that no node ever hands out again, epoch 0, also to a producer that names an id it had before.",
		"With one: the next epoch of its producer id, after a transaction that was open is aborted and has ended, for which the request waits up to 5 seconds. INVALID_TRANSACTION_TIMEOUT above the node's transaction.max.timeout.ms.",
		"A producer id without an epoch, or an epoch without an id, is INVALID_REQUEST.",
		"Version 6 (a two-phase commit between Kafka and another system, KIP-939) is not served; which ids are committed by vote says their prefix.",
	},
}

func initProducerID(c *call, req *kmsg.InitProducerIDRequest, answer func(kmsg.Response)) {
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if (req.ProducerID == kafkatx.None) != (req.ProducerEpoch == kafkatx.None) {
		resp.ErrorCode = c.refuse(codeInvalidRequest)
		answer(resp)
		return
	}
	if req.TransactionalID == nil {
		c.freshProducerID(resp)
		answer(resp)
		return
	}
	e := kafkatx.InitProducerID{
		Timeout: time.Duration(req.TransactionTimeoutMillis) * time.Millisecond, ProducerID: req.ProducerID, Epoch: req.ProducerEpoch,
	}
	c.settleTxn(*req.TransactionalID)
	c.cfg.Transactions.InitProducerID(*req.TransactionalID, e, func(a kafkatx.Answer) {
		resp.ErrorCode = c.refuse(int16(a.Code.For(kafkatx.APIInitProducerID, c.version)))
		resp.ProducerID, resp.ProducerEpoch = a.ProducerID, a.Epoch
		answer(resp)
	})
}

func (c *call) freshProducerID(resp *kmsg.InitProducerIDResponse) {
	ctx, cancel := c.timeout(int32(c.cfg.AdminTimeout.Milliseconds()))
	defer cancel()
	id, err := c.cfg.Meta.NextProducerID(ctx)
	if code := c.code(err); code != codeNone {
		// What a client retries: the control group has no leader for the moment.
		resp.ErrorCode = codeCoordinatorNotAvailable
		return
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
}
