package partition

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"gopherlog/engine/log"
	"gopherlog/engine/record"
	"gopherlog/engine/wire"
)

// Batches lie in the buffers of their requests, which are used again as soon as log and streams are done with them. Peers
// that are slow, links that break in the middle of a write and a leader that changes must not see a buffer's next contents.
func TestPooledBatchesReachSlowPeersUnchanged(t *testing.T) {
	const producers, each = 4, 25
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := startCluster(t, 3, nil)
	c.create("lent", 2, 3, map[string]string{"segment.bytes": "4194304"})
	c.led("lent", 2)
	c.net.Delay(1, 2, 15*time.Millisecond)
	c.net.Delay(2, 3, 5*time.Millisecond)
	c.net.Delay(3, 1, 30*time.Millisecond)
	pool := &wire.Pool{Poison: true}
	var wg sync.WaitGroup
	for w := range producers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(w)))
			for i := range each {
				var b record.Builder
				value := make([]byte, 2*copyBelow) // all batches are equally long, so that one in place of another goes unnoticed
				for i := range value {
					value[i] = byte(rnd.Uint32())
				}
				b.Append(record.Record{Value: value})
				c.produceFrom(pool, "lent", int32(w%2), b.Finish())
				if i%8 == 7 && w == 0 {
					c.net.Reset(c.nodes[rnd.IntN(3)].id)
				}
			}
		})
	}
	wg.Wait()
	for number := range int32(2) {
		c.sameSegments(fmt.Sprintf("lent-%d", number), number)
	}
}

// produceFrom sends the batch out of a pooled buffer, of which the caller lets go at once, until it is committed.
func (c *cluster) produceFrom(pool *wire.Pool, topic string, number int32, batch record.Batch) {
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.t.Errorf("a batch for %s-%d was not committed", topic, number)
			return
		}
		p := c.leaderPartition(topic, number)
		if p == nil {
			continue
		}
		buf := pool.Get(len(batch) + 50)
		copy(buf.Bytes()[50:], batch)
		done := make(chan AppendResult, 1)
		p.Append(&AppendRequest{
			Batch: record.Batch(buf.Bytes()[50:]), Buf: buf, Acks: AcksAll,
			Deadline: time.Now().Add(10 * time.Second), Done: func(r AppendResult) { done <- r },
		})
		buf.Release()
		if r := <-done; r.Err == nil {
			return
		}
	}
}

// sameSegments waits until all replicas have everything, and checks their files.
func (c *cluster) sameSegments(dir string, number int32) {
	c.t.Helper()
	end := c.committed("lent", number)
	var want map[string][]byte
	for _, n := range c.nodes {
		p := c.on(n, "lent", number)
		c.await(fmt.Sprintf("node %d to have everything", n.id), func() bool { return p.HighWatermark() >= end })
		n.must(p.log.Sync())
		rep, err := log.Verify(n.fs, n.fs.PathJoin("data", topicsDir, dir))
		if err != nil || len(rep.Problems) > 0 {
			c.t.Fatalf("node %d: %v %v", n.id, rep.Problems, err)
		}
		got := n.segments(dir)
		if want == nil {
			want = got
		}
		for name, data := range want {
			if !bytes.Equal(got[name], data) {
				c.t.Errorf("node %d: %s of %s has %d bytes and differs from node 1's %d", n.id, name, dir, len(got[name]), len(data))
			}
		}
	}
}
