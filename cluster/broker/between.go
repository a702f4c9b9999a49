package broker

import (
	"iter"
	"time"

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
