package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/cluster/rpc"
	"gopherlog/cluster/rpc/rpctest"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/kv"
	"gopherlog/engine/log"
	"gopherlog/engine/record"
	"gopherlog/engine/vfs"
)

// patience bounds every wait of the tests; it is generous because machines are
// slow, and never slept through.
const patience = time.Minute

// fabric joins the nodes of a rig; links can be cut.
type fabric interface {
	listen(id rpc.NodeID) net.Listener
	dial(from rpc.NodeID) func(ctx context.Context, to rpc.NodeID, addr string) (net.Conn, error)
	addr(id rpc.NodeID) string
	isolate(id rpc.NodeID)
	heal()
}

type rigOptions struct {
	segmentBytes int64
	syncEach     bool
	timers       Timers
	inflight     int
	fabric       fabric
	wrapFS       func(rpc.NodeID, vfs.FS) vfs.FS
	needData     bool
	points       *failpoint.Set
	gentle       bool // buffers are not overwritten when they come back, which costs what is to be measured
}

// rig is one group on several nodes, each on a file system of its own that can
// lose power.
type rig struct {
	t       testing.TB
	opt     rigOptions
	net     fabric
	id      rpc.GroupID
	servers []rpc.ServerID
	nodes   []*rigNode
	logger  *slog.Logger
}

type rigNode struct {
	rig    *rig
	id     rpc.NodeID
	self   rpc.ServerID
	disk   *vfs.CrashFS
	fs     vfs.FS
	bootID string

	db   *kv.DB
	node *rpc.Node
	log  *log.Log
	g    *Group
	fsm  *testFSM
}

func quick() Timers {
	return Timers{Heartbeat: 500 * time.Millisecond, Election: 500 * time.Millisecond, Lease: 500 * time.Millisecond, Commit: 20 * time.Millisecond}
}

// steady are the timers of a rig in real time: the machine may be so busy that no heartbeat comes for a second.
func steady(o *rigOptions) {
	o.timers = Timers{Heartbeat: 3 * time.Second, Election: 3 * time.Second, Lease: 3 * time.Second, Commit: 20 * time.Millisecond}
}

func newRig(t testing.TB, n int, change ...func(*rigOptions)) *rig {
	r := newBareRig(t, n, change...)
	for _, x := range r.nodes {
		x.open()
	}
	t.Cleanup(r.close)
	_ = r.nodes[0].g.Campaign() // spares an election timeout
	return r
}

// newBareRig opens nothing.
func newBareRig(t testing.TB, n int, change ...func(*rigOptions)) *rig {
	r := &rig{t: t, id: rpc.GroupID{Topic: [16]byte{1, 2, 3}, Partition: 7}, logger: testLogger()}
	r.opt = rigOptions{segmentBytes: 1 << 20, timers: quick()}
	for _, c := range change {
		c(&r.opt)
	}
	if r.opt.fabric == nil {
		r.opt.fabric = newMemory()
	}
	r.net = r.opt.fabric
	for i := range n {
		id := rpc.NodeID(i + 1)
		r.servers = append(r.servers, rpc.MakeServerID(id, 0xabc))
		r.nodes = append(r.nodes, &rigNode{rig: r, id: id, self: r.servers[i], disk: vfs.NewCrashable(), bootID: "boot-1"})
		if s, ok := r.net.(*sockets); ok {
			s.listen(id).Close() // reserves the address
		}
	}
	return r
}

func testLogger() *slog.Logger {
	if os.Getenv("GOPHERLOG_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (r *rig) close() {
	for _, x := range r.nodes {
		x.close()
	}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// open starts a node on whatever its disk holds.
func (x *rigNode) open() {
	x.openNode()
	x.openGroup()
}

func (x *rigNode) openNode() {
	r := x.rig
	x.fs = x.disk
	if r.opt.wrapFS != nil {
		x.fs = r.opt.wrapFS(x.id, x.disk)
	}
	peers := make(map[rpc.NodeID]string)
	for _, o := range r.nodes {
		if o != x {
			peers[o.id] = r.net.addr(o.id)
		}
	}
	var err error
	x.db, err = kv.Open(kv.Config{FS: x.disk, Dir: "kv"})
	r.must(err)
	x.node, err = rpc.New(rpc.Config{
		Node: x.id, Listen: r.net.listen(x.id), Dial: r.net.dial(x.id), Peers: peers,
		Logger: r.logger.With("node", x.id), Poison: !r.opt.gentle,
	})
	r.must(err)
	x.node.Start()
}

func (x *rigNode) openGroup() { x.rig.must(x.tryOpenGroup(x.rig.servers)) }

func (x *rigNode) tryOpenGroup(founders []rpc.ServerID) error {
	r := x.rig
	same, err := SameBoot(x.db, r.id, x.bootID)
	if err != nil {
		return err
	}
	x.log, _, err = log.Open(log.Config{
		FS: x.fs, Dir: "topics/t-7", Sidecar: Sidecar(x.db, r.id), TopicID: r.id.Topic, Partition: r.id.Partition,
		SegmentBytes: r.opt.segmentBytes, SyncEach: r.opt.syncEach, SameBoot: same, Logger: r.logger,
	})
	if err != nil {
		return err
	}
	x.fsm = newTestFSM()
	x.g, err = Open(Config{
		ID: r.id, Self: x.self, Bootstrap: founders, Log: x.log, KV: x.db, Node: x.node, FSM: x.fsm,
		BootID: x.bootID, SyncEach: r.opt.syncEach, InflightBytes: r.opt.inflight, Timers: r.opt.timers,
		NeedData: r.opt.needData, Failpoints: r.opt.points, Logger: r.logger.With("node", x.id),
	})
	return err
}

// close stops a node cleanly.
func (x *rigNode) close() {
	if x.node == nil {
		return
	}
	x.closeGroup()
	x.node.Close()
	x.rig.must(x.db.Close())
	x.node, x.db = nil, nil
}

func (x *rigNode) closeGroup() {
	if x.g == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := x.g.Close(ctx); err != nil {
		x.rig.t.Errorf("close group on node %d: %v", x.id, err)
	}
	if err := x.log.Close(); err != nil && !errors.Is(err, log.ErrFailed) {
		x.rig.t.Errorf("close log on node %d: %v", x.id, err)
	}
	x.g, x.log = nil, nil
}

// kill leaves what SIGKILL leaves; with power, what a power cut leaves.
func (x *rigNode) kill(power bool, seed uint64) {
	x.rig.net.isolate(x.id) // the zombie is not heard any more
	clone := x.disk.Clone()
	if power {
		clone = x.disk.CrashClone(vfs.CrashConfig{Seed: seed, UnsyncedPercent: 50})
		x.bootID += "+"
	}
	x.close()
	x.disk = clone
	x.rig.net.heal()
}

// leader waits until one node leads and serves.
func (r *rig) leader() *rigNode {
	r.t.Helper()
	var found *rigNode
	nudge := time.Now().Add(100 * time.Millisecond)
	r.eventually("a leader serves", func() bool {
		var idle *rigNode
		for _, x := range r.nodes {
			if x.g == nil {
				continue
			}
			s := x.g.Status()
			if s.Ready {
				found = x
				return true
			}
			if s.Leader == "" && s.Role == Follower && idle == nil {
				idle = x
			}
		}
		if idle != nil && time.Now().After(nudge) { // spares an election timeout
			nudge = time.Now().Add(300 * time.Millisecond)
			_ = idle.g.Campaign()
		}
		return false
	})
	return found
}

// lead makes a node the leader.
func (r *rig) lead(x *rigNode) *rigNode {
	r.t.Helper()
	var last time.Time
	r.eventually(fmt.Sprintf("node %d leads", x.id), func() bool {
		if x.g.Status().Ready {
			return true
		}
		if time.Since(last) > 300*time.Millisecond {
			last = time.Now()
			_ = x.g.Campaign()
		}
		return false
	})
	return x
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, x := range r.nodes {
				if x.g != nil {
					r.t.Logf("node %d: %+v end %d", x.id, x.g.Status(), x.log.EndOffset())
				}
			}
			r.t.Fatalf("never came true: %s", what)
		}
	}
}

// outcome of one proposal.
type outcome struct {
	base int64
	err  error
}

// pending is a proposal under way.
type pending struct {
	p        *Proposal
	done     chan outcome
	appended chan int64
}

func (o *pending) wait(t testing.TB) outcome {
	t.Helper()
	select {
	case x := <-o.done:
		return x
	case <-time.After(patience):
		t.Fatal("proposal was never answered")
		return outcome{}
	}
}

// batch builds an unstamped batch of n records.
func batch(n int, value string) record.Batch {
	var b record.Builder
	for i := range n {
		b.Append(record.Record{Value: []byte(fmt.Sprintf("%s-%d", value, i))})
	}
	out := b.Finish()
	out.SetBaseOffset(-1)
	return out
}

func newPending(data []byte, term uint64) *pending {
	o := &pending{done: make(chan outcome, 2), appended: make(chan int64, 2)}
	o.p = &Proposal{
		Data: data, Term: term,
		Appended: func(base int64) { o.appended <- base },
		Done:     func(base int64, err error) { o.done <- outcome{base, err} },
	}
	return o
}

// send proposes without waiting.
func (x *rigNode) send(data []byte) *pending {
	o := newPending(data, x.g.Status().Term)
	if err := x.g.Propose(o.p); err != nil {
		o.done <- outcome{-1, err}
	}
	return o
}

// produce proposes count batches of n records and waits for their commit.
func (x *rigNode) produce(count, n int, value string) {
	x.rig.t.Helper()
	var all []*pending
	for i := range count {
		all = append(all, x.send(batch(n, fmt.Sprintf("%s/%d", value, i))))
	}
	for _, o := range all {
		if out := o.wait(x.rig.t); out.err != nil {
			x.rig.t.Fatalf("produce on node %d: %v", x.id, out.err)
		}
	}
}

// converge waits until all open nodes have applied the same and hold the same.
func (r *rig) converge() {
	r.t.Helper()
	r.eventually("replicas agree", func() bool {
		var first *rigNode
		for _, x := range r.nodes {
			if x.g == nil {
				continue
			}
			if first == nil {
				first = x
				continue
			}
			if x.log.LastIndex() != first.log.LastIndex() || x.log.EndOffset() != first.log.EndOffset() ||
				x.fsm.sum() != first.fsm.sum() {
				return false
			}
		}
		return true
	})
}

// bytesOf reads all batches that a node holds from its log start.
func (x *rigNode) bytesOf() []byte {
	x.rig.t.Helper()
	var out []byte
	for at := x.log.StartOffset(); at < x.log.EndOffset(); {
		s, err := x.log.Slice(at, x.log.EndOffset(), 1<<20, true)
		x.rig.must(err)
		b, err := s.ReadAll(nil)
		x.rig.must(err)
		out = append(out, b...)
		at = s.Next
		s.Release()
	}
	return out
}

// countValue counts the batches whose records begin with value.
func countValue(x *rigNode, value string) int {
	return bytes.Count(x.bytesOf(), []byte(value))
}

// testFSM chains everything that it is given.
type testFSM struct {
	mu       sync.Mutex
	hash     uint64
	next     int64 // offsets must be dense
	batches  int
	last     uint64
	ctrl     []string
	configs  int
	restored int
	bad      error
}

func newTestFSM() *testFSM { return &testFSM{} }

func (f *testFSM) sum() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hash
}

func (f *testFSM) Apply(es []Committed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range es {
		if e.Index <= f.last {
			f.bad = errors.Join(f.bad, fmt.Errorf("index %d after %d", e.Index, f.last))
		}
		f.last = e.Index
		switch e.Kind {
		case KindData:
			if e.BaseOffset != f.next || e.Batch.BaseOffset() != f.next {
				f.bad = errors.Join(f.bad, fmt.Errorf("batch at offset %d, want %d", e.BaseOffset, f.next))
			}
			f.next = e.NextOffset
			f.batches++
			f.chain(e.Index, e.Batch[:record.HeaderSize])
		case KindCtrl:
			f.ctrl = append(f.ctrl, string(e.Ctrl))
			f.chain(e.Index, e.Ctrl)
		case KindConfig:
			f.configs++
		}
		if e.NextOffset != f.next {
			f.bad = errors.Join(f.bad, fmt.Errorf("entry %d says next offset %d, want %d", e.Index, e.NextOffset, f.next))
		}
	}
}

func (f *testFSM) chain(index uint64, data []byte) {
	h := fnv.New64a()
	h.Write(binary.BigEndian.AppendUint64(nil, f.hash))
	h.Write(binary.BigEndian.AppendUint64(nil, index))
	h.Write(data)
	f.hash = h.Sum64()
}

func (f *testFSM) Snapshot() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := binary.BigEndian.AppendUint64(nil, f.hash)
	b = binary.BigEndian.AppendUint64(b, uint64(f.next))
	return binary.BigEndian.AppendUint64(b, f.last)
}

func (f *testFSM) Restore(state []byte, b log.Base) error {
	if len(state) != 24 {
		return fmt.Errorf("state of %d bytes", len(state))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hash = binary.BigEndian.Uint64(state)
	f.next = int64(binary.BigEndian.Uint64(state[8:]))
	f.last = binary.BigEndian.Uint64(state[16:])
	f.restored++
	if f.next != b.NextOffset || f.last > b.Index {
		return fmt.Errorf("state at offset %d index %d, base %d %d", f.next, f.last, b.NextOffset, b.Index)
	}
	return nil
}

// check fails the test if any FSM saw something out of order.
func (r *rig) check() {
	r.t.Helper()
	for _, x := range r.nodes {
		if x.fsm == nil {
			continue
		}
		x.fsm.mu.Lock()
		bad := x.fsm.bad
		x.fsm.mu.Unlock()
		if bad != nil {
			r.t.Fatalf("node %d: %v", x.id, bad)
		}
	}
}

// inVirtualTime runs a test in a bubble of virtual time.
func inVirtualTime(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, test)
}

// memory is a fabric without sockets, for bubbles of virtual time.
type memory struct{ *rpctest.Network }

func newMemory() memory { return memory{rpctest.New()} }

func (m memory) listen(id rpc.NodeID) net.Listener { return m.Listen(id) }
func (m memory) dial(from rpc.NodeID) func(context.Context, rpc.NodeID, string) (net.Conn, error) {
	return m.Dial(from)
}
func (m memory) addr(id rpc.NodeID) string { return m.Addr(id) }
func (m memory) isolate(id rpc.NodeID)     { m.Isolate(id) }
func (m memory) heal()                     { m.Heal() }

// sockets is a fabric on loopback.
type sockets struct {
	t     testing.TB
	mu    sync.Mutex
	addrs map[rpc.NodeID]string
	cut   map[rpc.NodeID]bool
	conns map[*cutConn]struct{}
}

type cutConn struct {
	net.Conn
	from, to rpc.NodeID
}

func newSockets(t testing.TB) *sockets {
	return &sockets{t: t, addrs: map[rpc.NodeID]string{}, cut: map[rpc.NodeID]bool{}, conns: map[*cutConn]struct{}{}}
}

func (s *sockets) listen(id rpc.NodeID) net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	addr := s.addrs[id]
	if addr == "" {
		addr = loopback() + ":0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.addrs[id] = l.Addr().String()
	return l
}

// loopback is an address of this machine that no other process of tests listens at: a port that is given up is free again later.
func loopback() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 64+pid>>16&63, pid>>8&255, pid&255)
}

func (s *sockets) addr(id rpc.NodeID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addrs[id]
}

func (s *sockets) dial(from rpc.NodeID) func(context.Context, rpc.NodeID, string) (net.Conn, error) {
	return func(ctx context.Context, to rpc.NodeID, addr string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.cut[from] || s.cut[to] {
			c.Close()
			return nil, io.ErrClosedPipe
		}
		k := &cutConn{c, from, to}
		s.conns[k] = struct{}{}
		return k, nil
	}
}

func (s *sockets) isolate(id rpc.NodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut[id] = true
	for k := range s.conns {
		if k.from == id || k.to == id {
			k.Close()
			delete(s.conns, k)
		}
	}
}

func (s *sockets) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.cut)
}
