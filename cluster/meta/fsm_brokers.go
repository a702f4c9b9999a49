package meta

import (
	"slices"

	"gopherlog/cluster/meta/metapb"
)

func (d *draft) initCluster(op *metapb.InitCluster) *metapb.Outcome {
	if d.ClusterID != "" && d.ClusterID != op.GetClusterId() {
		return refuse(metapb.Code_FOREIGN_CLUSTER, "cluster id is %s, not %s", d.ClusterID, op.GetClusterId())
	}
	d.ClusterID = op.GetClusterId()
	return &metapb.Outcome{}
}

// registerBroker ends a draining mark, keeps a fence, and when the disk is another one than before replaces the broker in the groups.
func (d *draft) registerBroker(b *metapb.Broker) *metapb.Outcome {
	if b.GetId() < 1 || b.GetIncarnation() == 0 {
		return refuse(metapb.Code_INVALID_REQUEST, "broker %d without a valid id and incarnation", b.GetId())
	}
	n := brokerFromPB(b)
	n.Draining, n.Fenced = false, false
	if old := d.Brokers[n.ID]; old != nil {
		n.Fenced = old.Fenced
		if old.Incarnation != n.Incarnation {
			d.replaceServers(n)
		}
	}
	d.putBroker(n)
	return &metapb.Outcome{}
}

// replaceServers gives a wiped broker's new server id its places in all groups that have another replica to refill it from. A
// partition that had its only replica there keeps the old id, and nobody leads it: it is lost, and must be seen to be lost rather than start
// empty. See Image.Lost.
func (d *draft) replaceServers(b *Broker) {
	for _, name := range d.TopicNames() {
		t := d.Topics[name]
		for i := range t.Partitions {
			p := &t.Partitions[i]
			at := slices.Index(p.Replicas, b.ID)
			lost := len(p.Replicas) == 1
			if at < 0 || lost && p.Leader != b.ID {
				continue
			}
			t = d.topicForEdit(t)
			p = &t.Partitions[i]
			if lost {
				p.Leader = NoLeader
				continue
			}
			p.Servers = slices.Clone(p.Servers)
			p.Servers[at] = b.ServerID()
			p.ISR = slices.DeleteFunc(slices.Clone(p.ISR), func(id NodeID) bool { return id == b.ID })
			if p.Leader == b.ID {
				p.Leader = NoLeader
			}
		}
	}
}

func (d *draft) markBroker(op *metapb.MarkBroker) *metapb.Outcome {
	old := d.Brokers[NodeID(op.GetId())]
	if old == nil {
		return refuse(metapb.Code_UNKNOWN_BROKER, "no broker %d is registered", op.GetId())
	}
	n := *old
	if op.Draining != nil {
		n.Draining = *op.Draining
	}
	if op.Fenced != nil {
		n.Fenced = *op.Fenced
	}
	d.putBroker(&n)
	return &metapb.Outcome{}
}

// maxProducerIDBlock bounds what one command may reserve.
const maxProducerIDBlock = 1_000_000

func (d *draft) allocateProducerIDs(count int32) (int64, *metapb.Outcome) {
	if count < 1 || count > maxProducerIDBlock {
		return 0, refuse(metapb.Code_INVALID_REQUEST, "a block of %d producer ids; between 1 and %d are possible", count, maxProducerIDBlock)
	}
	first := d.nextProducerID
	d.nextProducerID += int64(count)
	return first, &metapb.Outcome{}
}
