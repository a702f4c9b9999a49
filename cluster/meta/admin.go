package meta

import (
	"context"
	"errors"

	"gopherlog/cluster/meta/metapb"
)

// TopicSpec asks for one topic.
type TopicSpec struct {
	Name string
	// Partitions and ReplicationFactor: -1 takes the node's defaults (DefaultPartitions, DefaultReplicationFactor).
	Partitions        int32
	ReplicationFactor int32
	// Assignments, when not empty, name the replicas of partition 0, 1, ... and replace both numbers.
	Assignments [][]NodeID
	Configs     map[string]string
	// Internal topics carry reserved names; clients neither create nor delete nor write them.
	Internal bool
}

// PartitionsSpec asks that a topic shall have Count partitions.
type PartitionsSpec struct {
	Name  string
	Count int32
	// Assignments, when not empty, name the replicas of each new partition.
	Assignments [][]NodeID
}

// TopicRef names a topic by Name or, when that is empty, by ID.
type TopicRef struct {
	Name string
	ID   TopicID
}

// ConfigOp sets a key of a topic, or (Delete) returns it to the default.
type ConfigOp struct {
	Key, Value string
	Delete     bool
}

// ConfigChange is what shall happen to one topic's configs: all of it or nothing.
type ConfigChange struct {
	Topic string
	Ops   []ConfigOp
}

// TopicResult is the outcome for one topic, in the order of the request.
type TopicResult struct {
	Name              string
	ID                TopicID
	Partitions        int32
	ReplicationFactor int32
	// Err is nil or wraps one of the sentinels of this package.
	Err error
}

// LeaderUpdate is a leader's word about itself.
type LeaderUpdate struct {
	Topic     TopicID
	Partition int32
	Leader    NodeID
	Term      int32
	ISR       []NodeID
}

// CreateTopics creates each topic that it can; the results tell. The error is about the whole request: nobody could be asked.
// When it is nil, this node's image shows the topics, unless ctx ended first. With validateOnly nothing happens.
func (c *Controller) CreateTopics(ctx context.Context, specs []TopicSpec, validateOnly bool) ([]TopicResult, error) {
	op := &metapb.CreateTopics{}
	r := newRequest(len(specs))
	for i := range specs {
		s := &specs[i]
		if r.check(s.Name, checkTopicSpec(s)) {
			op.Topics = append(op.Topics, c.topicToSpec(s))
		}
	}
	return r.run(func() (*metapb.Result, error) {
		return c.submit(ctx, &metapb.Command{Op: &metapb.Command_CreateTopics{CreateTopics: op}}, validateOnly)
	})
}

func (c *Controller) topicToSpec(s *TopicSpec) *metapb.TopicSpec {
	id := newUUID()
	pb := &metapb.TopicSpec{
		Name: s.Name, Id: id[:], Partitions: s.Partitions, ReplicationFactor: s.ReplicationFactor,
		Assignments: listsToPB(s.Assignments), Configs: s.Configs, Internal: s.Internal,
	}
	if pb.Partitions == -1 {
		pb.Partitions = c.cfg.DefaultPartitions
	}
	if pb.ReplicationFactor == -1 {
		pb.ReplicationFactor = c.defaultReplicationFactor()
	}
	return pb
}

// defaultReplicationFactor counts the nodes that the cluster is meant to have, not those that are up: a topic that is made while
// only one of three nodes runs would keep a single replica for ever.
func (c *Controller) defaultReplicationFactor() int32 {
	if c.cfg.DefaultReplicationFactor > 0 {
		return c.cfg.DefaultReplicationFactor
	}
	return int32(min(3, max(len(c.cfg.Node.Peers())+1, len(c.Image().Brokers))))
}

// DeleteTopics removes topics; their partitions' directories go away as each node sees the image.
func (c *Controller) DeleteTopics(ctx context.Context, refs []TopicRef) ([]TopicResult, error) {
	op := &metapb.DeleteTopics{}
	r := newRequest(len(refs))
	for _, ref := range refs {
		r.check(ref.Name, nil)
		op.Topics = append(op.Topics, &metapb.TopicRef{Name: ref.Name, Id: ref.ID[:]})
	}
	return r.run(func() (*metapb.Result, error) {
		return c.submit(ctx, &metapb.Command{Op: &metapb.Command_DeleteTopics{DeleteTopics: op}}, false)
	})
}

// CreatePartitions raises the number of partitions of topics.
func (c *Controller) CreatePartitions(ctx context.Context, specs []PartitionsSpec, validateOnly bool) ([]TopicResult, error) {
	op := &metapb.CreatePartitions{}
	r := newRequest(len(specs))
	for _, s := range specs {
		r.check(s.Name, nil)
		op.Topics = append(op.Topics, &metapb.PartitionsSpec{Name: s.Name, Count: s.Count, Assignments: listsToPB(s.Assignments)})
	}
	return r.run(func() (*metapb.Result, error) {
		return c.submit(ctx, &metapb.Command{Op: &metapb.Command_CreatePartitions{CreatePartitions: op}}, validateOnly)
	})
}

// AlterConfigs changes topic configs.
func (c *Controller) AlterConfigs(ctx context.Context, changes []ConfigChange, validateOnly bool) ([]TopicResult, error) {
	op := &metapb.AlterConfigs{}
	r := newRequest(len(changes))
	for _, ch := range changes {
		ops, err := configOpsToPB(ch.Ops)
		if r.check(ch.Topic, err) {
			op.Topics = append(op.Topics, &metapb.TopicConfigOps{Name: ch.Topic, Ops: ops})
		}
	}
	return r.run(func() (*metapb.Result, error) {
		return c.submit(ctx, &metapb.Command{Op: &metapb.Command_AlterConfigs{AlterConfigs: op}}, validateOnly)
	})
}

// configOpsToPB checks each operation; a deletion only needs a known key.
func configOpsToPB(ops []ConfigOp) ([]*metapb.ConfigOp, error) {
	var out []*metapb.ConfigOp
	for _, op := range ops {
		pb := &metapb.ConfigOp{Key: op.Key, Value: op.Value}
		var err error
		if op.Delete {
			pb.Kind, pb.Value = metapb.ConfigOp_DELETE, ""
			_, err = findKey(op.Key)
		} else {
			err = CheckTopicConfig(op.Key, op.Value)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, pb)
	}
	return out, nil
}

// AutoCreate creates a topic with the node's defaults, as Metadata does for an unknown name when the client allows it.
// A topic that exists already is not an error.
func (c *Controller) AutoCreate(ctx context.Context, name string) error {
	res, err := c.CreateTopics(ctx, []TopicSpec{{Name: name, Partitions: -1, ReplicationFactor: -1}}, false)
	if err != nil {
		return err
	}
	if errors.Is(res[0].Err, ErrTopicExists) {
		return nil
	}
	return res[0].Err
}

// Drain marks a broker as leaving: it neither campaigns nor receives leadership or replicas until it registers again.
func (c *Controller) Drain(ctx context.Context, id NodeID) error {
	yes := true
	return c.mark(ctx, &metapb.MarkBroker{Id: int32(id), Draining: &yes})
}

// Fence sets or clears an operator's mark with the same effect, which lasts over restarts of that broker.
func (c *Controller) Fence(ctx context.Context, id NodeID, fenced bool) error {
	return c.mark(ctx, &metapb.MarkBroker{Id: int32(id), Fenced: &fenced})
}

func (c *Controller) mark(ctx context.Context, op *metapb.MarkBroker) error {
	return c.submitOne(ctx, &metapb.Command{Op: &metapb.Command_MarkBroker{MarkBroker: op}})
}

// RegisterBroker makes the broker known, or replaces what is known of it. A new incarnation replaces the old one in every group
// from which it can be refilled. Open registers the own node by itself.
func (c *Controller) RegisterBroker(ctx context.Context, b Broker) error {
	op := &metapb.RegisterBroker{Broker: brokerToPB(&b)}
	return c.submitOne(ctx, &metapb.Command{Op: &metapb.Command_RegisterBroker{RegisterBroker: op}})
}

func (c *Controller) submitOne(ctx context.Context, cmd *metapb.Command) error {
	res, err := c.submit(ctx, cmd, false)
	if err != nil {
		return err
	}
	return outcomeError(res.Outcomes[0])
}

// producerIDs is the size of a block: a node asks the control group once for so many producers.
const producerIDs = 1000

// idBlock is [next, end).
type idBlock struct{ next, end int64 }

// ProducerIDBlock reserves n producer ids, from first on, that no other node will ever hand out.
func (c *Controller) ProducerIDBlock(ctx context.Context) (first int64, n int, err error) {
	res, err := c.submit(ctx, &metapb.Command{Op: &metapb.Command_AllocateProducerIds{AllocateProducerIds: &metapb.AllocateProducerIds{Count: producerIDs}}}, false)
	if err != nil {
		return 0, 0, err
	}
	return res.FirstProducerId, producerIDs, outcomeError(res.Outcomes[0])
}

// NextProducerID hands out one producer id from this node's block, fetching a new block when it is used up. Callers that come while
// a block is being fetched wait for it; what is left of a block when the node stops is never handed out.
func (c *Controller) NextProducerID(ctx context.Context) (id int64, err error) {
	var b idBlock
	select {
	case b = <-c.ids:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	defer func() { c.ids <- b }()
	if b.next == b.end {
		first, n, err := c.ProducerIDBlock(ctx)
		if err != nil {
			return 0, err
		}
		b = idBlock{first, first + int64(n)}
	}
	b.next++
	return b.next - 1, nil
}
