package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/engine/failpoint"
)

// shards are the partitions of one internal topic on this node. They know leadership, queues, timers and when a log is trimmed; what lives
// on a shard is the kind's.
type shards struct {
	kind   kind
	meta   Meta
	nodes  func() int
	logger *slog.Logger
	now    func() time.Time
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	over atomic.Bool // closed

	mu  sync.RWMutex // guards all; held while a shard's own is taken
	all map[int32]*shard
}

// kind is a kind of machine that lives on the shards of a topic.
type kind struct {
	topic    string
	replicas int               // of each shard, if there are as many nodes
	points   *failpoint.Set    // planted faults; nil: none
	configs  map[string]string // of the topic, beside those that every internal topic has
	// keep gives an empty table: what the committed records of a shard say.
	keep func() kept
	// begin prepares what runs on one term of a shard. It is called once a term, before anything else of the term happens.
	begin func(t *term) machines
}

// kept is a shard's table.
type kept interface {
	partition.Kept
	size() int64 // about how many bytes its records take in the log
}

// machines are what runs on one term of a shard. The methods are called on the term's goroutine.
type machines interface {
	// load makes the machines that the table speaks of: all that is committed is applied.
	load()
	// fire hands out a timer that is due.
	fire(k timerKey)
	// lost says that the term is over: whoever waits for a machine is sent to the next coordinator.
	lost()
}

func newShards(k kind, m Meta, nodes func() int, logger *slog.Logger, now func() time.Time) *shards {
	s := &shards{kind: k, meta: m, nodes: nodes, logger: logger, now: now, all: map[int32]*shard{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// close unloads all shards: whoever waits is sent to another coordinator, as is everybody who asks from then on. Replicas go on to keep
// what is committed.
func (s *shards) close() {
	if !s.over.Swap(true) {
		s.cancel()
	}
	s.mu.RLock()
	for _, sh := range s.all {
		sh.follow()
	}
	s.mu.RUnlock()
	s.wg.Wait()
}

// ensure returns the topic, and makes it if it is not there yet. An error means that it cannot be made now.
func (s *shards) ensure(ctx context.Context) (*meta.Topic, error) {
	image := s.meta.Image()
	if t := image.Topic(s.kind.topic); t != nil {
		return t, nil
	}
	nodes := max(s.nodes(), len(image.Brokers), 1)
	spec := meta.TopicSpec{Name: s.kind.topic, Internal: true, Partitions: shardCount, ReplicationFactor: int32(min(s.kind.replicas, nodes)),
		Configs: map[string]string{
			"retention.ms": "-1", "retention.bytes": "-1", "min.insync.replicas": "1",
			"segment.bytes": strconv.Itoa(segmentBytes), "max.message.bytes": strconv.Itoa(maxRecordBytes),
		}}
	maps.Copy(spec.Configs, s.kind.configs)
	results, err := s.meta.CreateTopics(ctx, []meta.TopicSpec{spec}, false)
	if err == nil {
		err = results[0].Err
	}
	if t := s.meta.Image().Topic(s.kind.topic); t != nil {
		return t, nil
	}
	if err == nil {
		err = meta.ErrUnknownTopic
	}
	return nil, fmt.Errorf("create %s: %w", s.kind.topic, err)
}

// open is called when a replica of an internal topic opens; nil: the topic is another one.
func (s *shards) open(topic string, number int32, p Partition) partition.Kept {
	if topic != s.kind.topic {
		return nil
	}
	sh := &shard{of: s, number: number, part: p, table: s.kind.keep()}
	sh.late = &late{kept: sh.table, s: sh}
	s.mu.Lock()
	old := s.all[number]
	s.all[number] = sh
	s.mu.Unlock()
	if old != nil {
		old.replaced.Store(true)
		old.follow()
	}
	return sh.late
}

// led is called when a shard's replica is open, and when its leadership began or ended. It does not block.
func (s *shards) led(p Partition) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, sh := range s.all {
		if sh.part == p {
			sh.heard.Store(true)
			sh.follow()
			return
		}
	}
}

// find returns the term of the shard that a key belongs to, or why there is none here.
func (s *shards) find(key string) (*term, code) {
	t := s.meta.Image().Topic(s.kind.topic)
	if t == nil {
		return nil, codeNotCoordinator
	}
	s.mu.RLock()
	sh := s.all[ShardOf(key, len(t.Partitions))]
	s.mu.RUnlock()
	if sh == nil {
		return nil, codeNotCoordinator
	}
	return sh.active()
}

// terms are all that are active, and whether a shard is being loaded.
func (s *shards) terms() (all []*term, loading bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, sh := range s.all {
		t, why := sh.active()
		if t != nil {
			all = append(all, t)
		}
		loading = loading || why == codeLoading
	}
	return all, loading
}
