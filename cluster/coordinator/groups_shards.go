package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/engine/failpoint"
	"gopherlog/txn/group"
)

// OffsetsTopic is the internal topic of groups and their offsets.
const OffsetsTopic = "__consumer_offsets"

// Codes that a coordinator answers with beside those of the machine.
const (
	UnknownServerError group.Code = -1
	LoadInProgress     group.Code = 14
	NotAvailable       group.Code = 15
	InvalidGroupID     group.Code = 24
	CommitTooLarge     group.Code = 28
	InvalidRequest     group.Code = 42
	SubscribedToTopic  group.Code = 86
	UnstableOffset     group.Code = 88
)

// MaxMetadata is how many bytes of metadata may be committed with an offset.
const MaxMetadata = 4096

const defaultSweepEvery = 10 * time.Minute

// Config is what Groups are made of. Meta is required.
type Config struct {
	Meta Meta
	// Nodes is how many nodes the cluster is meant to have; nil: those that are registered.
	Nodes func() int
	// Group configures the machines; nil: group.Defaults.
	Group *group.Config
	// SweepEvery is how often offsets are looked at for expiry (10 minutes).
	SweepEvery time.Duration
	Logger     *slog.Logger          // nil: silent
	Now        func() time.Time      // nil: time.Now
	Registerer prometheus.Registerer // nil: no metrics
	// NewID gives the random part of member ids; nil: 16 random bytes.
	NewID func() string
	// Failpoints has the planted faults of groups; nil: none.
	Failpoints *failpoint.Set
}

func (c Config) withDefaults() Config {
	if c.Group == nil {
		d := group.Defaults()
		c.Group = &d
	}
	if c.SweepEvery <= 0 {
		c.SweepEvery = defaultSweepEvery
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = newID
	}
	if c.Nodes == nil {
		c.Nodes = func() int { return 0 }
	}
	return c
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Groups are the consumer groups of the shards that this node leads. All methods may be called from any goroutine. Each shard that is led has
// one goroutine, which Close ends.
type Groups struct {
	cfg    Config
	shards *shards
	stats  *groupStats
	unhook func()
	closed sync.Once

	imageMu sync.Mutex // guards known
	known   *meta.Image
}

// New prepares Groups; shards come as their replicas open.
func New(cfg Config) (*Groups, error) {
	if cfg.Meta == nil {
		return nil, errors.New("coordinator: Meta is missing")
	}
	g := &Groups{cfg: cfg.withDefaults(), stats: newGroupStats()}
	if err := g.register(cfg.Registerer); err != nil {
		return nil, err
	}
	g.shards = newShards(kind{
		topic: OffsetsTopic, replicas: maxReplicas, points: g.cfg.Failpoints,
		keep:  func() kept { return newTable() },
		begin: func(t *term) machines { return newGroupTerm(g, t) },
	}, cfg.Meta, g.cfg.Nodes, g.cfg.Logger, g.cfg.Now)
	g.known = cfg.Meta.Image()
	g.unhook = cfg.Meta.Subscribe(g.onImage)
	return g, nil
}

// Close unloads all shards: whoever waits is sent to another coordinator, as is everybody who asks from then on. Replicas go on to keep
// offsets.
func (g *Groups) Close() {
	g.closed.Do(g.unhook)
	g.shards.close()
}

// Open is called when a replica of an internal topic opens; nil: the topic is none of ours.
func (g *Groups) Open(topic string, number int32, p Partition) partition.Kept {
	return g.shards.open(topic, number, p)
}

// Led is called when leadership of a shard's replica began or ended. It does not block.
func (g *Groups) Led(p Partition) { g.shards.led(p) }

// Ensure returns the topic, and makes it if it is not there yet. An error means that it cannot be made now.
func (g *Groups) Ensure(ctx context.Context) (*meta.Topic, error) { return g.shards.ensure(ctx) }

// term returns the shard's term that decides about a group, or why there is none here.
func (g *Groups) term(id string) (*groupTerm, group.Code) {
	t, why := g.shards.find(id)
	if t == nil {
		return nil, group.Code(why)
	}
	return t.machines.(*groupTerm), group.OK
}

// terms are all that are active, and whether a shard is being loaded.
func (g *Groups) terms() (all []*groupTerm, loading bool) {
	some, loading := g.shards.terms()
	for _, t := range some {
		all = append(all, t.machines.(*groupTerm))
	}
	return all, loading
}

// onImage drops the offsets of topics that were deleted. It does not block.
func (g *Groups) onImage(image *meta.Image) {
	g.imageMu.Lock()
	old := g.known
	g.known = image
	g.imageMu.Unlock()
	var gone map[string]meta.TopicID
	for name, t := range old.Topics {
		if now := image.Topics[name]; now == nil || now.ID != t.ID {
			if gone == nil {
				gone = map[string]meta.TopicID{}
			}
			gone[name] = t.ID
		}
	}
	if gone == nil {
		return
	}
	all, _ := g.terms()
	for _, t := range all {
		t.post(func() { t.dropTopics(gone) })
	}
}
