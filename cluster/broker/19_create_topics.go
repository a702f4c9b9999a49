package broker

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
)

var createTopicsAPI = api{
	key: 19, name: "CreateTopics", min: 0, max: 7,
	maxFrame: maxControlFrame,
	serve:    inOrder(createTopics),
	notes: []string{
		"Any broker takes it and passes it on to the control leader. Answered when this node's metadata shows the topics with their leaders, or without after a second; other nodes may learn of them a little later.",
		"Partitions and replication factor −1 take the node's defaults. Unknown config keys, and values that this version does not honour, are refused with INVALID_CONFIG and a sentence.",
	},
}

func createTopics(c *call, req *kmsg.CreateTopicsRequest) kmsg.Response {
	resp := kmsg.NewPtrCreateTopicsResponse()
	specs := make([]meta.TopicSpec, 0, len(req.Topics))
	refused := make([]error, len(req.Topics))
	for i := range req.Topics {
		spec, err := topicSpec(&req.Topics[i])
		if refused[i] = err; err == nil {
			refused[i] = repeated(req.Topics, i)
		}
		if refused[i] == nil {
			specs = append(specs, spec)
		}
	}
	ctx, cancel := c.timeout(req.TimeoutMillis)
	defer cancel()
	results, err := c.cfg.Meta.CreateTopics(ctx, specs, req.ValidateOnly)
	if !req.ValidateOnly {
		c.awaitLeaders(ctx, made(results))
	}
	k := 0
	for i := range req.Topics {
		res := meta.TopicResult{Name: req.Topics[i].Topic, Err: refused[i]}
		if refused[i] == nil {
			res = outcome(results, k, req.Topics[i].Topic, err)
			k++
		}
		resp.Topics = append(resp.Topics, c.createdTopic(&res, req.Topics[i].Configs))
	}
	return resp
}

// made are the names of the topics that now exist.
func made(results []meta.TopicResult) (names []string) {
	for i := range results {
		if results[i].Err == nil {
			names = append(names, results[i].Name)
		}
	}
	return names
}

// repeated refuses a topic that the request names more than once, as Kafka does.
func repeated(topics []kmsg.CreateTopicsRequestTopic, i int) error {
	same := func(t kmsg.CreateTopicsRequestTopic) bool { return t.Topic == topics[i].Topic }
	if slices.ContainsFunc(topics[:i], same) || slices.ContainsFunc(topics[i+1:], same) {
		return fmt.Errorf("%w: topic %q is named twice in the request", meta.ErrInvalidRequest, topics[i].Topic)
	}
	return nil
}

func topicSpec(t *kmsg.CreateTopicsRequestTopic) (meta.TopicSpec, error) {
	spec := meta.TopicSpec{Name: t.Topic, Partitions: t.NumPartitions, ReplicationFactor: int32(t.ReplicationFactor), Configs: map[string]string{}}
	for i := range t.Configs {
		if t.Configs[i].Value == nil {
			return spec, &meta.ConfigError{Key: t.Configs[i].Name, Msg: "null value"}
		}
		spec.Configs[t.Configs[i].Name] = *t.Configs[i].Value
	}
	if len(t.ReplicaAssignment) == 0 {
		return spec, nil
	}
	if t.NumPartitions != -1 || t.ReplicationFactor != -1 {
		return spec, fmt.Errorf("%w: a manual assignment goes with partitions and replication factor -1", meta.ErrInvalidRequest)
	}
	spec.Assignments = make([][]meta.NodeID, len(t.ReplicaAssignment))
	for i := range t.ReplicaAssignment {
		a := &t.ReplicaAssignment[i]
		if a.Partition < 0 || int(a.Partition) >= len(spec.Assignments) || spec.Assignments[a.Partition] != nil {
			return spec, fmt.Errorf("%w: partitions must be 0 to %d, each once", meta.ErrInvalidAssignment, len(spec.Assignments)-1)
		}
		spec.Assignments[a.Partition] = toNodeIDs(a.Replicas)
	}
	return spec, nil
}

func toNodeIDs(ids []int32) []meta.NodeID {
	out := make([]meta.NodeID, len(ids))
	for i, id := range ids {
		out[i] = meta.NodeID(id)
	}
	return out
}

// outcome is result k, or the error of the whole request in its place.
func outcome(results []meta.TopicResult, k int, name string, err error) meta.TopicResult {
	if err == nil && k < len(results) {
		return results[k]
	}
	if err == nil {
		err = meta.ErrNotController
	}
	return meta.TopicResult{Name: name, Err: err}
}

func (c *call) createdTopic(res *meta.TopicResult, configs []kmsg.CreateTopicsRequestTopicConfig) kmsg.CreateTopicsResponseTopic {
	out := kmsg.NewCreateTopicsResponseTopic()
	out.Topic, out.TopicID = res.Name, res.ID
	out.ErrorCode, out.ErrorMessage = c.code(res.Err), sentence(res.Err)
	out.NumPartitions, out.ReplicationFactor = -1, -1
	out.Configs = []kmsg.CreateTopicsResponseTopicConfig{} // Java's admin client falls over null
	if res.Err != nil {
		return out
	}
	out.NumPartitions, out.ReplicationFactor = res.Partitions, int16(res.ReplicationFactor)
	set := map[string]string{}
	for i := range configs {
		set[configs[i].Name] = *configs[i].Value
	}
	for _, e := range meta.DescribeTopicConfig(set, c.cfg.TopicDefaults) {
		cfg := kmsg.NewCreateTopicsResponseTopicConfig()
		cfg.Name, cfg.Value, cfg.Source = e.Key, &e.Value, int8(configSource(e.Source))
		out.Configs = append(out.Configs, cfg)
	}
	return out
}
