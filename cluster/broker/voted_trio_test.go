package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/partition"
	"gopherlog/engine/failpoint"
	"gopherlog/txn/twopc"
)

func (n *trioNode) votedConfig(opened *atomic.Pointer[partition.Manager], logger *slog.Logger) coordinator.VotedConfig {
	machine := twopc.Defaults()
	machine.VoteTimeout = 30 * time.Second // however slow the machine is
	return coordinator.VotedConfig{
		Meta: n.ctl, Node: n.rpc, Self: n.id, Nodes: func() int { return 3 }, Prefix: "2pc.", Replicas: n.c.votedReplicas, Machine: &machine,
		Facts: n.facts, Failpoints: n.points, Logger: logger,
		Local: func(topic string, number int32) coordinator.Voter {
			if m := opened.Load(); m != nil {
				if p, err := m.Get(topic, number); err == nil {
					return p
				}
			}
			return nil
		},
		Nudge: func() {
			if m := opened.Load(); m != nil {
				for _, p := range m.All() {
					p.AskAgain()
				}
			}
		},
	}
}

// votedCoordinator is the node that leads the shard of a transactional id, nil if none does.
func (c *trio) votedCoordinator(id string) *trioNode {
	return c.leaderOf(coordinator.VotedTopic, id, -1)
}

// coordinatorOfVotes waits for it.
func (c *trio) coordinatorOfVotes(id string) (n *trioNode) {
	c.t.Helper()
	c.await("the shard of "+id+" is led", func() bool { n = c.votedCoordinator(id); return n != nil })
	return n
}

// leaderOf is the node that leads a partition, or the shard of a key.
func (c *trio) leaderOf(topic, key string, number int32) *trioNode {
	for _, n := range c.nodes {
		if !n.up {
			continue
		}
		t := n.ctl.Image().Topic(topic)
		if t == nil {
			continue
		}
		if number < 0 {
			number = coordinator.ShardOf(key, len(t.Partitions))
		}
		if p, err := n.parts.Get(topic, number); err == nil {
			if _, _, ready := p.Leader(); ready {
				return n
			}
		}
	}
	return nil
}

// allFacts are the facts of all nodes, each once, those of a partition in the order of its log.
func (c *trio) allFacts() []partition.Fact {
	seen := map[string]partition.Fact{}
	for _, n := range c.nodes {
		facts := n.facts.Dump().Facts
		if n.up {
			facts = append(facts, n.voted.Evidence()...)
		}
		for _, f := range facts {
			seen[fmt.Sprintf("%s-%d %08d", f.Topic, f.Partition, f.Index)] = f
		}
	}
	var keys []string
	for k := range seen {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var all []partition.Fact
	for _, k := range keys {
		all = append(all, seen[k])
	}
	return all
}

// checkVotes holds what the nodes replicated against the rules of the protocol, and returns how each transaction ended.
func (c *trio) checkVotes() map[string]string {
	c.t.Helper()
	decided, promised, ended := map[string][]string{}, map[string]bool{}, map[string]string{}
	for _, f := range c.allFacts() {
		if f.What == "committed" {
			decided[f.Txn] = f.Members
		}
	}
	for _, f := range c.allFacts() {
		place := fmt.Sprintf("%s-%d %s", f.Topic, f.Partition, f.Txn)
		switch f.What {
		case "promised":
			promised[place] = true
		case "commit-marker":
			if !promised[place] {
				c.t.Errorf("%s was committed without a promise", place)
			}
			if !slices.Contains(decided[f.Txn], fmt.Sprintf("%s-%d", f.Topic, f.Partition)) {
				c.t.Errorf("%s was committed without a decision that names it", place)
			}
		case "abort-marker":
			if decided[f.Txn] != nil {
				c.t.Errorf("%s was aborted, though it was decided to commit", place)
			}
		default:
			continue
		}
		if f.What == "promised" {
			continue
		}
		if other := ended[f.Txn]; other != "" && other != f.What {
			c.t.Errorf("%s ended with %s here and %s there", place, f.What, other)
		}
		ended[f.Txn] = f.What
	}
	return ended
}

// doubts is how many participants wait for an outcome.
func (c *trio) doubts() (n int) {
	for _, node := range c.nodes {
		if !node.up {
			continue
		}
		for _, p := range node.parts.All() {
			m, _ := p.Doubt()
			n += m
		}
	}
	return n
}

func (c *trio) await(what string, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("never: %s", what)
		}
	}
}

// quiet waits until nothing voted on is open anywhere.
func (c *trio) quiet() {
	c.t.Helper()
	c.await("all transactions have ended", func() bool {
		for _, node := range c.nodes {
			if !node.up {
				continue
			}
			for _, p := range node.parts.All() {
				if _, _, ready := p.Leader(); ready && p.OpenTransactions() > 0 {
					return false
				}
			}
		}
		return c.doubts() == 0
	})
}

// calm makes the internal topics and waits until every partition is led by the node that it prefers: a leadership that moves takes what is
// open in its coordinator's memory with it.
func (c *trio) calm() {
	c.t.Helper()
	n := c.nodes[0]
	c.await("the topic of voted transactions", func() bool { _, _, err := n.voted.Find(within(c.t, patience), "2pc.x"); return err == nil })
	c.await("the topic of offsets", func() bool { _, err := n.groups.Ensure(within(c.t, patience)); return err == nil })
	c.await("preferred leaders everywhere", func() bool {
		for _, t := range n.ctl.Image().Topics {
			for _, p := range t.Partitions {
				if p.Leader != p.Replicas[0] {
					return false
				}
			}
		}
		return true
	})
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// levels are what a client speaks: an epoch for each transaction, and one for many.
var levels = map[string][]kgo.Opt{"version 2": nil, "version 0": {kgo.MaxVersions(kversion.V3_7_0())}}

func TestVotedTransactionsOfARealClientOverThreeNodes(t *testing.T) {
	for name, level := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newTrio(t)
			c.createTopic("t", 3)
			c.calm()
			cl := c.transactional("2pc.x", level...)
			for i := range 6 {
				if i%3 != 2 {
					c.insist(cl, fmt.Sprint(i), 0, 1, 2)
				} else if err := transact(within(t, patience), cl, kgo.TryAbort, fmt.Sprint(i), 0, 1, 2); lost(err) {
					c.abort(cl)
				} else if err != nil {
					t.Fatal(i, err)
				}
			}
			want := []string{"0:0", "0:1", "0:3", "0:4", "1:0", "1:1", "1:3", "1:4", "2:0", "2:1", "2:3", "2:4"}
			if got := c.committedValues("t", len(want), 0, 1, 2); !slices.Equal(got, want) {
				t.Fatalf("read_committed shows %v, want %v", got, want)
			}
			commits := 0
			for _, how := range c.checkVotes() {
				if how == "commit-marker" {
					commits++
				}
			}
			if commits != 4 {
				t.Fatalf("%d transactions were committed, want 4: %+v", commits, c.allFacts())
			}
		})
	}
}

// insist runs a transaction until it is committed: a leadership that moves, as on a machine that is busy otherwise, takes what is open with
// it, and its client goes on by aborting.
func (c *trio) insist(cl *kgo.Client, text string, partitions ...int32) {
	c.t.Helper()
	ctx := within(c.t, patience)
	for err := transact(ctx, cl, kgo.TryCommit, text, partitions...); err != nil; err = transact(ctx, cl, kgo.TryCommit, text, partitions...) {
		if !lost(err) {
			c.t.Fatalf("transaction %q: %v", text, err)
		}
		c.abort(cl)
	}
}

// lost says whether a client was told that its transaction went with a leadership.
func lost(err error) bool {
	return errors.Is(err, kerr.UnknownProducerID) || errors.Is(err, kerr.TransactionAbortable) || errors.Is(err, kerr.InvalidProducerEpoch)
}

func (c *trio) abort(cl *kgo.Client) {
	c.t.Helper()
	if err := cl.EndTransaction(within(c.t, patience), kgo.TryAbort); err != nil {
		c.t.Fatalf("abort: %v", err)
	}
}

// attempt runs a transaction that is to stop at a point of its way on one of these nodes. One that goes with a leadership before it is there is
// run again. reached says whether it has been there, also of a node that was killed since then.
func attempt(ctx context.Context, cl *kgo.Client, text string, point failpoint.Name, nodes ...*trioNode) (outcome chan error, reached func() bool) {
	var points []*failpoint.Set // a node that is started again has others
	for _, n := range nodes {
		points = append(points, n.points)
	}
	reached = func() bool {
		return slices.ContainsFunc(points, func(p *failpoint.Set) bool { return p.Hits(point) > 0 })
	}
	outcome = make(chan error, 1)
	go func() {
		for {
			err := transact(ctx, cl, kgo.TryCommit, text, 0, 1, 2)
			if !lost(err) || reached() || cl.EndTransaction(ctx, kgo.TryAbort) != nil {
				outcome <- err
				return
			}
		}
	}()
	return outcome, reached
}

// A client whose transaction was lost with its coordinator goes on by aborting it, without being made anew.
func TestAClientGoesOnAfterItsCoordinatorWasLost(t *testing.T) {
	for name, level := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newTrio(t)
			c.createTopic("t", 3)
			cl := c.transactional("2pc.x", level...)
			ctx := within(t, patience)
			c.calm()
			c.insist(cl, "first", 0, 1, 2)
			for { // until no leadership moves meanwhile
				if err := cl.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
				err := cl.ProduceSync(ctx, &kgo.Record{Partition: 0, Value: []byte("lost")}).FirstErr()
				if err == nil {
					break
				}
				if !lost(err) {
					t.Fatal(err)
				}
				c.abort(cl)
			}
			c.coordinatorOfVotes("2pc.x").kill()
			if err := cl.EndTransaction(ctx, kgo.TryCommit); err == nil {
				t.Fatal("what its coordinator forgot was committed")
			}
			if err := cl.EndTransaction(ctx, kgo.TryAbort); err != nil {
				t.Fatalf("abort: %v", err)
			}
			for i := range 2 {
				c.insist(cl, fmt.Sprint("next", i), 0, 1, 2)
			}
			c.quiet()
			want := []string{"0:first", "0:next0", "0:next1", "1:first", "1:next0", "1:next1", "2:first", "2:next0", "2:next1"}
			if got := c.committedValues("t", len(want), 0, 1, 2); !slices.Equal(got, want) {
				t.Fatalf("read_committed shows %v, want %v", got, want)
			}
			c.checkVotes()
		})
	}
}

func TestOffsetsOfAVotedTransactionCountWhenItCommits(t *testing.T) {
	for name, level := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newTrio(t)
			c.createTopic("t", 3)
			c.createTopic("in", 1)
			c.calm()
			ctx := within(t, patience)
			for i := range 6 {
				if err := c.client().ProduceSync(ctx, &kgo.Record{Topic: "in", Value: []byte(fmt.Sprint(i))}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			session, err := kgo.NewGroupTransactSession(append([]kgo.Opt{
				kgo.SeedBrokers(c.nodes[0].addr, c.nodes[1].addr, c.nodes[2].addr), kgo.TransactionalID("2pc.pipe"), kgo.TransactionTimeout(patience / 2), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in"),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DefaultProduceTopic("t"),
				kgo.RecordPartitioner(kgo.ManualPartitioner()),
			}, level...)...)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			for moved, aborted := 0, false; moved < 6; {
				fetches := session.PollRecords(ctx, 2)
				if ctx.Err() != nil {
					t.Fatal(ctx.Err())
				}
				records := fetches.Records()
				if len(records) == 0 {
					continue
				}
				if err := session.Begin(); err != nil {
					t.Fatal(err)
				}
				for _, r := range records {
					session.Produce(ctx, &kgo.Record{Partition: 1, Value: r.Value}, nil)
				}
				ok, err := session.End(ctx, kgo.TransactionEndTry(aborted || moved == 0))
				if lost(err) { // leadership moved
					ok, err = session.End(ctx, kgo.TryAbort)
				}
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					moved += len(records)
				} else if moved > 0 {
					aborted = true // the second one is not wanted at first
				}
			}
			if got, want := c.committedValues("t", 6, 1), []string{"1:0", "1:1", "1:2", "1:3", "1:4", "1:5"}; !slices.Equal(got, want) {
				t.Fatalf("read_committed shows %v, want %v", got, want)
			}
			offsets, err := kadm.NewClient(c.client()).FetchOffsets(ctx, "g")
			if o, _ := offsets.Lookup("in", 0); err != nil || o.At != 6 {
				t.Fatalf("offset %d, %v", o.At, err)
			}
			c.checkVotes()
		})
	}
}

// pause blocks the nth pass of a point on each of the nodes.
func pause(t *testing.T, point failpoint.Name, nth int64, nodes ...*trioNode) {
	t.Helper()
	for _, n := range nodes {
		if err := n.points.Arm(point, failpoint.Action{Kind: failpoint.Block, Nth: nth}); err != nil {
			t.Fatal(err)
		}
	}
}

func hit(point failpoint.Name, nodes ...*trioNode) *trioNode {
	for _, n := range nodes {
		if n.points.Hits(point) > 0 {
			return n
		}
	}
	return nil
}

// A node that stops between any two steps of a commit, and never returns from them, leaves a transaction that is committed everywhere or
// aborted everywhere, as its client was told.
func TestAVotedTransactionOutlivesAKillBetweenAnyTwoSteps(t *testing.T) {
	for _, step := range []struct {
		point failpoint.Name
		nth   int64
	}{
		{"voted/before-prepare", 1}, {"voted/before-promise", 1}, {"voted/after-promise", 1}, {"voted/after-vote", 1}, {"voted/after-vote", 2},
		{"voted/before-decision", 1}, {"voted/after-decision", 1}, {"voted/before-marker", 1}, {"voted/between-outcomes", 1},
	} {
		t.Run(fmt.Sprintf("%s %d", strings.TrimPrefix(string(step.point), "voted/"), step.nth), func(t *testing.T) {
			t.Parallel()
			c := newTrio(t)
			c.createTopic("t", 3)
			c.calm()
			cl := c.transactional("2pc.x")
			c.insist(cl, "first", 0, 1, 2)
			pause(t, step.point, step.nth, c.nodes[:]...)
			done, reached := attempt(within(t, patience), cl, "second", step.point, c.nodes[:]...)
			c.await("the point is passed", reached)
			victim := hit(step.point, c.nodes[:]...)
			for _, n := range c.nodes {
				if n != victim {
					n.points.DisarmAll()
				}
			}
			victim.kill()
			err := <-done
			victim.start()
			victim.ready()
			c.quiet()
			c.insist(c.transactional("2pc.x"), "third", 0, 1, 2)
			c.quiet()
			got := c.committedValues("t", 6, 0, 1, 2)
			whole := []string{"0:first", "0:second", "0:third", "1:first", "1:second", "1:third", "2:first", "2:second", "2:third"}
			without := []string{"0:first", "0:third", "1:first", "1:third", "2:first", "2:third"}
			switch {
			case slices.Equal(got, whole) && err == nil:
			case slices.Equal(got, without) && err != nil:
			case slices.Equal(got, whole) && err != nil && !errors.Is(err, context.DeadlineExceeded):
				t.Logf("the client was told %v of what was committed", err) // ambiguous to it
			default:
				t.Fatalf("the client was told %v, read_committed shows %v", err, got)
			}
			t.Logf("the client was told: %v", err)
			c.checkVotes()
		})
	}
}

// With one replica of its coordinator a transaction stays in doubt until that returns; with three it does not need to.
func TestDoubtLastsUntilACoordinatorIsThere(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			t.Parallel()
			c := newTrio(t, func(c *trio) { c.votedReplicas = replicas })
			c.createTopic("t", 3)
			c.calm()
			cl := c.transactional("2pc.x")
			c.insist(cl, "first", 0, 1, 2)
			pause(t, "voted/after-vote", 1, c.nodes[:]...)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			done, reached := attempt(ctx, cl, "second", "voted/after-vote", c.nodes[:]...)
			// All three, unless leadership moved under somebody on a machine that is busy otherwise.
			c.await("participants have promised", func() bool { return reached() && c.doubts() >= 1 })
			victim := hit("voted/after-vote", c.nodes[:]...)
			for _, n := range c.nodes {
				if n != victim {
					n.points.DisarmAll() // who coordinates next goes past it
				}
			}
			victim.kill()
			if replicas == 3 {
				killed := time.Now()
				c.quiet()
				t.Logf("nobody is in doubt %v after the kill", time.Since(killed).Round(time.Millisecond))
			} else {
				c.await("participants are led and in doubt", func() bool { return c.doubts() >= 1 })
				time.Sleep(2 * time.Second) // longer than a new coordinator would need
				c.await("participants are in doubt, since nobody decided without the coordinator", func() bool { return c.doubts() >= 1 })
				for _, n := range c.nodes {
					if !n.up {
						continue
					}
					for _, p := range n.parts.All() {
						if m, age := p.Doubt(); m > 0 && (p.LastStable() >= p.HighWatermark() || age <= 0) {
							t.Errorf("readers do not wait for %s-%d", p.Topic(), p.Number())
						}
					}
				}
			}
			victim.start()
			victim.ready()
			c.quiet()
			cancel()
			<-done
			c.checkVotes()
			if got := c.committedValues("t", 3, 0, 1, 2); !slices.Equal(got, []string{"0:first", "1:first", "2:first"}) {
				t.Fatalf("read_committed shows %v: nobody decided", got)
			}
		})
	}
}

// What was promised and not decided is ended when all nodes have died and come back.
func TestAPromiseOutlivesTheDeathOfAllNodes(t *testing.T) {
	c := newTrio(t)
	c.createTopic("t", 3)
	c.calm()
	cl := c.transactional("2pc.x")
	c.insist(cl, "first", 0, 1, 2)
	pause(t, "voted/after-vote", 1, c.nodes[:]...)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done, reached := attempt(ctx, cl, "second", "voted/after-vote", c.nodes[:]...)
	c.await("participants have promised", func() bool { return reached() && c.doubts() >= 1 })
	for _, n := range c.nodes {
		n.kill()
	}
	for _, n := range c.nodes {
		n.start()
	}
	for _, n := range c.nodes {
		n.ready()
	}
	c.quiet()
	cancel()
	<-done
	if got := c.committedValues("t", 3, 0, 1, 2); !slices.Equal(got, []string{"0:first", "1:first", "2:first"}) {
		t.Fatalf("read_committed shows %v: nobody decided", got)
	}
	c.insist(c.transactional("2pc.x"), "third", 0, 1, 2)
	c.quiet()
	c.checkVotes()
}
