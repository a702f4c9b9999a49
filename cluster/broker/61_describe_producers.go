package broker

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/partition"
	"gopherlog/txn/twopc"
)

var describeProducersAPI = api{
	key: 61, name: "DescribeProducers", min: 0, max: 0,
	maxFrame: maxControlFrame,
	serve:    inOrder(describeProducers),
	notes: []string{
		"Every producer id that the partition remembers, ascending, with the first offset of its open transaction (−1: none). Only leaders answer.",
		"A producer that is in doubt (it takes part in a voted transaction that was promised here, and whose outcome is not known) has two tagged fields: 10002 is its transactional id, 10001 (i64, milliseconds since 1970) when the promise was given, 0 if that was not written down.",
	},
}

func describeProducers(c *call, req *kmsg.DescribeProducersRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeProducersResponse()
	image := c.cfg.Meta.Image()
	seen := map[place]bool{} // see once: an answer may be long
	for i := range req.Topics {
		t := kmsg.NewDescribeProducersResponseTopic()
		t.Topic = req.Topics[i].Topic
		for _, number := range req.Topics[i].Partitions {
			at := place{t.Topic, number}
			if seen[at] {
				continue
			}
			seen[at] = true
			out := kmsg.NewDescribeProducersResponseTopicPartition()
			out.Partition = number
			p, _, code := c.find(image, t.Topic, number)
			if code == codeNone {
				_, err := p.CheckEpoch(-1)
				code = codeOf(err)
			}
			if out.ErrorCode = c.refuse(code); code == codeNone {
				out.ActiveProducers = activeProducers(p)
			}
			t.Partitions = append(t.Partitions, out)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// place names a partition.
type place struct {
	topic  string
	number int32
}

func activeProducers(p Partition) []kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
	known, doubts := p.Producers(), map[twopc.Identity]partition.InDoubt{}
	for _, d := range p.Doubts() {
		doubts[d.Owner] = d
	}
	out := make([]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, len(known))
	for i, x := range known {
		a := &out[i]
		a.Default()
		a.ProducerID, a.ProducerEpoch, a.CoordinatorEpoch = x.ID, int32(x.Epoch), x.CoordinatorEpoch
		a.LastSequence, a.LastTimestamp, a.CurrentTxnStartOffset = x.LastSequence, x.LastTimestamp, x.Transaction
		if d, is := doubts[twopc.Identity{Producer: x.ID, Epoch: x.Epoch}]; is {
			a.UnknownTags.Set(twopc.TagTransactionalID, []byte(d.ID))
			a.UnknownTags.Set(twopc.TagInDoubt, binary.BigEndian.AppendUint64(nil, uint64(d.Since)))
		}
	}
	return out
}
