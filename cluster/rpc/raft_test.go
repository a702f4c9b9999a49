package rpc_test

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
	"gopherlog/cluster/rpc/rpctest"
)

var testTopic = rpc.GroupID{Topic: [16]byte{1, 2, 3}, Partition: 7}

// memoryLog is a GroupLog over the library's store in memory.
type memoryLog struct{ store *raft.InmemStore }

func (m memoryLog) Entries(lo, hi uint64, maxBytes int) (out []*raft.Log, err error) {
	size := 0
	for i := lo; i < hi; i++ {
		l := new(raft.Log)
		if err := m.store.GetLog(i, l); err != nil {
			return nil, err
		}
		if size += len(l.Data); len(out) > 0 && size > maxBytes {
			break
		}
		out = append(out, l)
	}
	return out, nil
}

func (m memoryLog) Term(index uint64) (uint64, error) {
	var l raft.Log
	err := m.store.GetLog(index, &l)
	return l.Term, err
}

func (m memoryLog) LastIndex() uint64 { i, _ := m.store.LastIndex(); return i }
func (m memoryLog) EndOffset() int64  { return int64(m.LastIndex()) }
func (m memoryLog) Contains(index, term uint64) bool {
	t, err := m.Term(index)
	return err == nil && t == term
}

// machine keeps what was applied.
type machine struct {
	mu      sync.Mutex
	applied [][]byte
	sum     uint32 // of all that was applied
}

func (m *machine) Apply(l *raft.Log) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied = append(m.applied, l.Data)
	m.sum = crc32.Update(m.sum, crc32.MakeTable(crc32.Castagnoli), l.Data)
	return nil
}

func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &machineSnapshot{bytes.Join(m.applied, nil), len(m.applied)}, nil
}

func (m *machine) Restore(r io.ReadCloser) error {
	b, err := io.ReadAll(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied, m.sum = [][]byte{b}, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return err
}

func (m *machine) digest() uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sum
}

func (m *machine) content() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Join(m.applied, nil)
}

type machineSnapshot struct {
	b []byte
	n int
}

func (s *machineSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s.b); err != nil {
		return err
	}
	return sink.Close()
}
func (s *machineSnapshot) Release() {}

// replica is one Raft group of one node.
type replica struct {
	id    rpc.ServerID
	raft  *raft.Raft
	trans rpc.GroupTransport
	log   memoryLog
	fsm   *machine
}

func (r *replica) stop() error {
	f := r.raft.Shutdown()
	r.trans.Abort()
	return f.Error()
}

// cluster is three nodes in memory with one group.
type cluster struct {
	t        *testing.T
	net      *rpctest.Network
	ids      []rpc.NodeID
	nodes    map[rpc.NodeID]*rpc.Node
	replicas map[rpc.NodeID]*replica
	group    rpc.GroupID
	opts     func(rpc.NodeID) rpc.GroupOptions
	raftConf func(*raft.Config)
}

func newCluster(t *testing.T, group rpc.GroupID, opts rpc.GroupOptions, conf func(*raft.Config)) *cluster {
	c := &cluster{
		t: t, net: rpctest.New(), ids: []rpc.NodeID{1, 2, 3}, group: group,
		nodes: map[rpc.NodeID]*rpc.Node{}, replicas: map[rpc.NodeID]*replica{},
		opts: func(rpc.NodeID) rpc.GroupOptions { return opts }, raftConf: conf,
	}
	for _, id := range c.ids {
		c.startNode(id)
	}
	for _, id := range c.ids {
		c.startReplica(id, memoryLog{raft.NewInmemStore()})
	}
	return c
}

func (c *cluster) startNode(id rpc.NodeID) {
	n, err := rpc.New(rpc.Config{
		Node: id, Listen: c.net.Listen(id), Dial: c.net.Dial(id), Peers: c.net.Peers(c.ids...),
		ClusterID: func() string { return "test" }, Poison: true,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	n.Start()
	c.nodes[id] = n
}

func (c *cluster) startReplica(id rpc.NodeID, log memoryLog) {
	r := &replica{id: rpc.MakeServerID(id, 0xabc), log: log, fsm: &machine{}}
	r.trans = c.nodes[id].Group(c.group, r.id, log, c.opts(id))
	conf := raft.DefaultConfig()
	conf.LocalID = r.id.Raft()
	conf.HeartbeatTimeout, conf.ElectionTimeout = time.Second, time.Second
	conf.LeaderLeaseTimeout = 500 * time.Millisecond
	conf.Logger = hclog.NewNullLogger()
	conf.SnapshotThreshold, conf.TrailingLogs = 1<<62, 1<<62
	if c.raftConf != nil {
		c.raftConf(conf)
	}
	snaps := raft.NewInmemSnapshotStore()
	var err error
	if last, _ := log.store.LastIndex(); last == 0 {
		var servers []raft.Server
		for _, s := range c.ids {
			sid := rpc.MakeServerID(s, 0xabc)
			servers = append(servers, raft.Server{ID: sid.Raft(), Address: sid.Address()})
		}
		if err = raft.BootstrapCluster(conf, log.store, log.store, snaps, r.trans, raft.Configuration{Servers: servers}); err != nil {
			c.t.Fatal(err)
		}
	}
	if r.raft, err = raft.NewRaft(conf, r.fsm, log.store, log.store, snaps, r.trans); err != nil {
		c.t.Fatal(err)
	}
	c.replicas[id] = r
}

func (c *cluster) stop() {
	for _, r := range c.replicas {
		if err := r.stop(); err != nil {
			c.t.Error(err)
		}
	}
	for _, n := range c.nodes {
		n.Close()
	}
}

// leader waits until one replica leads.
func (c *cluster) leader() *replica {
	c.t.Helper()
	for range 2000 {
		for _, r := range c.replicas {
			if r.raft.State() == raft.Leader {
				return r
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.t.Fatal("no leader after 20 s")
	return nil
}

func (c *cluster) follower() *replica {
	l := c.leader()
	for _, r := range c.replicas {
		if r != l {
			return r
		}
	}
	return nil
}

func (c *cluster) apply(r *replica, b []byte) {
	c.t.Helper()
	if err := r.raft.Apply(b, 20*time.Second).Error(); err != nil {
		c.t.Fatalf("apply: %v", err)
	}
}

// converge waits until every replica has applied what the leader has.
func (c *cluster) converge() {
	c.t.Helper()
	var want uint32
	for range 3000 {
		want = c.leader().fsm.digest()
		same := true
		for _, r := range c.replicas {
			same = same && r.fsm.digest() == want
		}
		if same {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	for id, r := range c.replicas {
		c.t.Logf("node %d applied %08x, leader %08x, state %v", id, r.fsm.digest(), want, r.raft.State())
	}
	c.t.Fatal("replicas differ after 30 s")
}

func payload(i, size int) []byte {
	b := bytes.Repeat([]byte{byte(i)}, size)
	copy(b, fmt.Sprintf("%08d", i))
	return b
}
