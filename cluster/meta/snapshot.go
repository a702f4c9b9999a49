package meta

import (
	"fmt"
	"maps"
	"slices"

	"gopherlog/cluster/meta/metapb"
	"gopherlog/cluster/rpc"

	"google.golang.org/protobuf/proto"
)

// snapshotVersion is refused when it is larger than what this program writes.
const snapshotVersion = 1

// Snapshot encodes the whole state; equal states give equal bytes.
func (m *machine) Snapshot() []byte {
	s := &metapb.Snapshot{
		Version: snapshotVersion, Index: m.img.Epoch, ClusterId: m.img.ClusterID, NextProducerId: m.img.nextProducerID,
		Answered: m.answered,
	}
	for _, id := range m.img.BrokerIDs() {
		s.Brokers = append(s.Brokers, brokerToPB(m.img.Brokers[id]))
	}
	for _, name := range m.img.TopicNames() {
		s.Topics = append(s.Topics, topicToPB(m.img.Topics[name]))
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("control snapshot at %d cannot be encoded: %v", m.img.Epoch, err))
	}
	return b
}

// Restore replaces the state by a snapshot, or leaves it alone and returns an error.
func (m *machine) Restore(state []byte) error {
	var s metapb.Snapshot
	if err := proto.Unmarshal(state, &s); err != nil {
		return fmt.Errorf("decode control snapshot: %w", err)
	}
	if s.Version < 1 || s.Version > snapshotVersion {
		return fmt.Errorf("control snapshot has version %d; this program knows versions up to %d: run a newer one", s.Version, snapshotVersion)
	}
	img, err := imageFromPB(&s)
	if err != nil {
		return fmt.Errorf("decode control snapshot: %w", err)
	}
	m.answered, m.byID = nil, map[string]*metapb.Result{}
	for _, a := range s.Answered {
		m.remember(a.RequestId, a.Result)
	}
	m.adopt(img)
	return nil
}

func imageFromPB(s *metapb.Snapshot) (*Image, error) {
	img := emptyImage()
	img.ClusterID, img.Epoch, img.nextProducerID = s.ClusterId, s.Index, s.NextProducerId
	for _, b := range s.Brokers {
		img.Brokers[NodeID(b.Id)] = brokerFromPB(b)
	}
	for _, pb := range s.Topics {
		t, err := topicFromPB(pb)
		if err != nil {
			return nil, err
		}
		img.Topics[t.Name], img.byID[t.ID] = t, t
	}
	return img, nil
}

func brokerFromPB(b *metapb.Broker) *Broker {
	return &Broker{
		ID: NodeID(b.Id), Host: b.Host, Port: b.Port, Rack: b.Rack, RPCAddr: b.RpcAddr,
		Incarnation: b.Incarnation, Session: b.Session, Draining: b.Draining, Fenced: b.Fenced,
	}
}

func brokerToPB(b *Broker) *metapb.Broker {
	return &metapb.Broker{
		Id: int32(b.ID), Host: b.Host, Port: b.Port, Rack: b.Rack, RpcAddr: b.RPCAddr,
		Incarnation: b.Incarnation, Session: b.Session, Draining: b.Draining, Fenced: b.Fenced,
	}
}

func topicFromPB(pb *metapb.Topic) (*Topic, error) {
	if len(pb.Id) != 16 || len(pb.Partitions) == 0 {
		return nil, fmt.Errorf("topic %q has an id of %d bytes and %d partitions", pb.Name, len(pb.Id), len(pb.Partitions))
	}
	t := &Topic{Name: pb.Name, ID: TopicID(pb.Id), Internal: pb.Internal, Configs: maps.Clone(pb.Configs)}
	for i, p := range pb.Partitions {
		if len(p.Replicas) == 0 || len(p.Servers) != len(p.Replicas) {
			return nil, fmt.Errorf("topic %q partition %d has %d replicas and %d servers", pb.Name, i, len(p.Replicas), len(p.Servers))
		}
		t.Partitions = append(t.Partitions, PartitionInfo{
			Replicas: nodesFromPB(p.Replicas), Servers: serversFromPB(p.Servers), Founders: serversFromPB(p.Founders),
			Leader: NodeID(p.Leader), Term: p.Term, ISR: nodesFromPB(p.Isr),
		})
	}
	return t, nil
}

func topicToPB(t *Topic) *metapb.Topic {
	pb := &metapb.Topic{Name: t.Name, Id: t.ID[:], Internal: t.Internal, Configs: t.Configs}
	for i := range t.Partitions {
		p := &t.Partitions[i]
		pb.Partitions = append(pb.Partitions, &metapb.Partition{
			Replicas: nodesToPB(p.Replicas), Servers: serversToPB(p.Servers), Founders: serversToPB(p.Founders),
			Leader: int32(p.Leader), Term: p.Term, Isr: nodesToPB(p.ISR),
		})
	}
	return pb
}

func nodesFromPB(in []int32) []NodeID { return convert[NodeID](in) }
func nodesToPB(in []NodeID) []int32   { return convert[int32](in) }
func serversToPB(in []rpc.ServerID) []string {
	return mapSlice(in, func(s rpc.ServerID) string { return string(s) })
}
func serversFromPB(in []string) []rpc.ServerID {
	return mapSlice(in, func(s string) rpc.ServerID { return rpc.ServerID(s) })
}
func convert[T, F ~int32](in []F) []T { return mapSlice(in, func(f F) T { return T(f) }) }
func mapSlice[F, T any](in []F, fn func(F) T) []T {
	out := make([]T, 0, len(in))
	for _, f := range slices.All(in) {
		out = append(out, fn(f))
	}
	return out
}
