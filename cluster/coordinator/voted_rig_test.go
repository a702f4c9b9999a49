package coordinator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/record"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/twopc"
)

// votedMeta gives out producer ids too.
type votedMeta struct {
	*fakeMeta
	ids atomic.Int64
}

func (m *votedMeta) NextProducerID(context.Context) (int64, error) { return m.ids.Add(1), nil }
func (m *votedMeta) CatchUp(context.Context) error                 { return nil }

// fakeVoter is a participant: it votes and ends as the test wants.
type fakeVoter struct {
	r      *votedRig
	self   twopc.Member
	mu     sync.Mutex
	heard  []twopc.Message
	silent bool
	deaf   bool // to outcomes
	no     bool
}

func (p *fakeVoter) Hear(id string, m twopc.Message) {
	p.mu.Lock()
	p.heard = append(p.heard, m)
	silent, deaf, no := p.silent, p.deaf, p.no
	p.mu.Unlock()
	if silent {
		return
	}
	switch m := m.(type) {
	case twopc.Prepare:
		p.r.v.Report(id, twopc.Vote{Txn: m.Txn, From: p.self, Yes: !no})
	case twopc.Outcome:
		if deaf {
			return
		}
		p.r.v.Report(id, twopc.Ended{Txn: m.Txn, From: p.self})
	}
}

func (p *fakeVoter) change(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn()
}

// words are what it heard.
func (p *fakeVoter) words() (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.heard {
		out = append(out, m.String())
	}
	return out
}

func (p *fakeVoter) await(what string) {
	p.r.t.Helper()
	for end := time.Now().Add(time.Minute); !slices.Contains(p.words(), what); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.r.t.Fatalf("%s never heard %s, but %q", p.self, what, p.words())
		}
	}
}

// votedRig is a coordinator of one shard with the participants t-0 … t-3.
type votedRig struct {
	t      *testing.T
	v      *Voted
	meta   *votedMeta
	part   *fakeShard
	voters [4]*fakeVoter
	calls  *fakeNode
	points *failpoint.Set
}

// fakeNode remembers handlers, and calls those of the node that it is tied to.
type fakeNode struct {
	mu       sync.Mutex
	handlers map[string]rpc.Handler
	hearers  map[string]func(rpc.NodeID, []byte)
	to       *fakeNode
}

func (n *fakeNode) Handle(method string, h rpc.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.handlers == nil {
		n.handlers = map[string]rpc.Handler{}
	}
	n.handlers[method] = h
}

func (n *fakeNode) Hear(method string, h func(rpc.NodeID, []byte)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hearers == nil {
		n.hearers = map[string]func(rpc.NodeID, []byte){}
	}
	n.hearers[method] = h
}

func (n *fakeNode) Tell(_ rpc.NodeID, method string, data []byte) error {
	if n.to == nil {
		return rpc.ErrDown
	}
	n.to.mu.Lock()
	h := n.to.hearers[method]
	n.to.mu.Unlock()
	h(2, data)
	return nil
}

func (n *fakeNode) CallUp(ctx context.Context, _ rpc.NodeID, method string, req []byte) ([]byte, error) {
	if n.to == nil {
		return nil, errors.New("no such node")
	}
	n.to.mu.Lock()
	h := n.to.handlers[method]
	n.to.mu.Unlock()
	if h == nil {
		return nil, rpc.ErrDown // closed
	}
	return h(ctx, 2, req)
}

const votedOne = "2pc.one"

func newVotedRig(t *testing.T, adapt ...func(*VotedConfig)) *votedRig {
	t.Helper()
	r := &votedRig{t: t, meta: &votedMeta{fakeMeta: &fakeMeta{image: &meta.Image{Topics: map[string]*meta.Topic{}}}}, part: &fakeShard{}, calls: &fakeNode{}, points: failpoint.New()}
	r.meta.set(VotedTopic, 1)
	r.meta.set("t", 4)
	machine := twopc.Defaults()
	machine.ResendAfter, machine.VoteTimeout = time.Hour, time.Hour
	cfg := VotedConfig{
		Meta: r.meta, Node: r.calls, Self: 1, Prefix: "2pc.", Machine: &machine, Failpoints: r.points, Facts: partition.NewFacts(time.Now()),
		Local: func(topic string, number int32) Voter {
			if topic == "t" && int(number) < len(r.voters) {
				return r.voters[number]
			}
			return nil
		},
	}
	for i := range r.voters {
		r.voters[i] = &fakeVoter{r: r, self: partition.MemberOf("t", int32(i))}
	}
	for _, a := range adapt {
		a(&cfg)
	}
	var err error
	if r.v, err = NewVoted(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.v.Close)
	r.part.kept = r.v.Open(VotedTopic, 0, r.part)
	r.lead(1)
	return r
}

func (r *votedRig) lead(epoch int32) {
	r.part.change(func(p *fakeShard) { p.ready, p.elected, p.epoch = true, false, epoch })
	r.v.Led(r.part)
}

func (r *votedRig) lose() {
	r.part.change(func(p *fakeShard) { p.ready = false })
	r.v.Led(r.part)
}

type answers chan kafkatx.Answer

func (r *votedRig) init(id int64, epoch int16) answers {
	c := make(answers, 1)
	r.v.InitProducerID(votedOne, kafkatx.InitProducerID{ProducerID: id, Epoch: epoch, Timeout: time.Minute}, func(a kafkatx.Answer) { c <- a })
	return c
}

func (r *votedRig) add(a kafkatx.Answer, numbers ...int32) answers {
	e := kafkatx.AddPartitions{ProducerID: a.ProducerID, Epoch: a.Epoch}
	for _, n := range numbers {
		e.Partitions = append(e.Partitions, kafkatx.Partition{Topic: "t", Number: n})
	}
	c := make(answers, 1)
	r.v.AddPartitions(votedOne, e, func(a kafkatx.Answer) { c <- a })
	return c
}

func (r *votedRig) end(a kafkatx.Answer, commit bool, version kafkatx.Version) answers {
	c := make(answers, 1)
	r.v.EndTxn(votedOne, kafkatx.EndTxn{ProducerID: a.ProducerID, Epoch: a.Epoch, Commit: commit, Version: version}, func(a kafkatx.Answer) { c <- a })
	return c
}

// begin has a client begin a transaction over partitions.
func (r *votedRig) begin(numbers ...int32) kafkatx.Answer {
	r.t.Helper()
	who := r.must(r.init(kafkatx.None, kafkatx.None), kafkatx.OK)
	r.must(r.add(who, numbers...), kafkatx.OK)
	return who
}

func (r *votedRig) must(c answers, want kafkatx.Code) kafkatx.Answer {
	r.t.Helper()
	a := wait(r.t, c)
	if a.Code != want {
		r.t.Fatalf("answered %s, want %s", a.Code, want)
	}
	return a
}

// settled returns when what was asked before has been worked off.
func (r *votedRig) settled() {
	r.t.Helper()
	done := make(chan bool, 1)
	t, _ := r.v.shards.find(votedOne)
	if t == nil || !t.post(func() { done <- true }) {
		r.t.Fatal("no term")
	}
	wait(r.t, done)
}

func (r *votedRig) unanswered(c answers) {
	r.t.Helper()
	r.settled()
	select {
	case a := <-c:
		r.t.Fatalf("answered early: %+v", a)
	default:
	}
}

func (r *votedRig) ledger() twopc.Ledger {
	return r.part.kept.(*late).kept.(*votedTable).ledger(votedOne)
}

// votedBatch is a record of the topic; a nil value forgets the id.
func votedBatch(id string, value []byte, at int64) record.Batch {
	b := record.Builder{BaseTimestamp: at}
	b.Append(record.Record{Key: []byte(id), Value: value})
	return b.Finish()
}
