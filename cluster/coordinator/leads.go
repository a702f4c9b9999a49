package coordinator

import (
	"sync"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/rpc"
	"gopherlog/txn/twopc"
)

// lead is who leads a partition, and in which term; meta.NoLeader while nobody is known to.
type lead struct {
	node rpc.NodeID
	term int32
}

// informed is a replica that hears from Raft who leads; *partition.Partition is the real one.
type informed interface {
	TopicID() meta.TopicID
	Leader() (node rpc.NodeID, epoch int32, ready bool)
}

// leadOf is the newer of what the image shows of a partition and what this node's replica of it, own, has heard. The replica hears of a leader
// with its first message; the image has it when the leader has published it through the control group. This node leads only when it serves. An
// own that cannot be asked, or is of another creation of the topic, is left out.
func leadOf(self rpc.NodeID, t *meta.Topic, number int32, own any) lead {
	if t == nil || number < 0 || int(number) >= len(t.Partitions) {
		return lead{node: meta.NoLeader}
	}
	l := lead{t.Partitions[number].Leader, t.Partitions[number].Term}
	p, asks := own.(informed)
	if !asks || p.TopicID() != t.ID {
		return l
	}
	node, term, serves := p.Leader()
	if node != meta.NoLeader && term >= l.term {
		l = lead{node, term}
	}
	if l.node == self && (node != self || !serves) {
		l.node = meta.NoLeader
	}
	return l
}

// lead is who coordinates a key. This node does once the shard's term here has begun, unless the image knows of a later one.
func (s *shards) lead(self rpc.NodeID, key string) lead {
	t := s.meta.Image().Topic(s.kind.topic)
	if t == nil {
		return lead{node: meta.NoLeader}
	}
	number := ShardOf(key, len(t.Partitions))
	info := &t.Partitions[number]
	s.mu.RLock()
	sh := s.all[number]
	s.mu.RUnlock()
	var own any
	if sh != nil && sh.heard.Load() {
		if now, _ := sh.active(); now != nil && (info.Leader == self || now.epoch >= info.Term) {
			return lead{self, now.epoch}
		}
		own = sh.part
	}
	l := leadOf(self, t, number, own)
	if l.node == self {
		l.node = meta.NoLeader
	}
	return l
}

// news gathers the partitions that something was heard of, until somebody takes them.
type news struct {
	mu  sync.Mutex
	set map[twopc.Member]bool
}

// add says whether nothing was gathered yet: whoever takes it is to be called.
func (n *news) add(m twopc.Member) (first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.set == nil {
		n.set = map[twopc.Member]bool{}
	}
	n.set[m] = true
	return len(n.set) == 1
}

func (n *news) take() map[twopc.Member]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	set := n.set
	n.set = nil
	return set
}
