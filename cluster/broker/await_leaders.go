package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
)

// Limits of waiting for the first leaders of topics that were just made. They come within milliseconds of each other; a partition most of
// whose replicas are down has none, and nobody is to wait for it long.
const (
	firstLeadersWait = time.Second
	firstLeadersLook = 2 * time.Millisecond
)

// awaitLeaders returns when every partition of these topics has a leader that clients would be told and that, as far as can be seen from
// here, serves, or at the limit. Kafka's controller names leaders as it makes a topic, and some clients take a partition without one, or
// one that refuses their first record, for an error that nothing mends (kafka-go dials the address of no broker, and does not try again).
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
		if c.leaderless(t, int32(n)) {
			return false
		}
	}
	return true
}

// Limits of waiting for elections: most take less, and a client that is told that there is no leader comes back after longer. But for as
// long as it waits it does not hear which brokers are down.
const (
	electionWait = 500 * time.Millisecond
	electionLook = 5 * time.Millisecond
)

// awaitElections returns when no partition of these topics lacks a leader that enough of its replicas are up to elect, or at the limit. To
// some clients the lack is no pause but an end: franz-go fails all records of a transaction that it is aborting.
func (c *call) awaitElections(asked []kmsg.MetadataRequestTopic) {
	if !c.electing(asked) {
		return
	}
	ctx, cancel := context.WithTimeout(c.req.Conn.Context(), electionWait)
	defer cancel()
	look := time.NewTicker(electionLook)
	defer look.Stop()
	for c.electing(asked) {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

func (c *call) electing(asked []kmsg.MetadataRequestTopic) bool {
	image := c.cfg.Meta.Image()
	for i := range asked {
		t, _ := askedFor(image, &asked[i])
		if t == nil {
			continue
		}
		for n := range t.Partitions {
			if p := &t.Partitions[n]; c.leaderless(t, int32(n)) && c.quorate(p.Replicas) && !image.Lost(p) {
				return true
			}
		}
	}
	return false
}

// leaderless says that nobody leads a partition, or this node that was elected and does not serve yet: it would refuse records.
func (c *call) leaderless(t *meta.Topic, number int32) bool {
	l := c.leadership(t, number)
	return l.leader == meta.NoLeader || l.leader == c.cfg.NodeID && !l.serves
}

// quorate says whether most of these nodes are up, as far as this one knows.
func (b *Broker) quorate(replicas []meta.NodeID) bool {
	up := 0
	for _, id := range replicas {
		if b.alive(id) {
			up++
		}
	}
	return 2*up > len(replicas)
}
