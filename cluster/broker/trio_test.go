package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/cluster/rpc/rpctest"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/kv"
	"gopherlog/engine/vfs"
	"gopherlog/txn/group"
)

// trio is three whole nodes: disks and the network between them in memory, clients on real sockets unless it is for virtual time.
type trio struct {
	t     *testing.T
	net   *rpctest.Network
	nodes [3]*trioNode

	votedReplicas int              // of coordinators of voted transactions; 0: as many as there are
	bare          bool             // no clients: nothing is outside of memory
	clients       *rpctest.Network // theirs, in memory: nothing is outside of it either
	balanceEvery  time.Duration
	balanceAfter  time.Duration
}

// clientSide is who calls in trio.clients: none of the three.
const clientSide rpc.NodeID = 10

type trioNode struct {
	c    *trio
	id   rpc.NodeID
	fs   *vfs.CrashFS
	addr string

	kv     *kv.DB
	rpc    *rpc.Node
	ctl    *meta.Controller
	groups *coordinator.Groups
	txns   *coordinator.Transactions
	voted  *coordinator.Voted
	facts  *partition.Facts
	points *failpoint.Set
	counts *prometheus.Registry // what rpc counts
	parts  *partition.Manager
	broker *Broker
	up     bool
}

// loopback is an address of this machine that no other process of tests listens at: the port of a node that is down stays its own.
func loopback() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 64+pid>>16&63, pid>>8&255, pid&255)
}

func newTrio(t *testing.T, adapt ...func(*trio)) *trio {
	c := &trio{t: t, net: rpctest.New()}
	for _, a := range adapt {
		a(c)
	}
	for i := range c.nodes {
		n := &trioNode{c: c, id: rpc.NodeID(i + 1), fs: vfs.NewCrashable(), addr: loopback() + ":0"}
		n.must(n.fs.MkdirAll("data", 0o755))
		c.nodes[i] = n
	}
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, n := range c.nodes {
			wg.Go(n.stop)
		}
		wg.Wait()
	})
	for _, n := range c.nodes {
		n.start()
	}
	for _, n := range c.nodes {
		n.ready()
	}
	return c
}

// virtual says whether nothing is outside of memory, for tests in virtual time: there no node is ever late because the machine is busy.
func (c *trio) virtual() bool { return c.bare || c.clients != nil }

// dial is for clients of such nodes.
func (c *trio) dial(ctx context.Context, _, host string) (net.Conn, error) {
	for _, n := range c.nodes {
		if n.addr == host {
			return c.clients.Dial(clientSide)(ctx, n.id, "")
		}
	}
	return nil, fmt.Errorf("no node has the address %s", host)
}

func (c *trio) addrs() string {
	return strings.Join([]string{c.nodes[0].addr, c.nodes[1].addr, c.nodes[2].addr}, ",")
}

func (n *trioNode) must(err error) {
	n.c.t.Helper()
	if err != nil {
		n.c.t.Fatalf("node %d: %v", n.id, err)
	}
}

func (n *trioNode) start() {
	n.c.t.Helper()
	identity, err := meta.ReadIdentity(n.fs, "data", n.id)
	n.must(err)
	var ln net.Listener
	host, port := loopback(), int32(9092)
	if n.c.clients != nil {
		ln, host = n.c.clients.Listen(n.id), n.c.clients.Addr(n.id)
		n.addr = fmt.Sprintf("%s:%d", host, port)
	} else if !n.c.bare {
		ln, err = net.Listen("tcp", n.addr)
		n.must(err)
		if port = int32(ln.Addr().(*net.TCPAddr).Port); strings.HasSuffix(n.addr, ":0") {
			n.addr = ln.Addr().String() // for good: clients know it
		}
	}
	n.kv, err = kv.Open(kv.Config{FS: n.fs, Dir: "data/kv"})
	n.must(err)
	logger := slog.New(slog.DiscardHandler)
	if os.Getenv("GOPHERLOG_TEST_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", n.id)
	}
	var others []rpc.NodeID
	for id := rpc.NodeID(1); id <= 3; id++ {
		if id != n.id {
			others = append(others, id)
		}
	}
	n.counts = prometheus.NewRegistry()
	cfg := rpc.Config{Registerer: n.counts, Node: n.id, ClusterID: identity.ClusterID, Listen: n.c.net.Listen(n.id), Dial: n.c.net.Dial(n.id),
		Peers: n.c.net.Peers(others...), Logger: logger}
	control := replica.ControlConfig{KV: n.kv, FS: n.fs, Dir: "data/control", Logger: logger}
	if !n.c.virtual() { // in real time: a node that the machine keeps from running for a while is not dead
		control.Timers = replica.Timers{Heartbeat: 5 * time.Second, Election: 5 * time.Second, Lease: 5 * time.Second}
		cfg.DeadAfter, cfg.HangUpAfter, cfg.ConnectTimeout, cfg.DialTimeout, cfg.VoteTimeout = 3*time.Second, 10*time.Second, 10*time.Second, 20*time.Second, 10*time.Second
	}
	n.rpc, err = rpc.New(cfg)
	n.must(err)
	n.rpc.Start()
	control.Node = n.rpc
	n.ctl, err = meta.Open(meta.Config{Identity: identity, Node: n.rpc, KV: n.kv, Logger: logger,
		Self:        meta.Broker{Host: host, Port: port},
		OpenControl: meta.OnReplica(control)})
	n.must(err)
	decide := group.Defaults()
	decide.InitialDelay = 100 * time.Millisecond
	n.groups, err = coordinator.New(coordinator.Config{Meta: n.ctl, Nodes: func() int { return 3 }, Group: &decide, Logger: logger})
	n.must(err)
	var opened atomic.Pointer[partition.Manager]
	n.facts, n.points = partition.NewFacts(time.Now()), failpoint.New()
	n.voted, err = coordinator.NewVoted(n.votedConfig(&opened, logger))
	n.must(err)
	n.txns, err = coordinator.NewTransactions(coordinator.TxnConfig{Voted: n.voted, Failpoints: n.points, Alive: n.rpc.Alive, Meta: n.ctl, Node: n.rpc, Self: n.id, Nodes: func() int { return 3 }, Logger: logger,
		Local: func(topic string, number int32) coordinator.Participant {
			if m := opened.Load(); m != nil {
				if p, err := m.Get(topic, number); err == nil {
					return p
				}
			}
			return nil
		}})
	n.must(err)
	n.parts, err = partition.Open(partition.Config{Meta: n.ctl, Node: n.rpc, Self: identity.ServerID(), KV: n.kv, FS: n.fs, DataDir: "data",
		BootID: "boot", Keeper: coordinator.Keepers(n.groups, n.txns, n.voted), Coordinators: n.txns, Ballot: n.voted, Facts: n.facts,
		BalanceEvery: n.c.balanceEvery, BalanceAfter: n.c.balanceAfter,
		RetentionEvery: time.Hour, Failpoints: n.points, Logger: logger}) // the records of many tests are from 1970
	n.must(err)
	opened.Store(n.parts)
	n.up = true
	if n.c.bare {
		return
	}
	n.broker, err = New(Config{Listener: ln, NodeID: n.id, Meta: n.ctl, Partitions: Local(n.parts), Groups: n.groups, Transactions: n.txns, Alive: n.rpc.Alive, Logger: logger})
	n.must(err)
	n.broker.Start()
}

func (n *trioNode) ready() {
	n.c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n.must(n.ctl.WaitReady(ctx))
}

func (n *trioNode) stop() {
	if !n.up {
		return
	}
	n.up = false
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	n.groups.Close()
	n.txns.Close()
	n.voted.Close()
	if n.broker != nil {
		n.broker.Close()
	}
	err := errors.Join(n.parts.Close(ctx), n.ctl.Close(ctx))
	n.rpc.Close()
	if err = errors.Join(err, n.kv.Close()); err != nil {
		n.c.t.Errorf("node %d: close: %v", n.id, err)
	}
}

// kill is SIGKILL: connections break at once, the disk keeps what was written.
func (n *trioNode) kill() {
	n.c.net.Kill(n.id)
	n.c.net.Isolate(n.id) // or what blocks at a failpoint would go on and reach others
	defer n.c.net.Heal()
	survived := n.fs.Clone() // before what blocks at a failpoint goes on: a lone replica would still decide
	n.points.DisarmAll()
	if n.broker != nil {
		n.broker.Close()
	}
	n.stop()
	n.fs = survived
}

// coordinatorOf is the node that leads a group's shard, nil if none does.
func (c *trio) coordinatorOf(id string) *trioNode {
	for _, n := range c.nodes {
		if !n.up {
			continue
		}
		t := n.ctl.Image().Topic(coordinator.OffsetsTopic)
		if t == nil {
			continue
		}
		if p, err := n.parts.Get(t.Name, coordinator.ShardOf(id, len(t.Partitions))); err == nil {
			if _, _, ready := p.Leader(); ready {
				return n
			}
		}
	}
	return nil
}

// members consume a topic as a group until they are stopped, and commit what they processed.
type members struct {
	t    *testing.T
	wg   sync.WaitGroup
	stop context.CancelFunc

	mu        sync.Mutex
	seen      map[string]int
	committed map[int32]int64 // acknowledged
}

func startMembers(t *testing.T, c *trio, id, topic string, n int) *members {
	ctx, cancel := context.WithCancel(context.Background())
	m := &members{t: t, stop: cancel, seen: map[string]int{}, committed: map[int32]int64{}}
	for range n {
		cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.addrs(), ",")...), kgo.ConsumerGroup(id), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond), kgo.SessionTimeout(30*time.Second),
			kgo.HeartbeatInterval(200*time.Millisecond), kgo.MetadataMinAge(50*time.Millisecond),
			kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.BlockRebalanceOnPoll())
		if err != nil {
			t.Fatal(err)
		}
		m.wg.Go(func() {
			defer cl.Close()
			for ctx.Err() == nil {
				m.poll(ctx, cl)
			}
		})
	}
	t.Cleanup(m.end)
	return m
}

func (m *members) end() {
	m.stop()
	m.wg.Wait()
}

func (m *members) poll(ctx context.Context, cl *kgo.Client) {
	fetches := cl.PollRecords(ctx, 20)
	defer cl.AllowRebalance() // until then the partitions are this member's, unless its session ends
	records := fetches.Records()
	if len(records) == 0 {
		return
	}
	m.mu.Lock()
	for _, r := range records {
		m.seen[string(r.Value)]++
		if r.Offset < m.committed[r.Partition] {
			m.t.Errorf("partition %d: offset %d is consumed again, %d was committed", r.Partition, r.Offset, m.committed[r.Partition])
		}
	}
	m.mu.Unlock()
	if err := cl.CommitRecords(ctx, records...); err != nil {
		return // it was processed and may be processed again
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range records {
		m.committed[r.Partition] = max(m.committed[r.Partition], r.Offset+1)
	}
}

func (m *members) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.seen)
}

func TestGroupsOutliveTheirCoordinators(t *testing.T) {
	c := newTrio(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	adm := kadm.NewClient(franz(t, c.addrs()))
	c.createTopic("t", 6)
	const each = 600
	fill(t, ctx, c.addrs(), "t", 0, each)
	m := startMembers(t, c, "g", "t", 3)
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		want := each * (round + 1)
		eventually(t, fmt.Sprintf("%d records are consumed", want), func() bool { return m.count() == want })
		var victim *trioNode
		eventually(t, "the group has a coordinator", func() bool { victim = c.coordinatorOf("g"); return victim != nil })
		victim.kill()
		began := time.Now()
		fill(t, ctx, c.addrs(), "t", want, want+each)
		eventually(t, "the others go on", func() bool { return m.count() == want+each })
		t.Logf("node %d, the coordinator, killed: %d records produced and consumed within %v", victim.id, each, time.Since(began).Round(time.Millisecond))
		victim.start()
		victim.ready()
	}
	m.end()
	var offsets kadm.OffsetResponses
	eventually(t, "the group has a coordinator that tells its offsets", func() (ok bool) {
		var err error
		offsets, err = adm.FetchOffsets(ctx, "g")
		return err == nil
	})
	for number, offset := range m.committed {
		if got, _ := offsets.Lookup("t", number); got.At < offset {
			t.Errorf("partition %d: offset %d is committed, %d was acknowledged", number, got.At, offset)
		}
	}
	again := 0
	for _, n := range m.seen {
		again += n - 1
	}
	t.Logf("%d records, %d of them seen again", len(m.seen), again)
}
