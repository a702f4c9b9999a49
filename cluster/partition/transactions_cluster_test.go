package partition

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"gopherlog/engine/record"
	"gopherlog/txn/producer"
)

// ledger is the coordinator of a test: it knows which transaction of which producer is ongoing, and survives everything.
type ledger struct {
	mu      sync.Mutex
	ongoing map[int64]int16
}

func newLedger() *ledger { return &ledger{ongoing: map[int64]int16{}} }

func (l *ledger) Verify(q Question, done func(Verified, error)) {
	l.mu.Lock()
	epoch, ok := l.ongoing[q.ProducerID]
	l.mu.Unlock()
	switch {
	case ok && epoch == q.Epoch:
		done(Verified{Ongoing: true}, nil)
	case ok && epoch > q.Epoch:
		done(Verified{}, ErrInvalidProducerEpoch)
	default:
		done(Verified{}, nil)
	}
}

func (l *ledger) begin(id int64, epoch int16) {
	l.mu.Lock()
	l.ongoing[id] = epoch
	l.mu.Unlock()
}

func (l *ledger) over(id int64) {
	l.mu.Lock()
	delete(l.ongoing, id)
	l.mu.Unlock()
}

// coordinated gives every node of a cluster the same coordinator.
func coordinated(l *ledger) func(*Config) {
	return func(cfg *Config) { cfg.Coordinators = l }
}

// tryPart appends a batch of a transaction as a client does: again and again, until an outcome is certain.
func (c *cluster) tryPart(topic string, number int32, batch record.Batch, patience time.Duration) (offset int64, err error) {
	err = ErrNotLeader
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		p := c.lockedLeader(topic, number)
		if p == nil {
			continue
		}
		done := make(chan AppendResult, 1)
		p.Append(&AppendRequest{
			Batch: slices.Clone(batch), Acks: AcksAll, Deadline: time.Now().Add(10 * time.Second), TransactionalID: "tx",
			Done: func(r AppendResult) { done <- r },
		})
		r := <-done
		if r.Err == nil {
			return r.BaseOffset, nil
		}
		if err = r.Err; !isAny(err, ErrNotLeader, ErrTimeout, ErrNotEnoughReplicas, ErrConcurrentTransactions) {
			return -1, err
		}
	}
	return -1, err
}

// mark writes a marker as a coordinator does: again and again, until it is certain.
func (c *cluster) mark(topic string, number int32, m producer.Marker) error {
	err := ErrNotLeader
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		p := c.lockedLeader(topic, number)
		if p == nil {
			continue
		}
		done := make(chan error, 1)
		p.WriteMarker(m, time.Now().Add(5*time.Second), func(err error) { done <- err })
		if err = <-done; err == nil || !isAny(err, ErrNotLeader, ErrTimeout) {
			return err
		}
	}
	return err
}

// lockedLeader finds the leader while nodes come and go.
func (c *cluster) lockedLeader(topic string, number int32) *Partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaderPartition(topic, number)
}

func (c *cluster) mustPart(number int32, b record.Batch) int64 {
	c.t.Helper()
	offset, err := c.tryPart("t", number, b, 60*time.Second)
	if err != nil {
		c.t.Fatalf("append %v: %v", b, err)
	}
	return offset
}

func (c *cluster) mustMark(number int32, m producer.Marker) {
	c.t.Helper()
	if err := c.mark("t", number, m); err != nil {
		c.t.Fatalf("marker %+v: %v", m, err)
	}
}

// leadingPartition is the leader of t-0.
func (c *cluster) leadingPartition() (p *Partition) {
	c.t.Helper()
	c.await("a leader", func() bool { p = c.leaderPartition("t", 0); return p != nil })
	return p
}

// bounce kills the leader and brings it back when another one serves.
func (c *cluster) bounce() {
	c.t.Helper()
	n := c.leading("t", 0)
	n.kill()
	c.led("t", 1)
	n.start()
	n.ready()
}

// The leader dies after the first batch, after the last one, and after the marker: each successor knows what was open and what was
// aborted, and readers of committed see the same as before.
func TestTransactionsSurviveTheirLeaders(t *testing.T) {
	l := newLedger()
	c := startCluster(t, 3, coordinated(l))
	c.create("t", 1, 3, nil)
	view := func(when string, stable int64, want ...int64) {
		t.Helper()
		c.await("a reader "+when, func() bool { // leadership may go back to its preferred replica at any time
			p := c.leaderPartition("t", 0)
			if p == nil || p.LastStable() != stable {
				return false
			}
			got, err := tryCommittedView(t, p, 0)
			if err == nil && !slices.Equal(got, want) {
				t.Fatalf("%s: seen %v, want %v", when, got, want)
			}
			return err == nil
		})
	}
	c.produce("t", 0, plain(1)) // 0
	l.begin(7, 0)
	l.begin(8, 0)
	c.mustPart(0, part(7, 0, 0, 1)) // 1
	c.bounce()
	c.mustPart(0, part(7, 0, 1, 1)) // 2
	c.mustPart(0, part(8, 0, 0, 1)) // 3
	c.bounce()
	view("before any end", 1, 0)
	if got := c.mustPart(0, part(7, 0, 0, 1)); got != 1 {
		t.Fatalf("a repeat of the first batch is at %d", got)
	}
	c.mustMark(0, abortOf(7, 0)) // 4
	c.bounce()
	view("after the abort", 3, 0)
	l.over(7)
	if _, err := c.tryPart("t", 0, part(7, 0, 2, 1), 10*time.Second); !errors.Is(err, ErrInvalidTxnState) {
		t.Fatalf("a late batch of the aborted transaction: %v", err)
	}
	c.mustMark(0, commitOf(8, 0)) // 5
	c.bounce()
	view("after the commit", 6, 0, 3)
}

// Every replica knows what is open and what was aborted: whoever leads next need not ask.
func TestAFollowerKnowsWhatIsOpenBeforeItLeads(t *testing.T) {
	l := newLedger()
	c := startCluster(t, 3, coordinated(l))
	c.create("t", 1, 3, nil)
	l.begin(7, 0)
	c.mustPart(0, part(7, 0, 0, 3))
	c.mustMark(0, abortOf(7, 0))
	c.mustPart(0, part(7, 0, 3, 1))
	end := c.leadingPartition().HighWatermark()
	for _, n := range c.nodes {
		p := c.on(n, "t", 0)
		c.await(fmt.Sprintf("node %d has it", n.id), func() bool { return p.HighWatermark() == end && p.LastStable() == 4 })
		got := p.Producers()
		if len(got) != 1 || got[0].Transaction != 4 || got[0].LastSequence != 3 {
			t.Fatalf("node %d: %+v", n.id, got)
		}
	}
}

// A wiped node installs a snapshot that carries open and aborted transactions, and then leads.
func TestASnapshotThatIsInstalledCarriesTransactions(t *testing.T) {
	l := newLedger()
	c := startCluster(t, 3, coordinated(l))
	c.create("t", 1, 3, map[string]string{"segment.bytes": "1048576", "retention.bytes": "1048576"})
	l.begin(7, 0)
	for i := range 40 {
		c.produce("t", 0, batchOf(&record.Producer{ID: 1, Sequence: int32(i)}, 1, 100_000))
	}
	first := c.mustPart(0, part(7, 0, 0, 1))
	c.mustMark(0, abortOf(7, 0))
	open := c.mustPart(0, part(7, 0, 1, 1))
	c.await("the oldest segments to go", func() bool { p := c.leaderPartition("t", 0); return p != nil && p.LogStart() > 0 })
	wiped := c.nodes[2]
	if c.leader("t", 0) == wiped {
		wiped = c.nodes[1]
	}
	wiped.stop()
	wiped.wipe()
	wiped.start()
	wiped.ready()
	c.await("it has everything", func() bool {
		p, err := wiped.m.Get("t", 0)
		return err == nil && p.HighWatermark() == open+1
	})
	p := c.on(wiped, "t", 0)
	if got := p.LastStable(); got != open {
		t.Fatalf("last stable offset %d after the install, want %d", got, open)
	}
	if list, ok := p.aborted(first, open); !ok || len(list) != 1 || list[0].First != first {
		t.Fatalf("aborted transactions after the install: %+v", list)
	}
}

// TestRandomTransactionsAcrossKills runs producers with random transactions while leaders are killed and isolated. A model keeps what was
// committed: read_committed shows exactly that, in order, and nothing hangs.
func TestRandomTransactionsAcrossKills(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 8))
	l := newLedger()
	c := startCluster(t, 3, coordinated(l))
	c.create("t", 1, 3, map[string]string{"segment.bytes": "1048576"})
	c.led("t", 1)
	stop := make(chan struct{})
	const producers = 4
	models := make([]txnModel, producers)
	var wg sync.WaitGroup
	for i := range models {
		m := &models[i]
		*m = txnModel{c: c, l: l, id: int64(i + 1), rng: rand.New(rand.NewPCG(seed, uint64(i+100))), v2: i%2 == 1}
		wg.Add(1)
		go func() { defer wg.Done(); m.run(stop) }()
	}
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		n := c.nodes[rng.IntN(3)]
		if lead := c.lockedLeader("t", 0); lead != nil && rng.IntN(2) == 0 {
			n = c.nodes[lead.node-1] // mostly the leader
		}
		if rng.IntN(3) > 0 {
			c.mu.Lock()
			n.kill()
			c.mu.Unlock()
			pause(rng, 600)
			c.mu.Lock()
			n.start()
			c.mu.Unlock()
		} else {
			c.net.Isolate(n.id)
			pause(rng, 1000)
			c.net.Heal()
		}
		pause(rng, 800)
	}
	close(stop)
	wg.Wait()
	for _, n := range c.nodes {
		n.ready()
	}
	if t.Failed() {
		return
	}
	c.settle("t", 0)
	committed, aborted := 0, 0
	for i := range models {
		committed, aborted = committed+models[i].commits, aborted+models[i].aborts
	}
	t.Logf("%d transactions committed, %d aborted", committed, aborted)
	for _, n := range c.nodes {
		p := c.on(n, "t", 0)
		if p.LastStable() != p.HighWatermark() || p.OpenTransactions() != 0 {
			t.Errorf("node %d: last stable offset %d, high watermark %d, %d open: a transaction hangs", n.id, p.LastStable(), p.HighWatermark(), p.OpenTransactions())
		}
	}
	checkModels(t, c, models)
	c.equal("t-0")
}

// txnModel is one transactional producer and what it knows.
type txnModel struct {
	c   *cluster
	l   *ledger
	id  int64
	rng *rand.Rand
	v2  bool // its epoch rises with each end

	epoch    int16
	sequence int32
	next     int64 // value of the next record
	visible  []int64

	commits, aborts int
}

func (m *txnModel) run(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		if !m.transaction() {
			return
		}
	}
}

// transaction runs one to its end; a record's value is its number within the producer. false: the test failed.
func (m *txnModel) transaction() bool {
	m.l.begin(m.id, m.epoch)
	var values []int64
	for range 1 + m.rng.IntN(4) {
		b := record.Builder{Producer: &record.Producer{ID: m.id, Epoch: m.epoch, Sequence: m.sequence}, Transactional: true}
		for range 1 + m.rng.IntN(3) {
			b.Append(record.Record{Value: fmt.Appendf(nil, "%d", m.next)})
			values = append(values, m.next)
			m.next++
			m.sequence++
		}
		if _, err := m.c.tryPart("t", 0, b.Finish(), 60*time.Second); err != nil {
			m.c.t.Errorf("producer %d epoch %d: %v", m.id, m.epoch, err)
			return false
		}
	}
	marker := producer.Marker{ProducerID: m.id, Epoch: m.epoch, Commit: m.rng.IntN(3) > 0}
	m.l.over(m.id)
	if m.v2 {
		marker.Epoch, marker.Version = m.epoch+1, producer.Version2
	}
	for range 1 + m.rng.IntN(2) { // now and then again
		if err := m.c.mark("t", 0, marker); err != nil {
			m.c.t.Errorf("producer %d: marker %+v: %v", m.id, marker, err)
			return false
		}
	}
	if m.v2 {
		m.epoch, m.sequence = m.epoch+1, 0
	}
	if marker.Commit {
		m.visible = append(m.visible, values...)
		m.commits++
	} else {
		m.aborts++
	}
	return true
}

// checkModels reads as a read_committed consumer and compares with what each producer committed.
func checkModels(t *testing.T, c *cluster, models []txnModel) {
	t.Helper()
	p := c.leadingPartition()
	seen := map[int64][]int64{}
	for from := int64(0); from < p.LastStable(); {
		res, err := p.Read(ReadRequest{Offset: from, MaxBytes: 4000, MinOne: true, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, Isolation: ReadCommitted})
		if errors.Is(err, ErrNotLeader) { // it went back to its preferred replica
			p = c.leadingPartition()
			continue
		}
		if err != nil || res.Slice == nil {
			t.Fatalf("read at %d: %+v %v", from, res, err)
		}
		data, err := res.Slice.ReadAll(nil)
		if err != nil {
			t.Fatal(err)
		}
		shown, next := visible(t, res, from)
		for len(data) > 0 {
			b, rest, err := record.Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			data = rest
			if !b.IsTransactional() || !slices.Contains(shown, b.BaseOffset()) {
				continue
			}
			for r, err := range record.Records(b) {
				var v int64
				if _, scan := fmt.Sscan(string(r.Value), &v); err != nil || scan != nil {
					t.Fatal(err, scan)
				}
				seen[b.ProducerID()] = append(seen[b.ProducerID()], v)
			}
		}
		from = next
	}
	for i := range models {
		if m := &models[i]; !slices.Equal(seen[m.id], m.visible) {
			t.Errorf("producer %d: %d records committed, %d shown: %s", m.id, len(m.visible), len(seen[m.id]), difference(m.visible, seen[m.id]))
		}
	}
}

func difference(want, got []int64) string {
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			return fmt.Sprintf("record %d is %d, want %d", i, got[i], want[i])
		}
	}
	return "one is the beginning of the other"
}
