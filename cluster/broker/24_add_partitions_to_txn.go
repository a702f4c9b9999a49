package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
	"gopherlog/txn/kafkatx"
)

var addPartitionsToTxnAPI = api{
	key: 24, name: "AddPartitionsToTxn", min: 0, max: 3,
	maxFrame: maxControlFrame,
	serve:    whenReady(addPartitionsToTxn),
	notes: []string{
		"All or none: with a partition that does not exist (UNKNOWN_TOPIC_OR_PARTITION) or is internal (TOPIC_AUTHORIZATION_FAILED) the others are OPERATION_NOT_ATTEMPTED.",
		"Versions 4 and 5 are what Kafka's brokers send to one another; clients never do, and nodes of this cluster ask in their own way.",
		"While the transaction before is ending the request waits, up to 5 seconds, and is answered CONCURRENT_TRANSACTIONS after that.",
	},
}

func addPartitionsToTxn(c *call, req *kmsg.AddPartitionsToTxnRequest, answer func(kmsg.Response)) {
	resp := kmsg.NewPtrAddPartitionsToTxnResponse()
	image := c.cfg.Meta.Image()
	e := kafkatx.AddPartitions{ProducerID: req.ProducerID, Epoch: req.ProducerEpoch, Version: kafkatx.Version0}
	refused := false
	for _, in := range req.Topics {
		out := kmsg.NewAddPartitionsToTxnResponseTopic()
		out.Topic = in.Topic
		for _, number := range in.Partitions {
			p := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			p.Partition, p.ErrorCode = number, participates(image, in.Topic, number)
			refused = refused || p.ErrorCode != codeNone
			out.Partitions = append(out.Partitions, p)
			e.Partitions = append(e.Partitions, kafkatx.Partition{Topic: in.Topic, Number: number})
		}
		resp.Topics = append(resp.Topics, out)
	}
	if refused {
		answer(c.fillPartitions(resp, codeOperationNotAttempted))
		return
	}
	c.settleTxn(req.TransactionalID)
	c.cfg.Transactions.AddPartitions(req.TransactionalID, e, func(a kafkatx.Answer) {
		answer(c.fillPartitions(resp, int16(a.Code.For(kafkatx.APIAddPartitions, c.version))))
	})
}

// participates says whether a partition may be part of a client's transaction.
func participates(image *meta.Image, topic string, number int32) int16 {
	switch t := image.Topic(topic); {
	case t == nil || number < 0 || int(number) >= len(t.Partitions):
		return codeUnknownTopicOrPartition
	case t.Internal:
		return codeTopicAuthorizationFailed
	}
	return codeNone
}

// fillPartitions gives a code to every partition that has none.
func (c *call) fillPartitions(resp *kmsg.AddPartitionsToTxnResponse, code int16) kmsg.Response {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			if p.ErrorCode == codeNone {
				p.ErrorCode = code
			}
			c.refuse(p.ErrorCode)
		}
	}
	return resp
}
