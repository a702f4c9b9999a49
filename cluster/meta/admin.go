package meta

import "context"

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

// CreateTopics creates each topic that it can; the outcomes tell. The error is about the whole request: nobody could be asked.
// When it returns nil, this node's image shows the topics (or ctx ended first). With validateOnly nothing happens.
func (c *Controller) CreateTopics(ctx context.Context, specs []TopicSpec, validateOnly bool) ([]TopicResult, error) {
	panic("unwritten")
}

// DeleteTopics removes topics; their partitions' directories go away as each node sees the image.
func (c *Controller) DeleteTopics(ctx context.Context, refs []TopicRef) ([]TopicResult, error) {
	panic("unwritten")
}

// CreatePartitions raises the number of partitions of topics.
func (c *Controller) CreatePartitions(ctx context.Context, specs []PartitionsSpec, validateOnly bool) ([]TopicResult, error) {
	panic("unwritten")
}

// AlterConfigs changes topic configs.
func (c *Controller) AlterConfigs(ctx context.Context, changes []ConfigChange, validateOnly bool) ([]TopicResult, error) {
	panic("unwritten")
}

// AutoCreate creates a topic with the node's defaults, as Metadata does for an unknown name when the client allows it.
// A topic that exists already is not an error.
func (c *Controller) AutoCreate(ctx context.Context, name string) error { panic("unwritten") }

// Drain marks a broker as leaving: it neither campaigns nor receives leadership or replicas until it registers again.
func (c *Controller) Drain(ctx context.Context, id NodeID) error { panic("unwritten") }

// Fence sets or clears an operator's mark with the same effect, which lasts over restarts of that broker.
func (c *Controller) Fence(ctx context.Context, id NodeID, fenced bool) error { panic("unwritten") }

// RegisterBroker makes the broker known, or replaces what is known of it. A new incarnation replaces the old one in every group
// from which it can be refilled. Open registers the own node by itself.
func (c *Controller) RegisterBroker(ctx context.Context, b Broker) error { panic("unwritten") }

// ProducerIDBlock reserves n producer ids, from first on, that no other node will ever hand out.
func (c *Controller) ProducerIDBlock(ctx context.Context) (first int64, n int, err error) {
	panic("unwritten")
}

// NextProducerID hands out one producer id from this node's block, fetching a new block when it is used up.
func (c *Controller) NextProducerID(ctx context.Context) (int64, error) { panic("unwritten") }

// PublishLeaders takes note of leaders' words and makes them part of the image: batched, sent again until the image shows them or
// something newer. It never blocks; the newest word about a partition replaces an older one that still waits.
func (c *Controller) PublishLeaders(updates []LeaderUpdate) { panic("unwritten") }
