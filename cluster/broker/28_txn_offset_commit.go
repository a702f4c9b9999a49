package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/txn/group"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/producer"
)

var txnOffsetCommitAPI = api{
	key: 28, name: "TxnOffsetCommit", min: 0, max: 5,
	maxFrame: maxGroupFrame,
	serve:    whenReady(txnOffsetCommit),
	notes: []string{
		"Answered when the offsets are committed on a majority of the group's shard, as pending: they count when the transaction commits. Until it ends, OffsetFetch with RequireStable answers UNSTABLE_OFFSET_COMMIT for them.",
		"From version 3 on a client may name its group member and generation, which are then judged as in OffsetCommit (KIP-447).",
	},
}

// firstAddingOffsets is the version from which on the group's shard becomes part of the transaction by itself (transaction version 2).
const firstAddingOffsets = 5

func txnOffsetCommit(c *call, req *kmsg.TxnOffsetCommitRequest, answer func(kmsg.Response)) {
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	image := c.cfg.Meta.Image()
	var offsets []coordinator.Offset
	for _, in := range req.Topics {
		out := kmsg.NewTxnOffsetCommitResponseTopic()
		out.Topic = in.Topic
		topic := image.Topic(in.Topic)
		for _, p := range in.Partitions {
			o := coordinator.Offset{Topic: in.Topic, Partition: p.Partition, Offset: p.Offset, Epoch: p.LeaderEpoch, Metadata: text(p.Metadata)}
			r := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			switch r.Partition = p.Partition; {
			case topic == nil || p.Partition < 0 || int(p.Partition) >= len(topic.Partitions):
				r.ErrorCode = c.refuse(codeUnknownTopicOrPartition)
			case len(o.Metadata) > coordinator.MaxMetadata:
				r.ErrorCode = c.refuse(codeOffsetMetadataTooLarge)
			default:
				o.TopicID = topic.ID
				offsets = append(offsets, o)
			}
			out.Partitions = append(out.Partitions, r)
		}
		resp.Topics = append(resp.Topics, out)
	}
	e := group.Commit{MemberID: req.MemberID, Instance: text(req.InstanceID), Generation: req.Generation}
	by := coordinator.Transaction{ID: req.TransactionalID, ProducerID: req.ProducerID, Epoch: req.ProducerEpoch}
	if c.version >= firstAddingOffsets {
		by.Version = producer.Version2
	}
	c.cfg.Groups.CommitTxn(req.Group, e, by, offsets, func(code kafkatx.Code) {
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				if p := &resp.Topics[i].Partitions[j]; p.ErrorCode == codeNone {
					p.ErrorCode = c.refuse(int16(code.For(kafkatx.APITxnOffsetCommit, c.version)))
				}
			}
		}
		answer(resp)
	})
}
