package broker

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/engine/wire"
)

// endpoint is what a client on conn is told about a broker. One that advertises nothing is told by the address that this
// client reached this node by; of another node that is only the port, its host is where its peers dial it.
func (b *Broker) endpoint(conn *wire.Conn, br *meta.Broker) (host string, port int32) {
	if br.Host != "" {
		return br.Host, br.Port
	}
	if br.ID == b.cfg.NodeID {
		return hostPort(conn.LocalAddr().String())
	}
	host, _ = hostPort(br.RPCAddr)
	return host, br.Port
}

func hostPort(addr string) (string, int32) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr, 0
	}
	n, _ := strconv.ParseInt(port, 10, 32)
	return host, int32(n)
}

// alive says whether a client should be sent to that broker.
func (b *Broker) alive(id meta.NodeID) bool { return id == b.cfg.NodeID || b.cfg.Alive(id) }

// liveBrokers are the registered brokers that a client may try, in order of id: those that this node believes to be up. A
// node that sees less than half of the cluster is more likely cut off than left alone, and clients that it told so
// would know no other node and stay with it; it lists all.
func (b *Broker) liveBrokers(image *meta.Image) []*meta.Broker {
	all := allBrokers(image)
	var live []*meta.Broker
	for _, br := range all {
		if b.alive(br.ID) {
			live = append(live, br)
		}
	}
	if 2*len(live) < len(all) {
		return all
	}
	return live
}

func allBrokers(image *meta.Image) (all []*meta.Broker) {
	for _, id := range image.BrokerIDs() {
		all = append(all, image.Brokers[id])
	}
	return all
}

// controller is the control leader, or this node while none is known: every node forwards admin requests.
func (b *Broker) controller() int32 {
	if id, ok := b.cfg.Meta.Leader(); ok && b.alive(id) {
		return int32(id)
	}
	return int32(b.cfg.NodeID)
}

// local returns this node's replica of a topic in the image, nil if it has none of this creation of the topic.
func (b *Broker) local(t *meta.Topic, number int32) Partition {
	p, err := b.replica(t, number)
	if err != nil {
		return nil
	}
	return p
}

// errOtherCreation: this node's replica is of another creation of the topic's name, which it has yet to drop.
var errOtherCreation = fmt.Errorf("%w: it carries another creation of this topic", partition.ErrUnknownPartition)

func (b *Broker) replica(t *meta.Topic, number int32) (Partition, error) {
	p, err := b.cfg.Partitions.Get(t.Name, number)
	if err == nil && p.TopicID() != t.ID {
		err = errOtherCreation
	}
	return p, err
}

// leadership is what clients are told about one partition.
type leadership struct {
	leader meta.NodeID
	epoch  int32
	isr    []meta.NodeID
	serves bool // it is this node, and it answers
}

// leadership answers from the newer of what leaders have published and what the own replica, if there is one, has heard
// from Raft. A leader that is not alive is none.
func (b *Broker) leadership(t *meta.Topic, number int32) leadership {
	info := &t.Partitions[number]
	l := leadership{leader: info.Leader, epoch: info.Term, isr: info.ISR}
	node := meta.NoLeader
	if p := b.local(t, number); p != nil {
		var epoch int32
		var ready bool
		node, epoch, ready = p.Leader()
		if node != meta.NoLeader && epoch >= l.epoch {
			if node != l.leader || epoch != l.epoch {
				l.isr = nil
			}
			l.leader, l.epoch = node, epoch
		}
		if ready && node == b.cfg.NodeID && l.leader == node {
			l.isr, l.serves = p.InSyncNodes(), true
		}
	}
	// The image of a node that is cut off goes on to name this node after its replica has stepped down.
	deposed := l.leader == b.cfg.NodeID && node != b.cfg.NodeID
	if l.leader != meta.NoLeader && (deposed || !b.alive(l.leader)) {
		l.leader = meta.NoLeader
	}
	if len(l.isr) == 0 && l.leader != meta.NoLeader {
		l.isr = []meta.NodeID{l.leader}
	}
	return l
}

// find returns the replica that a client addresses by its topic's name, or the code that it gets: the partition does not
// exist, or it is not on this node, which then certainly does not lead it.
func (b *Broker) find(image *meta.Image, topic string, number int32) (Partition, *meta.Topic, int16) {
	t := image.Topic(topic)
	p, code := b.findIn(t, number)
	if code == codeInconsistentTopicID {
		code = codeNotLeaderOrFollower // who names no id cannot be wrong about it
	}
	return p, t, code
}

// findByID is find for a client that names its topic by id. Another creation of the topic's name is another topic: it gets
// nothing of it, whatever is left or already there on this node.
func (b *Broker) findByID(image *meta.Image, id meta.TopicID, number int32) (Partition, *meta.Topic, int16) {
	t := image.TopicByID(id)
	if t == nil {
		return nil, nil, codeUnknownTopicID
	}
	p, code := b.findIn(t, number)
	return p, t, code
}

func (b *Broker) findIn(t *meta.Topic, number int32) (Partition, int16) {
	if t == nil || number < 0 || int(number) >= len(t.Partitions) {
		return nil, codeUnknownTopicOrPartition
	}
	p, err := b.replica(t, number)
	switch {
	case err == nil:
		return p, codeNone
	case errors.Is(err, errOtherCreation):
		return nil, codeInconsistentTopicID
	case errors.Is(err, partition.ErrStorage):
		return nil, codeKafkaStorageError
	}
	return nil, codeNotLeaderOrFollower
}

func nodeIDs(ids []meta.NodeID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}
