package meta

import (
	"maps"
	"slices"

	"gopherlog/cluster/rpc"
)

// TopicID is the UUID of one creation of a topic: deleting and creating the same name gives another.
type TopicID = [16]byte

// NodeID is the id of a broker.
type NodeID = rpc.NodeID

// NoLeader stands where no replica leads.
const NoLeader NodeID = -1

// Image is everything that the control group has agreed on, as of Epoch. It is immutable: whoever holds one may read it from any
// goroutine for as long as it likes, nobody may change anything reachable from it.
type Image struct {
	ClusterID string
	// Epoch is the control group's index of the last command in this image; it only grows.
	Epoch uint64
	// Brokers are all that ever registered, alive or not.
	Brokers map[NodeID]*Broker
	// Topics by name.
	Topics map[string]*Topic

	byID           map[TopicID]*Topic
	nextProducerID int64
}

// Broker is a registered node.
type Broker struct {
	ID NodeID
	// Host and Port are what clients are told; an empty Host means that each client is told the address it came in by.
	Host string
	Port int32
	Rack string
	// RPCAddr is where a node that does not list this one in its own peers dials it.
	RPCAddr string
	// Incarnation names the formatted disk, Session the running process.
	Incarnation, Session uint64
	// Draining brokers neither campaign nor receive leadership or replicas; registering anew ends it.
	Draining bool
	// Fenced is the same by an operator's word, and lasts.
	Fenced bool
}

// ServerID is what this broker is called in the Raft groups that it joins from now on.
func (b *Broker) ServerID() rpc.ServerID { return rpc.MakeServerID(b.ID, b.Incarnation) }

// Eligible says whether the broker may be given replicas and leadership, as far as marks go; the failure detector knows the rest.
func (b *Broker) Eligible() bool { return !b.Draining && !b.Fenced }

// Topic is one topic.
type Topic struct {
	Name       string
	ID         TopicID
	Internal   bool
	Partitions []PartitionInfo
	// Configs are the keys that were set on the topic itself; ParseTopicConfig gives the effective values.
	Configs map[string]string
}

// PartitionInfo is the assignment and the last published leadership of one partition.
type PartitionInfo struct {
	// Replicas in order of assignment: the first is the preferred leader.
	Replicas []NodeID
	// Servers are the Raft ids that shall be members now, one per replica, in the same order. After a wipe the entry changes
	// and the group's leader replaces the member.
	Servers []rpc.ServerID
	// Founders are the Raft ids at creation. Only they may bootstrap the group, each with exactly this list.
	Founders []rpc.ServerID
	// Leader and Term as last published by a leader after its barrier; NoLeader and 0 before the first.
	Leader NodeID
	Term   int32
	// ISR as last published by the leader.
	ISR []NodeID
}

// Has says whether the node carries a replica.
func (p *PartitionInfo) Has(id NodeID) bool { return slices.Contains(p.Replicas, id) }

// Server returns the Raft id that node id shall have in this group, "" if it carries no replica.
func (p *PartitionInfo) Server(id NodeID) rpc.ServerID {
	if i := slices.Index(p.Replicas, id); i >= 0 {
		return p.Servers[i]
	}
	return ""
}

// Lost says that the only copy of a partition was on a disk that its broker does not have any more: unless that disk comes back nobody can
// lead the partition, and what it held is gone.
func (m *Image) Lost(p *PartitionInfo) bool {
	if len(p.Replicas) != 1 {
		return false
	}
	b := m.Brokers[p.Replicas[0]]
	return b != nil && b.ServerID() != p.Servers[0]
}

// emptyImage is the state before the first command.
func emptyImage() *Image {
	return &Image{Brokers: map[NodeID]*Broker{}, Topics: map[string]*Topic{}, byID: map[TopicID]*Topic{}}
}

// Topic returns the topic of that name, nil if there is none.
func (m *Image) Topic(name string) *Topic { return m.Topics[name] }

// TopicByID returns the topic with that id, nil if there is none.
func (m *Image) TopicByID(id TopicID) *Topic { return m.byID[id] }

// Partition returns one partition by topic id, nil if there is none.
func (m *Image) Partition(id TopicID, partition int32) *PartitionInfo {
	t := m.byID[id]
	if t == nil || partition < 0 || int(partition) >= len(t.Partitions) {
		return nil
	}
	return &t.Partitions[partition]
}

// TopicNames returns all names in order.
func (m *Image) TopicNames() []string { return slices.Sorted(maps.Keys(m.Topics)) }

// BrokerIDs returns all registered ids in order.
func (m *Image) BrokerIDs() []NodeID { return slices.Sorted(maps.Keys(m.Brokers)) }
