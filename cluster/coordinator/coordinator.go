// Package coordinator runs the deciding code of consumer groups and of transactions on those shards of internal topics that this node leads,
// and keeps what their records say on every replica.
//
// It knows shards and their terms, the records of the internal topics, timers, queues, what is answered when, and when offsets expire. It
// refuses to know how a group or a transaction is decided about (txn/group, txn/kafkatx, txn/twopc), Kafka's requests and versions (cluster/broker), and
// Raft.
package coordinator

import (
	"context"
	"time"
	"unicode/utf16"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
)

const (
	shardCount     = 16
	maxReplicas    = 3
	segmentBytes   = 16 << 20
	maxRecordBytes = 16 << 20 // a group's record is one batch
	trimFrom       = 64 << 20 // a log this large is trimmed when it is 4 times what the table needs
	trimFactor     = 4
	trimLook       = 4 << 20 // how much is appended between looks
	trimTimeout    = 10 * time.Second
	maxAsked       = 8192 // requests that wait for a shard's attention
)

// code is one of Kafka's error codes, of those that a shard answers with whatever lives on it.
type code int16

const (
	codeNone           code = 0
	codeLoading        code = 14
	codeNotCoordinator code = 16
)

// Meta is what the coordinator needs of the control group; *meta.Controller is the real one.
type Meta interface {
	Image() *meta.Image
	Subscribe(fn func(*meta.Image)) (unsubscribe func())
	CreateTopics(ctx context.Context, specs []meta.TopicSpec, validateOnly bool) ([]meta.TopicResult, error)
}

// Partition is what the coordinator needs of a shard's replica; *partition.Partition is the real one.
type Partition interface {
	Leader() (node rpc.NodeID, epoch int32, ready bool)
	Status() replica.Status
	Append(*partition.AppendRequest)
	Confirm(epoch int32, done func(error))
	HighWatermark() int64
	Size() int64
	DeleteRecords(ctx context.Context, offset int64) (lowWatermark int64, err error)
}

// ShardOf is the shard that a key belongs to, of so many: the key's hash code in Java, as Kafka has it.
func ShardOf(key string, shards int) int32 {
	var h int32
	for _, u := range utf16.Encode([]rune(key)) {
		h = 31*h + int32(u)
	}
	if h == -1<<31 {
		return 0
	}
	return max(h, -h) % int32(shards)
}

// Coordinator is Groups or Transactions, as the partitions of a node see it.
type Coordinator interface {
	// Open is called when a replica of an internal topic opens; nil: the topic is none of this coordinator's.
	Open(topic string, number int32, p Partition) partition.Kept
	// Led is called when a replica is open, and when its leadership began or ended. It does not block.
	Led(p Partition)
}

// Keepers makes several coordinators the keeper of a node's partitions.
func Keepers(coordinators ...Coordinator) partition.Keeper { return keeper(coordinators) }

type keeper []Coordinator

func (k keeper) Open(p *partition.Partition) partition.Kept {
	for _, c := range k {
		if kept := c.Open(p.Topic(), p.Number(), p); kept != nil {
			return kept
		}
	}
	return nil
}

// hearer is a coordinator who wants to know of what partitions hear of their leaders.
type hearer interface {
	Heard(topic string, number int32)
}

func (k keeper) Heard(p *partition.Partition) {
	for _, c := range k {
		if h, wants := c.(hearer); wants {
			h.Heard(p.Topic(), p.Number())
		}
	}
}

func (k keeper) Led(p *partition.Partition) {
	for _, c := range k {
		c.Led(p)
	}
}
