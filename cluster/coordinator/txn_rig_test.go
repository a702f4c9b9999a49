package coordinator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/failpoint"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/producer"
)

// txnMeta is the control group: fakeMeta that gives out producer ids, and whose image can be behind.
type txnMeta struct {
	*fakeMeta
	ids    int64
	noIDs  error
	behind *meta.Image // what CatchUp brings
	caught int
}

func (m *txnMeta) NextProducerID(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.noIDs != nil {
		return 0, m.noIDs
	}
	m.ids++
	return m.ids + 999, nil
}

func (m *txnMeta) CatchUp(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.caught++
	if m.behind != nil {
		m.image = m.behind
	}
	return nil
}

// lead says who leads a partition.
func (m *fakeMeta) lead(topic string, number int32, node rpc.NodeID) { m.elect(topic, number, node, 0) }

func (m *fakeMeta) elect(topic string, number int32, node rpc.NodeID, term int32) {
	m.mu.Lock()
	next := *m.image
	next.Topics = map[string]*meta.Topic{}
	for name, t := range m.image.Topics {
		next.Topics[name] = t
	}
	t := *m.image.Topics[topic]
	t.Partitions = slices.Clone(t.Partitions)
	t.Partitions[number].Leader, t.Partitions[number].Term = node, term
	next.Topics[topic] = &t
	next.Epoch++
	m.image = &next
	hooks := slices.Clone(m.hooks)
	m.mu.Unlock()
	for _, fn := range hooks {
		fn(&next)
	}
}

// fakeParticipant is a partition: what markers it was told to write.
type fakeParticipant struct {
	mu      sync.Mutex
	wrote   []producer.Marker
	refuse  error
	hold    bool
	waiting []func(error)
}

func (p *fakeParticipant) WriteMarker(m producer.Marker, _ time.Time, done func(error)) {
	p.mu.Lock()
	if p.hold {
		p.waiting = append(p.waiting, func(err error) {
			if err == nil {
				p.mu.Lock()
				p.wrote = append(p.wrote, m)
				p.mu.Unlock()
			}
			done(err)
		})
		p.mu.Unlock()
		return
	}
	err := p.refuse
	if err == nil {
		p.wrote = append(p.wrote, m)
	}
	p.mu.Unlock()
	done(err)
}

func (p *fakeParticipant) change(fn func(p *fakeParticipant)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(p)
}

// release ends the calls that are held.
func (p *fakeParticipant) release(err error) int {
	p.mu.Lock()
	waiting := p.waiting
	p.waiting, p.hold = nil, false
	p.mu.Unlock()
	for _, done := range waiting {
		done(err)
	}
	return len(waiting)
}

func (p *fakeParticipant) markers() []producer.Marker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.wrote)
}

// fakeTxnNodes carries calls between the nodes of a test.
type fakeTxnNodes struct {
	mu       sync.Mutex
	handlers map[rpc.NodeID]map[string]rpc.Handler
	down     map[rpc.NodeID]bool
}

type fakeTxnNode struct {
	id rpc.NodeID
	of *fakeTxnNodes
}

func (n fakeTxnNode) Handle(method string, h rpc.Handler) {
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	if n.of.handlers[n.id] == nil {
		n.of.handlers[n.id] = map[string]rpc.Handler{}
	}
	n.of.handlers[n.id][method] = h
}

func (n fakeTxnNode) Tell(rpc.NodeID, string, []byte) error { return rpc.ErrDown }
func (n fakeTxnNode) Hear(string, func(rpc.NodeID, []byte)) {}

func (n fakeTxnNode) CallUp(ctx context.Context, to rpc.NodeID, method string, req []byte) ([]byte, error) {
	n.of.mu.Lock()
	h, down := n.of.handlers[to][method], n.of.down[to]
	n.of.mu.Unlock()
	if h == nil || down {
		return nil, rpc.ErrDown
	}
	return h(ctx, n.id, req)
}

// txnRig is a coordinator of one shard on node 1, and partitions t-0 to t-3 that node 1 leads.
type txnRig struct {
	t      *testing.T
	x      *Transactions
	meta   *txnMeta
	part   *fakeShard
	nodes  *fakeTxnNodes
	points *failpoint.Set

	mu    sync.Mutex
	parts map[int32]*fakeParticipant
}

func newTxnRig(t *testing.T, adapt ...func(*TxnConfig)) *txnRig {
	t.Helper()
	r := &txnRig{
		t: t, part: &fakeShard{}, parts: map[int32]*fakeParticipant{}, points: failpoint.New(),
		nodes: &fakeTxnNodes{handlers: map[rpc.NodeID]map[string]rpc.Handler{}, down: map[rpc.NodeID]bool{}},
		meta:  &txnMeta{fakeMeta: &fakeMeta{image: &meta.Image{Topics: map[string]*meta.Topic{}}}},
	}
	r.meta.set(TransactionsTopic, 1)
	r.meta.lead(TransactionsTopic, 0, 1)
	r.meta.set("t", 4)
	for n := range int32(4) {
		r.parts[n] = &fakeParticipant{}
		r.meta.lead("t", n, 1)
	}
	cfg := TxnConfig{Meta: r.meta, Node: fakeTxnNode{1, r.nodes}, Self: 1, Local: r.local, Failpoints: r.points}
	for _, a := range adapt {
		a(&cfg)
	}
	var err error
	if r.x, err = NewTransactions(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.x.Close)
	r.part.kept = r.x.Open(TransactionsTopic, 0, r.part)
	r.lead(1)
	return r
}

func (r *txnRig) local(topic string, number int32) Participant {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.parts[number]; p != nil && topic == "t" {
		return p
	}
	return nil
}

func (r *txnRig) lead(epoch int32) {
	r.part.change(func(p *fakeShard) { p.ready, p.elected, p.epoch = true, false, epoch })
	r.x.Led(r.part)
}

func (r *txnRig) lose() {
	r.part.change(func(p *fakeShard) { p.ready = false })
	r.x.Led(r.part)
}

func (r *txnRig) init(id string, change ...func(*kafkatx.InitProducerID)) chan kafkatx.Answer {
	e := kafkatx.InitProducerID{Timeout: time.Minute, ProducerID: kafkatx.None, Epoch: kafkatx.None}
	for _, f := range change {
		f(&e)
	}
	c := make(chan kafkatx.Answer, 1)
	r.x.InitProducerID(id, e, func(a kafkatx.Answer) { c <- a })
	return c
}

func (r *txnRig) add(id string, a kafkatx.Answer, numbers ...int32) chan kafkatx.Answer {
	e := kafkatx.AddPartitions{ProducerID: a.ProducerID, Epoch: a.Epoch}
	for _, n := range numbers {
		e.Partitions = append(e.Partitions, kafkatx.Partition{Topic: "t", Number: n})
	}
	c := make(chan kafkatx.Answer, 1)
	r.x.AddPartitions(id, e, func(a kafkatx.Answer) { c <- a })
	return c
}

func (r *txnRig) end(id string, a kafkatx.Answer, commit bool, v kafkatx.Version) chan kafkatx.Answer {
	c := make(chan kafkatx.Answer, 1)
	r.x.EndTxn(id, kafkatx.EndTxn{ProducerID: a.ProducerID, Epoch: a.Epoch, Commit: commit, Version: v}, func(a kafkatx.Answer) { c <- a })
	return c
}

type verdict struct {
	v   partition.Verified
	err error
}

func (r *txnRig) verify(id string, a kafkatx.Answer, number int32, add bool) chan verdict {
	c := make(chan verdict, 1)
	q := partition.Question{TransactionalID: id, ProducerID: a.ProducerID, Epoch: a.Epoch, Topic: "t", Number: number, Add: add}
	r.x.Verify(q, func(v partition.Verified, err error) { c <- verdict{v, err} })
	return c
}

// took is an answer that must be OK.
func (r *txnRig) took(c chan kafkatx.Answer) kafkatx.Answer {
	r.t.Helper()
	a := wait(r.t, c)
	if a.Code != kafkatx.OK {
		r.t.Fatalf("%v", a)
	}
	return a
}

// open begins a transaction over partitions.
func (r *txnRig) open(id string, numbers ...int32) kafkatx.Answer {
	r.t.Helper()
	a := r.took(r.init(id))
	r.took(r.add(id, a, numbers...))
	return a
}

func (r *txnRig) described(id string) TxnDescribed {
	r.t.Helper()
	c := make(chan TxnDescribed, 1)
	r.x.Describe(id, func(d TxnDescribed, _ kafkatx.Code) { c <- d })
	return wait(r.t, c)
}

// silent checks that there is no answer yet: behind everything that was asked before, another question is answered.
func silent[T any](r *txnRig, c <-chan T) {
	r.t.Helper()
	r.described("nobody")
	select {
	case v := <-c:
		r.t.Fatalf("answered early: %+v", v)
	default:
	}
}

func (r *txnRig) eventually(what string, is func() bool) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("never: %s", what)
		}
	}
}

var errTest = errors.New("of the test")
