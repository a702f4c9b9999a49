package partition

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/log"
	"gopherlog/engine/record"
	"gopherlog/engine/vfs"
	"gopherlog/txn/producer"
)

// fakeGroup is a Raft group of one test: what is proposed is appended to a real log at once, and committed when the test
// says so (or at once, with auto). Its FSM goroutine is its own, as raft's is.
type fakeGroup struct {
	t   testing.TB
	log *log.Log
	fsm replica.FSM

	mu      sync.Mutex
	term    uint64
	ready   bool
	leader  rpc.ServerID
	failed  error
	voters  []rpc.ServerID
	inSync  int
	auto    bool
	pending []*stored
	watch   []func(replica.Status)
	wide    []func(error)

	enter chan struct{} // when set, ProposeBatch announces itself and waits for gate
	gate  chan struct{}
	calls int

	campaigns int
	stepDowns int
	transfers []rpc.ServerID

	kick chan struct{}
	quit chan struct{}
	done sync.WaitGroup
}

type stored struct {
	p     *replica.Proposal
	entry log.Entry
	base  int64
}

const self = rpc.ServerID("1.0000000000000001")

func servers(n int) []rpc.ServerID {
	out := make([]rpc.ServerID, n)
	for i := range out {
		out[i] = rpc.MakeServerID(rpc.NodeID(i+1), 1)
	}
	return out
}

func (g *fakeGroup) ProposeBatch(ps []*replica.Proposal) error {
	if g.gate != nil {
		g.enter <- struct{}{}
		<-g.gate
	}
	g.mu.Lock()
	if !g.ready {
		g.mu.Unlock()
		return replica.ErrNotLeader
	}
	g.calls++
	var refused, taken []*stored
	for _, p := range ps {
		if p.Term != g.term {
			refused = append(refused, &stored{p: p})
			continue
		}
		e := log.Entry{Index: g.log.LastIndex() + 1, Term: g.term, Data: p.Data}
		if p.Ctrl != nil {
			e.Data, e.Ext = p.Ctrl, []byte{1}
			if p.Roll {
				e.Ext[0] |= log.RollFlag
			}
		}
		base := g.log.EndOffset()
		if err := g.log.Append([]log.Entry{e}); err != nil {
			panic(err)
		}
		s := &stored{p: p, entry: e, base: base}
		g.pending = append(g.pending, s)
		taken = append(taken, s)
	}
	auto := g.auto
	g.mu.Unlock()
	for _, s := range refused {
		s.p.Done(-1, replica.ErrNotLeader)
	}
	for _, s := range taken {
		if s.p.Appended != nil {
			s.p.Appended(s.base)
		}
	}
	if auto {
		kick(g.kick)
	}
	return nil
}

// run is the FSM goroutine of a group that commits by itself.
func (g *fakeGroup) run() {
	defer g.done.Done()
	for {
		select {
		case <-g.kick:
			g.commit(-1)
		case <-g.quit:
			return
		}
	}
}

// commit applies and answers the n oldest proposals, all of them if n is negative.
func (g *fakeGroup) commit(n int) {
	g.mu.Lock()
	if n < 0 {
		n = len(g.pending)
	}
	batch := g.pending[:n:n]
	g.pending = g.pending[n:]
	g.mu.Unlock()
	if n == 0 {
		return
	}
	g.fsm.Apply(committed(batch))
	for _, s := range batch {
		s.p.Done(s.base, nil)
	}
}

func committed(batch []*stored) []replica.Committed {
	out := make([]replica.Committed, len(batch))
	for i, s := range batch {
		c := replica.Committed{Index: s.entry.Index, Term: s.entry.Term, BaseOffset: s.base, NextOffset: s.base}
		if s.entry.IsData() {
			c.Kind, c.Batch = replica.KindData, record.Batch(s.entry.Data)
			c.NextOffset = c.Batch.NextOffset()
		} else {
			c.Kind, c.Ctrl = replica.KindCtrl, s.entry.Data
		}
		out[i] = c
	}
	return out
}

// lead makes the replica the leader of a term, its no-op included.
func (g *fakeGroup) lead(term uint64) {
	g.mu.Lock()
	index := g.log.LastIndex() + 1
	if err := g.log.Append([]log.Entry{{Index: index, Term: term, Type: 1}}); err != nil {
		panic(err)
	}
	g.term, g.ready, g.leader = term, true, self
	end := g.log.EndOffset()
	g.mu.Unlock()
	g.fsm.Apply([]replica.Committed{{Index: index, Term: term, Kind: replica.KindNoop, BaseOffset: end, NextOffset: end}})
	g.announce()
}

// depose ends the leadership. What was not committed is cut off if cut says so, else it stays and is committed by others.
func (g *fakeGroup) depose(term uint64, by rpc.ServerID, cut bool) {
	g.mu.Lock()
	g.term, g.ready, g.leader = term, false, by
	lost := g.pending
	g.pending = nil
	g.mu.Unlock()
	if cut && len(lost) > 0 {
		if err := g.log.TruncateSuffix(lost[0].entry.Index); err != nil {
			panic(err)
		}
	}
	for _, s := range lost {
		s.p.Done(s.base, replica.ErrLost)
	}
	if !cut && len(lost) > 0 {
		g.fsm.Apply(committed(lost))
	}
	g.announce()
}

func (g *fakeGroup) announce() {
	g.mu.Lock()
	fns := g.watch
	g.mu.Unlock()
	for _, fn := range fns {
		fn(g.Status())
	}
}

func (g *fakeGroup) Status() replica.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := replica.Status{Term: g.term, Ready: g.ready, Leader: g.leader, Failed: g.failed, LastIndex: g.log.LastIndex()}
	if g.ready {
		st.Role = replica.Leader
	}
	return st
}

func (g *fakeGroup) setInSync(n int) {
	g.mu.Lock()
	g.inSync = n
	g.mu.Unlock()
}

func (g *fakeGroup) InSync(time.Time) []rpc.ServerID {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.voters[:g.inSync]
}

func (g *fakeGroup) Voters() []rpc.ServerID { return g.voters }

func (g *fakeGroup) WaitCommittedOn(_ int, _ uint64, fn func(error)) func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wide = append(g.wide, fn)
	return func() {}
}

func (g *fakeGroup) Recover() error                                   { return nil }
func (g *fakeGroup) Tune(segment int64, sync bool) error              { return g.log.Tune(segment, sync) }
func (g *fakeGroup) Members() []replica.Member                        { return nil }
func (g *fakeGroup) Match(rpc.ServerID) (uint64, time.Time)           { return 0, time.Time{} }
func (g *fakeGroup) AddNonvoter(context.Context, rpc.ServerID) error  { return nil }
func (g *fakeGroup) AddVoter(context.Context, rpc.ServerID) error     { return nil }
func (g *fakeGroup) RemoveServer(context.Context, rpc.ServerID) error { return nil }
func (g *fakeGroup) Watch(fn func(replica.Status))                    { g.watch = append(g.watch, fn) }

func (g *fakeGroup) Close(context.Context) error {
	g.mu.Lock()
	lost := g.pending
	g.pending, g.ready = nil, false
	g.mu.Unlock()
	for _, s := range lost {
		s.p.Done(s.base, replica.ErrLost)
	}
	return nil
}

func (g *fakeGroup) Campaign() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.campaigns++
	return nil
}

// StepDown is obeyed when the test says so.
func (g *fakeGroup) StepDown() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stepDowns++
}

// TransferTo succeeds at once.
func (g *fakeGroup) TransferTo(_ context.Context, to rpc.ServerID) error {
	g.mu.Lock()
	g.transfers = append(g.transfers, to)
	term := g.term + 1
	g.mu.Unlock()
	g.depose(term, to, false)
	return nil
}

// memSide is a sidecar in memory.
type memSide struct {
	mu      sync.Mutex
	entries map[uint64]log.Entry
}

func (s *memSide) Put(entries []log.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		s.entries[e.Index] = e
	}
	return nil
}

func (s *memSide) Get(index uint64) (log.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[index]
	if !ok {
		return e, log.ErrNotFound
	}
	return e, nil
}

func (s *memSide) Scan(from, to uint64, fn func(log.Entry) error) error {
	s.mu.Lock()
	var found []uint64
	for i := range s.entries {
		if from <= i && i < to {
			found = append(found, i)
		}
	}
	s.mu.Unlock()
	slices.Sort(found)
	for _, i := range found {
		if e, err := s.Get(i); err == nil {
			if err := fn(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *memSide) drop(gone func(uint64) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.entries {
		if gone(i) {
			delete(s.entries, i)
		}
	}
	return nil
}

func (s *memSide) DeleteFrom(index uint64) error {
	return s.drop(func(i uint64) bool { return i >= index })
}
func (s *memSide) DeleteBelow(index uint64) error {
	return s.drop(func(i uint64) bool { return i < index })
}

// harness is one partition over a fake group.
type harness struct {
	*Partition
	g    *fakeGroup
	fs   *vfs.CrashFS
	side *memSide
}

type option func(*harness)

func replicas(n int) option { return func(h *harness) { h.g.voters, h.g.inSync = servers(n), n } }
func manual(h *harness)     { h.g.auto = false }
func settings(s Settings) option {
	return func(h *harness) { h.settings.Store(&s) }
}
func sabotaged(name failpoint.Name, arg int64) option {
	return func(h *harness) {
		h.failpoints = failpoint.New()
		if err := h.failpoints.SetSabotage(name, true, arg); err != nil {
			panic(err)
		}
	}
}

func defaults() Settings {
	return Settings{
		TopicConfig: meta.TopicConfig{
			RetentionTime: -1, RetentionBytes: -1, MinInsyncReplicas: 1, MaxMessageBytes: 1 << 20, SegmentBytes: 1 << 30,
		},
		ProducerExpiry: 24 * time.Hour,
	}
}

// open returns a partition that leads term 1 and commits by itself, unless options say otherwise.
func open(t testing.TB, options ...option) *harness {
	t.Helper()
	fs := vfs.NewCrashable()
	if err := fs.MkdirAll("t-0", 0o755); err != nil {
		t.Fatal(err)
	}
	side := &memSide{entries: make(map[uint64]log.Entry)}
	l, _, err := log.Open(log.Config{FS: fs, Dir: "t-0", Sidecar: side, SegmentBytes: 16 << 10, SameBoot: true})
	if err != nil {
		t.Fatal(err)
	}
	s := defaults()
	h := &harness{fs: fs, side: side}
	h.Partition = &Partition{
		topic: "t", label: "t-0", log: l, node: 1, now: time.Now, logger: Config{}.WithDefaults().Logger,
		budget: NewBudget(1 << 30), own: NewBudget(PartitionBudget), disk: &disk{},
		changed: func(*Partition) {}, trimmed: func(*Partition) {}, overfull: func(*Partition) {},
		unled:     func(*Partition) {},
		heard:     func(*Partition) {},
		producers: producer.New(), standings: newStandings(),
	}
	h.Partition.settings.Store(&s)
	h.g = &fakeGroup{
		t: t, log: l, fsm: machine{h.Partition}, voters: servers(1), inSync: 1, auto: true,
		kick: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	h.Partition.group = h.g
	for _, o := range options {
		o(h)
	}
	h.g.done.Add(1)
	go h.g.run()
	h.watch()
	h.g.lead(1)
	t.Cleanup(func() {
		if err := h.close(context.Background()); err != nil {
			t.Error(err)
		}
		close(h.g.quit)
		h.g.done.Wait()
		if used := h.own.Used() + h.budget.Used(); used != 0 {
			t.Errorf("%d bytes of budget are still charged", used)
		}
		l.Close()
	})
	return h
}

// batchOf returns a batch of count records of size bytes each.
func batchOf(p *record.Producer, count, size int) record.Batch {
	b := record.Builder{Producer: p, BaseTimestamp: 1000}
	for i := range count {
		b.Append(record.Record{Value: fmt.Appendf(nil, "%*d", size, i)})
	}
	return b.Finish()
}

func plain(count int) record.Batch { return batchOf(nil, count, 10) }

func sequence(id int64, epoch int16, first int32, count int) record.Batch {
	return batchOf(&record.Producer{ID: id, Epoch: epoch, Sequence: first}, count, 10)
}

// send appends and returns where the outcome will arrive.
func (h *harness) send(b record.Batch, acks int16) chan AppendResult {
	return h.sendUntil(b, acks, time.Time{})
}

func (h *harness) sendUntil(b record.Batch, acks int16, deadline time.Time) chan AppendResult {
	out := make(chan AppendResult, 2)
	h.Append(&AppendRequest{Batch: b, Acks: acks, Deadline: deadline, Done: func(r AppendResult) { out <- r }})
	return out
}

// wait fails the test if the outcome does not come.
func wait(t testing.TB, c chan AppendResult) AppendResult {
	t.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(time.Minute):
		t.Fatal("no answer")
		return AppendResult{}
	}
}

// silent fails the test if there is an outcome already. It is only called when everything that could answer has run.
func silent(t testing.TB, c chan AppendResult, what string) {
	t.Helper()
	select {
	case r := <-c:
		t.Fatalf("%s was answered: %+v", what, r)
	default:
	}
}

// proposed waits until n proposals await their commit.
func (h *harness) proposed(t testing.TB, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d proposals", n), func() bool {
		h.g.mu.Lock()
		defer h.g.mu.Unlock()
		return len(h.g.pending) == n
	})
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// must appends with acks=all and returns the base offset.
func (h *harness) must(t testing.TB, b record.Batch) int64 {
	t.Helper()
	r := wait(t, h.send(b, AcksAll))
	if r.Err != nil {
		t.Fatalf("append: %v", r.Err)
	}
	return r.BaseOffset
}
