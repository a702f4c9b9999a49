package broker

import "github.com/twmb/franz-go/pkg/kmsg"

var offsetForLeaderEpochAPI = api{
	key: 23, name: "OffsetForLeaderEpoch", min: 2, max: 4,
	maxFrame: maxControlFrame,
	serve:    inOrder(offsetForLeaderEpoch),
	notes: []string{
		"The largest epoch of the log that is not above the one asked for, and where it ends. Epochs in which nothing was written have an entry too.",
		"A question about a partition that is between leaders (this node was elected and does not serve yet, knows no leader, or does not know the asked epoch yet) is held until that is over, at most half a second.",
	},
}

func offsetForLeaderEpoch(c *call, req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	image := c.cfg.Meta.Image()
	c.settle(func(yield func(Partition, int32) bool) {
		for i := range req.Topics {
			for j := range req.Topics[i].Partitions {
				in := &req.Topics[i].Partitions[j]
				if p, _, code := c.find(image, req.Topics[i].Topic, in.Partition); code == codeNone && !yield(p, in.CurrentLeaderEpoch) {
					return
				}
			}
		}
	})
	for i := range req.Topics {
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = req.Topics[i].Topic
		for _, in := range req.Topics[i].Partitions {
			out := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			out.Partition, out.LeaderEpoch, out.EndOffset = in.Partition, -1, -1
			p, _, code := c.find(image, t.Topic, in.Partition)
			if code == codeNone {
				_, err := p.CheckEpoch(in.CurrentLeaderEpoch)
				code = codeOf(err)
			}
			if code == codeNone {
				out.LeaderEpoch, out.EndOffset = p.EpochEnd(in.LeaderEpoch)
			}
			out.ErrorCode = c.refuse(code)
			t.Partitions = append(t.Partitions, out)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}
