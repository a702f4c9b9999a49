package partition

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestLeadershipIsStableUnderABridge cuts the link between two nodes while a third sees both. By the word of one neighbour
// alone leadership would swing to and fro for ever. The minute is virtual.
func TestLeadershipIsStableUnderABridge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		c.create("t", 6, 3, nil)
		c.led("t", 6)
		time.Sleep(5 * time.Second) // preferred leaders everywhere
		c.net.CutBoth(1, 2)
		time.Sleep(10 * time.Second) // whoever lost its majority has lost its leadership
		terms := c.terms("t", 6)
		time.Sleep(60 * time.Second)
		if now := c.terms("t", 6); now != terms {
			t.Errorf("terms moved from %v to %v within a minute", terms, now)
		}
		for p := range int32(6) {
			c.produce("t", p, plain(1))
		}
		c.net.Heal()
		time.Sleep(10 * time.Second)
		for p := range int32(6) {
			c.produce("t", p, plain(1))
			if got := len(c.read("t", p)); got != 2 {
				t.Errorf("partition %d holds %d batches, want 2", p, got)
			}
		}
		c.close()
	})
}

// terms returns the highest term of each partition.
func (c *cluster) terms(topic string, n int32) (terms [6]uint64) {
	for p := range n {
		for _, node := range c.up() {
			if q, err := node.m.Get(topic, p); err == nil {
				terms[p] = max(terms[p], q.Status().Term)
			}
		}
	}
	return terms
}
