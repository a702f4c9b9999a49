package endtoend

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sys/unix"

	"gopherlog/bench/stats"
)

// A producer id and its sequence numbers cost brokers no processor time that could be told from noise. Three producers take turns at the same
// load on the same nodes, two of them at least once: what these two differ by is the error of the measurement. GOPHERLOG_TEST_BUDGETS=1 takes
// enough turns to judge.
func TestAnIdempotentRecordCostsBrokersNoMore(t *testing.T) {
	x := turns{t: t, blocks: 1, cycles: 1, rounds: 2}
	if judged() {
		x.blocks, x.cycles, x.rounds = 10, 8, 10
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	nodes, addrs := three(t)
	x.nodes, x.addr = nodes, addrs[0]
	for i, name := range []string{"at least once", "at least once, too", "idempotent"} {
		x.sides[i] = newSide(t, name, i == idempotent, addrs)
	}
	const spoilt = 5 // blocks in which something was sent again, as when a leader went elsewhere
	for n := 0; len(x.done) < x.blocks; n++ {
		if n == x.blocks+spoilt {
			t.Fatalf("%d of %d blocks had batches of other sizes", n-len(x.done), n)
		}
		x.block(ctx, n)
	}
	x.show()
}

// What a turn sends: rounds of one batch for each partition, at a pace that a small machine keeps.
const (
	turnPartitions = 6
	turnBatch      = 50 // records
	turnRecord     = 1 << 10
	turnPace       = 20 * time.Millisecond
	turnRest       = 20 * time.Millisecond // for what followers still do after the last acknowledgement
)

// Indexes of sides.
const (
	once = iota
	onceToo
	idempotent
	sides
)

// orders are those of three sides in which each follows each as often, forwards and backwards in time.
var orders = [][sides]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {0, 2, 1}, {2, 0, 1}, {1, 0, 2}}

// turns are a measurement: blocks of short turns of all sides.
type turns struct {
	t      *testing.T
	nodes  []*process
	addr   string
	sides  [sides]*side
	blocks int
	cycles int // through all orders, in a block
	rounds int // of a turn
	done   [][sides]used
}

// used is what a side's turns of a block took, and what they sent.
type used struct {
	brokers, client   time.Duration
	records           int
	batches, requests int64
}

// block has the sides take turns on topics of their own that did not exist before.
func (x *turns) block(ctx context.Context, n int) {
	x.t.Helper()
	for i, s := range x.sides {
		s.topic = fmt.Sprintf("block-%d-%d", n, i)
		must(x.t, "mqclient", "topic", "create", "-addr", x.addr, s.topic, "-partitions", fmt.Sprint(turnPartitions), "-replication-factor", "3")
	}
	for _, s := range x.sides {
		s.turn(ctx, x.t, 10) // knows the leaders now
		s.counted(x.t)
	}
	var sum [sides]used
	for i := range x.cycles * len(orders) {
		for _, at := range orders[(n+i)%len(orders)] {
			u := x.turn(ctx, x.sides[at])
			s := &sum[at]
			s.brokers, s.client, s.records = s.brokers+u.brokers, s.client+u.client, s.records+u.records
		}
	}
	for i, s := range x.sides {
		sum[i].batches, sum[i].requests = s.counted(x.t)
	}
	for _, s := range x.sides {
		must(x.t, "mqclient", "topic", "delete", "-addr", x.addr, s.topic)
	}
	for _, s := range sum {
		if s.batches*turnBatch != int64(s.records) {
			x.t.Logf("budget: block %d does not count: %d batches for %d records", n, s.batches, s.records)
			return
		}
	}
	x.done = append(x.done, sum)
}

// turn measures one turn of a side, from rest to rest.
func (x *turns) turn(ctx context.Context, s *side) (u used) {
	x.t.Helper()
	time.Sleep(turnRest)
	brokers, client := x.brokers(), processorTime(x.t, unix.Getpid())
	u.records = s.turn(ctx, x.t, x.rounds)
	time.Sleep(turnRest)
	u.brokers, u.client = x.brokers()-brokers, processorTime(x.t, unix.Getpid())-client
	return u
}

// brokers is the processor time of all nodes so far.
func (x *turns) brokers() (sum time.Duration) {
	for _, p := range x.nodes {
		sum += processorTime(x.t, p.cmd.Process.Pid)
	}
	return sum
}

// processorTime reads the processor clock of a process: all its threads, the ended ones too, in nanoseconds.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	var at unix.Timespec
	const scheduled = 2 // CPUCLOCK_SCHED of linux/posix-timers.h; a clock of a process is the complement of its id
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &at); err != nil {
		t.Fatalf("processor clock of process %d: %v", pid, err)
	}
	return time.Duration(at.Nano())
}

// side is a producer with its settings.
type side struct {
	name    string
	client  *kgo.Client
	topic   string
	records []*kgo.Record
	sent    int64 // since it was last counted

	// what the client told, some of it only after the acknowledgement
	told, batches, requests atomic.Int64
}

func newSide(t *testing.T, name string, withID bool, addrs []string) *side {
	t.Helper()
	s := &side{name: name}
	opts := []kgo.Opt{kgo.SeedBrokers(addrs...), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ManualFlushing(), kgo.UnknownTopicRetries(-1), kgo.WithHooks(s)}
	if !withID {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(5)) // as many as with an id
	}
	var err error
	if s.client, err = kgo.NewClient(opts...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.client.Close)
	value := make([]byte, turnRecord)
	for i := range turnPartitions * turnBatch {
		s.records = append(s.records, &kgo.Record{Partition: int32(i % turnPartitions), Value: value})
	}
	return s
}

// OnProduceBatchWritten counts what was acknowledged.
func (s *side) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.ProduceBatchMetrics) {
	s.batches.Add(1)
	s.told.Add(int64(m.NumRecords))
}

// counted takes the numbers of batches and requests since it was last called.
func (s *side) counted(t *testing.T) (batches, requests int64) {
	t.Helper()
	eventually(t, func() error {
		if told := s.told.Load(); told < s.sent {
			return fmt.Errorf("%s: the client told of %d records of %d", s.name, told, s.sent)
		}
		return nil
	})
	s.told.Add(-s.sent)
	s.sent = 0
	return s.batches.Swap(0), s.requests.Swap(0)
}

// OnBrokerWrite counts produce requests.
func (s *side) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	const produce = 0
	if key == produce && err == nil {
		s.requests.Add(1)
	}
}

// turn sends rounds at their pace and returns, when all records are acknowledged, how many they were.
func (s *side) turn(ctx context.Context, t *testing.T, rounds int) int {
	t.Helper()
	pace := time.NewTicker(turnPace)
	defer pace.Stop()
	var failed atomic.Pointer[error]
	for range rounds {
		for _, r := range s.records {
			r.Topic, r.Timestamp = s.topic, time.Time{}
			s.client.Produce(ctx, r, func(_ *kgo.Record, err error) {
				if err != nil {
					failed.Store(&err)
				}
			})
		}
		if err := s.client.Flush(ctx); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if err := failed.Load(); err != nil {
			t.Fatalf("%s: %v", s.name, *err)
		}
		<-pace.C
	}
	s.sent += int64(rounds * len(s.records))
	return rounds * len(s.records)
}

// show holds the interval of the ratio against its bounds, and tells how well the measurement knows equals.
func (x *turns) show() {
	x.t.Helper()
	ratio := func(of func(used) time.Duration, a int, b ...int) stats.Interval {
		var blocks []stats.Block
		for _, d := range x.done {
			var base time.Duration
			for _, i := range b {
				base += of(d[i]) / time.Duration(len(b))
			}
			blocks = append(blocks, stats.Block{A: float64(of(d[a])), B: float64(base)})
		}
		return stats.Ratio(blocks, 42)
	}
	brokers, client := func(u used) time.Duration { return u.brokers }, func(u used) time.Duration { return u.client }
	told := func(iv stats.Interval) string {
		what := "median, 95 % interval"
		if iv.Confidence == 0 {
			what = "median, range"
		}
		return fmt.Sprintf("%s %.3f [%.3f, %.3f]", what, iv.Center, iv.Lo, iv.Hi)
	}
	each := func(i int) string {
		var sum used
		for _, d := range x.done {
			sum.brokers, sum.client, sum.records = sum.brokers+d[i].brokers, sum.client+d[i].client, sum.records+d[i].records
			sum.requests += d[i].requests
		}
		per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(sum.records) }
		return fmt.Sprintf("%s %.2f (client %.2f), %.0f records a request", x.sides[i].name, per(sum.brokers), per(sum.client), float64(sum.records)/float64(sum.requests))
	}
	x.t.Logf("budget: processor time of records of %d B in batches of %d: %d blocks of %d turns of %v a side,", turnRecord, turnBatch, len(x.done), x.cycles*len(orders), time.Duration(x.rounds)*turnPace)
	x.t.Logf("budget:   three brokers' and the client's processor clocks in ns, µs a record: %s; %s; %s", each(once), each(onceToo), each(idempotent))
	iv := ratio(brokers, idempotent, once, onceToo)
	note := told(iv)
	budget{what: "brokers, idempotent beside at least once: from", figure: iv.Lo, least: true, limit: 0.95, unit: "x", note: note}.show(x.t)
	budget{what: "brokers, idempotent beside at least once: to", figure: iv.Hi, limit: 1.05, unit: "x", note: note}.show(x.t)
	self := ratio(brokers, onceToo, once)
	verdict := "holds 1, as it must"
	if self.Confidence == 0 {
		verdict = "of too few blocks for an interval"
	} else if self.Lo > 1 || self.Hi < 1 {
		verdict = "does not hold 1: the measurement errs by as much"
	}
	budget{what: "brokers, at least once beside itself", figure: self.Center, unit: "x", note: told(self) + ", " + verdict}.show(x.t)
	iv = ratio(client, idempotent, once, onceToo)
	budget{what: "client, idempotent beside at least once", figure: iv.Center, unit: "x", note: told(iv)}.show(x.t)
}
