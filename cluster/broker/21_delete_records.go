package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var deleteRecordsAPI = api{
	key: 21, name: "DeleteRecords", min: 0, max: 2,
	maxFrame: maxControlFrame,
	serve:    inOrder(deleteRecords),
	notes: []string{
		"Moves the log start offset; −1 means the high watermark. Whole segments below it are removed, the rest is no longer read.",
	},
}

func deleteRecords(c *call, req *kmsg.DeleteRecordsRequest) kmsg.Response {
	resp := kmsg.NewPtrDeleteRecordsResponse()
	image := c.cfg.Meta.Image()
	ctx, cancel := c.timeout(req.TimeoutMillis)
	defer cancel()
	for i := range req.Topics {
		t := kmsg.NewDeleteRecordsResponseTopic()
		t.Topic = req.Topics[i].Topic
		for _, in := range req.Topics[i].Partitions {
			out := kmsg.NewDeleteRecordsResponseTopicPartition()
			out.Partition, out.LowWatermark = in.Partition, -1
			p, topic, code := c.find(image, t.Topic, in.Partition)
			if code == codeNone && topic.Internal {
				code = codeInvalidTopic
			}
			if code == codeNone {
				code = deleteTo(ctx, p, in.Offset, &out.LowWatermark)
			}
			out.ErrorCode = c.refuse(code)
			t.Partitions = append(t.Partitions, out)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

const untilHighWatermark = -1

func deleteTo(ctx context.Context, p Partition, offset int64, low *int64) int16 {
	if _, err := p.CheckEpoch(-1); err != nil {
		return codeOf(err)
	}
	if offset == untilHighWatermark {
		offset = p.HighWatermark()
	}
	if offset < 0 || offset > p.HighWatermark() {
		return codeOffsetOutOfRange
	}
	got, err := p.DeleteRecords(ctx, offset)
	if err == nil {
		*low = got
	}
	return codeOf(err)
}
