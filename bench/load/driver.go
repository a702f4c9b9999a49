// Package load offers messages on a schedule that waits for nothing, reads them back, and records what came of each.
// It knows drivers, schedules, payloads and latencies; it knows nothing of processes, faults or verdicts. Client libraries stay behind Driver.
package load

import (
	"context"
	"time"
)

// A Driver speaks to one system under test. Its methods may be called concurrently.
type Driver interface {
	// CreateTopics returns when every partition has a leader.
	CreateTopics(ctx context.Context, topics []TopicSpec) error
	DeleteTopics(ctx context.Context, names []string) error
	// NewProducer returns a connected producer.
	NewProducer(ctx context.Context, cfg ProducerConfig) (Producer, error)
	NewConsumer(ctx context.Context, cfg ConsumerConfig) (Consumer, error)
	// EndOffsets asks each partition's leader for its end. Partitions that gave no answer are absent.
	EndOffsets(ctx context.Context, topic string) (map[int32]OffsetAnswer, error)
	// StartOffsets asks each partition's leader for the first offset that retention left. Partitions that gave no answer are absent.
	StartOffsets(ctx context.Context, topic string) (map[int32]OffsetAnswer, error)
	// Leaders names each partition's leader by node id; -1 where there is none.
	Leaders(ctx context.Context, topic string) (map[int32]int32, error)
	// Replicas names the nodes that hold each partition.
	Replicas(ctx context.Context, topic string) (map[int32][]int32, error)
	// TopicConfig reads back the topic's effective configuration.
	TopicConfig(ctx context.Context, topic string) (map[string]string, error)
	// Settings lists every client setting for a guarantee as the driver would use it.
	Settings(cfg ProducerConfig) []Setting
	Close()
}

// A TopicSpec is a topic to create.
type TopicSpec struct {
	Name              string
	Partitions        int
	ReplicationFactor int
	Config            map[string]string
}

// An OffsetAnswer is a partition's end or start offset as its leader told it.
type OffsetAnswer struct {
	Offset      int64
	LeaderEpoch int32 // -1 unknown
}

// A Setting is one client setting in force.
type Setting struct {
	Key       string `json:"key"`
	Value     string `json:"value"`
	Deviates  bool   `json:"deviates,omitempty"` // set by the scenario's overrides, not by the guarantee
	Guarantee bool   `json:"guarantee,omitempty"`
}

// ProducerConfig is everything a producer is told; nothing is left to the client's defaults.
type ProducerConfig struct {
	ClientID        string
	Acks            int // 0, 1, -1 = all
	Idempotent      bool
	Retries         int           // -1 = until DeliveryTimeout
	DeliveryTimeout time.Duration // a message without outcome fails after it
	RequestTimeout  time.Duration // a request without answer fails after it
	Inflight        int           // requests per broker
	Linger          time.Duration
	BatchBytes      int
	Compression     string
	MaxOutstanding  int // messages the client must be able to buffer

	TransactionalID    string        // empty: no transactions; else the producer is a Transactor
	TransactionTimeout time.Duration // the broker aborts a transaction that is open for longer

	Overrides map[string]string // the scenario's, already applied to the fields above where they name one
}

// ConsumerConfig is everything a consumer is told. It reads all partitions of the topics from offset 0.
type ConsumerConfig struct {
	ClientID      string
	ReadCommitted bool
	Topics        []TopicSpec
}

// A Record is one message on its way. It belongs to the driver from Send until done was called.
type Record struct {
	Topic     string
	Partition int32
	Key       []byte
	Value     []byte
	Private   any // the driver's own; kept when a record is used again
}

// An Ack is what came of a send.
type Ack struct {
	Offset   int64 // -1 unknown
	Err      error // nil: acknowledged
	Definite bool  // with Err: the message certainly never becomes visible
}

// A Producer sends.
type Producer interface {
	// Send never blocks. done is called exactly once, from any goroutine, possibly before Send returns.
	Send(rec *Record, done func(Ack))
	// Flush waits until every record has an outcome.
	Flush(ctx context.Context) error
	// Close fails what has no outcome (as unknown) and ends every goroutine.
	Close()
}

// A TxnResult is what became of a transaction.
type TxnResult int

// Results of transactions.
const (
	TxnInDoubt   TxnResult = iota // may be either
	TxnCommitted                  // the broker said so
	TxnAborted                    // the broker said so
)

// A TxnEnd is the end of a transaction.
type TxnEnd struct {
	Result TxnResult
	Err    error // why it is not what was wanted
	Broken bool  // the producer is of no use any more
}

// A Transactor is a producer that sends in transactions, one at a time. Between Begin and End anything sent belongs to the transaction.
type Transactor interface {
	Producer
	// Init gets the producer id; earlier producers of the same transactional id are fenced from then on. Epoch is -1 where it is not told.
	Init(ctx context.Context) (epoch int32, err error)
	// Begin does not speak to the broker. After an error the producer is of no use.
	Begin() error
	// End waits for every outcome, and commits, or aborts where commit is false or a message failed. asked is called before each question
	// that is put to the broker.
	End(ctx context.Context, commit bool, asked func(commit bool)) TxnEnd
}

// A StableTeller is a driver that knows last stable offsets: below them no transaction is open.
type StableTeller interface {
	StableOffsets(ctx context.Context, topic string) (map[int32]OffsetAnswer, error)
}

// MemberConfig is everything that a member of a consumer group is told.
type MemberConfig struct {
	ClientID       string
	Group          string
	Topics         []string
	ReadCommitted  bool
	SessionTimeout time.Duration
	Rebalance      time.Duration
	Producer       ProducerConfig // of what it sends; with a transactional id its offsets are committed in its transactions
	Watch          MemberWatch
}

// A MemberWatch hears what becomes of a member's partitions, from the client's goroutines, before the member goes on. Epochs are generations.
type MemberWatch struct {
	Assigned func(topic string, partition, generation int32)
	Revoked  func(topic string, partition, generation int32, lost bool)
	Position func(topic string, partition int32, offset int64) // what the group told as committed; -1 none
}

// A Place is a position in a partition.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
}

// A Member works in a consumer group. One goroutine at a time, but for Freeze, Thaw and Crash.
type Member interface {
	// Poll waits for at most max messages. Until Commit or End the member's partitions are not taken away where there are no transactions.
	Poll(ctx context.Context, max int, fn func(Delivery)) error
	Generation() int32
	// Send sends a message that was made from those polled; in a transaction between Begin and End. done as of Producer.
	Send(rec *Record, done func(Ack))
	// Flush waits for the outcomes of what was sent.
	Flush(ctx context.Context) error
	// Commit commits everything polled, outside of a transaction, and tells what the group answered for each partition.
	Commit(ctx context.Context, places []Place, answer func(p Place, err error))
	// Release lets the group take partitions away; after each poll that Commit was called for or not.
	Release()
	// Init, Begin: as of Transactor. End commits the transaction and in it everything polled, or aborts both, and goes back.
	Init(ctx context.Context) (epoch int32, err error)
	Begin() error
	End(ctx context.Context, commit bool) TxnEnd
	// Freeze lets nothing out and nothing in until Thaw.
	Freeze()
	Thaw()
	// Crash ends the member without a word to anybody; Close leaves the group.
	Crash()
	Close()
}

// A Grouper is a driver that knows consumer groups.
type Grouper interface {
	NewMember(ctx context.Context, cfg MemberConfig) (Member, error)
	// Positions are the committed positions of a group, once no open transaction holds one back.
	Positions(ctx context.Context, group string) ([]Place, error)
}

// A Delivery is one message read. Key and Value are valid only during the call.
type Delivery struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte
	Value     []byte
	Time      time.Time // the broker's timestamp
	Control   bool      // a marker of the broker's: it has an offset and is no message
}

// A Consumer reads assigned partitions in offset order.
type Consumer interface {
	// Poll waits for messages and hands each to fn. An error that is not ctx's is a fault of the read that the consumer survives.
	Poll(ctx context.Context, fn func(Delivery)) error
	Close()
}
