package broker

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/log"
	"gopherlog/engine/record"
	"gopherlog/engine/vfs"
	"gopherlog/engine/wire"
)

var update = flag.Bool("update", false, "write golden files and documents anew")

// world is a broker with a real control group of one member that needs no Raft, and partitions whose logs are real and in
// memory, whose leadership is what the test says.
type world struct {
	t      testing.TB
	broker *Broker
	ctl    *meta.Controller
	fs     vfs.FS
	addr   string
	dead   sync.Map // meta.NodeID that the failure detector calls dead

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

func (nowhere) Handle(string, rpc.Handler)           {}
func (nowhere) OnPeerChange(func(meta.NodeID, bool)) {}
func (nowhere) Alive(meta.NodeID) bool               { return true }
func (nowhere) Peers() map[meta.NodeID]string        { return nil }
func (nowhere) SetPeer(meta.NodeID, string)          {}
func (nowhere) OnReport(func(meta.NodeID))           {}
func (nowhere) Call(context.Context, meta.NodeID, string, []byte) ([]byte, error) {
	return nil, rpc.ErrDown
}

func newWorld(t testing.TB, configure ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, fs: vfs.NewCrashable(), parts: map[string]*fakePartition{}}
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
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Listener: ln, NodeID: 1, Meta: w.ctl, Partitions: w, Pool: &wire.Pool{Poison: true}, DataDir: "data",
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
		w.broker.Close()
		for _, p := range w.parts {
			p.log.Close()
		}
		if s := w.broker.Stats(); s.InflightBytes != 0 {
			t.Errorf("%d bytes of request buffers are in use after Close", s.InflightBytes)
		}
	})
	return w
}

func timeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
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
	return p, nil
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

// fakePartition commits what it appends at once, unless hold is set.
type fakePartition struct {
	w        *world
	id       meta.TopicID
	log      *log.Log
	settings partition.Settings

	mu           sync.Mutex
	epoch        int32
	leads        bool
	elected      bool // leads without having committed anything in its term
	elsewhere    meta.NodeID
	outOfService error
	hold         bool
	failWith     error
	held         []func()
	hw, start    int64
	waiters      map[*partition.Waiter]bool
	lastAppend   *partition.AppendRequest
	reads        int
}

func (p *fakePartition) TopicID() meta.TopicID        { return p.id }
func (p *fakePartition) Settings() partition.Settings { return p.settings }

func (p *fakePartition) Append(r *partition.AppendRequest) {
	p.mu.Lock()
	p.lastAppend = r
	if err := p.appendError(); err != nil {
		p.mu.Unlock()
		r.Done(partition.AppendResult{BaseOffset: -1, LogStart: -1, Err: err})
		return
	}
	base := p.log.EndOffset()
	batch := append(record.Batch(nil), r.Batch...)
	batch.SetBaseOffset(-1)
	if err := p.log.Append([]log.Entry{{Index: p.log.LastIndex() + 1, Term: uint64(p.epoch), Data: batch}}); err != nil {
		p.w.t.Errorf("append: %v", err)
	}
	finish := func() {
		p.commit()
		r.Done(partition.AppendResult{BaseOffset: base, LogStart: p.LogStart()})
	}
	if p.hold {
		p.held = append(p.held, finish)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	finish()
}

func (p *fakePartition) appendError() error {
	switch {
	case p.failWith != nil:
		return p.failWith
	case !p.leads:
		return partition.ErrNotLeader
	}
	return nil
}

// commit moves the high watermark to the log end and wakes who waits for it.
func (p *fakePartition) commit() {
	p.mu.Lock()
	p.hw = p.log.EndOffset()
	p.mu.Unlock()
	p.wake()
}

func (p *fakePartition) release() {
	p.mu.Lock()
	held := p.held
	p.held, p.hold = nil, false
	p.mu.Unlock()
	for _, f := range held {
		f()
	}
}

// lead changes the leadership.
func (p *fakePartition) lead(leads bool, epoch int32) {
	p.mu.Lock()
	p.leads, p.epoch = leads, epoch
	p.mu.Unlock()
	p.wake()
}

func (p *fakePartition) wake() {
	p.mu.Lock()
	waiters := p.waiters
	p.waiters = map[*partition.Waiter]bool{}
	p.mu.Unlock()
	for w := range waiters {
		select {
		case w.C <- struct{}{}:
		default:
		}
	}
}

func (p *fakePartition) CheckEpoch(known int32) (int32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.leads || p.elected:
		return -1, partition.ErrNotLeader
	case known >= 0 && known < p.epoch:
		return p.epoch, partition.ErrFencedEpoch
	case known > p.epoch:
		return p.epoch, partition.ErrUnknownEpoch
	}
	return p.epoch, nil
}

func (p *fakePartition) Read(r partition.ReadRequest) (partition.ReadResult, error) {
	res := partition.ReadResult{HighWatermark: -1, LastStable: -1, LogStart: -1, LeaderEpoch: -1, DivergingEpoch: -1, DivergingEnd: -1}
	epoch, err := p.CheckEpoch(r.CurrentEpoch)
	if err != nil {
		return res, err
	}
	p.mu.Lock()
	p.reads++
	p.mu.Unlock()
	res.LeaderEpoch, res.HighWatermark, res.LastStable, res.LogStart = epoch, p.HighWatermark(), p.LastStable(), p.LogStart()
	if r.Offset < res.LogStart || r.Offset > p.log.EndOffset() {
		return res, partition.ErrOffsetOutOfRange
	}
	if r.LastFetchedEpoch >= 0 {
		if e, end := p.log.EpochEnd(r.LastFetchedEpoch); e < r.LastFetchedEpoch || end < r.Offset {
			res.DivergingEpoch, res.DivergingEnd = e, end
			return res, nil
		}
	}
	if r.Offset >= res.HighWatermark {
		return res, nil
	}
	s, err := p.log.Slice(r.Offset, res.HighWatermark, r.MaxBytes, r.MinOne)
	if err == nil && s.Bytes == 0 {
		s.Release()
		s = nil
	}
	res.Slice = s
	return res, err
}

func (p *fakePartition) Park(w *partition.Waiter, hw int64, epoch int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hw != hw || !p.leads || p.epoch != epoch {
		return false
	}
	p.waiters[w] = true
	return true
}

func (p *fakePartition) Unpark(w *partition.Waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiters, w)
}

func (p *fakePartition) parked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiters)
}

func (p *fakePartition) HighWatermark() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hw
}
func (p *fakePartition) LastStable() int64 { return p.HighWatermark() }
func (p *fakePartition) LogStart() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.start
}
func (p *fakePartition) EndOffset() int64 { return p.log.EndOffset() }
func (p *fakePartition) Size() int64      { return p.log.Size() }

func (p *fakePartition) Leader() (rpc.NodeID, int32, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.leads && !p.elected:
		return 1, p.epoch, true
	case p.elsewhere != 0:
		return p.elsewhere, p.epoch, false
	}
	return meta.NoLeader, -1, false
}

func (p *fakePartition) Status() replica.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := replica.Status{Role: replica.Follower, Term: uint64(p.epoch)}
	if p.leads {
		s.Role = replica.Leader
	}
	return s
}

func (p *fakePartition) InSyncNodes() []rpc.NodeID { return []rpc.NodeID{1} }
func (p *fakePartition) OffsetForTimestamp(ts int64) (int64, int64, int32, bool, error) {
	return p.log.OffsetForTimestamp(ts, p.HighWatermark())
}
func (p *fakePartition) MaxTimestamp() (int64, int64, error) {
	return p.log.MaxTimestamp(p.HighWatermark())
}
func (p *fakePartition) EpochEnd(epoch int32) (int32, int64) { return p.log.EpochEnd(epoch) }
func (p *fakePartition) LastEpoch() int32                    { return p.log.LastEpoch() }
func (p *fakePartition) DeleteRecords(_ context.Context, offset int64) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start = max(p.start, offset)
	return p.start, nil
}

// client speaks the protocol with kmsg and nothing else.
type client struct {
	t    testing.TB
	conn net.Conn
	next int32
}

func (w *world) dial() *client {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	w.t.Cleanup(func() { conn.Close() })
	return &client{t: w.t, conn: conn}
}

func (c *client) send(req kmsg.Request) {
	c.t.Helper()
	c.next++
	b := kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, c.next)
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// raw reads one response: its bytes after the length.
func (c *client) raw() []byte {
	c.t.Helper()
	b, err := c.tryRaw()
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *client) tryRaw() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, int(head[0])<<24|int(head[1])<<16|int(head[2])<<8|int(head[3]))
	_, err := io.ReadFull(c.conn, b)
	return b, err
}

// receive reads the response to req and takes it apart.
func (c *client) receive(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	resp, _ := c.receiveRaw(req)
	return resp
}

func (c *client) receiveRaw(req kmsg.Request) (kmsg.Response, []byte) {
	c.t.Helper()
	b := c.raw()[4:]
	if req.IsFlexible() && req.Key() != 18 {
		if b[0] != 0 {
			c.t.Fatalf("response header has tags: %x", b[0])
		}
		b = b[1:]
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if err := resp.ReadFrom(b); err != nil {
		c.t.Fatalf("key %d version %d: %v\n%x", req.Key(), req.GetVersion(), err, b)
	}
	return resp, b
}

func (c *client) ask(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	c.send(req)
	return c.receive(req)
}

// closed checks that the broker has dropped the connection.
func (c *client) closed() {
	c.t.Helper()
	_, err := c.conn.Read(make([]byte, 1))
	var ne net.Error
	if err == nil || errors.As(err, &ne) && ne.Timeout() {
		c.t.Fatalf("the connection is not closed: %v", err)
	}
}

// batch builds one batch with the given values.
func batch(values ...string) record.Batch {
	return batchOf(record.Builder{BaseTimestamp: 1000}, values...)
}

func batchOf(b record.Builder, values ...string) record.Batch {
	for i, v := range values {
		b.Append(record.Record{TimestampDelta: int64(i), Value: []byte(v)})
	}
	return b.Finish()
}

// produce builds a produce request for one partition.
func produce(version int16, acks int16, topic string, number int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, acks, 10_000
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = number, records
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func (c *client) produce(req *kmsg.ProduceRequest) kmsg.ProduceResponseTopicPartition {
	c.t.Helper()
	return c.ask(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

// fetch builds a fetch request for partitions 0, 1, … of a topic at the given offsets.
func fetch(version int16, topic string, offsets ...int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = version, 0, 1, 50<<20
	req.ReplicaID = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	for i, o := range offsets {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = int32(i), o, 1<<20
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

func (c *client) fetch(req *kmsg.FetchRequest) []kmsg.FetchResponseTopicPartition {
	c.t.Helper()
	resp := c.ask(req).(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 {
		c.t.Fatalf("fetch: code %d", resp.ErrorCode)
	}
	return resp.Topics[0].Partitions
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never happened: %s", what)
}
