package meta

import (
	"context"
	"sync"
	"time"

	"gopherlog/cluster/meta/metapb"
	"gopherlog/cluster/rpc"
)

const (
	// publishBatch bounds one command.
	publishBatch = 4096
	// publishGather is how long the first word of a batch waits for others: after a failover many groups elect at once.
	publishGather = 2 * time.Millisecond
	// publishRetry is the pause before words that the image does not show are sent again.
	publishRetry = 250 * time.Millisecond
)

// publisher holds the newest word of this node's leaders about each partition until the image shows it. Its size is bounded by the
// number of partitions.
type publisher struct {
	mu      sync.Mutex
	pending map[rpc.GroupID]LeaderUpdate
	wake    chan struct{}
	held    bool // the last attempt failed; publish's
}

func newPublisher() *publisher {
	return &publisher{pending: map[rpc.GroupID]LeaderUpdate{}, wake: make(chan struct{}, 1)}
}

// PublishLeaders takes note of leaders' words and makes them part of the image: batched, sent again until the image shows them or
// something newer. It never blocks; the newest word about a partition replaces an older one that still waits. ISR is kept by the
// controller: do not write to it afterwards.
func (c *Controller) PublishLeaders(updates []LeaderUpdate) {
	c.news.add(updates)
}

func (p *publisher) add(updates []LeaderUpdate) {
	p.mu.Lock()
	for _, u := range updates {
		key := rpc.GroupID{Topic: u.Topic, Partition: u.Partition}
		if old, ok := p.pending[key]; !ok || u.Term >= old.Term {
			p.pending[key] = u
		}
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take forgets what is settled and returns a batch of the rest, which stays pending.
func (p *publisher) take(img *Image) []*metapb.LeaderUpdate {
	p.mu.Lock()
	defer p.mu.Unlock()
	var batch []*metapb.LeaderUpdate
	for key, u := range p.pending {
		if img.settled(u) {
			delete(p.pending, key)
		} else if len(batch) < publishBatch {
			batch = append(batch, leaderToPB(u))
		}
	}
	return batch
}

func (p *publisher) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pending)
}

// publish runs until the controller closes. One command is under way at a time, so words arrive in order.
func (c *Controller) publish() {
	for {
		select {
		case <-c.news.wake:
		case <-c.ctx.Done():
			return
		}
		if !c.pause(publishGather) {
			return
		}
		for {
			batch := c.news.take(c.Image())
			if len(batch) == 0 {
				break
			}
			if err := c.sendLeaders(batch); err != nil && !c.pause(publishRetry) {
				return
			}
		}
	}
}

func (c *Controller) sendLeaders(batch []*metapb.LeaderUpdate) error {
	ctx, cancel := context.WithTimeout(c.ctx, submitTimeout)
	defer cancel()
	_, err := c.submit(ctx, &metapb.Command{Op: &metapb.Command_PublishLeaders{PublishLeaders: &metapb.PublishLeaders{Updates: batch}}}, false)
	switch held := c.news.held; {
	case err == nil && held:
		c.log.Info("leaders are published again")
	case err != nil && !held && c.ctx.Err() == nil: // and not with every attempt
		c.log.Warn("leaders not published yet", "partitions", len(batch), "error", err)
	}
	c.news.held = err != nil
	return err
}
