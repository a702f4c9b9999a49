package partition

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/kv"
	"gopherlog/engine/log"
	"gopherlog/engine/vfs"
	"gopherlog/txn/twopc"
)

// Controller is what the Manager needs of *meta.Controller.
type Controller interface {
	Image() *meta.Image
	Subscribe(fn func(*meta.Image)) (unsubscribe func())
	WaitReady(ctx context.Context) error
	Drain(ctx context.Context, id meta.NodeID) error
	PublishLeaders(updates []meta.LeaderUpdate)
}

// Config is what a Manager is made of. Meta, Node, Self, KV, FS and DataDir are required.
type Config struct {
	Meta Controller
	Node *rpc.Node
	// Self is this node's name in Raft groups.
	Self rpc.ServerID
	KV   *kv.DB
	FS   vfs.FS
	// DataDir is the node's; partitions live in its topics directory.
	DataDir string
	// BootID changes when the kernel restarts (see replica.Config).
	BootID string

	// TopicDefaults override the built-in defaults of topic configs on this node.
	TopicDefaults map[string]string
	// Timers of the Raft groups; zero fields take the group's defaults.
	Timers replica.Timers

	// Keeper keeps what internal topics mean; nil: nobody does.
	Keeper Keeper
	// Coordinators are asked before a batch opens a transaction; nil: transactional batches are refused.
	Coordinators Coordinators
	// Ballot carries what participants of voted transactions say; nil: none is voted on.
	Ballot Ballot
	// Voted configures the participants; nil: twopc.Defaults.
	Voted *twopc.Config
	// Facts keeps what this node applies of voted transactions; nil: nobody does.
	Facts *Facts

	ProduceBudget int64 // bytes of batches queued or in flight, node-wide; DefaultProduceBudget
	CacheBudget   int64 // bytes of all tail caches; 256 MiB
	SyncWorkers   int   // concurrent fsyncs of segments; 4

	ProducerExpiry  time.Duration // silence after which a producer id is forgotten; 24 h
	RetentionEvery  time.Duration // how often retention and expiry look; 10 s
	BalanceEvery    time.Duration // how often leaderships return to preferred replicas; 1 s
	BalanceAfter    time.Duration // how long a preferred replica must have been in sync first; 3 s
	BalanceAtOnce   int           // leaderships returned per round; 16
	SuccessionDelay time.Duration // head start of each replica before the next one campaigns; 150 ms
	StartGrace      time.Duration // how long a reopened replica waits for a leader before it asks around; 300 ms

	Failpoints *failpoint.Set
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
	Now        func() time.Time
}

// WithDefaults fills in what is zero.
func (c Config) WithDefaults() Config {
	def(&c.ProduceBudget, DefaultProduceBudget)
	def(&c.CacheBudget, 256<<20)
	def(&c.SyncWorkers, 4)
	def(&c.ProducerExpiry, 24*time.Hour)
	def(&c.RetentionEvery, 10*time.Second)
	def(&c.BalanceEvery, time.Second)
	def(&c.BalanceAfter, 3*time.Second)
	def(&c.BalanceAtOnce, 16)
	def(&c.SuccessionDelay, 150*time.Millisecond)
	def(&c.StartGrace, 300*time.Millisecond)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Voted == nil {
		d := twopc.Defaults()
		c.Voted = &d
	}
	return c
}

func def[T ~int | ~int64](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Validate reports everything that is missing at once.
func (c Config) Validate() error {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New("partition: "+what+" is required"))
		}
	}
	need(c.Meta != nil, "Meta")
	need(c.Node != nil, "Node")
	need(c.Self.Node() > 0, "Self")
	need(c.KV != nil, "KV")
	need(c.FS != nil, "FS")
	need(c.DataDir != "", "DataDir")
	return errors.Join(errs...)
}

// shared is what all partitions of a node have in common.
type shared struct {
	budget    *Budget
	caches    *log.Budget
	committer *log.Committer
	sampler   *replica.Sampler
	timings   *timings
	disk      disk
}
