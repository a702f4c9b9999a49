package meta

import (
	"slices"

	"gopherlog/cluster/meta/metapb"
)

// publishLeader takes a leader's word unless a newer term is known. Words about partitions that are gone are dropped.
func (d *draft) publishLeader(u *metapb.LeaderUpdate) {
	l, ok := leaderFromPB(u)
	if !ok {
		return
	}
	p := d.Partition(l.Topic, l.Partition)
	if p == nil || !p.accepts(l) || p.shows(l) {
		return
	}
	t := d.topicForEdit(d.byID[l.Topic])
	p = &t.Partitions[l.Partition]
	p.Leader, p.Term, p.ISR = l.Leader, l.Term, l.ISR
}

// accepts says whether u is at least as new as what is known: a term has one leader, and a newer term wins. A word that names
// brokers without a replica comes from another assignment.
func (p *PartitionInfo) accepts(u LeaderUpdate) bool {
	if !p.Has(u.Leader) || slices.ContainsFunc(u.ISR, func(id NodeID) bool { return !p.Has(id) }) {
		return false
	}
	return u.Term > p.Term || u.Term == p.Term && (p.Leader == u.Leader || p.Leader == NoLeader)
}

// shows says whether the image already holds this word.
func (p *PartitionInfo) shows(u LeaderUpdate) bool {
	return p.Term == u.Term && p.Leader == u.Leader && slices.Equal(p.ISR, u.ISR)
}

// settled says whether there is no sense in sending u again: the image shows it, or something newer, or has no place for it.
func (m *Image) settled(u LeaderUpdate) bool {
	p := m.Partition(u.Topic, u.Partition)
	return p == nil || !p.accepts(u) || p.shows(u)
}

func leaderFromPB(u *metapb.LeaderUpdate) (LeaderUpdate, bool) {
	if len(u.GetTopicId()) != 16 || u.Term < 0 {
		return LeaderUpdate{}, false
	}
	return LeaderUpdate{Topic: TopicID(u.TopicId), Partition: u.Partition, Leader: NodeID(u.Leader), Term: u.Term, ISR: nodesFromPB(u.Isr)}, true
}

func leaderToPB(u LeaderUpdate) *metapb.LeaderUpdate {
	return &metapb.LeaderUpdate{TopicId: u.Topic[:], Partition: u.Partition, Leader: int32(u.Leader), Term: u.Term, Isr: nodesToPB(u.ISR)}
}
