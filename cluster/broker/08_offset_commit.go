package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/txn/group"
)

var offsetCommitAPI = api{
	key: 8, name: "OffsetCommit", min: 2, max: 10,
	maxFrame: maxControlFrame,
	serve:    whenReady(offsetCommit),
	notes: []string{
		"Answered when the offsets are committed on a majority of the group's shard. A retention time that a client names (versions 2 to 4) is ignored: offsets live as long as the group has members, and for the node's retention after that.",
		"A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, metadata of more than 4,096 bytes OFFSET_METADATA_TOO_LARGE; the others are committed.",
		"From version 9 on a member of a group that is not there is told GROUP_ID_NOT_FOUND, before that ILLEGAL_GENERATION. From version 10 on topics are named by their ids; one that does not exist is UNKNOWN_TOPIC_ID.",
		"A topic that this node has not heard of is looked for before the answer, 500 ms at most: it may have been made a moment ago.",
	},
}

const (
	firstCommitToNoGroup = 9 // that has a code of its own
	firstOffsetCommitIDs = 10
)

func offsetCommit(c *call, req *kmsg.OffsetCommitRequest, answer func(kmsg.Response)) {
	resp := kmsg.NewPtrOffsetCommitResponse()
	image := c.heard(func(yield func(named) bool) {
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				if !yield(named{t.Topic, t.TopicID, c.version >= firstOffsetCommitIDs, p.Partition}) {
					return
				}
			}
		}
	})
	var offsets []coordinator.Offset
	for i := range req.Topics {
		in, out := &req.Topics[i], kmsg.NewOffsetCommitResponseTopic()
		out.Topic, out.TopicID = in.Topic, in.TopicID
		topic, code := topicOf(image, in.Topic, in.TopicID, c.version >= firstOffsetCommitIDs)
		for _, p := range in.Partitions {
			o := coordinator.Offset{Partition: p.Partition, Offset: p.Offset, Epoch: p.LeaderEpoch, Metadata: text(p.Metadata)}
			r := kmsg.NewOffsetCommitResponseTopicPartition()
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
	c.settleGroups(req.Group)
	c.cfg.Groups.Commit(req.Group, e, offsets, func(code group.Code) {
		if code == group.GroupIDNotFound && c.version < firstCommitToNoGroup {
			code = group.IllegalGeneration
		}
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				if p := &resp.Topics[i].Partitions[j]; p.ErrorCode == codeNone {
					p.ErrorCode = c.refuse(int16(code))
				}
			}
		}
		answer(resp)
	})
}
