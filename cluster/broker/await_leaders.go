package broker

import (
	"context"
	"time"

	"gopherlog/cluster/meta"
)

// Limits of waiting for the first leaders of topics that were just made. They come within milliseconds of each other; a partition most of
// whose replicas are down has none, and nobody is to wait for it long.
const (
	firstLeadersWait = time.Second
	firstLeadersLook = 2 * time.Millisecond
)

// awaitLeaders returns when every partition of these topics has a leader that clients would be told, or at the limit. Kafka's
// controller names leaders as it makes a topic, and some clients take a partition without one for an error that nothing mends (kafka-go
// dials the address of no broker).
func (c *call) awaitLeaders(ctx context.Context, names []string) {
	ctx, cancel := context.WithTimeout(ctx, firstLeadersWait)
	defer cancel()
	look := time.NewTicker(firstLeadersLook)
	defer look.Stop()
	for _, name := range names {
		for !c.led(name) {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
			}
		}
	}
}

// led says whether all partitions of a topic have leaders; of one that does not exist there is nothing to wait for.
func (c *call) led(name string) bool {
	t := c.cfg.Meta.Image().Topic(name)
	if t == nil {
		return true
	}
	for n := range t.Partitions {
		if c.leadership(t, int32(n)).leader == meta.NoLeader {
			return false
		}
	}
	return true
}
