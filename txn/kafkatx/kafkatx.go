// Package kafkatx decides what Kafka's transaction coordinator does about one transactional id, as a function from a state and an event
// to a new state and effects.
//
// It knows the states of a transaction and every request that moves them, timeouts, producer epochs and their end, both versions of the
// client's protocol, and the record that each step leaves. It refuses to know clocks, goroutines, the network, Raft and Kafka's frames:
// whoever runs a machine replicates what it appends, carries what it sends, and hands back what happened, one event at a time.
//
// Safety rests on three rules. Nothing is said about a step before its record is durable. A step is judged against everything that was
// appended before it, durable or not, because appends keep their order. And what is answered from memory alone, where only a leader's
// memory is right, says so (Answer.Confirm).
package kafkatx

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status is where a transaction stands; the numbers and names are Kafka's.
type Status int8

const (
	Empty          Status = 0 // no transaction was begun since InitProducerId
	Ongoing        Status = 1 // partitions were added
	PrepareCommit  Status = 2 // it is decided: committed
	PrepareAbort   Status = 3 // it is decided: aborted
	CompleteCommit Status = 4 // every partition has the marker
	CompleteAbort  Status = 5
	// Dead and PrepareEpochFence are Kafka's names for steps that are never written: forgetting a transactional id is a record without
	// a value, and fencing an ongoing transaction is one step to PrepareAbort with a raised epoch.
	Dead              Status = 6
	PrepareEpochFence Status = 7
)

var statusNames = [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}

// String is Kafka's name, as ListTransactions and DescribeTransactions use it.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statusNames) {
		return fmt.Sprintf("status(%d)", int8(s))
	}
	return statusNames[s]
}

// Decided says that markers are on their way.
func (s Status) Decided() bool { return s == PrepareCommit || s == PrepareAbort }

// resting says that no transaction is open or ending.
func (s Status) resting() bool { return s == Empty || s == CompleteCommit || s == CompleteAbort }

// Version is the transaction version that a client speaks.
type Version int16

const (
	Version0 Version = 0 // an epoch lasts for many transactions; AddPartitionsToTxn and AddOffsetsToTxn come from the client
	Version2 Version = 2 // KIP-890: each end raises the epoch; partition leaders add their partitions
)

// Partition is a participant.
type Partition struct {
	Topic  string
	Number int32
}

// Compare orders partitions by topic and number.
func (p Partition) Compare(o Partition) int {
	return cmp.Or(strings.Compare(p.Topic, o.Topic), cmp.Compare(p.Number, o.Number))
}

func (p Partition) String() string { return fmt.Sprintf("%s-%d", p.Topic, p.Number) }

// None stands for an absent producer id and epoch.
const None = -1

// Meta is what the log says about a transactional id. It is never changed after it was made. A nil *Meta is an id that is unknown, and as
// a record the tombstone that makes it so.
type Meta struct {
	Status     Status
	ProducerID int64
	Epoch      int16
	LastEpoch  int16 // the epoch before, if its owner took the last step or timed out, and so may go on (KIP-360); else None
	Previous   int64 // producer id before the last step, or None
	Next       int64 // producer id from completion on, when the epochs of this one are used up, or None
	Timeout    time.Duration
	Partitions []Partition // sorted
	Start      int64       // when the transaction began, in milliseconds; None outside of one
	Update     int64       // when this was written
	Version    Version     // of the client that took the last step
	Owed       *Owed       // of an Ongoing one: what may be missing of the transaction before; nil: nothing
}

// String is canonical and leaves out times.
func (m *Meta) String() string {
	if m == nil {
		return "unknown"
	}
	s := fmt.Sprintf("%s %d:%d", m.Status, m.ProducerID, m.Epoch)
	if m.LastEpoch != None {
		s += fmt.Sprintf(" last %d", m.LastEpoch)
	}
	if m.Previous != None && m.Previous != m.ProducerID {
		s += fmt.Sprintf(" was %d", m.Previous)
	}
	if m.Next != None {
		s += fmt.Sprintf(" next %d", m.Next)
	}
	if m.Version != Version0 {
		s += fmt.Sprintf(" v%d", m.Version)
	}
	if len(m.Partitions) > 0 {
		s += fmt.Sprint(" ", m.Partitions)
	}
	if m.Owed != nil {
		s += fmt.Sprintf(" owed %s %v", word(m.Owed.Commit), m.Owed.Partitions)
	}
	return s
}

func (m *Meta) has(partitions []Partition) bool {
	for _, p := range partitions {
		if _, ok := slices.BinarySearchFunc(m.Partitions, p, Partition.Compare); !ok {
			return false
		}
	}
	return true
}

// final is the producer id and epoch that a client uses once the decided transaction is complete.
func (m *Meta) final() (id int64, epoch int16) {
	if m.Status.Decided() && m.Next != None {
		return m.Next, 0
	}
	return m.ProducerID, m.Epoch
}

// Request stands for a request that waits for an answer; the driver chooses it. Zero is nobody.
type Request uint64

// Step is a record that was appended and is not known to be durable, with the answers that wait for it.
type Step struct {
	Record  *Meta
	Answers []Answer
}

// State is a machine: one transactional id at its coordinator, in one term. It is immutable.
type State struct {
	Term    int32 // of the shard's leader: the coordinator epoch of markers
	Meta    *Meta // after every step that was appended
	Pending []Step
	// Unmarked are the partitions whose marker is missing, once the decision is durable: of the decided transaction, or of the one before an
	// ongoing one (Meta.Owed).
	Unmarked []Partition
	Tries    uint8 // how often markers were sent
	Silent   bool  // the term is over
}

// String is canonical: equal text, equal state.
func (s State) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "term %d %s", s.Term, s.Meta)
	for _, p := range s.Pending {
		fmt.Fprintf(&b, " | pending %s %v", p.Record, p.Answers)
	}
	if len(s.Unmarked) > 0 {
		fmt.Fprintf(&b, " | unmarked %v tries %d", s.Unmarked, s.Tries)
	}
	if s.Silent {
		b.WriteString(" | silent")
	}
	return b.String()
}

// Ending says that a decided transaction is not complete, be it that the next one has begun. A request that was answered
// ConcurrentTransactions is worth repeating when this turns false: a driver holds it until then instead of sending the answer.
func (s State) Ending() bool { return s.Meta != nil && (s.Meta.Status.Decided() || s.owing()) }

// settled says that the log is known to hold everything that was appended.
func (s State) settled() bool { return len(s.Pending) == 0 }

// Config is what machines are told once.
type Config struct {
	MaxTimeout   time.Duration // transaction.max.timeout.ms
	Expiry       time.Duration // transactional.id.expiration.ms
	ResendAfter  time.Duration // markers that were not acknowledged are sent again after this long, doubled MaxDoubling times at most
	MaxDoubling  uint8
	FenceVersion Version // of the steps that the coordinator takes by itself
}

// Defaults are the settings of a server.
func Defaults() Config {
	return Config{MaxTimeout: 15 * time.Minute, Expiry: 7 * 24 * time.Hour, ResendAfter: 200 * time.Millisecond, MaxDoubling: 3, FenceVersion: Version2}
}

// lastEpoch is the last epoch that a client can use: one more is left to fence it with.
const lastEpoch = 1<<15 - 2
