package broker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
)

// later is the answer to req, and when it came.
func (c *client) later(req kmsg.Request) chan produced {
	c.send(req)
	out := make(chan produced, 1)
	go func() {
		r := c.receive(req).(*kmsg.ProduceResponse)
		out <- produced{r.Topics[0].Partitions[0].ErrorCode, time.Now()}
	}()
	synctest.Wait()
	return out
}

type produced struct {
	code int16
	at   time.Time
}

func elect(p *fakePartition) {
	p.change(func(p *fakePartition) { p.elected, p.epoch = true, p.epoch+1 })
}
func settled(p *fakePartition) { p.change(func(p *fakePartition) { p.elected = false }) }

// A client that is refused rests before it comes again, and the leader that was elected serves in a moment.
func TestBatchesAreHeldUntilTheElectedLeaderServes(t *testing.T) {
	for _, acks := range []int16{-1, 1} {
		synctest.Test(t, func(t *testing.T) {
			w := newVirtual(t)
			w.create("t", 1)
			p, c := w.part("t", 0), w.dial()
			elect(p)
			answer := c.later(produce(9, acks, "t", 0, batch("a")))
			time.Sleep(300 * time.Millisecond)
			synctest.Wait()
			if len(answer) > 0 || p.EndOffset() != 0 {
				t.Fatalf("answered %v, the log ends at %d", <-answer, p.EndOffset())
			}
			settled(p)
			if got, now := <-answer, time.Now(); got.code != codeNone || !got.at.Equal(now) {
				t.Errorf("code %d, %v late", got.code, now.Sub(got.at))
			}
			if n := p.parked(); n != 0 {
				t.Errorf("%d wait for a leader that serves", n)
			}
		})
	}
}

// A former leader that does not know its successor yet can say in a moment where to go.
func TestBatchesAreHeldUntilAFormerLeaderKnowsTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		w.register(2, "two.example", 19092)
		w.createOn("t", 1, 2)
		p, c := w.part("t", 0), w.dial()
		p.change(func(p *fakePartition) { p.leads = false })
		req := produceByID(w.idOf("t"), -1, 0, batch("a"))
		c.send(req)
		synctest.Wait()
		p.change(func(p *fakePartition) { p.elsewhere, p.epoch = 2, 7 })
		got := c.receive(req).(*kmsg.ProduceResponse)
		if p := got.Topics[0].Partitions[0]; p.ErrorCode != codeNotLeaderOrFollower || p.CurrentLeader.LeaderID != 2 || p.CurrentLeader.LeaderEpoch != 7 || len(got.Brokers) != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// What a connection sent first is appended first, whatever its acks: an idempotent producer's batches would be out of order.
func TestNothingOvertakesAHeldBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		w.create("t", 1)
		p, c := w.part("t", 0), w.dial()
		elect(p)
		last := produce(9, -1, "t", 0, batch("d"))
		go func() {
			c.send(produce(9, 0, "t", 0, batch("a")))
			c.send(produce(9, 0, "t", 0, batch("b")))
			c.send(produce(9, 0, "t", 0, batch("c")))
			c.send(last)
		}()
		synctest.Wait()
		settled(p)
		if got := c.receive(last).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; got.ErrorCode != codeNone || got.BaseOffset != 3 {
			t.Fatalf("%+v", got)
		}
		read := w.dial().ask(fetch(4, "t", 0)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		var values []string
		for _, b := range batches(t, read.RecordBatches) {
			values = append(values, string(b.Payload()[len(b.Payload())-2])) // before the count of headers
		}
		if want := []string{"a", "b", "c", "d"}; !slices.Equal(values, want) {
			t.Errorf("%q, want %q", values, want)
		}
	})
}

// Nobody waits longer than he says, nor than is of use; acks=0 is told by the end of its connection.
func TestBatchesAreHeldUpToTheirTimeoutAndTheLimit(t *testing.T) {
	for timeout, want := range map[int32]time.Duration{0: 0, 100: 100 * time.Millisecond, 10_000: settleLimit} {
		synctest.Test(t, func(t *testing.T) {
			w := newVirtual(t)
			w.create("t", 1)
			elect(w.part("t", 0))
			start := time.Now()
			req := produce(9, -1, "t", 0, batch("a"))
			req.TimeoutMillis = timeout
			if got := <-w.dial().later(req); got.code != codeNotLeaderOrFollower || got.at.Sub(start) != want {
				t.Errorf("code %d after %v, want it after %v", got.code, got.at.Sub(start), want)
			}
			req.Acks = 0
			c, start := w.dial(), time.Now()
			c.send(req)
			c.closed()
			if took := time.Since(start); took != want {
				t.Errorf("closed after %v, want it after %v", took, want)
			}
		})
	}
}

// While most of the replicas are down nobody comes to lead; a node that sees it so may also be the one that is cut off.
func TestNoBatchIsHeldWhileMostReplicasAreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		w.register(2, "two.example", 19092)
		w.register(3, "three.example", 19092)
		w.createOn("t", 1, 2, 3)
		w.dead.Store(meta.NodeID(2), true)
		w.dead.Store(meta.NodeID(3), true)
		w.part("t", 0).change(func(p *fakePartition) { p.leads = false })
		start := time.Now()
		if got := <-w.dial().later(produce(9, -1, "t", 0, batch("a"))); got.code != codeNotLeaderOrFollower || got.at.Sub(start) != 0 {
			t.Errorf("code %d after %v", got.code, got.at.Sub(start))
		}
	})
}

// The other batches of the request are under way meanwhile, but for those behind a held one.
func TestOtherPartitionsDoNotWaitForAHeldBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		w.create("t", 3)
		c := w.dial()
		elect(w.part("t", 0))
		req := produce(9, -1, "t", 0, batch("a"))
		for n := range int32(3) {
			p := req.Topics[0].Partitions[0]
			p.Partition = n
			if req.Topics[0].Partitions = append(req.Topics[0].Partitions, p); n == 1 {
				elect(w.part("t", 1))
			}
		}
		answer := c.later(req)
		if a, b, d := w.part("t", 0).EndOffset(), w.part("t", 1).EndOffset(), w.part("t", 2).EndOffset(); a != 0 || b != 0 || d != 1 {
			t.Fatalf("logs end at %d, %d and %d", a, b, d)
		}
		settled(w.part("t", 1))
		synctest.Wait()
		if a, b := w.part("t", 0).EndOffset(), w.part("t", 1).EndOffset(); a != 0 || b != 1 || len(answer) > 0 {
			t.Fatalf("logs end at %d and %d, answered: %v", a, b, len(answer) > 0)
		}
		settled(w.part("t", 0))
		if got := <-answer; got.code != codeNone || w.part("t", 0).EndOffset() != 2 {
			t.Errorf("code %d, the log ends at %d", got.code, w.part("t", 0).EndOffset())
		}
	})
}

// A connection that ends has nobody who would come again; its buffers are free at once (newWorld looks).
func TestABatchIsNotHeldForAConnectionThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		w.create("t", 1)
		p, c := w.part("t", 0), w.dial()
		elect(p)
		c.send(produce(9, -1, "t", 0, batch("a")))
		synctest.Wait()
		if n := p.parked(); n != 1 {
			t.Fatalf("%d batches are held", n)
		}
		start := time.Now()
		w.broker.Close()
		if took := time.Since(start); took > 0 || p.parked() != 0 || p.EndOffset() != 0 {
			t.Errorf("held for %v more, %d wait, the log ends at %d", took, p.parked(), p.EndOffset())
		}
	})
}
