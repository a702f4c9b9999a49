package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"gopherlog/engine/record"
)

// TestRandomFaultsLoseNothing kills, restarts and isolates nodes at random under idempotent load. Afterwards every
// acknowledged batch is in the log once, in order, and the replicas' files are equal.
func TestRandomFaultsLoseNothing(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	const partitions = 3
	c := startCluster(t, 3, nil)
	c.create("t", partitions, 3, map[string]string{"segment.bytes": "1048576"})
	c.led("t", partitions)
	load := startLoad(c, partitions)
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		n := c.nodes[rng.IntN(3)]
		switch rng.IntN(3) {
		case 0:
			c.locked(n.kill)
			pause(rng, 800)
			c.locked(n.start)
		case 1:
			c.net.Isolate(n.id)
			pause(rng, 1500)
			c.net.Heal()
		case 2:
			c.net.Reset(n.id)
		}
		pause(rng, 1000)
	}
	for _, n := range c.nodes {
		n.ready()
	}
	acked := load.stop()
	for p := range int32(partitions) {
		c.settle("t", p)
		var next int32
		for _, b := range c.read("t", p) {
			if b.ProducerID() != int64(p) {
				continue
			}
			if b.BaseSequence() != next {
				t.Fatalf("partition %d offset %d: sequence %d, want %d", p, b.BaseOffset(), b.BaseSequence(), next)
			}
			next++
		}
		t.Logf("partition %d: %d acknowledged, %d in the log", p, acked[p], next)
		if next < acked[p] {
			t.Errorf("partition %d: %d acknowledged, %d in the log", p, acked[p], next)
		}
		c.equal(fmt.Sprintf("t-%d", p))
	}
}

// locked runs what must not be seen by the load, and lets go also when it fails the test.
func (c *cluster) locked(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

func pause(rng *rand.Rand, millis int) {
	time.Sleep(time.Duration(rng.IntN(millis)) * time.Millisecond)
}

// settle waits until all replicas have committed the same log.
func (c *cluster) settle(topic string, p int32) {
	c.t.Helper()
	c.produce(topic, p, batchOf(nil, 1, 10)) // commits what older terms left
	c.await(fmt.Sprintf("replicas of %s-%d agree", topic, p), func() bool {
		lead := c.leaderPartition(topic, p)
		if lead == nil {
			return false
		}
		end := lead.EndOffset()
		for _, n := range c.nodes {
			q, err := n.m.Get(topic, p)
			if err != nil || q.HighWatermark() != end || q.EndOffset() != end {
				return false
			}
		}
		return true
	})
}

// equal compares the segment files of all nodes.
func (c *cluster) equal(dir string) {
	c.t.Helper()
	want := c.nodes[0].segments(dir)
	for _, n := range c.nodes[1:] {
		got := n.segments(dir)
		for name, data := range want {
			if !slices.Equal(got[name], data) {
				c.t.Errorf("%s: node %d: %s has %d bytes and differs from node 1's %d", dir, n.id, name, len(got[name]), len(data))
			}
		}
	}
}

// load writes batches of one idempotent producer per partition, five in flight, as a client does: a failed batch and all
// behind it are sent again.
type load struct {
	done  chan struct{}
	once  sync.Once
	wg    sync.WaitGroup
	acked []int32
}

func startLoad(c *cluster, partitions int) *load {
	l := &load{done: make(chan struct{}), acked: make([]int32, partitions)}
	for p := range partitions {
		l.wg.Add(1)
		go func() {
			defer l.wg.Done()
			for {
				select {
				case <-l.done:
					return
				default:
				}
				l.acked[p] += c.window(int32(p), l.acked[p])
			}
		}()
	}
	c.t.Cleanup(func() { l.stop() }) // also when the test fails, and before its nodes end
	return l
}

func (l *load) stop() []int32 {
	l.once.Do(func() { close(l.done) })
	l.wg.Wait()
	return l.acked
}

// window sends five batches from sequence on and returns how many were acknowledged in a row.
func (c *cluster) window(p int32, sequence int32) (acked int32) {
	q := c.find(p)
	if q == nil {
		time.Sleep(time.Millisecond)
		return 0
	}
	answers := make([]chan AppendResult, 5)
	for i := range answers {
		answers[i] = make(chan AppendResult, 1)
		b := batchOf(&record.Producer{ID: int64(p), Sequence: sequence + int32(i)}, 1, 2000)
		q.Append(&AppendRequest{Batch: b, Acks: AcksAll, Deadline: time.Now().Add(5 * time.Second), Done: func(r AppendResult) { answers[i] <- r }})
	}
	for i := range answers {
		r := <-answers[i]
		if r.Err == nil && acked == int32(i) {
			acked++
		}
	}
	if acked == 0 {
		time.Sleep(time.Millisecond)
	}
	return acked
}

// find returns the leader of a partition of t while nodes come and go.
func (c *cluster) find(p int32) *Partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaderPartition("t", p)
}
