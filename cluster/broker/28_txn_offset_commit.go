package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/txn/group"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/producer"
)

var txnOffsetCommitAPI = api{
	key: 28, name: "TxnOffsetCommit", min: 0, max: 6,
	maxFrame: maxControlFrame,
	serve:    whenReady(txnOffsetCommit),
	notes: []string{
		"Answered when the offsets are committed on a majority of the group's shard, as pending: they count when the transaction commits. Until it ends, OffsetFetch with RequireStable answers UNSTABLE_OFFSET_COMMIT for them.",
		"From version 3 on a client may name its group member and generation, which are then judged as in OffsetCommit (KIP-447). From version 6 on topics are named by their ids; one that does not exist is UNKNOWN_TOPIC_ID. One that this node has not heard of is looked for first, 500 ms at most.",
		"While the transaction before is ending the request waits, up to 5 seconds, and is answered COORDINATOR_NOT_AVAILABLE after that: by CONCURRENT_TRANSACTIONS some clients would give the transaction up.",
	},
}

const (
	// firstAddingOffsets is the version from which on the group's shard becomes part of the transaction by itself (transaction version 2).
	firstAddingOffsets      = 5
	firstTxnOffsetCommitIDs = 6
)

func txnOffsetCommit(c *call, req *kmsg.TxnOffsetCommitRequest, answer func(kmsg.Response)) {
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	image := c.heard(func(yield func(named) bool) {
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				if !yield(named{t.Topic, t.TopicID, c.version >= firstTxnOffsetCommitIDs, p.Partition}) {
					return
				}
			}
		}
	})
	var offsets []coordinator.Offset
	for _, in := range req.Topics {
		out := kmsg.NewTxnOffsetCommitResponseTopic()
		out.Topic, out.TopicID = in.Topic, in.TopicID
		topic, code := topicOf(image, in.Topic, in.TopicID, c.version >= firstTxnOffsetCommitIDs)
		for _, p := range in.Partitions {
			o := coordinator.Offset{Partition: p.Partition, Offset: p.Offset, Epoch: p.LeaderEpoch, Metadata: text(p.Metadata)}
			r := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			if r.Partition, r.ErrorCode = p.Partition, code; topic != nil {
				r.ErrorCode = ofTopic(&o, topic)
			}
			if c.refuse(r.ErrorCode) == codeNone {
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
	c.settleGroups(req.Group)
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
