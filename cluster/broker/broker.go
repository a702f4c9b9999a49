// Package broker answers Kafka's protocol: one numbered file per API, each naming its key, its versions and its handler.
//
// It knows requests, versions, error codes and what clients expect of a broker. It refuses to know how records are stored,
// replicated or framed: that is asked of partitions, of the control group and of wire.
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/wire"
	"gopherlog/txn/group"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/producer"
	"gopherlog/txn/twopc"
)

// Meta is what the broker needs of the control group; *meta.Controller is the real one.
type Meta interface {
	Image() *meta.Image
	Leader() (meta.NodeID, bool)
	CreateTopics(ctx context.Context, specs []meta.TopicSpec, validateOnly bool) ([]meta.TopicResult, error)
	DeleteTopics(ctx context.Context, refs []meta.TopicRef) ([]meta.TopicResult, error)
	CreatePartitions(ctx context.Context, specs []meta.PartitionsSpec, validateOnly bool) ([]meta.TopicResult, error)
	AlterConfigs(ctx context.Context, changes []meta.ConfigChange, validateOnly bool) ([]meta.TopicResult, error)
	AutoCreate(ctx context.Context, name string) error
	NextProducerID(ctx context.Context) (int64, error)
	CatchUp(ctx context.Context) error
}

// Partition is what the broker needs of a replica on this node; *partition.Partition is the real one.
type Partition interface {
	TopicID() meta.TopicID
	Settings() partition.Settings
	Append(*partition.AppendRequest)
	Read(partition.ReadRequest) (partition.ReadResult, error)
	CheckEpoch(known int32) (current int32, err error)
	Unsettled(known int32) bool
	AwaitLeader(w *partition.Waiter, known int32) bool
	Park(w *partition.Waiter, end int64, epoch int32, isolation int8) bool
	Unpark(w *partition.Waiter)
	HighWatermark() int64
	LastStable() int64
	LogStart() int64
	EndOffset() int64
	Size() int64
	Leader() (node rpc.NodeID, epoch int32, ready bool)
	Status() replica.Status
	InSyncNodes() []rpc.NodeID
	OffsetForTimestamp(ts int64, isolation int8) (offset, timestamp int64, epoch int32, ok bool, err error)
	MaxTimestamp(isolation int8) (offset, timestamp int64, err error)
	EpochEnd(epoch int32) (e int32, end int64)
	LastEpoch() int32
	DeleteRecords(ctx context.Context, offset int64) (lowWatermark int64, err error)
	WriteMarker(m producer.Marker, deadline time.Time, done func(error))
	Producers() []producer.Producer
	Doubts() []partition.InDoubt
	Decree(transactionalID string, owner twopc.Identity, commit bool, done func(error))
}

// Partitions finds the replicas on this node; Local wraps the real ones. The error says why there is none.
type Partitions interface {
	Get(topic string, number int32) (Partition, error)
}

// Groups is what the broker needs of the coordinator; *coordinator.Groups is the real one.
type Groups interface {
	Ensure(ctx context.Context) (*meta.Topic, error)
	Join(id string, e group.Join, done func(group.Joined))
	Sync(id string, e group.Sync, done func(group.Synced))
	Heartbeat(id string, e group.Heartbeat, done func(group.Code))
	Leave(id string, e group.Leave, done func(group.Code, []group.Code))
	Commit(id string, e group.Commit, offsets []coordinator.Offset, done func(group.Code))
	CommitTxn(id string, e group.Commit, by coordinator.Transaction, offsets []coordinator.Offset, done func(kafkatx.Code))
	Fetch(id string, want []coordinator.Wanted, done func([]coordinator.Committed, group.Code))
	Delete(id string, done func(group.Code))
	DeleteOffsets(id string, offsets []coordinator.Offset, done func(group.Code, []group.Code))
	Describe(id string, done func(coordinator.Described, group.Code))
	List(done func([]coordinator.Described, group.Code))
}

// Transactions is what the broker needs of the coordinator of transactions; *coordinator.Transactions is the real one.
type Transactions interface {
	Find(ctx context.Context, id string) (t *meta.Topic, number int32, err error)
	Topic(id string) string
	InitProducerID(id string, e kafkatx.InitProducerID, done func(kafkatx.Answer))
	AddPartitions(id string, e kafkatx.AddPartitions, done func(kafkatx.Answer))
	EndTxn(id string, e kafkatx.EndTxn, done func(kafkatx.Answer))
	Describe(id string, done func(coordinator.TxnDescribed, kafkatx.Code))
	List(f coordinator.TxnFilter, done func([]coordinator.TxnDescribed, kafkatx.Code))
}

// Config is what a Broker is made of. Listener, NodeID, Meta, Partitions, Groups and Transactions are required.
type Config struct {
	Listener   net.Listener
	NodeID     meta.NodeID
	Meta       Meta
	Partitions Partitions
	Groups     Groups
	// Transactions are where transactional ids are coordinated.
	Transactions Transactions
	// Alive is the failure detector's view of a peer. nil: everybody is.
	Alive func(meta.NodeID) bool
	// NoAutoCreate refuses to create a topic that a client merely asks about.
	NoAutoCreate bool
	// TopicDefaults are this node's defaults of topic configs, shown by DescribeConfigs.
	TopicDefaults map[string]string
	// Settings are shown by DescribeConfigs of the broker itself, read-only.
	Settings map[string]string
	// DataDir is shown by DescribeLogDirs.
	DataDir string
	// Limits of connections and frames; zero fields take wire's defaults.
	Limits wire.Limits
	// MaxFetchBytes caps the bytes of one fetch response, above what clients ask for (55 MiB, as in Kafka).
	MaxFetchBytes int32
	// MaxFetchWait caps for how long a fetch is parked (5 minutes).
	MaxFetchWait time.Duration
	// AdminTimeout caps for how long an admin request is retried (1 minute).
	AdminTimeout time.Duration
	Failpoints   *failpoint.Set
	Pool         *wire.Pool            // nil: a pool of its own
	Logger       *slog.Logger          // nil: silent
	Registerer   prometheus.Registerer // nil: no metrics
	Now          func() time.Time      // nil: time.Now
}

// DefaultConfig returns the values of every optional number.
func DefaultConfig() Config {
	return Config{
		Limits:        wire.DefaultLimits(),
		MaxFetchBytes: 55 << 20,
		MaxFetchWait:  5 * time.Minute,
		AdminTimeout:  time.Minute,
	}
}

// Validate reports everything that is missing at once.
func (c *Config) Validate() error {
	var errs []error
	missing := func(is bool, what string) {
		if is {
			errs = append(errs, fmt.Errorf("broker: %s is missing", what))
		}
	}
	missing(c.Listener == nil, "Listener")
	missing(c.Meta == nil, "Meta")
	missing(c.Partitions == nil, "Partitions")
	missing(c.Groups == nil, "Groups")
	missing(c.Transactions == nil, "Transactions")
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	d := DefaultConfig()
	c.Limits = c.Limits.WithDefaults()
	if c.MaxFetchBytes == 0 {
		c.MaxFetchBytes = d.MaxFetchBytes
	}
	if c.MaxFetchWait == 0 {
		c.MaxFetchWait = d.MaxFetchWait
	}
	if c.AdminTimeout == 0 {
		c.AdminTimeout = d.AdminTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Alive == nil {
		c.Alive = func(meta.NodeID) bool { return true }
	}
	return c
}

// Broker serves one listener. It owns no partition and no state of the cluster.
type Broker struct {
	cfg     Config
	server  *wire.Server
	metrics *metrics
	apis    [maxKey + 1]*api
	parked  parked
	hearing hearing
	fetches sync.Pool // of *fetchCall
}

// New checks the configuration and prepares a broker; it answers nothing before Start.
func New(cfg Config) (*Broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &Broker{cfg: cfg.withDefaults()}
	for _, a := range registry() {
		b.apis[a.key] = a
	}
	b.server = wire.New(wire.Config{
		Listener: b.cfg.Listener, Limits: b.cfg.Limits, Pool: b.cfg.Pool, Logger: b.cfg.Logger, Now: b.cfg.Now,
		Handler: b.handle, FrameLimit: b.frameLimit,
	})
	b.metrics = newMetrics(b)
	return b, b.metrics.register(b.cfg.Registerer)
}

// Start begins to accept connections.
func (b *Broker) Start() { b.server.Start() }

// Shutdown stops accepting and reading, answers what was asked, and then closes; it closes at once when ctx ends. Parked
// fetches are answered with what there is.
func (b *Broker) Shutdown(ctx context.Context) {
	b.parked.stop()
	b.server.Shutdown(ctx)
	b.parked.wait()
}

// Close drops all connections and ends every goroutine.
func (b *Broker) Close() {
	b.parked.stop()
	b.server.Close()
	b.parked.wait()
}

// Stats are the counters of the connections.
func (b *Broker) Stats() wire.Stats { return b.server.Stats() }
