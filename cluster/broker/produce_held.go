package broker

import (
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
)

// heldBatches are the batches of a produce request whose partitions are between leaders, in the order of the request. They lie in the request's
// buffer, which its connection's budget counts, and there is one such request a connection: it is held on the connection's reader.
type heldBatches struct {
	parts []Partition
	slots [][]*produceSlot  // of each
	at    map[Partition]int // its place
}

// must says that a batch is to wait, because its partition is about to have a leader, here or elsewhere, or because another one of the request
// waits there. While most of the replicas are down nobody comes to lead, and while most seem to be this node is rather the one that is cut
// off: the client is to look elsewhere at once.
func (h *heldBatches) must(c *produceCall, p Partition, t *meta.Topic, number int32) bool {
	if _, behind := h.at[p]; behind {
		return true
	}
	return p.Unsettled(partition.NoEpoch) && c.b.quorate(t.Partitions[number].Replicas)
}

func (h *heldBatches) add(p Partition, s *produceSlot) {
	i, there := h.at[p]
	if !there {
		if h.at == nil {
			h.at = make(map[Partition]int)
		}
		i = len(h.parts)
		h.at[p] = i
		h.parts, h.slots = append(h.parts, p), append(h.slots, nil)
	}
	h.slots[i] = append(h.slots[i], s)
}

// settle appends each of the batches when its partition has a leader, and at the limit or when the connection closes, to be refused. What was
// for other partitions is under way meanwhile; what the connection asks next is read later, or it could overtake these.
func (h *heldBatches) settle(c *produceCall, deadline time.Time) {
	if len(h.parts) == 0 {
		return
	}
	limit := min(settleLimit, max(deadline.Sub(c.b.cfg.Now()), 0))
	partition.WhenSettled(h.parts, limit, c.req.Conn.Context().Done(), func(i int) {
		for _, s := range h.slots[i] {
			h.parts[i].Append(&s.app)
		}
	})
}
