package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/txn/group"
)

var offsetDeleteAPI = api{
	key: 47, name: "OffsetDelete", min: 0, max: 0,
	maxFrame: maxControlFrame,
	serve:    whenReady(offsetDelete),
	notes:    []string{"Offsets of a topic that a member subscribes to are kept: GROUP_SUBSCRIBED_TO_TOPIC. What an open transaction holds of a deleted offset goes, too."},
}

func offsetDelete(c *call, req *kmsg.OffsetDeleteRequest, answer func(kmsg.Response)) {
	resp := kmsg.NewPtrOffsetDeleteResponse()
	image := c.cfg.Meta.Image()
	var offsets []coordinator.Offset
	for _, in := range req.Topics {
		out := kmsg.NewOffsetDeleteResponseTopic()
		out.Topic = in.Topic
		topic := image.Topic(in.Topic)
		for _, p := range in.Partitions {
			r := kmsg.NewOffsetDeleteResponseTopicPartition()
			if r.Partition = p.Partition; topic == nil || p.Partition < 0 || int(p.Partition) >= len(topic.Partitions) {
				r.ErrorCode = c.refuse(codeUnknownTopicOrPartition)
			} else {
				offsets = append(offsets, coordinator.Offset{Topic: in.Topic, Partition: p.Partition})
			}
			out.Partitions = append(out.Partitions, r)
		}
		resp.Topics = append(resp.Topics, out)
	}
	c.cfg.Groups.DeleteOffsets(req.Group, offsets, func(code group.Code, codes []group.Code) {
		if resp.ErrorCode = c.refuse(int16(code)); code != group.OK {
			resp.Topics = nil
		}
		next := 0
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				if p := &resp.Topics[i].Partitions[j]; p.ErrorCode == codeNone {
					p.ErrorCode = c.refuse(int16(codes[next]))
					next++
				}
			}
		}
		answer(resp)
	})
}
