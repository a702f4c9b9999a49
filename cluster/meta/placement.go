package meta

import (
	"cmp"
	"slices"

	"gopherlog/cluster/meta/metapb"
)

// placer chooses brokers for new partitions, one after the other, each time the broker that carries least. It looks at the image
// and at the brokers that the proposer saw alive, and at nothing else: every node that applies the command must choose the same.
//
// A change to these rules would make nodes of two versions choose differently; it needs a command of its own.
type placer struct {
	live, spare []*seat // by id; spare brokers are registered but down or draining: used when live ones are too few
}

type seat struct {
	id              NodeID
	pos             int
	rack            string
	leads, replicas int
}

func newPlacer(img *Image, live []int32) *placer {
	p := &placer{}
	seats := map[NodeID]*seat{}
	for i, id := range img.BrokerIDs() {
		b := img.Brokers[id]
		if b.Fenced {
			continue
		}
		s := &seat{id: id, pos: i, rack: b.Rack}
		seats[id] = s
		if !b.Draining && slices.Contains(live, int32(id)) {
			p.live = append(p.live, s)
		} else {
			p.spare = append(p.spare, s)
		}
	}
	for _, t := range img.Topics {
		for i := range t.Partitions {
			for k, id := range t.Partitions[i].Replicas {
				s := seats[id]
				if s == nil {
					continue
				}
				s.replicas++
				if k == 0 {
					s.leads++
				}
			}
		}
	}
	return p
}

// place returns replica lists for n partitions, the preferred leader first in each. Without a majority alive the new groups could
// not even elect a leader, so that is refused.
func (p *placer) place(n, rf int) ([][]NodeID, *metapb.Outcome) {
	registered := len(p.live) + len(p.spare)
	switch {
	case rf < 1:
		return nil, refuse(metapb.Code_INVALID_REPLICATION_FACTOR, "replication factor %d; it must be at least 1", rf)
	case rf > registered:
		return nil, refuse(metapb.Code_INVALID_REPLICATION_FACTOR, "replication factor %d is larger than the number of brokers that may carry replicas, %d", rf, registered)
	case len(p.live) < rf/2+1:
		return nil, refuse(metapb.Code_INVALID_REPLICATION_FACTOR, "replication factor %d needs at least %d brokers alive, %d are", rf, rf/2+1, len(p.live))
	}
	out := make([][]NodeID, n)
	for i := range out {
		out[i] = p.next(rf)
	}
	return out, nil
}

func (p *placer) next(rf int) []NodeID {
	leader := slices.MinFunc(p.live, func(a, b *seat) int {
		leads, replicas := cmp.Compare(a.leads, b.leads), cmp.Compare(a.replicas, b.replicas)
		if rf == 1 { // the only chance to even out replicas: followers will not
			leads, replicas = replicas, leads
		}
		return cmp.Or(leads, replicas, cmp.Compare(a.pos, b.pos))
	})
	chosen := []*seat{leader}
	for _, pool := range [][]*seat{p.live, p.spare} {
		chosen = p.fill(chosen, pool, rf)
	}
	leader.leads++
	nodes := make([]NodeID, len(chosen))
	for i, s := range chosen {
		s.replicas++
		nodes[i] = s.id
	}
	return nodes
}

// fill adds followers from pool: first from racks that are not there yet, then those that carry least, then in a circle that starts
// one step further each time the same broker leads, so that its followers, who would take over from it, are not always the same.
func (p *placer) fill(chosen, pool []*seat, rf int) []*seat {
	leader := chosen[0]
	size := len(p.live) + len(p.spare)
	turn := func(s *seat) int {
		return ((s.pos-leader.pos-1-leader.leads)%size + size) % size
	}
	for len(chosen) < rf {
		var best *seat
		for _, s := range pool {
			if slices.Contains(chosen, s) {
				continue
			}
			if best == nil || cmp.Or(cmp.Compare(rackUsed(chosen, s), rackUsed(chosen, best)), cmp.Compare(s.replicas, best.replicas), cmp.Compare(turn(s), turn(best))) < 0 {
				best = s
			}
		}
		if best == nil {
			break
		}
		chosen = append(chosen, best)
	}
	return chosen
}

func rackUsed(chosen []*seat, s *seat) int {
	if s.rack != "" && slices.ContainsFunc(chosen, func(c *seat) bool { return c.rack == s.rack }) {
		return 1
	}
	return 0
}
