package coordinator

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/record"
	"gopherlog/txn/group"
)

// fakeMeta shows what the test sets.
type fakeMeta struct {
	mu    sync.Mutex
	image *meta.Image
	hooks []func(*meta.Image)
	spec  *meta.TopicSpec // of the last creation
	err   error           // of the next one
}

func (m *fakeMeta) Image() *meta.Image {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.image
}

func (m *fakeMeta) Subscribe(fn func(*meta.Image)) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hooks = append(m.hooks, fn)
	return func() {}
}

func (m *fakeMeta) CreateTopics(_ context.Context, specs []meta.TopicSpec, _ bool) ([]meta.TopicResult, error) {
	m.mu.Lock()
	m.spec = &specs[0]
	err := m.err
	m.mu.Unlock()
	if err == nil {
		m.set(specs[0].Name, specs[0].Partitions)
	}
	return []meta.TopicResult{{Name: specs[0].Name, Err: err}}, nil
}

// set makes an image in which the topic is another one than before; with no partitions it is gone.
func (m *fakeMeta) set(topic string, partitions int32) {
	m.mu.Lock()
	next := &meta.Image{Topics: map[string]*meta.Topic{}, Epoch: m.image.Epoch + 1}
	for name, t := range m.image.Topics {
		next.Topics[name] = t
	}
	delete(next.Topics, topic)
	if partitions > 0 {
		t := &meta.Topic{Name: topic, ID: meta.TopicID{byte(next.Epoch)}}
		t.Partitions = make([]meta.PartitionInfo, partitions)
		next.Topics[topic] = t
	}
	m.image = next
	hooks := slices.Clone(m.hooks)
	m.mu.Unlock()
	for _, fn := range hooks {
		fn(next)
	}
}

// fakeShard commits what it appends at once, unless hold is set.
type fakeShard struct {
	kept partition.Kept

	mu        sync.Mutex
	epoch     int32
	ready     bool
	elected   bool // leads in Raft, the barrier is not over
	deposed   bool // another leads, and this one does not know it
	hold      bool
	held      []write
	next      int64
	refuse    error // the next append
	size      int64
	trimmedTo int64
	epochs    []int32
	slow      time.Duration // how long the next append takes to be admitted
}

func (p *fakeShard) Leader() (rpc.NodeID, int32, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ready {
		return meta.NoLeader, -1, false
	}
	return 1, p.epoch, true
}

func (p *fakeShard) Status() replica.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ready || p.elected {
		return replica.Status{Role: replica.Leader}
	}
	return replica.Status{Role: replica.Follower}
}

func (p *fakeShard) Append(r *partition.AppendRequest) {
	p.mu.Lock()
	p.epochs = append(p.epochs, r.Epoch)
	if d := p.slow; d > 0 {
		p.slow = 0
		p.mu.Unlock()
		time.Sleep(d)
		p.mu.Lock()
	}
	err := p.refuse
	p.refuse = nil
	if !p.ready || r.Epoch != p.epoch {
		err = partition.ErrNotLeader
	}
	if err != nil {
		p.mu.Unlock()
		r.Done(partition.AppendResult{BaseOffset: -1, Err: err})
		return
	}
	batch := append(record.Batch(nil), r.Batch...)
	batch.SetBaseOffset(p.next)
	p.next = batch.NextOffset()
	w := write{batch, r.Done}
	if p.hold {
		p.held = append(p.held, w)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	p.commit(w)
}

// write is an append under way.
type write struct {
	batch record.Batch
	done  func(partition.AppendResult)
}

func (p *fakeShard) commit(w write) {
	p.kept.Apply(w.batch)
	w.done(partition.AppendResult{BaseOffset: w.batch.BaseOffset()})
}

// release commits what is held back.
func (p *fakeShard) release() {
	p.mu.Lock()
	held := p.held
	p.held, p.hold = nil, false
	p.mu.Unlock()
	for _, w := range held {
		p.commit(w)
	}
}

// abandon says of what is held back that its outcome is unknown, and returns it.
func (p *fakeShard) abandon() []write {
	p.mu.Lock()
	held := p.held
	p.held, p.hold = nil, false
	p.mu.Unlock()
	for _, w := range held {
		w.done(partition.AppendResult{BaseOffset: -1, Err: partition.ErrNotLeader})
	}
	return held
}

func (p *fakeShard) Confirm(epoch int32, done func(error)) {
	p.mu.Lock()
	var err error
	if !p.ready || p.deposed || epoch != p.epoch {
		err = partition.ErrNotLeader
	}
	p.mu.Unlock()
	done(err)
}

func (p *fakeShard) HighWatermark() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

func (p *fakeShard) Size() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}

func (p *fakeShard) DeleteRecords(_ context.Context, offset int64) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trimmedTo, p.size = offset, 0
	return offset, nil
}

// change is for fields that the coordinator's goroutines read.
func (p *fakeShard) change(fn func(p *fakeShard)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(p)
}

// rig is a coordinator of one shard.
type rig struct {
	t    *testing.T
	g    *Groups
	meta *fakeMeta
	part *fakeShard
}

func newRig(t *testing.T, adapt ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, meta: &fakeMeta{image: &meta.Image{Topics: map[string]*meta.Topic{}}}, part: &fakeShard{}}
	r.meta.set(OffsetsTopic, 1)
	r.meta.set("t", 4)
	decide := group.Defaults()
	decide.InitialDelay = 0
	cfg := Config{Meta: r.meta, Group: &decide}
	for _, a := range adapt {
		a(&cfg)
	}
	var err error
	if r.g, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.g.Close)
	r.part.kept = r.g.Open(OffsetsTopic, 0, r.part)
	r.lead(1)
	return r
}

func (r *rig) lead(epoch int32) {
	r.part.change(func(p *fakeShard) { p.ready, p.elected, p.epoch = true, false, epoch })
	r.g.Led(r.part)
}

func (r *rig) lose() {
	r.part.change(func(p *fakeShard) { p.ready = false })
	r.g.Led(r.part)
}

// wait takes an answer that must come.
func wait[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatal("no answer")
	}
	panic("not reached")
}

// none checks that there is no answer yet: behind everything that was asked before, and the batch that it was gathered into, another
// question is answered.
func none[T any](r *rig, c <-chan T) {
	r.t.Helper()
	wait(r.t, r.describe("nobody"))
	wait(r.t, r.describe("nobody"))
	select {
	case v := <-c:
		r.t.Fatalf("answered early: %+v", v)
	default:
	}
}

func (r *rig) describe(id string) chan Described {
	c := make(chan Described, 1)
	r.g.Describe(id, func(d Described, _ group.Code) { c <- d })
	return c
}

func (r *rig) join(id, member string, change ...func(*group.Join)) chan group.Joined {
	e := group.Join{MemberID: member, ClientID: "c", ClientHost: "/h", Session: 10 * time.Second, Rebalance: time.Minute, ProtocolType: "consumer",
		Protocols: []group.Protocol{{Name: "range", Metadata: []byte("topics")}}}
	for _, f := range change {
		f(&e)
	}
	c := make(chan group.Joined, 1)
	r.g.Join(id, e, func(j group.Joined) { c <- j })
	return c
}

func (r *rig) sync(id string, j group.Joined, assignments map[string][]byte) chan group.Synced {
	c := make(chan group.Synced, 1)
	r.g.Sync(id, group.Sync{MemberID: j.MemberID, Generation: j.Generation, Assignments: assignments}, func(s group.Synced) { c <- s })
	return c
}

func (r *rig) beat(id, member, instance string, generation int32) group.Code {
	r.t.Helper()
	c := make(chan group.Code, 1)
	r.g.Heartbeat(id, group.Heartbeat{MemberID: member, Instance: instance, Generation: generation}, func(code group.Code) { c <- code })
	return wait(r.t, c)
}

func (r *rig) commit(id string, member string, generation int32, offsets ...Offset) chan group.Code {
	c := make(chan group.Code, 1)
	r.g.Commit(id, group.Commit{MemberID: member, Generation: generation}, offsets, func(code group.Code) { c <- code })
	return c
}

func (r *rig) fetch(id string, want ...Wanted) ([]Committed, group.Code) {
	r.t.Helper()
	type answer struct {
		found []Committed
		code  group.Code
	}
	c := make(chan answer, 1)
	r.g.Fetch(id, want, func(found []Committed, code group.Code) { c <- answer{found, code} })
	a := wait(r.t, c)
	return a.found, a.code
}

func (r *rig) committed(id string, number int32) int64 {
	r.t.Helper()
	found, code := r.fetch(id, Wanted{Topic: "t", Partition: number})
	if code != group.OK {
		r.t.Fatalf("fetch: %s", code)
	}
	return found[0].Offset
}

func (r *rig) remove(id string) group.Code {
	r.t.Helper()
	c := make(chan group.Code, 1)
	r.g.Delete(id, func(code group.Code) { c <- code })
	return wait(r.t, c)
}

// member takes a lone member into a group that nobody else is in.
func (r *rig) member(id string) group.Joined {
	r.t.Helper()
	j := wait(r.t, r.join(id, ""))
	if j.Code != group.OK {
		r.t.Fatalf("join: %v", j)
	}
	if s := wait(r.t, r.sync(id, j, map[string][]byte{j.MemberID: []byte("all")})); s.Code != group.OK || string(s.Assignment) != "all" {
		r.t.Fatalf("sync: %v", s)
	}
	return j
}

func at(number int32, offset int64) Offset {
	return Offset{Topic: "t", Partition: number, Offset: offset, Epoch: -1}
}
