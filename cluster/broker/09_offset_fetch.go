package broker

import (
	"cmp"
	"iter"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/txn/group"
)

var offsetFetchAPI = api{
	key: 9, name: "OffsetFetch", min: 1, max: 8,
	maxFrame: maxControlFrame,
	serve:    inOrder(offsetFetch),
	notes: []string{
		"A group or partition that nothing was committed for has offset −1 and no error. Null topics (from version 2) are all that have an offset.",
		"With RequireStable (version 7) a partition whose offset an open transaction may change is UNSTABLE_OFFSET_COMMIT.",
	},
}

const (
	firstOffsetFetchCode   = 2 // of the whole group; before it each partition carries one
	firstOffsetFetchGroups = 8
)

func offsetFetch(c *call, req *kmsg.OffsetFetchRequest) kmsg.Response {
	resp := kmsg.NewPtrOffsetFetchResponse()
	if c.version < firstOffsetFetchGroups {
		one := kmsg.NewOffsetFetchRequestGroup()
		one.Group = req.Group
		if req.Topics != nil || c.version < firstOffsetFetchCode {
			one.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
		}
		for _, t := range req.Topics {
			topic := kmsg.NewOffsetFetchRequestGroupTopic()
			topic.Topic, topic.Partitions = t.Topic, t.Partitions
			one.Topics = append(one.Topics, topic)
		}
		c.offsetFetchOld(resp, c.offsetFetchGroup(&one, req.RequireStable))
		return resp
	}
	for i := range req.Groups {
		resp.Groups = append(resp.Groups, c.offsetFetchGroup(&req.Groups[i], req.RequireStable))
	}
	return resp
}

// offsetFetchOld puts the answer about one group where versions before 8 have it.
func (c *call) offsetFetchOld(resp *kmsg.OffsetFetchResponse, g kmsg.OffsetFetchResponseGroup) {
	resp.ErrorCode = g.ErrorCode
	for _, t := range g.Topics {
		topic := kmsg.NewOffsetFetchResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			out := kmsg.NewOffsetFetchResponseTopicPartition()
			out.Partition, out.Offset, out.LeaderEpoch, out.Metadata, out.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			topic.Partitions = append(topic.Partitions, out)
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

func (c *call) offsetFetchGroup(in *kmsg.OffsetFetchRequestGroup, stable bool) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group, out.Topics = in.Group, []kmsg.OffsetFetchResponseGroupTopic{}
	var want iter.Seq2[string, int32]
	if in.Topics != nil {
		want = wanted(in.Topics)
	}
	found, code := c.cfg.Groups.Fetch(in.Group, want)
	if code != group.OK {
		out.ErrorCode = c.refuse(int16(code))
		if c.version >= firstOffsetFetchCode {
			return out
		}
		for topic, number := range want {
			found = append(found, coordinator.Committed{Topic: topic, Partition: number, Offset: -1, Epoch: -1})
		}
	}
	if want == nil {
		slices.SortFunc(found, func(a, b coordinator.Committed) int {
			return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
		})
	}
	for i := range found {
		f := &found[i]
		if n := len(out.Topics); n == 0 || out.Topics[n-1].Topic != f.Topic {
			topic := kmsg.NewOffsetFetchResponseGroupTopic()
			topic.Topic = f.Topic
			out.Topics = append(out.Topics, topic)
		}
		topic := &out.Topics[len(out.Topics)-1]
		topic.Partitions = append(topic.Partitions, c.offsetFetched(f, stable, out.ErrorCode))
	}
	return out
}

func wanted(topics []kmsg.OffsetFetchRequestGroupTopic) iter.Seq2[string, int32] {
	return func(yield func(string, int32) bool) {
		for i := range topics {
			for _, number := range topics[i].Partitions {
				if !yield(topics[i].Topic, number) {
					return
				}
			}
		}
	}
}

func (c *call) offsetFetched(f *coordinator.Committed, stable bool, code int16) kmsg.OffsetFetchResponseGroupTopicPartition {
	out := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	out.Partition, out.Offset, out.LeaderEpoch, out.Metadata, out.ErrorCode = f.Partition, f.Offset, f.Epoch, &f.Metadata, code
	if stable && f.Unstable && code == codeNone {
		out.Offset, out.LeaderEpoch, out.Metadata = -1, -1, new(string)
		out.ErrorCode = c.refuse(codeUnstableOffsetCommit)
	}
	return out
}
