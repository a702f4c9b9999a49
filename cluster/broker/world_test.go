package broker

import (
	"context"
	"flag"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/cluster/rpc/rpctest"
	"gopherlog/engine/log"
	"gopherlog/engine/vfs"
	"gopherlog/engine/wire"
	"gopherlog/txn/group"
)

var update = flag.Bool("update", false, "write golden files and documents anew")

// world is a broker with a real control group of one member that needs no Raft, and partitions whose logs are real and in
// memory, whose leadership is what the test says.
type world struct {
	t      testing.TB
	broker *Broker
	ctl    *meta.Controller
	groups *coordinator.Groups
	txns   *coordinator.Transactions
	fs     vfs.FS
	addr   string
	net    *rpctest.Network // in memory; nil: sockets
	dead   sync.Map         // meta.NodeID that the failure detector calls dead

	mu    sync.Mutex
	parts map[string]*fakePartition
	// shape, if set, sees every partition before it is used.
	shape func(*fakePartition)
}

// loneControl applies commands at once.
type loneControl struct {
	mu    sync.Mutex
	fsm   replica.ControlFSM
	self  rpc.ServerID
	index uint64

	members []meta.Member
}

func (c *loneControl) Apply(_ context.Context, cmd []byte) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index++
	return c.fsm.Apply(c.index, cmd), nil
}
func (c *loneControl) Barrier(context.Context) error { return nil }
func (c *loneControl) Leader() rpc.ServerID          { return c.self }
func (c *loneControl) IsLeader() bool                { return true }
func (c *loneControl) Members() []meta.Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.members)
}

func (c *loneControl) set(id rpc.ServerID, voter bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members = append(slices.DeleteFunc(c.members, func(m meta.Member) bool { return m.ID == id }), meta.Member{ID: id, Voter: voter})
	return nil
}
func (c *loneControl) AddNonvoter(_ context.Context, id rpc.ServerID) error { return c.set(id, false) }
func (c *loneControl) AddVoter(_ context.Context, id rpc.ServerID) error    { return c.set(id, true) }
func (c *loneControl) RemoveServer(context.Context, rpc.ServerID) error     { return nil }
func (c *loneControl) Campaign() error                                      { return nil }
func (c *loneControl) CaughtUp(rpc.ServerID) bool                           { return true }
func (c *loneControl) TransferTo(context.Context, rpc.ServerID) error       { return nil }
func (c *loneControl) Close(context.Context) error                          { return nil }

// nowhere is a network without peers.
type nowhere struct{ meta.Network }

func (nowhere) Handle(string, rpc.Handler)            {}
func (nowhere) Hear(string, func(rpc.NodeID, []byte)) {}
func (nowhere) Tell(rpc.NodeID, string, []byte) error { return rpc.ErrDown }
func (nowhere) OnPeerChange(func(meta.NodeID, bool))  {}
func (nowhere) Alive(meta.NodeID) bool                { return true }
func (nowhere) Peers() map[meta.NodeID]string         { return nil }
func (nowhere) SetPeer(meta.NodeID, string)           {}
func (nowhere) OnReport(func(meta.NodeID))            {}
func (nowhere) CallUp(context.Context, meta.NodeID, string, []byte) ([]byte, error) {
	return nil, rpc.ErrDown
}
func (nowhere) Call(context.Context, meta.NodeID, string, []byte) ([]byte, error) {
	return nil, rpc.ErrDown
}

func newWorld(t testing.TB, configure ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, fs: vfs.NewCrashable(), parts: map[string]*fakePartition{}}
	w.start(configure...)
	return w
}

// newVirtual is a world without sockets, for tests in virtual time (testing/synctest): whatever has a limit there is never over it because the
// machine is busy.
func newVirtual(t testing.TB, configure ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, fs: vfs.NewCrashable(), net: rpctest.New(), parts: map[string]*fakePartition{}}
	w.start(configure...)
	return w
}

func (w *world) listen() net.Listener {
	if w.net != nil {
		return w.net.Listen(1)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	return ln
}

func (w *world) connect() net.Conn {
	w.t.Helper()
	if w.net == nil {
		return connect(w.t, w.addr)
	}
	conn, err := w.net.Dial(2)(context.Background(), 1, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return conn
}

func (w *world) start(configure ...func(*Config)) {
	w.t.Helper()
	t := w.t
	if err := w.fs.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	identity, err := meta.ReadIdentity(w.fs, "data", 1)
	if err != nil {
		t.Fatal(err)
	}
	w.ctl, err = meta.Open(meta.Config{Identity: identity, Node: nowhere{}, Self: meta.Broker{Port: 9092, RPCAddr: "10.0.0.1:9093", Rack: "r1"},
		OpenControl: func(fsm replica.ControlFSM, self rpc.ServerID, _ []rpc.ServerID) (meta.Control, error) {
			return &loneControl{fsm: fsm, self: self, members: []meta.Member{{ID: self, Voter: true}}}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.ctl.Close(context.Background()) })
	if err := w.ctl.WaitReady(timeout(t)); err != nil {
		t.Fatal(err)
	}
	var ids atomic.Int64
	decide := group.Defaults()
	decide.InitialDelay = 0
	w.groups, err = coordinator.New(coordinator.Config{Meta: w.ctl, Group: &decide, NewID: func() string { return fmt.Sprint("id", ids.Add(1)) }})
	if err != nil {
		t.Fatal(err)
	}
	w.txns, err = coordinator.NewTransactions(coordinator.TxnConfig{Meta: w.ctl, Node: nowhere{}, Self: 1, Local: w.participant})
	if err != nil {
		t.Fatal(err)
	}
	ln := w.listen()
	cfg := Config{Listener: ln, NodeID: 1, Meta: w.ctl, Partitions: w, Groups: w.groups, Transactions: w.txns, Pool: &wire.Pool{Poison: true}, DataDir: "data",
		Alive: func(id meta.NodeID) bool { _, dead := w.dead.Load(id); return !dead }}
	for _, c := range configure {
		c(&cfg)
	}
	if w.broker, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	w.addr = ln.Addr().String()
	w.broker.Start()
	t.Cleanup(func() {
		w.groups.Close()
		w.txns.Close()
		w.broker.Close()
		for _, p := range w.parts {
			p.log.Close()
		}
		if s := w.broker.Stats(); s.InflightBytes != 0 {
			t.Errorf("%d bytes of request buffers are in use after Close", s.InflightBytes)
		}
	})
}

func timeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func (w *world) create(name string, partitions int32, configs ...string) {
	w.t.Helper()
	spec := meta.TopicSpec{Name: name, Partitions: partitions, ReplicationFactor: 1, Configs: map[string]string{}}
	for i := 0; i < len(configs); i += 2 {
		spec.Configs[configs[i]] = configs[i+1]
	}
	res, err := w.ctl.CreateTopics(timeout(w.t), []meta.TopicSpec{spec}, false)
	if err != nil || res[0].Err != nil {
		w.t.Fatal(err, res)
	}
}

// Get opens the partition of a topic in the image when it is first asked for.
func (w *world) Get(topic string, number int32) (Partition, error) {
	p, err := w.get(topic, number)
	if err != nil {
		return nil, err
	}
	return p, p.outOfService
}

func (w *world) get(topic string, number int32) (*fakePartition, error) {
	t := w.ctl.Image().Topic(topic)
	if t == nil || number < 0 || int(number) >= len(t.Partitions) || !t.Partitions[number].Has(1) {
		return nil, partition.ErrUnknownPartition
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := fmt.Sprintf("%s-%d-%x", topic, number, t.ID)
	if p := w.parts[key]; p != nil {
		return p, nil
	}
	cfg, err := meta.ParseTopicConfig(t.Configs, nil)
	if err != nil {
		return nil, err
	}
	l, _, err := log.Open(log.Config{FS: w.fs, Dir: "data/" + key, Sidecar: noSidecar{}, TopicID: t.ID, Partition: number})
	if err != nil {
		return nil, err
	}
	p := &fakePartition{w: w, id: t.ID, log: l, epoch: 1, leads: true, settings: partition.Settings{TopicConfig: cfg}, waiters: map[*partition.Waiter]bool{}}
	if w.shape != nil {
		w.shape(p)
	}
	w.parts[key] = p
	for _, c := range []coordinator.Coordinator{w.groups, w.txns} {
		if kept := c.Open(topic, number, p); kept != nil {
			p.kept = kept
			c.Led(p)
		}
	}
	return p, nil
}

// participant is where the coordinator's markers go.
func (w *world) participant(topic string, number int32) coordinator.Participant {
	if p, err := w.get(topic, number); err == nil {
		return p
	}
	return nil
}

func (w *world) part(topic string, number int32) *fakePartition {
	w.t.Helper()
	p, err := w.get(topic, number)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

type noSidecar struct{}

func (noSidecar) Put([]log.Entry) error                            { return nil }
func (noSidecar) Get(uint64) (log.Entry, error)                    { return log.Entry{}, log.ErrNotFound }
func (noSidecar) Scan(uint64, uint64, func(log.Entry) error) error { return nil }
func (noSidecar) DeleteFrom(uint64) error                          { return nil }
func (noSidecar) DeleteBelow(uint64) error                         { return nil }
