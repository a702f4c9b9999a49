package partition

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
)

// methodGroups asks a peer about groups. The request is their ids, 20 bytes each; the answer, in the same order and big
// endian, for each: flags u8 (1: it holds a replica that may vote; 2: it knows a leader, other than who asks; 4: it campaigns just now; 8: it
// leads) | term of the last entry u64 | index of the last entry u64.
const methodGroups = "partition.groups"

const (
	flagHeld  = 1
	flagLed   = 2
	flagBusy  = 4
	flagLeads = 8

	groupIDSize = 16 + 4
	answerSize  = 1 + 8 + 8
)

// answer is what one peer says about one group.
type answer struct {
	server              rpc.ServerID
	held, led, busy     bool
	leads               bool
	lastTerm, lastIndex uint64
}

// longer says whether a's log is ahead of b's, as voters compare them.
func (a answer) longer(b answer) bool {
	return a.lastTerm > b.lastTerm || a.lastTerm == b.lastTerm && a.lastIndex > b.lastIndex
}

// askAll asks each group's living voters, one question per node for all groups.
func (v *view) askAll(groups []*Partition) map[*Partition][]answer {
	if len(groups) == 0 {
		return nil
	}
	byPeer := make(map[rpc.NodeID][]question)
	for _, p := range groups {
		for _, s := range p.group.Voters() {
			if n := s.Node(); n != v.m.node && v.m.net.Alive(n) {
				byPeer[n] = append(byPeer[n], question{p, s})
			}
		}
	}
	peers := make([]rpc.NodeID, 0, len(byPeer))
	for n := range byPeer {
		peers = append(peers, n)
	}
	slices.Sort(peers)
	var mu sync.Mutex
	all := make(map[*Partition][]answer, len(groups))
	parallel(len(peers), len(peers), func(i int) {
		questions := byPeer[peers[i]]
		answers := v.ask(peers[i], questions)
		mu.Lock()
		defer mu.Unlock()
		for j, a := range answers {
			all[questions[j].p] = append(all[questions[j].p], a)
		}
	})
	return all
}

// question is about p, to the voter server.
type question struct {
	p      *Partition
	server rpc.ServerID
}

// ask returns one answer per question, or none.
func (v *view) ask(peer rpc.NodeID, questions []question) []answer {
	request := make([]byte, 0, groupIDSize*len(questions))
	for _, q := range questions {
		request = append(request, q.p.groupID().Bytes()...)
	}
	ctx, cancel := context.WithTimeout(v.m.ctx, askTimeout)
	defer cancel()
	response, err := v.m.net.Call(ctx, peer, methodGroups, request)
	if err != nil || len(response) != answerSize*len(questions) {
		return nil
	}
	out := make([]answer, len(questions))
	for i, q := range questions {
		a := response[answerSize*i:]
		out[i] = answer{
			server: q.server, held: a[0]&flagHeld != 0, led: a[0]&flagLed != 0, busy: a[0]&flagBusy != 0, leads: a[0]&flagLeads != 0,
			lastTerm: binary.BigEndian.Uint64(a[1:]), lastIndex: binary.BigEndian.Uint64(a[9:]),
		}
	}
	return out
}

// answerGroups is the other side.
func (m *Manager) answerGroups(_ context.Context, from rpc.NodeID, request []byte) ([]byte, error) {
	if len(request)%groupIDSize != 0 {
		return nil, fmt.Errorf("partition: question of %d bytes", len(request))
	}
	response := make([]byte, 0, len(request)/groupIDSize*answerSize)
	for ; len(request) > 0; request = request[groupIDSize:] {
		var key slotKey
		copy(key.id[:], request)
		key.number = int32(binary.BigEndian.Uint32(request[len(key.id):]))
		response = m.answer(response, key, from)
	}
	return response, nil
}

func (m *Manager) answer(dst []byte, key slotKey, from rpc.NodeID) []byte {
	p, err := m.ByID(key.id, key.number)
	if err != nil {
		return append(dst, make([]byte, answerSize)...)
	}
	st := p.group.Status()
	flags := byte(0)
	if st.Role != replica.Stopped && !st.Suspect && st.Failed == nil {
		flags = flagHeld
	}
	if st.Leader != "" && st.Leader.Node() != from {
		flags |= flagLed
	}
	switch st.Role {
	case replica.Candidate:
		flags |= flagBusy
	case replica.Leader:
		flags |= flagLeads
	}
	dst = append(dst, flags)
	dst = binary.BigEndian.AppendUint64(dst, p.log.LastTerm())
	return binary.BigEndian.AppendUint64(dst, p.log.LastIndex())
}
