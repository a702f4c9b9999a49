package broker

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"gopherlog/cluster/meta"
)

// transactional makes a producer of transactions.
func (c *trio) transactional(id string, more ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	return c.client(append([]kgo.Opt{kgo.TransactionalID(id), kgo.TransactionTimeout(patience / 2), kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner())}, more...)...)
}

func (c *trio) createTopic(name string, partitions int32) {
	c.t.Helper()
	if r, err := kadm.NewClient(franz(c.t, c.addrs())).CreateTopic(timeout(c.t), partitions, 3, nil, name); err != nil || r.Err != nil {
		c.t.Fatal(r, err)
	}
	c.known(name)
}

// known waits until every node knows a topic and its leaders and has its replicas: who makes a topic is answered by one node, the others hear of
// it later.
func (c *trio) known(topic string) {
	c.t.Helper()
	for _, n := range c.nodes {
		c.await(fmt.Sprintf("node %d has its replicas of %s", n.id, topic), func() bool {
			t := n.ctl.Image().Topic(topic)
			if t == nil {
				return false
			}
			for i := range t.Partitions {
				if _, err := n.parts.Get(topic, int32(i)); err != nil || t.Partitions[i].Leader == meta.NoLeader {
					return false
				}
			}
			return true
		})
	}
}

func (c *trio) client(opts ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.nodes[0].addr, c.nodes[1].addr, c.nodes[2].addr)}, opts...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	return cl
}

// transact runs one transaction with a record in each of the partitions.
func transact(ctx context.Context, cl *kgo.Client, commit kgo.TransactionEndTry, text string, partitions ...int32) error {
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	var failed error
	for _, p := range partitions {
		if err := cl.ProduceSync(ctx, &kgo.Record{Partition: p, Value: []byte(text)}).FirstErr(); err != nil {
			failed = err
		}
	}
	if failed != nil {
		commit = kgo.TryAbort
	}
	if err := cl.EndTransaction(ctx, commit); err != nil {
		return err
	}
	return failed
}

// committedValues reads so many values of a topic as read_committed shows them, and what else is there a moment later, to the last stable offset
// of each partition: how far a reader is says nothing about the others' partitions.
func (c *trio) committedValues(topic string, want int, partitions ...int32) []string {
	c.t.Helper()
	assigned := map[int32]kgo.Offset{}
	for _, p := range partitions {
		assigned[p] = kgo.NewOffset().AtStart()
	}
	cl := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: assigned}), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.KeepControlRecords())
	defer cl.Close()
	var got []string
	at := map[int32]int64{}
	deadline := time.Now().Add(patience)
	read := func(done func() bool) {
		for !done() && time.Now().Before(deadline) {
			ctx, cancel := context.WithDeadline(context.Background(), deadline)
			cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				if at[r.Partition] = r.Offset + 1; !r.Attrs.IsControl() {
					got = append(got, fmt.Sprintf("%d:%s", r.Partition, r.Value))
				}
			})
			cancel()
		}
	}
	read(func() bool { return len(got) >= want })
	time.Sleep(300 * time.Millisecond)
	ends := c.stableEnds(topic, partitions)
	read(func() bool {
		return !slices.ContainsFunc(partitions, func(p int32) bool { return at[p] < ends[p] })
	})
	for p, end := range ends {
		if at[p] < end {
			c.t.Errorf("%s-%d is read to offset %d, it is stable to %d", topic, p, at[p], end)
		}
	}
	slices.Sort(got)
	return got
}

// stableEnds are the last stable offsets.
func (c *trio) stableEnds(topic string, partitions []int32) map[int32]int64 {
	c.t.Helper()
	adm, ends := kadm.NewClient(franz(c.t, c.addrs())), map[int32]int64{}
	eventually(c.t, "the last stable offsets are told", func() bool {
		listed, err := adm.ListCommittedOffsets(timeout(c.t), topic)
		for _, p := range partitions {
			o, ok := listed.Lookup(topic, p)
			if err != nil || !ok || o.Err != nil {
				return false
			}
			ends[p] = o.Offset
		}
		return true
	})
	return ends
}

func TestTransactionsOfARealClientOverThreeNodes(t *testing.T) {
	c := newTrio(t)
	c.createTopic("t", 3)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cl := c.transactional("x")
	for i := range 6 {
		end := kgo.TransactionEndTry(i%3 != 2)
		if err := transact(ctx, cl, end, fmt.Sprint(i), 0, 1, 2); err != nil {
			t.Fatal(i, err)
		}
	}
	want := []string{"0:0", "0:1", "0:3", "0:4", "1:0", "1:1", "1:3", "1:4", "2:0", "2:1", "2:3", "2:4"}
	if got := c.committedValues("t", len(want), 0, 1, 2); !slices.Equal(got, want) {
		t.Fatalf("read_committed shows %v, want %v", got, want)
	}
}

// clientOf speaks as the clients of a version of Kafka do.
func clientOf(v *kversion.Versions) kgo.Opt { return kgo.MaxVersions(v) }

// pipe moves records from one topic to another, offsets in the transaction, until all are moved.
func (c *trio) pipe(ctx context.Context, from, to, group, id string, all int, more ...kgo.Opt) error {
	s, err := kgo.NewGroupTransactSession(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(c.addrs(), ",")...), kgo.TransactionalID(id), kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(from), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100 * time.Millisecond), traceOpt(), kgo.DefaultProduceTopic(to),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50 * time.Millisecond), kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(300 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond })}, more...)...)
	if err != nil {
		return err
	}
	defer s.Close()
	// As initTransactions of Java: it ends what a worker of this id left open. Its offsets would be unstable until the timeout otherwise, and
	// who waits for them produces nothing that would end it.
	if _, _, err := s.Client().ProducerID(ctx); err != nil {
		return fmt.Errorf("begin anew: %w", err)
	}
	for moved := 0; moved < all && ctx.Err() == nil; {
		poll, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		records := s.PollFetches(poll).Records()
		cancel()
		if len(records) == 0 {
			continue
		}
		if err := s.Begin(); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		produced := kgo.AbortingFirstErrPromise(s.Client()) // the session does not look at it by itself
		for _, r := range records {
			s.Produce(ctx, &kgo.Record{Partition: r.Partition, Value: r.Value}, produced.Promise())
		}
		committed, err := s.End(ctx, kgo.TransactionEndTry(produced.Err() == nil))
		if err != nil {
			return fmt.Errorf("end: %w", err)
		}
		if committed {
			moved += len(records)
		}
	}
	return ctx.Err()
}

func TestConsumeTransformProduceMovesEveryRecordOnce(t *testing.T) {
	for name, versions := range map[string]*kversion.Versions{"version 0": kversion.V3_7_0(), "version 2": kversion.V4_0_0()} {
		t.Run(name, func(t *testing.T) {
			c := newTrio(t)
			c.createTopic("from", 3)
			c.createTopic("to", 3)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			cl := c.transactional("source", kgo.DefaultProduceTopic("from"), clientOf(versions))
			var want []string
			for i := range 10 {
				text := fmt.Sprintf("%02d", i)
				if err := transact(ctx, cl, kgo.TransactionEndTry(i%4 != 3), text, 0, 1, 2); err != nil {
					t.Fatal(i, err)
				}
				if i%4 != 3 {
					want = append(want, "0:"+text, "1:"+text, "2:"+text)
				}
			}
			slices.Sort(want)
			if err := c.pipe(ctx, "from", "to", "g", "pipe", len(want), clientOf(versions)); err != nil {
				t.Fatal(err)
			}
			if got := c.committedValues("to", len(want), 0, 1, 2); !slices.Equal(got, want) {
				t.Fatalf("moved %v, want %v", got, want)
			}
			offsets, err := kadm.NewClient(franz(t, c.addrs())).FetchOffsets(ctx, "g")
			if err != nil {
				t.Fatal(err)
			}
			for p := range int32(3) {
				if o, ok := offsets.Lookup("from", p); !ok || o.At < 9 {
					t.Errorf("partition %d: offset %d is committed", p, o.At)
				}
			}
		})
	}
}

// traceOpt shows what a client does, if GOPHERLOG_TEST_LOG asks for it.
func traceOpt() kgo.Opt {
	level := kgo.LogLevelNone
	if os.Getenv("GOPHERLOG_TEST_LOG") != "" {
		level = kgo.LogLevelDebug
	}
	return kgo.WithLogger(kgo.BasicLogger(os.Stderr, level, nil))
}
