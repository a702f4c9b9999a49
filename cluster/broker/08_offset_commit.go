package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/txn/group"
)

var offsetCommitAPI = api{
	key: 8, name: "OffsetCommit", min: 2, max: 8,
	maxFrame: maxGroupFrame,
	serve:    whenReady(offsetCommit),
	notes: []string{
		"Answered when the offsets are committed on a majority of the group's shard. A retention time that a client names (versions 2 to 4) is ignored: offsets live as long as the group has members, and for the node's retention after that.",
		"A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, metadata of more than 4,096 bytes OFFSET_METADATA_TOO_LARGE; the others are committed.",
	},
}

// maxGroupFrame bounds requests that carry subscriptions, assignments or the offsets of many partitions.
const maxGroupFrame = 4 << 20

func offsetCommit(c *call, req *kmsg.OffsetCommitRequest, answer func(kmsg.Response)) {
	resp := kmsg.NewPtrOffsetCommitResponse()
	image := c.cfg.Meta.Image()
	var offsets []coordinator.Offset
	for i := range req.Topics {
		in, out := &req.Topics[i], kmsg.NewOffsetCommitResponseTopic()
		out.Topic = in.Topic
		topic := image.Topic(in.Topic)
		for _, p := range in.Partitions {
			o := coordinator.Offset{Topic: in.Topic, Partition: p.Partition, Offset: p.Offset, Epoch: p.LeaderEpoch, Metadata: text(p.Metadata)}
			r := kmsg.NewOffsetCommitResponseTopicPartition()
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
	c.cfg.Groups.Commit(req.Group, e, offsets, func(code group.Code) {
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

// text is a nullable string, where null means the empty one.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// nullable is the reverse.
func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
