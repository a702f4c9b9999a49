package broker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// transactional makes a producer of transactions.
func (c *trio) transactional(id string, more ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	return c.client(append([]kgo.Opt{kgo.TransactionalID(id), kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner())}, more...)...)
}

func (c *trio) createTopic(name string, partitions int32) {
	c.t.Helper()
	if r, err := kadm.NewClient(franz(c.t, c.addrs())).CreateTopic(timeout(c.t), partitions, 3, nil, name); err != nil || r.Err != nil {
		c.t.Fatal(r, err)
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

// committedValues reads so many values of a topic as read_committed shows them, and what comes within a moment behind them.
func (c *trio) committedValues(topic string, want int, partitions ...int32) []string {
	c.t.Helper()
	assigned := map[int32]kgo.Offset{}
	for _, p := range partitions {
		assigned[p] = kgo.NewOffset().AtStart()
	}
	cl := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: assigned}), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100*time.Millisecond))
	defer cl.Close()
	var got []string
	deadline := time.Now().Add(20 * time.Second)
	for patience := deadline; time.Now().Before(patience); {
		ctx, cancel := context.WithDeadline(context.Background(), patience)
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got = append(got, fmt.Sprintf("%d:%s", r.Partition, r.Value)) })
		cancel()
		if len(got) >= want && patience == deadline {
			patience = time.Now().Add(300 * time.Millisecond)
		}
	}
	slices.Sort(got)
	return got
}

func TestTransactionsOfARealClientOverThreeNodes(t *testing.T) {
	c := newTrio(t)
	c.createTopic("t", 3)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
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
