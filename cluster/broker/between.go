package broker

import (
	"iter"
	"slices"
	"time"

	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/partition"
)

// settleLimit is for how long a request is held because a partition is between leaders. A hand-over takes a few round trips, an election half a
// second at most; clients that are refused rest for as long or longer (franz-go a second after a refused OffsetForLeaderEpoch).
const settleLimit = 500 * time.Millisecond

// settle returns when none of these partitions is between leaders for a client that knows these epochs, or at the limit. It blocks the
// connection's reader: what is asked behind it would be answered behind it too.
func (c *call) settle(asked iter.Seq2[Partition, int32]) {
	var w *partition.Waiter
	var limit *time.Timer
	for {
		waiting := false
		for p, known := range asked {
			if !p.Unsettled(known) {
				continue
			}
			if w == nil {
				w, limit = partition.NewWaiter(), time.NewTimer(settleLimit)
				defer limit.Stop()
				defer func() {
					for p := range asked {
						p.Unpark(w)
					}
				}()
			}
			waiting = p.AwaitLeader(w, known) || waiting
		}
		if !waiting {
			return
		}
		select {
		case <-w.C:
		case <-limit.C:
			return
		case <-c.req.Conn.Context().Done():
			return
		}
	}
}

// settleGroups and settleTxn hold a request for a coordinator whose shard is between leaders here: a client that is told so rests for longer than
// that takes. While most of the shard's replicas are down it is refused at once, for it has to look elsewhere.
func (c *call) settleGroups(ids ...string) { c.settleShards(coordinator.OffsetsTopic, ids) }

func (c *call) settleTxn(id string) { c.settleShards(c.cfg.Transactions.Topic(id), []string{id}) }

func (c *call) settleShards(topic string, keys []string) {
	t := c.cfg.Meta.Image().Topic(topic)
	if t == nil {
		return
	}
	var between []Partition
	for _, key := range keys {
		number := coordinator.ShardOf(key, len(t.Partitions))
		p := c.local(t, number)
		if p != nil && p.Unsettled(partition.NoEpoch) && c.quorate(t.Partitions[number].Replicas) && !slices.Contains(between, p) {
			between = append(between, p)
		}
	}
	if len(between) == 0 {
		return
	}
	c.settle(func(yield func(Partition, int32) bool) {
		for _, p := range between {
			if !yield(p, partition.NoEpoch) {
				return
			}
		}
	})
}
