package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"gopherlog/cluster/coordinator"
	"gopherlog/engine/failpoint"
)

// ledger is what a client knows of its transactions: text to whether it was committed, not, or nobody knows.
type ledger struct {
	t       *testing.T
	outcome map[string]string // committed, aborted, unknown
}

// check compares with what read_committed shows of all partitions.
func (l *ledger) check(got []string, partitions int) {
	l.t.Helper()
	seen := map[string][]string{}
	for _, g := range got {
		number, text, _ := strings.Cut(g, ":")
		seen[text] = append(seen[text], number)
	}
	for text, numbers := range seen {
		slices.Sort(numbers)
		if len(slices.Compact(slices.Clone(numbers))) != len(numbers) {
			l.t.Errorf("transaction %s is in partitions %v: twice", text, numbers)
		}
		if l.outcome[text] == "aborted" {
			l.t.Errorf("transaction %s was aborted and shows in %v", text, numbers)
		}
	}
	for text, outcome := range l.outcome {
		n := len(seen[text])
		if outcome == "committed" && n != partitions || outcome == "unknown" && n != 0 && n != partitions {
			l.t.Errorf("transaction %s is %s and shows in %d of %d partitions", text, outcome, n, partitions)
		}
	}
}

// quick makes a client ask again soon.
func quick(versions *kversion.Versions) []kgo.Opt {
	return []kgo.Opt{clientOf(versions), traceOpt(), kgo.MetadataMinAge(20 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.RecordRetries(1000), kgo.RequestRetries(1000)}
}

// A node is killed between every two steps of a transaction: the coordinator, or a partition's leader at the steps that are its own. Its client
// goes on without noticing more than a delay, and what read_committed shows is whole transactions, those that were committed.
func TestTransactionsOutliveAKillBetweenAnyTwoSteps(t *testing.T) {
	points := []failpoint.Name{
		"txn/before-ongoing", "txn/after-ongoing", "txn/before-decision", "txn/after-decision", "txn/before-markers", "txn/before-marker",
		"txn/after-marker", "txn/before-complete", "txn/after-complete",
	}
	for name, versions := range map[string]*kversion.Versions{"version 0": kversion.V3_7_0(), "version 2": kversion.V4_0_0()} {
		if testing.Short() && versions != nil && name == "version 0" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c := newTrio(t)
			c.createTopic("t", 3)
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			l := &ledger{t: t, outcome: map[string]string{}}
			cl := c.transactional("x", quick(versions)...)
			run := func(text string, commit bool) {
				switch err := transact(ctx, cl, kgo.TransactionEndTry(commit), text, 0, 1, 2); {
				case err != nil:
					// A client that cannot dial gives up at times, and its successor fences it. No code of a broker's may make it.
					if code := (*kerr.Error)(nil); errors.As(err, &code) {
						t.Errorf("transaction %s: %v", text, err)
					}
					t.Logf("transaction %s: nobody knows: %v", text, err)
					l.outcome[text] = "unknown"
					cl.Close()
					cl = c.transactional("x", quick(versions)...)
				case commit:
					l.outcome[text] = "committed"
				default:
					l.outcome[text] = "aborted"
				}
			}
			run("first", true)
			for i, point := range points {
				began := time.Now()
				victim, done := c.stopAt(point, func(try int) { run(fmt.Sprint(point, " ", try), i%3 != 2) })
				victim.kill()
				select {
				case <-done:
				case <-ctx.Done():
					t.Fatalf("%s: the transaction never ends", point)
				}
				run(string(point)+" and after it", true)
				t.Logf("%s: node %d killed, two transactions took %v", point, victim.id, time.Since(began).Round(time.Millisecond))
				victim.start()
				victim.ready()
			}
			run("last", true)
			want := 0
			for _, o := range l.outcome {
				if o == "committed" {
					want += 3
				}
			}
			l.check(c.committedValues("t", want, 0, 1, 2), 3)
			c.nothingHangs(ctx, "t", "x")
		})
	}
}

// stopAt runs transactions until one stands at a point on a node, and returns that node and what is closed when that transaction's client has an
// answer. A transaction that goes past is followed by another: leaderships move by themselves.
func (c *trio) stopAt(point failpoint.Name, transaction func(try int)) (*trioNode, chan struct{}) {
	c.t.Helper()
	end := time.Now().Add(patience)
	for try := 1; time.Now().Before(end); try++ {
		nodes := c.candidates(point)
		before := make([]int64, len(nodes))
		for i, n := range nodes {
			before[i] = n.points.Hits(point)
		}
		pause(c.t, point, 1, nodes...)
		done := make(chan struct{})
		go func() {
			defer close(done)
			transaction(try)
		}()
		victim, over := (*trioNode)(nil), time.Time{}
		for victim == nil && time.Now().Before(end) && (over.IsZero() || time.Since(over) < time.Second) { // some points are passed behind the answer
			for i, n := range nodes {
				if victim == nil && n.points.Hits(point) > before[i] {
					victim = n
				}
			}
			select {
			case <-done:
				if over.IsZero() {
					over = time.Now()
				}
			default:
			}
			time.Sleep(time.Millisecond)
		}
		for _, n := range nodes {
			if n != victim {
				n.points.DisarmAll()
			}
		}
		if victim != nil {
			return victim, done
		}
		<-done
	}
	c.t.Fatalf("never: %s is reached", point)
	return nil, nil
}

// candidates are the nodes on which transactions of x are to stop at a point: all, but for a partition's steps those that are not the
// coordinator's, if one of them leads a partition.
func (c *trio) candidates(point failpoint.Name) []*trioNode {
	c.t.Helper()
	var nodes []*trioNode
	eventually(c.t, "all lead", func() bool {
		coordinates := c.leaderOf(coordinator.TransactionsTopic, "x", -1)
		nodes = c.nodes[:]
		for number := range int32(3) {
			leader := c.leaderOf("t", "", number)
			if leader == nil || coordinates == nil {
				return false
			}
			if (point == "txn/before-marker" || point == "txn/after-marker") && leader != coordinates {
				nodes = slices.DeleteFunc(slices.Clone(c.nodes[:]), func(n *trioNode) bool { return n == coordinates })
			}
		}
		return true
	})
	return nodes
}

// nothingHangs waits until the last stable offset of every partition is its end, and the transactional id rests.
func (c *trio) nothingHangs(ctx context.Context, topic, id string) {
	c.t.Helper()
	adm := kadm.NewClient(franz(c.t, c.addrs()))
	eventually(c.t, "no transaction is open", func() bool {
		ends, err1 := adm.ListEndOffsets(ctx, topic)
		stable, err2 := adm.ListCommittedOffsets(ctx, topic)
		if err1 != nil || err2 != nil || ends.Error() != nil || stable.Error() != nil {
			return false
		}
		same := true
		ends.Each(func(o kadm.ListedOffset) {
			s, ok := stable.Lookup(topic, o.Partition)
			same = same && ok && s.Offset == o.Offset
		})
		return same
	})
	eventually(c.t, "the transactional id rests", func() bool {
		d, err := adm.DescribeTransactions(ctx, id)
		if err != nil {
			return false
		}
		state := d[id].State
		return state == "CompleteCommit" || state == "CompleteAbort" || state == "Empty"
	})
}

// Two workers of a group move records while coordinators and leaders are killed: every record arrives once.
func TestEveryRecordIsMovedOnceWhileNodesAreKilled(t *testing.T) {
	for name, versions := range map[string]*kversion.Versions{"version 0": kversion.V3_7_0(), "version 2": kversion.V4_0_0()} {
		if testing.Short() && name == "version 0" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c := newTrio(t)
			c.createTopic("from", 3)
			c.createTopic("to", 3)
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			const each = 20
			source := c.transactional("source", append(quick(versions), kgo.DefaultProduceTopic("from"))...)
			work, stop := context.WithCancel(ctx)
			var workers sync.WaitGroup
			for w := range 2 {
				workers.Go(func() {
					for work.Err() == nil {
						opts := append(quick(versions), kgo.FetchMaxPartitionBytes(2000))
						if err := c.pipe(work, "from", "to", "g", fmt.Sprint("pipe-", w), 1<<30, opts...); err != nil && work.Err() == nil {
							t.Logf("worker %d begins anew: %v", w, err)
						}
					}
				})
			}
			defer workers.Wait()
			defer stop()
			sent, began := 0, time.Now()
			for round, topic := range []string{coordinator.TransactionsTopic, coordinator.OffsetsTopic, "to", "from"} {
				for i := range each {
					if err := transact(ctx, source, kgo.TryCommit, fmt.Sprintf("%d-%03d", round, i), 0, 1, 2); err != nil {
						t.Logf("source begins anew: %v", err)
						source.Close()
						source = c.transactional("source", append(quick(versions), kgo.DefaultProduceTopic("from"))...)
						continue
					}
					sent += 3
				}
				var victim *trioNode
				eventually(t, "somebody leads", func() bool {
					victim = c.leaderOf(topic, map[bool]string{true: "g", false: "pipe-0"}[topic == coordinator.OffsetsTopic], map[bool]int32{true: -1, false: 0}[strings.HasPrefix(topic, "__")])
					return victim != nil
				})
				t.Logf("round %d: sent after %v", round, time.Since(began).Round(time.Millisecond))
				victim.kill()
				time.Sleep(300 * time.Millisecond) // the others go on without it
				victim.start()
				victim.ready()
			}
			if _, _, err := source.ProducerID(ctx); err != nil { // ends what the client before may have left open
				t.Fatal(err)
			}
			t.Logf("all sent, all killed: %v", time.Since(began).Round(time.Millisecond))
			want := c.committedValues("from", sent, 0, 1, 2)
			t.Logf("source read after %v", time.Since(began).Round(time.Millisecond))
			got := c.committedValues("to", len(want), 0, 1, 2)
			t.Logf("all read after %v", time.Since(began).Round(time.Millisecond))
			stop()
			workers.Wait()
			if !slices.Equal(got, want) || len(want) < sent {
				t.Fatalf("%d records arrived, %d were sent: missing %v, too many %v", len(got), len(want), minus(want, got), minus(got, want))
			}
			c.nothingHangs(ctx, "to", "source")
		})
	}
}

// minus is what of a, sorted, is not in b, sorted; of what is there more often, the surplus.
func minus(a, b []string) (out []string) {
	for _, s := range a {
		for len(b) > 0 && b[0] < s {
			b = b[1:]
		}
		if len(b) > 0 && b[0] == s {
			b = b[1:]
			continue
		}
		out = append(out, s)
	}
	return out
}
