package partition

import (
	"context"
	"testing"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/engine/vfs"
)

// alter changes topic configs and waits until every node has them in force.
func (c *cluster) alter(topic string, kv map[string]string, inForce func(*Settings) bool) {
	c.t.Helper()
	change := meta.ConfigChange{Topic: topic}
	for k, v := range kv {
		change.Ops = append(change.Ops, meta.ConfigOp{Key: k, Value: v})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	res, err := c.up()[0].ctl.AlterConfigs(ctx, []meta.ConfigChange{change}, false)
	if err != nil || res[0].Err != nil {
		c.t.Fatalf("alter %s: %+v %v", topic, res, err)
	}
	for _, n := range c.up() {
		p := c.on(n, topic, 0)
		c.await("configs in force", func() bool { s := p.Settings(); return inForce(&s) })
	}
}

func TestChangedSegmentLengthAndTierReachRunningReplicas(t *testing.T) {
	c := startCluster(t, 3, nil)
	c.create("t", 1, 3, nil)
	c.led("t", 1)
	before := map[*node]*Partition{}
	for _, n := range c.nodes {
		before[n] = c.on(n, "t", 0)
	}
	fill := func() (end int64) {
		for range 10 {
			end = c.produce("t", 0, batchOf(nil, 4, 200)) + 4
		}
		for _, n := range c.nodes {
			c.await("replicas are level", func() bool { return before[n].EndOffset() == end })
		}
		return end
	}
	fill()
	c.alter("t", map[string]string{"segment.bytes": "1024", "flush.messages": "1"}, func(s *Settings) bool { return s.SegmentBytes == 1024 && s.SyncEach })
	for n, p := range before {
		if got := len(p.log.Segments()); got != 1 {
			t.Fatalf("node %d: %d segments before an append", n.id, got)
		}
	}
	// The log is told after the settings say so: the first batches may still go where they would have gone.
	for rolled := false; !rolled; {
		fill()
		rolled = true
		for _, p := range before {
			rolled = rolled && len(p.log.Segments()) > 5
		}
	}
	end := fill()
	c.alter("t", map[string]string{"segment.bytes": "1048576"}, func(s *Settings) bool { return s.SegmentBytes == 1048576 })
	for n, p := range before {
		if now, err := n.m.Get("t", 0); err != nil || now != p {
			t.Errorf("node %d: the replica was opened again (%v)", n.id, err)
		}
	}
	// All machines lose power at once, with nothing of what was not synced: tier T2 keeps what was acknowledged.
	for _, n := range c.nodes {
		n.must(vfs.SyncDir(n.fs, "/")) // the data directory itself is older than the node
		c.net.Kill(n.id)
		survived := n.fs.CrashClone(vfs.CrashConfig{Seed: uint64(n.id)})
		n.stop()
		n.fs, n.boot = survived, "after the power cut"
	}
	for _, n := range c.nodes {
		n.start()
	}
	for _, n := range c.nodes {
		n.ready()
	}
	c.led("t", 1)
	if got := c.read("t", 0); got[len(got)-1].NextOffset() != end {
		t.Fatalf("the log ends at %d after the power cut, %d was acknowledged", got[len(got)-1].NextOffset(), end)
	}
	for _, n := range c.nodes {
		p := c.on(n, "t", 0)
		if p.Status().Suspect {
			t.Errorf("node %d is suspect although it synced every append", n.id)
		}
	}
}
