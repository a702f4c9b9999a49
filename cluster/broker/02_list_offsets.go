package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/replica"
)

var listOffsetsAPI = api{
	key: 2, name: "ListOffsets", min: 1, max: 10,
	maxFrame: maxControlFrame,
	serve:    inOrder(listOffsets),
	notes: []string{
		"Timestamps −1 (latest: the high watermark, or the last stable offset for read_committed), −2 (earliest), −3 (largest timestamp, from version 7), or the first record not older than the given one; offset −1 where there is none. −4 (earliest on this broker's disks, from version 8) is the earliest, −5 (latest in tiered storage, from version 9) is none: nothing is tiered.",
		"The latest offset carries the epoch of the log's last term. Ends of one partition compare only within equal or rising leader epoch: a paused leader answers old ends until it learns of its successor.",
		"A question about a partition that is between leaders is held until that is over, at most half a second.",
		"A leader that does not yet know what is committed by then answers OFFSET_NOT_AVAILABLE, below version 5 LEADER_NOT_AVAILABLE.",
	},
}

// Timestamps with a meaning of their own.
const (
	timestampLatest   = -1
	timestampEarliest = -2
	timestampMax      = -3
	timestampLocal    = -4 // the earliest that is not in tiered storage only
	timestampTiered   = -5 // the latest in tiered storage

	firstMaxTimestamp       = 7
	firstLocalTimestamp     = 8
	firstTieredTimestamp    = 9
	firstOffsetNotAvailable = 5
)

func listOffsets(c *call, req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := kmsg.NewPtrListOffsetsResponse()
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
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic = req.Topics[i].Topic
		for j := range req.Topics[i].Partitions {
			in := &req.Topics[i].Partitions[j]
			out := kmsg.NewListOffsetsResponseTopicPartition()
			out.Partition = in.Partition
			out.Timestamp, out.Offset = -1, -1
			p, _, code := c.find(image, t.Topic, in.Partition)
			if code == codeNone {
				code = c.listOffset(p, in, req.IsolationLevel, &out)
			}
			out.ErrorCode = c.refuse(code)
			t.Partitions = append(t.Partitions, out)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (c *call) listOffset(p Partition, in *kmsg.ListOffsetsRequestTopicPartition, isolation int8, out *kmsg.ListOffsetsResponseTopicPartition) int16 {
	if code := c.checkEpoch(p, in.CurrentLeaderEpoch); code != codeNone {
		return code
	}
	switch {
	case in.Timestamp == timestampLatest:
		out.Offset, out.LeaderEpoch = p.HighWatermark(), p.LastEpoch()
		if isolation != 0 {
			out.Offset = p.LastStable()
		}
		return codeNone
	case in.Timestamp == timestampEarliest, in.Timestamp == timestampLocal && c.version >= firstLocalTimestamp:
		out.Offset = p.LogStart()
		return codeNone
	case in.Timestamp == timestampMax && c.version >= firstMaxTimestamp:
		offset, timestamp, err := p.MaxTimestamp(isolation)
		if err == nil && offset >= 0 {
			out.Offset, out.Timestamp = offset, timestamp
		}
		return codeOf(err)
	case in.Timestamp == timestampTiered && c.version >= firstTieredTimestamp:
		return codeNone
	case in.Timestamp < 0:
		return codeUnsupportedVersion
	}
	offset, timestamp, epoch, ok, err := p.OffsetForTimestamp(in.Timestamp, isolation)
	if err == nil && ok {
		out.Offset, out.Timestamp, out.LeaderEpoch = offset, timestamp, epoch
	}
	return codeOf(err)
}

// checkEpoch compares the leader epoch that a client knows with the replica's. A replica that was elected and has not yet
// committed anything in its term knows no end that holds.
func (c *call) checkEpoch(p Partition, known int32) int16 {
	_, err := p.CheckEpoch(known)
	code := codeOf(err)
	if code != codeNotLeaderOrFollower || p.Status().Role != replica.Leader {
		return code
	}
	if c.version < firstOffsetNotAvailable {
		return codeLeaderNotAvailable
	}
	return codeOffsetNotAvailable
}
