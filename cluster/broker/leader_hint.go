package broker

import (
	"slices"

	"gopherlog/cluster/meta"
)

// leaderHint is the leader of a partition, for a client that asked a node which does not lead it (KIP-951): it goes there
// without asking for metadata first.
type leaderHint struct {
	node  meta.NodeID
	epoch int32
}

// leaderHints gathers the hints of one answer, and the brokers that they name, each once. Only answers that go wrong have any.
type leaderHints struct {
	image   *meta.Image // the newest one: what the request was checked by may have aged
	brokers []*meta.Broker
}

// of is nil where nobody is known to lead, or this node that does not serve yet: who asked it knows that. t is of any image; a topic that is gone since is led by nobody.
func (h *leaderHints) of(b *Broker, t *meta.Topic, number int32) *leaderHint {
	if t != nil {
		t = h.image.TopicByID(t.ID)
	}
	if t == nil || int(number) >= len(t.Partitions) {
		return nil
	}
	l := b.leadership(t, number)
	br := h.image.Brokers[l.leader]
	if br == nil || l.leader == b.cfg.NodeID && !l.serves {
		return nil
	}
	if !slices.Contains(h.brokers, br) {
		h.brokers = append(h.brokers, br)
	}
	return &leaderHint{node: l.leader, epoch: l.epoch}
}
