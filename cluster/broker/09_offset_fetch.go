package broker

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/meta"
	"gopherlog/txn/group"
)

var offsetFetchAPI = api{
	key: 9, name: "OffsetFetch", min: 1, max: 10,
	maxFrame: maxControlFrame,
	serve:    whenReady(offsetFetch),
	notes: []string{
		"A group or partition that nothing was committed for has offset −1 and no error. Null topics (from version 2) are all that have an offset.",
		"Answered when a majority has confirmed that this is the group's coordinator still, so no commit that was acknowledged before is missing.",
		"With RequireStable (version 7) a partition whose offset an open transaction may change is UNSTABLE_OFFSET_COMMIT.",
		"Member and member epoch (version 9) belong to a group protocol that is not served, and are not looked at.",
		"A partition that is named again is answered once, a group that is named again (version 8) is INVALID_REQUEST.",
		"From version 10 on topics are named by their ids. A topic that does not exist is UNKNOWN_TOPIC_ID; one that this node has not heard of is looked for first, 500 ms at most.",
	},
}

const (
	firstOffsetFetchCode   = 2 // of the whole group; before it each partition carries one
	firstOffsetFetchGroups = 8
	firstOffsetFetchIDs    = 10
)

func offsetFetch(c *call, req *kmsg.OffsetFetchRequest, answer func(kmsg.Response)) {
	resp := kmsg.NewPtrOffsetFetchResponse()
	if c.version < firstOffsetFetchGroups {
		c.settleGroups(req.Group)
		c.offsetFetchGroup(c.cfg.Meta.Image(), c.offsetFetchOne(req), req.RequireStable, func(g kmsg.OffsetFetchResponseGroup) {
			offsetFetchOld(resp, g)
			answer(resp)
		})
		return
	}
	image := c.heard(func(yield func(named) bool) {
		for _, g := range req.Groups {
			for _, t := range g.Topics {
				if c.version >= firstOffsetFetchIDs && !yield(named{id: t.TopicID, byID: true}) {
					return
				}
			}
		}
	})
	ids := make([]string, len(req.Groups))
	for i := range ids {
		ids[i] = req.Groups[i].Group
	}
	c.settleGroups(ids...)
	resp.Groups = make([]kmsg.OffsetFetchResponseGroup, len(req.Groups))
	finish := after(len(req.Groups), func() { answer(resp) })
	named := make(map[string]bool, len(req.Groups))
	for i := range req.Groups {
		id := req.Groups[i].Group
		if named[id] {
			resp.Groups[i].Default()
			resp.Groups[i].Group, resp.Groups[i].ErrorCode = id, c.refuse(codeInvalidRequest)
			finish()
			continue
		}
		named[id] = true
		c.offsetFetchGroup(image, &req.Groups[i], req.RequireStable, func(g kmsg.OffsetFetchResponseGroup) {
			resp.Groups[i] = g
			finish()
		})
	}
}

// offsetFetchOne is the question about the one group of versions before 8.
func (c *call) offsetFetchOne(req *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchRequestGroup {
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
	return &one
}

// offsetFetchOld puts the answer about one group where versions before 8 have it.
func offsetFetchOld(resp *kmsg.OffsetFetchResponse, g kmsg.OffsetFetchResponseGroup) {
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

func (c *call) offsetFetchGroup(image *meta.Image, in *kmsg.OffsetFetchRequestGroup, stable bool, done func(kmsg.OffsetFetchResponseGroup)) {
	want, out := c.wantedOffsets(image, in)
	c.cfg.Groups.Fetch(in.Group, want, func(found []coordinator.Committed, code group.Code) {
		switch {
		case code != group.OK && c.version >= firstOffsetFetchCode:
			out.Topics, out.ErrorCode = []kmsg.OffsetFetchResponseGroupTopic{}, c.refuse(int16(code))
		case in.Topics == nil:
			out.Topics = c.everyOffset(image, found, stable)
		default:
			c.fillOffsets(out.Topics, found, c.refuse(int16(code)), stable)
		}
		done(out)
	})
}

// wantedOffsets are the partitions that a request asks about, nil for all; and the answer as far as it is known: a partition that is not
// among them has its error.
func (c *call) wantedOffsets(image *meta.Image, in *kmsg.OffsetFetchRequestGroup) (want []coordinator.Wanted, out kmsg.OffsetFetchResponseGroup) {
	out = kmsg.NewOffsetFetchResponseGroup()
	out.Group, out.Topics = in.Group, []kmsg.OffsetFetchResponseGroupTopic{}
	if in.Topics == nil {
		return nil, out
	}
	want = []coordinator.Wanted{}
	seen := map[coordinator.Wanted]bool{} // see once: metadata may be long
	for _, t := range in.Topics {
		topic, w := kmsg.NewOffsetFetchResponseGroupTopic(), coordinator.Wanted{Topic: t.Topic, TopicID: t.TopicID}
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		code := codeNone
		if c.version >= firstOffsetFetchIDs {
			w.Topic = ""
			if known := image.TopicByID(t.TopicID); known != nil {
				w.Topic = known.Name
			} else {
				code = codeUnknownTopicID
			}
		}
		for _, w.Partition = range t.Partitions {
			if seen[w] {
				continue
			}
			seen[w] = true
			p := noOffset(w.Partition)
			if p.ErrorCode = c.refuse(code); code == codeNone {
				want = append(want, w)
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		out.Topics = append(out.Topics, topic)
	}
	return want, out
}

func noOffset(number int32) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = number, -1, -1, new(string)
	return p
}

// fillOffsets puts what was found, in order, into the partitions that have no error; or, before version 2, the code of the whole group.
func (c *call) fillOffsets(topics []kmsg.OffsetFetchResponseGroupTopic, found []coordinator.Committed, code int16, stable bool) {
	next := 0
	for i := range topics {
		for j := range topics[i].Partitions {
			switch p := &topics[i].Partitions[j]; {
			case code != codeNone:
				p.ErrorCode = code
			case p.ErrorCode == codeNone:
				*p = c.foundOffset(&found[next], stable)
				next++
			}
		}
	}
}

// everyOffset is the answer to a request for everything. An offset of a topic that nobody knows the id of cannot be told where ids name
// topics.
func (c *call) everyOffset(image *meta.Image, found []coordinator.Committed, stable bool) []kmsg.OffsetFetchResponseGroupTopic {
	slices.SortFunc(found, func(a, b coordinator.Committed) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	out, last := []kmsg.OffsetFetchResponseGroupTopic{}, ""
	for i := range found {
		f := &found[i]
		if known := image.Topic(f.Topic); f.TopicID == (meta.TopicID{}) && known != nil {
			f.TopicID = known.ID
		}
		if c.version >= firstOffsetFetchIDs && f.TopicID == (meta.TopicID{}) {
			continue
		}
		if f.Topic != last {
			topic := kmsg.NewOffsetFetchResponseGroupTopic()
			topic.Topic, topic.TopicID = f.Topic, f.TopicID
			out, last = append(out, topic), f.Topic
		}
		topic := &out[len(out)-1]
		topic.Partitions = append(topic.Partitions, c.foundOffset(f, stable))
	}
	return out
}

func (c *call) foundOffset(f *coordinator.Committed, stable bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	out := noOffset(f.Partition)
	if stable && f.Unstable {
		out.ErrorCode = c.refuse(codeUnstableOffsetCommit)
		return out
	}
	out.Offset, out.LeaderEpoch, out.Metadata = f.Offset, f.Epoch, &f.Metadata
	return out
}
