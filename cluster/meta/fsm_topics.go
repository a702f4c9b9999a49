package meta

import (
	"maps"
	"slices"
	"strings"

	"gopherlog/cluster/meta/metapb"
	"gopherlog/cluster/rpc"
)

const (
	maxPartitionsPerTopic = 10_000
	maxPartitions         = 50_000 // of all topics together
)

// createTopic checks what depends on the state; names and configs were checked by the node that proposed (checkTopicSpec).
func (d *draft) createTopic(spec *metapb.TopicSpec, live []int32) *metapb.Outcome {
	if old := d.Topics[spec.GetName()]; old != nil {
		return named(spec.Name, refuse(metapb.Code_TOPIC_EXISTS, "%s", spec.Name))
	}
	if spec.GetName() == "" || len(spec.GetId()) != 16 || d.byID[TopicID(spec.Id)] != nil {
		return named(spec.GetName(), refuse(metapb.Code_INVALID_REQUEST, "topic needs a name and a new id"))
	}
	if other := d.collision(spec.Name); other != "" {
		return named(spec.Name, refuse(metapb.Code_INVALID_TOPIC, "%s collides with %s: '.' and '_' count as the same in metric names", spec.Name, other))
	}
	replicas, bad := d.assign(spec.Assignments, spec.Partitions, spec.ReplicationFactor, live)
	if bad != nil {
		return named(spec.Name, bad)
	}
	t := &Topic{Name: spec.Name, ID: TopicID(spec.Id), Internal: spec.Internal, Configs: maps.Clone(spec.Configs)}
	t.Partitions = d.found(replicas)
	d.putTopic(t)
	return topicOutcome(t)
}

// collision finds the topic, there is at most one, whose name differs only in '.' and '_'.
func (d *draft) collision(name string) string {
	if !strings.ContainsAny(name, "._") {
		return ""
	}
	flat := strings.ReplaceAll(name, ".", "_")
	for other := range d.Topics {
		if strings.ReplaceAll(other, ".", "_") == flat {
			return other
		}
	}
	return ""
}

// assign turns explicit assignments or numbers into replica lists.
func (d *draft) assign(explicit []*metapb.NodeList, partitions, rf int32, live []int32) ([][]NodeID, *metapb.Outcome) {
	if len(explicit) > 0 {
		return d.explicit(explicit)
	}
	if partitions < 1 || partitions > maxPartitionsPerTopic {
		return nil, refuse(metapb.Code_INVALID_PARTITIONS, "%d partitions; a topic has between 1 and %d", partitions, maxPartitionsPerTopic)
	}
	if total := d.partitionCount() + int(partitions); total > maxPartitions {
		return nil, refuse(metapb.Code_INVALID_PARTITIONS, "the cluster would have %d partitions; the limit is %d", total, maxPartitions)
	}
	return newPlacer(&d.Image, live).place(int(partitions), int(rf))
}

func (d *draft) partitionCount() (n int) {
	for _, t := range d.Topics {
		n += len(t.Partitions)
	}
	return n
}

func (d *draft) explicit(lists []*metapb.NodeList) ([][]NodeID, *metapb.Outcome) {
	if len(lists) > maxPartitionsPerTopic {
		return nil, refuse(metapb.Code_INVALID_PARTITIONS, "%d partitions; a topic has between 1 and %d", len(lists), maxPartitionsPerTopic)
	}
	out := make([][]NodeID, len(lists))
	for i, l := range lists {
		if len(l.Nodes) == 0 || len(l.Nodes) != len(lists[0].Nodes) {
			return nil, refuse(metapb.Code_INVALID_ASSIGNMENT, "partition %d is assigned to %d brokers, partition 0 to %d", i, len(l.Nodes), len(lists[0].Nodes))
		}
		for _, n := range l.Nodes {
			id := NodeID(n)
			if d.Brokers[id] == nil {
				return nil, refuse(metapb.Code_INVALID_ASSIGNMENT, "partition %d is assigned to broker %d, which is not registered", i, n)
			}
			if slices.Contains(out[i], id) {
				return nil, refuse(metapb.Code_INVALID_ASSIGNMENT, "partition %d is assigned to broker %d twice", i, n)
			}
			out[i] = append(out[i], id)
		}
	}
	return out, nil
}

// found makes new partitions: their servers of today are the founders.
func (d *draft) found(replicas [][]NodeID) []PartitionInfo {
	out := make([]PartitionInfo, len(replicas))
	for i, nodes := range replicas {
		servers := make([]rpc.ServerID, len(nodes))
		for k, id := range nodes {
			servers[k] = d.Brokers[id].ServerID()
		}
		out[i] = PartitionInfo{Replicas: nodes, Servers: servers, Founders: servers, Leader: NoLeader, ISR: nodes}
	}
	return out
}

func (d *draft) deleteTopic(ref *metapb.TopicRef) *metapb.Outcome {
	t, bad := d.find(ref)
	if bad != nil {
		return named(ref.GetName(), bad)
	}
	if t.Internal {
		return named(t.Name, refuse(metapb.Code_INTERNAL_TOPIC, "%s belongs to the cluster and cannot be deleted", t.Name))
	}
	d.dropTopic(t)
	return topicOutcome(t)
}

func (d *draft) find(ref *metapb.TopicRef) (*Topic, *metapb.Outcome) {
	if ref.GetName() != "" {
		if t := d.Topics[ref.Name]; t != nil {
			return t, nil
		}
		return nil, refuse(metapb.Code_UNKNOWN_TOPIC, "%s", ref.Name)
	}
	if len(ref.GetId()) == 16 {
		if t := d.byID[TopicID(ref.Id)]; t != nil {
			return t, nil
		}
	}
	return nil, refuse(metapb.Code_UNKNOWN_TOPIC_ID, "%x", ref.GetId())
}

func (d *draft) createPartitions(spec *metapb.PartitionsSpec, live []int32) *metapb.Outcome {
	t, bad := d.find(&metapb.TopicRef{Name: spec.GetName()})
	if spec.GetName() == "" {
		bad = refuse(metapb.Code_UNKNOWN_TOPIC, "no topic named")
	}
	if bad != nil {
		return named(spec.GetName(), bad)
	}
	if t.Internal {
		return named(t.Name, refuse(metapb.Code_INTERNAL_TOPIC, "the number of partitions of %s is fixed", t.Name))
	}
	have := int32(len(t.Partitions))
	if spec.Count <= have || spec.Count > maxPartitionsPerTopic {
		return named(t.Name, refuse(metapb.Code_INVALID_PARTITIONS, "%s has %d partitions and may get more, up to %d; asked for %d", t.Name, have, maxPartitionsPerTopic, spec.Count))
	}
	if n := int32(len(spec.Assignments)); n > 0 && n != spec.Count-have {
		return named(t.Name, refuse(metapb.Code_INVALID_ASSIGNMENT, "%d assignments for %d new partitions", n, spec.Count-have))
	}
	rf := int32(len(t.Partitions[0].Replicas))
	replicas, bad := d.assign(spec.Assignments, spec.Count-have, rf, live)
	if bad != nil {
		return named(t.Name, bad)
	}
	t = d.topicForEdit(t)
	t.Partitions = append(t.Partitions, d.found(replicas)...)
	return topicOutcome(t)
}

func (d *draft) alterConfigs(change *metapb.TopicConfigOps) *metapb.Outcome {
	t := d.Topics[change.GetName()]
	if t == nil {
		return named(change.GetName(), refuse(metapb.Code_UNKNOWN_TOPIC, "%s", change.GetName()))
	}
	if t.Internal {
		return named(t.Name, refuse(metapb.Code_INTERNAL_TOPIC, "the settings of %s are fixed", t.Name))
	}
	t = d.topicForEdit(t)
	configs := maps.Clone(t.Configs)
	if configs == nil {
		configs = map[string]string{}
	}
	for _, op := range change.Ops {
		if op.Kind == metapb.ConfigOp_DELETE {
			delete(configs, op.Key)
		} else {
			configs[op.Key] = op.Value
		}
	}
	t.Configs = configs
	return topicOutcome(t)
}

func named(name string, o *metapb.Outcome) *metapb.Outcome {
	o.Name = name
	return o
}

func topicOutcome(t *Topic) *metapb.Outcome {
	return &metapb.Outcome{Name: t.Name, Id: t.ID[:], Partitions: int32(len(t.Partitions)), ReplicationFactor: int32(len(t.Partitions[0].Replicas))}
}
