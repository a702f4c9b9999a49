package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/txn/kafkatx"
)

var addOffsetsToTxnAPI = api{
	key: 25, name: "AddOffsetsToTxn", min: 0, max: 4,
	maxFrame: maxControlFrame,
	serve:    whenReady(addOffsetsToTxn),
	notes:    []string{"Makes the group's shard of __consumer_offsets part of the transaction; otherwise as AddPartitionsToTxn."},
}

func addOffsetsToTxn(c *call, req *kmsg.AddOffsetsToTxnRequest, answer func(kmsg.Response)) {
	resp := kmsg.NewPtrAddOffsetsToTxnResponse()
	ctx, cancel := context.WithTimeout(c.req.Conn.Context(), autoCreateWait)
	defer cancel()
	topic, err := c.cfg.Groups.Ensure(ctx)
	if err != nil || req.Group == "" {
		resp.ErrorCode = c.refuse(codeCoordinatorNotAvailable)
		if req.Group == "" {
			resp.ErrorCode = c.refuse(codeInvalidGroupID)
		}
		answer(resp)
		return
	}
	shard := kafkatx.Partition{Topic: topic.Name, Number: coordinator.ShardOf(req.Group, len(topic.Partitions))}
	e := kafkatx.AddPartitions{
		ProducerID: req.ProducerID, Epoch: req.ProducerEpoch, Partitions: []kafkatx.Partition{shard}, Version: kafkatx.Version0,
	}
	c.settleTxn(req.TransactionalID)
	c.cfg.Transactions.AddPartitions(req.TransactionalID, e, func(a kafkatx.Answer) {
		resp.ErrorCode = c.refuse(int16(a.Code.For(kafkatx.APIAddOffsets, c.version)))
		answer(resp)
	})
}
