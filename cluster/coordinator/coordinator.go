// Package coordinator runs the deciding code of consumer groups on those shards of __consumer_offsets that this node leads, and keeps the
// committed offsets on every replica.
//
// It knows shards and their terms, the records of the internal topics, timers, queues, what is answered when, and when offsets expire. It
// refuses to know how a group is decided about (txn/group), Kafka's requests and versions (cluster/broker), and Raft.
package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf16"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
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

const (
	shards            = 16
	maxReplicas       = 3
	segmentBytes      = 16 << 20
	maxRecordBytes    = 16 << 20 // a group's record is one batch
	trimFrom          = 64 << 20 // a log this large is trimmed when it is 4 times what the table needs
	trimFactor        = 4
	trimLook          = 4 << 20 // how much is appended between looks
	trimTimeout       = 10 * time.Second
	maxAsked          = 8192 // requests that wait for a shard's attention
	defaultSweepEvery = 10 * time.Minute
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

// Config is what Groups are made of. Meta is required.
type Config struct {
	Meta Meta
	// Nodes is how many nodes the cluster is meant to have; nil: those that are registered.
	Nodes func() int
	// Group configures the machines; nil: group.Defaults.
	Group *group.Config
	// SweepEvery is how often offsets are looked at for expiry (10 minutes).
	SweepEvery time.Duration
	Logger     *slog.Logger     // nil: silent
	Now        func() time.Time // nil: time.Now
	// NewID gives the random part of member ids; nil: 16 random bytes.
	NewID func() string
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
	unhook func()
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	over atomic.Bool // closed

	mu     sync.RWMutex // guards shards; held while a shard's own is taken
	shards map[int32]*shard

	imageMu sync.Mutex // guards known
	known   *meta.Image
}

// New prepares Groups; shards come as their replicas open.
func New(cfg Config) (*Groups, error) {
	if cfg.Meta == nil {
		return nil, errors.New("coordinator: Meta is missing")
	}
	g := &Groups{cfg: cfg.withDefaults(), shards: map[int32]*shard{}}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.known = cfg.Meta.Image()
	g.unhook = cfg.Meta.Subscribe(g.onImage)
	return g, nil
}

// Close unloads all shards: whoever waits is sent to another coordinator, as is everybody who asks from then on. Replicas go on to keep
// offsets.
func (g *Groups) Close() {
	if !g.over.Swap(true) {
		g.unhook()
		g.cancel()
	}
	g.mu.RLock()
	for _, s := range g.shards {
		s.follow()
	}
	g.mu.RUnlock()
	g.wg.Wait()
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

// Ensure returns the topic, and makes it if it is not there yet. An error means that it cannot be made now.
func (g *Groups) Ensure(ctx context.Context) (*meta.Topic, error) {
	image := g.cfg.Meta.Image()
	if t := image.Topic(OffsetsTopic); t != nil {
		return t, nil
	}
	nodes := max(g.cfg.Nodes(), len(image.Brokers), 1)
	spec := meta.TopicSpec{Name: OffsetsTopic, Internal: true, Partitions: shards, ReplicationFactor: int32(min(maxReplicas, nodes)),
		Configs: map[string]string{
			"retention.ms": "-1", "retention.bytes": "-1", "min.insync.replicas": "1",
			"segment.bytes": strconv.Itoa(segmentBytes), "max.message.bytes": strconv.Itoa(maxRecordBytes),
		}}
	results, err := g.cfg.Meta.CreateTopics(ctx, []meta.TopicSpec{spec}, false)
	if err == nil {
		err = results[0].Err
	}
	if t := g.cfg.Meta.Image().Topic(OffsetsTopic); t != nil {
		return t, nil
	}
	if err == nil {
		err = meta.ErrUnknownTopic
	}
	return nil, fmt.Errorf("create %s: %w", OffsetsTopic, err)
}

// Open is called when a replica of an internal topic opens; nil: the topic is none of ours.
func (g *Groups) Open(topic string, number int32, p Partition) partition.Kept {
	if topic != OffsetsTopic {
		return nil
	}
	s := &shard{g: g, number: number, part: p, table: newTable()}
	g.mu.Lock()
	old := g.shards[number]
	g.shards[number] = s
	g.mu.Unlock()
	if old != nil {
		old.replaced.Store(true)
		old.follow()
	}
	return s.table
}

// Led is called when leadership of a shard's replica began or ended. It does not block.
func (g *Groups) Led(p Partition) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, s := range g.shards {
		if s.part == p {
			s.heard.Store(true)
			s.follow()
			return
		}
	}
}

// term returns the shard's term that decides about a group, or why there is none here.
func (g *Groups) term(id string) (*term, group.Code) {
	t := g.cfg.Meta.Image().Topic(OffsetsTopic)
	if t == nil {
		return nil, group.NotCoordinator
	}
	g.mu.RLock()
	s := g.shards[ShardOf(id, len(t.Partitions))]
	g.mu.RUnlock()
	if s == nil {
		return nil, group.NotCoordinator
	}
	return s.active()
}

// terms are all that are active, and whether a shard is being loaded.
func (g *Groups) terms() (all []*term, loading bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, s := range g.shards {
		t, code := s.active()
		if t != nil {
			all = append(all, t)
		}
		loading = loading || code == LoadInProgress
	}
	return all, loading
}

// onImage drops the offsets of topics that were deleted. It does not block.
func (g *Groups) onImage(image *meta.Image) {
	g.imageMu.Lock()
	old := g.known
	g.known = image
	g.imageMu.Unlock()
	var gone map[string]bool
	for name, t := range old.Topics {
		if now := image.Topics[name]; now == nil || now.ID != t.ID {
			if gone == nil {
				gone = map[string]bool{}
			}
			gone[name] = true
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

// Keeper makes g the keeper of the node's partitions.
func (g *Groups) Keeper() partition.Keeper { return keeper{g} }

type keeper struct{ g *Groups }

func (k keeper) Open(p *partition.Partition) partition.Kept {
	return k.g.Open(p.Topic(), p.Number(), p)
}
func (k keeper) Led(p *partition.Partition) { k.g.Led(p) }
