package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/cluster/rpc/rpctest"
	"gopherlog/engine/kv"
	"gopherlog/engine/record"
	"gopherlog/engine/vfs"
)

// node is a whole node but for the Kafka protocol: disk and network in memory, the rest real.
type node struct {
	c    *cluster
	id   rpc.NodeID
	fs   *vfs.CrashFS
	boot string

	kv   *kv.DB
	rpc  *rpc.Node
	ctl  *meta.Controller
	m    *Manager
	down bool
}

type cluster struct {
	t     testing.TB
	net   *rpctest.Network
	nodes []*node
	adapt func(*Config)
	mu    sync.Mutex // held while a node comes or goes under load
}

// startCluster gives n running nodes.
func startCluster(t testing.TB, n int, adapt func(*Config)) *cluster {
	c := &cluster{t: t, net: rpctest.New(), adapt: adapt}
	for i := range n {
		fs := vfs.NewCrashable()
		if err := fs.MkdirAll("data", 0o755); err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, &node{c: c, id: rpc.NodeID(i + 1), fs: fs, boot: "boot", down: true})
	}
	t.Cleanup(c.close)
	for _, n := range c.nodes {
		n.start()
	}
	for _, n := range c.nodes {
		n.ready()
	}
	return c
}

func (c *cluster) close() {
	var wg sync.WaitGroup
	for _, n := range c.nodes {
		wg.Add(1)
		go func() { defer wg.Done(); n.stop() }()
	}
	wg.Wait()
}

func (n *node) must(err error) {
	n.c.t.Helper()
	if err != nil {
		n.c.t.Fatalf("node %d: %v", n.id, err)
	}
}

func (n *node) start() {
	n.c.t.Helper()
	var ids []rpc.NodeID
	for _, o := range n.c.nodes {
		if o.id != n.id {
			ids = append(ids, o.id)
		}
	}
	if len(n.c.nodes) == 0 {
		n.c.t.Fatal("no nodes")
	}
	identity, err := meta.ReadIdentity(n.fs, "data", n.id)
	n.must(err)
	n.kv, err = kv.Open(kv.Config{FS: n.fs, Dir: "data/kv"})
	n.must(err)
	logger := slog.New(slog.DiscardHandler)
	if os.Getenv("GOPHERLOG_TEST_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", n.id)
	}
	n.rpc, err = rpc.New(rpc.Config{
		Node: n.id, ClusterID: identity.ClusterID, Listen: n.c.net.Listen(n.id), Dial: n.c.net.Dial(n.id),
		Peers: n.c.net.Peers(ids...), Logger: logger,
	})
	n.must(err)
	n.rpc.Start()
	n.ctl, err = meta.Open(meta.Config{
		Identity: identity, Node: n.rpc, KV: n.kv, Self: meta.Broker{Host: fmt.Sprint("host", n.id), Port: 9092}, Logger: logger,
		OpenControl: meta.OnReplica(replica.ControlConfig{KV: n.kv, Node: n.rpc, FS: n.fs, Dir: "data/control", Logger: logger}),
	})
	n.must(err)
	cfg := Config{
		Meta: n.ctl, Node: n.rpc, Self: identity.ServerID(), KV: n.kv, FS: n.fs, DataDir: "data", BootID: n.boot, Logger: logger,
		BalanceEvery: 100 * time.Millisecond, BalanceAfter: 300 * time.Millisecond,
	}
	if n.c.adapt != nil {
		n.c.adapt(&cfg)
	}
	n.m, err = Open(cfg)
	n.must(err)
	n.down = false
}

// ready waits until a node knows the cluster, and the others that run know it and take it for alive.
func (n *node) ready() {
	n.c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := n.ctl.WaitReady(ctx); err != nil {
		_, why := n.ctl.Ready()
		n.c.t.Fatalf("node %d: %v: %s", n.id, err, why)
	}
	for _, o := range n.c.up() { // a topic is placed on nodes that are alive
		n.c.await(fmt.Sprintf("nodes %d and %d know each other", n.id, o.id), func() bool { return n.rpc.Alive(o.id) && o.rpc.Alive(n.id) })
	}
}

// stop is a clean stop without handing leadership over.
func (n *node) stop() {
	if n.down {
		return
	}
	n.down = true
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := errors.Join(n.m.Close(ctx), n.ctl.Close(ctx))
	n.rpc.Close()
	if err = errors.Join(err, n.kv.Close()); err != nil {
		n.c.t.Errorf("node %d: close: %v", n.id, err)
	}
}

// kill is SIGKILL: connections break at once, the disk keeps what was written.
func (n *node) kill() {
	n.c.net.Kill(n.id)
	survived := n.fs.Clone()
	n.stop()
	n.fs = survived
}

// wipe is a new disk.
func (n *node) wipe() {
	n.fs = vfs.NewCrashable()
	n.must(n.fs.MkdirAll("data", 0o755))
}

func (c *cluster) up() []*node {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(n *node) bool { return n.down })
}

// create makes a topic. It keeps what is old unless configs say how long: the records of most tests are from 1970.
func (c *cluster) create(name string, partitions, rf int32, configs map[string]string) {
	c.t.Helper()
	kept := map[string]string{"retention.ms": "-1"}
	maps.Copy(kept, configs)
	configs = kept
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	spec := meta.TopicSpec{Name: name, Partitions: partitions, ReplicationFactor: rf, Configs: configs}
	res, err := c.up()[0].ctl.CreateTopics(ctx, []meta.TopicSpec{spec}, false)
	if err != nil || res[0].Err != nil {
		c.t.Fatalf("create %s: %+v %v", name, res, err)
	}
}

// delete waits until nobody serves the topic: another of the same name would not be told from it.
func (c *cluster) delete(name string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	res, err := c.up()[0].ctl.DeleteTopics(ctx, []meta.TopicRef{{Name: name}})
	if err != nil || res[0].Err != nil {
		c.t.Fatalf("delete %s: %+v %v", name, res, err)
	}
	for _, n := range c.up() {
		c.await(fmt.Sprintf("node %d lets go of %s", n.id, name), func() bool {
			_, err := n.m.Get(name, 0)
			return errors.Is(err, ErrUnknownPartition)
		})
	}
}

// leader returns the node that leads and serves, nil if none does.
func (c *cluster) leader(topic string, number int32) *node {
	for _, n := range c.up() {
		if p, err := n.m.Get(topic, number); err == nil {
			if _, _, ready := p.Leader(); ready {
				return n
			}
		}
	}
	return nil
}

// await is eventually with the cluster's patience.
func (c *cluster) await(what string, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("never: %s", what)
		}
	}
}

func (c *cluster) led(topic string, partitions int32) {
	c.t.Helper()
	for p := range partitions {
		c.await(fmt.Sprintf("%s-%d is led", topic, p), func() bool { return c.leader(topic, p) != nil })
	}
}

// produce appends with acks=all, as a client does: again and again until it is acknowledged.
func (c *cluster) produce(topic string, number int32, batch record.Batch) int64 {
	c.t.Helper()
	offset, err := c.tryProduce(topic, number, batch, 60*time.Second)
	if err != nil {
		c.t.Fatalf("produce to %s-%d: %v", topic, number, err)
	}
	return offset
}

func (c *cluster) tryProduce(topic string, number int32, batch record.Batch, patience time.Duration) (offset int64, err error) {
	err = ErrNotLeader
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		n := c.leader(topic, number)
		if n == nil {
			continue
		}
		p, e := n.m.Get(topic, number)
		if e != nil {
			continue
		}
		done := make(chan AppendResult, 1)
		p.Append(&AppendRequest{Batch: slices.Clone(batch), Acks: AcksAll, Deadline: time.Now().Add(10 * time.Second), Done: func(r AppendResult) { done <- r }})
		r := <-done
		if r.Err == nil {
			return r.BaseOffset, nil
		}
		if err = r.Err; !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrNotEnoughReplicas) {
			return -1, err
		}
	}
	return -1, err
}

// read returns the whole committed log of a partition from its leader, whoever that is: leadership may go back to the preferred replica
// at any time.
func (c *cluster) read(topic string, number int32) (out []record.Batch) {
	c.t.Helper()
	c.await(fmt.Sprintf("%s-%d is read by its leader", topic, number), func() bool {
		p := c.leaderPartition(topic, number)
		if p == nil {
			return false
		}
		h := harness{Partition: p}
		var err error
		out, err = h.tryBatches(c.t)
		if err != nil && !errors.Is(err, ErrNotLeader) {
			c.t.Fatal(err)
		}
		return err == nil
	})
	return out
}

func TestALoneNodeKeepsItsDataOverARestart(t *testing.T) {
	c := startCluster(t, 1, nil)
	n := c.nodes[0]
	c.create("t", 2, 1, nil)
	for i := range 50 {
		if got := c.produce("t", 0, sequence(1, 0, int32(i)*2, 2)); got != int64(i)*2 {
			t.Fatalf("batch %d is at %d", i, got)
		}
	}
	n.stop()
	n.start()
	n.ready()
	if got := c.read("t", 0); len(got) != 50 || got[49].LastOffset() != 99 {
		t.Fatalf("%d batches after a restart", len(got))
	}
	if got := c.produce("t", 0, sequence(1, 0, 92, 2)); got != 92 {
		t.Fatalf("repeat of the fourth last batch answered with %d, want 92", got)
	}
	if got := c.produce("t", 0, sequence(1, 0, 100, 1)); got != 100 {
		t.Fatalf("next batch is at %d", got)
	}
	n.kill()
	n.start()
	n.ready()
	if got := c.produce("t", 0, sequence(1, 0, 101, 1)); got != 101 {
		t.Fatalf("after a kill the next batch is at %d", got)
	}
}

func TestThreeNodesSpreadLeadersAndSurviveKills(t *testing.T) {
	c := startCluster(t, 3, nil)
	c.create("t", 6, 3, nil)
	c.led("t", 6)
	for p := range int32(6) {
		info := c.nodes[0].ctl.Image().Topic("t").Partitions[p]
		c.await(fmt.Sprintf("partition %d led by its preferred replica", p), func() bool { return c.leader("t", p) == c.nodes[info.Replicas[0]-1] })
	}
	next := make([]int32, 6)
	load := func(rounds int) {
		for range rounds {
			for p := range int32(6) {
				if got := c.produce("t", p, sequence(int64(p), 0, next[p], 1)); got != int64(next[p]) {
					t.Fatalf("partition %d: sequence %d is at %d", p, next[p], got)
				}
				next[p]++
			}
		}
	}
	load(20)
	for _, victim := range []int{0, 1, 2} {
		n := c.nodes[victim]
		n.kill()
		began := time.Now()
		load(1)
		t.Logf("all partitions written again %v after the kill of node %d", time.Since(began), n.id)
		load(10)
		n.start()
		n.ready()
		c.await("its replicas catch up", func() bool {
			for p := range int32(6) {
				if q, err := n.m.Get("t", p); err != nil || q.HighWatermark() < int64(next[p]) {
					return false
				}
			}
			return true
		})
	}
	for p := range int32(6) {
		if got := c.read("t", p); len(got) != int(next[p]) {
			t.Fatalf("partition %d holds %d batches, want %d", p, len(got), next[p])
		}
		info := c.nodes[0].ctl.Image().Topic("t").Partitions[p]
		c.await(fmt.Sprintf("partition %d back with its preferred replica", p), func() bool { return c.leader("t", p) == c.nodes[info.Replicas[0]-1] })
		c.await("image shows it", func() bool {
			pi := c.nodes[0].ctl.Image().Topic("t").Partitions[p]
			return pi.Leader == pi.Replicas[0] && len(pi.ISR) == 3
		})
	}
}

func TestReplicasAreByteForByteEqual(t *testing.T) {
	c := startCluster(t, 3, nil)
	c.create("t", 1, 3, map[string]string{"segment.bytes": "1048576"})
	for i := range 40 {
		c.produce("t", 0, batchOf(&record.Producer{ID: 1, Sequence: int32(i)}, 1, 100_000))
		if i%15 == 14 {
			n := c.leading("t", 0)
			n.kill()
			c.produce("t", 0, batchOf(nil, 1, 10))
			n.start()
			n.ready()
		}
	}
	wiped := c.nodes[2]
	wiped.stop()
	wiped.wipe()
	c.produce("t", 0, batchOf(nil, 1, 10))
	wiped.start()
	wiped.ready()
	end := c.committed("t", 0)
	for _, n := range c.nodes {
		c.await(fmt.Sprintf("node %d has everything", n.id), func() bool {
			p, err := n.m.Get("t", 0)
			return err == nil && p.HighWatermark() >= end
		})
	}
	want := c.nodes[0].segments("t-0")
	if len(want) < 3 {
		t.Fatalf("%d segments, want several", len(want))
	}
	for _, n := range c.nodes[1:] {
		got := n.segments("t-0")
		for name, data := range want {
			if !bytes.Equal(got[name], data) {
				t.Errorf("node %d: %s has %d bytes and differs from node 1's %d", n.id, name, len(got[name]), len(data))
			}
		}
	}
	c.await("the wiped replica votes again", func() bool {
		p := c.leaderPartition("t", 0)
		return p != nil && len(p.group.Voters()) == 3 && len(p.InSyncNodes()) == 3
	})
}

// leading waits for the node that leads and serves: while leadership moves there is none.
func (c *cluster) leading(topic string, number int32) (n *node) {
	c.t.Helper()
	c.await(fmt.Sprintf("%s-%d is led", topic, number), func() bool { n = c.leader(topic, number); return n != nil })
	return n
}

// committed is the high watermark of whoever leads.
func (c *cluster) committed(topic string, number int32) (end int64) {
	c.t.Helper()
	c.await(fmt.Sprintf("%s-%d is led", topic, number), func() bool {
		p := c.leaderPartition(topic, number)
		if p != nil {
			end = p.HighWatermark()
		}
		return p != nil
	})
	return end
}

// on waits for a node's replica: a topic is created when a majority knows it, and the others hear of it, or open theirs, a moment later. So does
// a node that has just started.
func (c *cluster) on(n *node, topic string, number int32) (p *Partition) {
	c.t.Helper()
	c.await(fmt.Sprintf("%s-%d is open on node %d", topic, number, n.id), func() bool {
		var err error
		p, err = n.m.Get(topic, number)
		return err == nil
	})
	return p
}

func (c *cluster) leaderPartition(topic string, number int32) *Partition {
	n := c.leader(topic, number)
	if n == nil {
		return nil
	}
	p, err := n.m.Get(topic, number)
	if err != nil {
		return nil
	}
	return p
}

// segments returns the .log files of a partition directory.
func (n *node) segments(dir string) map[string][]byte {
	n.c.t.Helper()
	root := n.fs.PathJoin("data", topicsDir, dir)
	names, err := n.fs.List(root)
	n.must(err)
	out := make(map[string][]byte)
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			data, err := vfs.ReadFile(n.fs, n.fs.PathJoin(root, name))
			n.must(err)
			out[name] = data
		}
	}
	return out
}

func TestANodeThatSleptThroughADeleteDoesNotBringTheOldTopicBack(t *testing.T) {
	c := startCluster(t, 3, nil)
	c.create("t", 1, 3, nil)
	c.produce("t", 0, sequence(1, 0, 0, 5))
	n := c.nodes[2]
	n.stop()
	c.delete("t")
	c.create("t", 1, 3, nil)
	c.produce("t", 0, sequence(1, 0, 0, 2))
	n.start()
	n.ready()
	c.await("it follows the new topic", func() bool {
		p, err := n.m.Get("t", 0)
		return err == nil && p.HighWatermark() == 2
	})
	id := c.nodes[0].ctl.Image().Topic("t").ID
	if got, err := readMetadata(n.fs, n.fs.PathJoin("data", topicsDir, "t-0")); err != nil || got != id {
		t.Fatalf("directory of %x, want %x: %v", got, id, err)
	}
	c.delete("t")
	for _, n := range c.nodes {
		c.await("directories are gone", func() bool {
			names, err := n.fs.List(n.fs.PathJoin("data", topicsDir))
			return err == nil && len(names) == 0
		})
	}
}

// SIGTERM of one node under load, then of all: nothing acknowledged is lost, nobody takes long.
func TestDrainedNodesLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		c.create("t", 6, 3, nil)
		c.led("t", 6)
		stop := make(chan struct{})
		acked := make([]int32, 6)
		var wg sync.WaitGroup
		for p := range int32(6) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for {
					select {
					case <-stop:
						return
					default:
					}
					if offset, err := c.tryProduce("t", p, sequence(int64(p), 0, acked[p], 1), 3*time.Second); err == nil {
						if offset != int64(acked[p]) {
							t.Errorf("partition %d: sequence %d is at %d", p, acked[p], offset)
						}
						acked[p]++
					}
					time.Sleep(time.Millisecond) // or the clock would stand still
				}
			}()
		}
		drain := func(n *node) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			began := time.Now()
			if err := n.m.Drain(ctx); err != nil {
				t.Logf("node %d: drain: %v", n.id, err)
			}
			t.Logf("node %d drained in %v", n.id, time.Since(began))
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("node %d: drain took %v", n.id, took)
			}
		}
		time.Sleep(100 * time.Millisecond)
		drain(c.nodes[0])
		time.Sleep(200 * time.Millisecond)
		if left := len(c.nodes[0].m.led()); left > 0 {
			t.Errorf("%d leaderships came back to the draining node", left)
		}
		close(stop)
		wg.Wait()
		parallel(3, 3, func(i int) { drain(c.nodes[i]); c.nodes[i].stop() })
		for _, n := range c.nodes {
			n.start()
		}
		for _, n := range c.nodes {
			n.ready()
		}
		for p := range int32(6) {
			if got := c.read("t", p); len(got) < int(acked[p]) {
				t.Errorf("partition %d holds %d batches, %d were acknowledged", p, len(got), acked[p])
			}
		}
	})
}

// A dead node's partitions are led by others at once: its death is known by broken connections, and the first survivor
// campaigns as soon as the other one says the same.
func TestFailoverTakesNoTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, func(cfg *Config) { cfg.BalanceEvery = time.Hour })
		const partitions = 12
		c.create("t", partitions, 3, nil)
		c.led("t", partitions)
		victim := c.leading("t", 0)
		before := len(victim.m.led())
		began := time.Now()
		c.net.Kill(victim.id)
		victim.down = true // for leader(): nobody asks it any more
		for p := range int32(partitions) {
			c.produce("t", p, plain(1))
		}
		took := time.Since(began)
		victim.down = false
		t.Logf("%d leaderships moved and took a batch each after %v", before, took)
		if took > 2*time.Second {
			t.Errorf("failover took %v: a timer of raft must have fired", took)
		}
	})
}
