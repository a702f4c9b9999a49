package broker

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
)

var metadataAPI = api{
	key: 3, name: "Metadata", min: 0, max: 13,
	maxFrame: maxControlFrame,
	serve:    inOrder(metadata),
	notes: []string{
		"A topic that is asked for by name is created with the node's defaults when the client allows it; the answer waits for its leaders, at most a second; partitions that have none are answered with LEADER_NOT_AVAILABLE. A partition that is asked for by its topic's name or id, has no leader and most of whose replicas are up is waited for, half a second at most.",
		"Leader and leader epoch are the newer of what leaders have published and what this node's replica knows; never a candidate's epoch. Brokers that are down are not listed and lead nothing; a node that sees less than half of the brokers lists all of them, so that its clients find those that it is cut off from.",
		"Topic ids are the same for ever and differ between two creations of one name; an unknown id is UNKNOWN_TOPIC_ID.",
		"A node that advertises nothing is listed under the address that the client reached it by.",
	},
}

const (
	firstNullMeansAll    = 1 // in version 0 an empty list means all topics
	firstAutoCreateField = 4 // before it, asking creates
	// autoCreateWait is for how long a metadata request waits for the topics that it makes.
	autoCreateWait = 5 * time.Second
)

// askedName names a topic of a request.
type askedName struct {
	name string
	id   meta.TopicID
}

func metadata(c *call, req *kmsg.MetadataRequest) kmsg.Response {
	allow := !c.cfg.NoAutoCreate && (req.AllowAutoTopicCreation || c.version < firstAutoCreateField)
	resp := kmsg.NewPtrMetadataResponse()
	names := onceBy(req.Topics, func(t *kmsg.MetadataRequestTopic) askedName { return askedName{text(t.Topic), t.TopicID} })
	all := names == nil || c.version < firstNullMeansAll && len(names) == 0
	failed := map[string]error{}
	if !all && allow {
		failed = c.autoCreate(names)
	}
	c.awaitElections(names)
	image := c.cfg.Meta.Image()
	for _, br := range c.liveBrokers(image) {
		host, port := c.endpoint(c.req.Conn, br)
		out := kmsg.NewMetadataResponseBroker()
		out.NodeID, out.Host, out.Port, out.Rack = int32(br.ID), host, port, rack(br)
		resp.Brokers = append(resp.Brokers, out)
	}
	if image.ClusterID != "" {
		resp.ClusterID = &image.ClusterID
	}
	resp.ControllerID = c.controller()
	resp.Topics = []kmsg.MetadataResponseTopic{}
	if all {
		for _, name := range image.TopicNames() {
			resp.Topics = append(resp.Topics, c.describeTopic(image.Topic(name)))
		}
		return resp
	}
	for i := range names {
		resp.Topics = append(resp.Topics, c.askedTopic(image, &names[i], failed))
	}
	return resp
}

func rack(br *meta.Broker) *string {
	if br.Rack == "" {
		return nil
	}
	return &br.Rack
}

// autoCreate makes the topics that are asked for by name and are not there; it returns why one could not be made.
func (c *call) autoCreate(topics []kmsg.MetadataRequestTopic) map[string]error {
	failed := map[string]error{}
	image := c.cfg.Meta.Image()
	ctx, cancel := context.WithTimeout(c.req.Conn.Context(), autoCreateWait)
	defer cancel()
	var created []string
	for i := range topics {
		name := topics[i].Topic
		if name == nil || *name == "" || image.Topic(*name) != nil {
			continue
		}
		if err := c.cfg.Meta.AutoCreate(ctx, *name); err != nil {
			failed[*name] = err
		} else {
			created = append(created, *name)
		}
	}
	c.awaitLeaders(ctx, created)
	return failed
}

// askedTopic describes one topic of the request, by name or by id, or says why it cannot.
func (c *call) askedTopic(image *meta.Image, asked *kmsg.MetadataRequestTopic, failed map[string]error) kmsg.MetadataResponseTopic {
	t, byID := askedFor(image, asked)
	code := codeUnknownTopicOrPartition
	if byID {
		code = codeUnknownTopicID
	} else if t == nil {
		if err := meta.CheckTopicName(*asked.Topic); err != nil {
			code = codeInvalidTopic
		} else if err := failed[*asked.Topic]; err != nil {
			code = autoCreateCode(err)
		}
	}
	if t != nil {
		return c.describeTopic(t)
	}
	out := kmsg.NewMetadataResponseTopic()
	out.ErrorCode = c.refuse(code)
	out.Topic, out.TopicID = asked.Topic, asked.TopicID
	if out.Topic == nil && c.version < 12 {
		out.Topic = new(string)
	}
	out.Partitions = []kmsg.MetadataResponseTopicPartition{}
	return out
}

// askedFor is the topic that is asked for, by id or by name; nil if it is not there.
func askedFor(image *meta.Image, asked *kmsg.MetadataRequestTopic) (t *meta.Topic, byID bool) {
	if asked.Topic == nil || *asked.Topic == "" && asked.TopicID != (meta.TopicID{}) {
		return image.TopicByID(asked.TopicID), true
	}
	return image.Topic(*asked.Topic), false
}

// autoCreateCode says whether asking again may help: the cluster may only be unable right now.
func autoCreateCode(err error) int16 {
	if errors.Is(err, meta.ErrNotController) || errors.Is(err, context.DeadlineExceeded) {
		return codeLeaderNotAvailable
	}
	return codeOf(err)
}

func (c *call) describeTopic(t *meta.Topic) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = &t.Name, t.ID, t.Internal
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i := range t.Partitions {
		info := &t.Partitions[i]
		l := c.leadership(t, int32(i))
		p := &out.Partitions[i]
		p.Default()
		p.Partition, p.Leader, p.LeaderEpoch = int32(i), int32(l.leader), l.epoch
		p.Replicas, p.ISR = nodeIDs(info.Replicas), nodeIDs(l.isr)
		p.OfflineReplicas = []int32{}
		for _, id := range info.Replicas {
			if !c.alive(id) {
				p.OfflineReplicas = append(p.OfflineReplicas, int32(id))
			}
		}
		if l.leader == meta.NoLeader {
			p.ErrorCode = c.refuse(codeLeaderNotAvailable)
		}
	}
	return out
}
