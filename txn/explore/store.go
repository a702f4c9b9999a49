package explore

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
)

// state is one element of the search: a node for every actor, and the messages that were sent, sorted.
type state struct {
	nodes []uint32
	net   []uint32
}

// width is the size of a number in an encoded state.
const width = 3

func (s state) encode(dst []byte) []byte {
	for _, part := range [2][]uint32{s.nodes, s.net} {
		for _, v := range part {
			fits("values of one kind", int(v), 1<<(8*width)-1)
			dst = append(dst, byte(v), byte(v>>8), byte(v>>16))
		}
	}
	return dst
}

// decode fills s from b, reusing its slices.
func (s *state) decode(b []byte, actors int) {
	s.nodes, s.net = s.nodes[:0], s.net[:0]
	for i := 0; i < len(b); i += width {
		v := uint32(b[i]) | uint32(b[i+1])<<8 | uint32(b[i+2])<<16
		if i < actors*width {
			s.nodes = append(s.nodes, v)
		} else {
			s.net = append(s.net, v)
		}
	}
}

// put adds messages to a sorted set, in place.
func put(net, sends []uint32) []uint32 {
	for _, m := range sends {
		if i, found := slices.BinarySearch(net, m); !found {
			net = slices.Insert(net, i, m)
		}
	}
	return net
}

const blockBytes = 1 << 20

// store holds every state that was reached, once, and how.
type store struct {
	seed    maphash.Seed
	blocks  [][]byte
	at      []place
	parent  []uint32
	ordinal []uint16 // which step of the parent led here first
	slots   []slot
}

type place struct {
	block uint32
	start uint32
	size  uint16
}

type slot struct{ index, hash uint32 } // index plus one; 0 is empty

func newStore() *store { return &store{seed: maphash.MakeSeed(), slots: make([]slot, 1<<12)} }

func (s *store) len() int { return len(s.at) }

func (s *store) bytes(i uint32) []byte {
	p := s.at[i]
	return s.blocks[p.block][p.start : p.start+uint32(p.size)]
}

// add returns the index of the state, and whether it is new.
func (s *store) add(b []byte, parent uint32, ordinal int) (uint32, bool) {
	i, hash, there := s.find(b)
	if there {
		return s.slots[i].index - 1, false
	}
	fits("steps from one state", ordinal, math.MaxUint16)
	index := uint32(len(s.at))
	s.slots[i] = slot{index + 1, hash}
	s.keep(b)
	s.parent, s.ordinal = append(s.parent, parent), append(s.ordinal, uint16(ordinal))
	if len(s.at)*4 > len(s.slots)*3 {
		s.grow()
	}
	return index, true
}

// has says whether the state is there.
func (s *store) has(b []byte) bool {
	_, _, there := s.find(b)
	return there
}

// find returns the slot of a state, or the free one where it belongs.
func (s *store) find(b []byte) (slot uint64, hash uint32, there bool) {
	h := maphash.Bytes(s.seed, b)
	mask := uint64(len(s.slots) - 1)
	slot, hash = h&mask, uint32(h>>32)
	for ; s.slots[slot].index != 0; slot = (slot + 1) & mask {
		if s.slots[slot].hash == hash && bytes.Equal(s.bytes(s.slots[slot].index-1), b) {
			return slot, hash, true
		}
	}
	return slot, hash, false
}

// fits panics where a packed number would be cut off: states would be taken for one another.
func fits(what string, n, most int) {
	if n > most {
		panic(fmt.Sprintf("explore: %s: %d, at most %d can be told apart", what, n, most))
	}
}

func (s *store) keep(b []byte) {
	last := len(s.blocks) - 1
	if last < 0 || cap(s.blocks[last])-len(s.blocks[last]) < len(b) {
		s.blocks, last = append(s.blocks, make([]byte, 0, blockBytes)), last+1
	}
	fits("bytes of a state", len(b), math.MaxUint16)
	start := len(s.blocks[last])
	s.blocks[last] = append(s.blocks[last], b...)
	s.at = append(s.at, place{uint32(last), uint32(start), uint16(len(b))})
}

func (s *store) grow() {
	s.slots = make([]slot, 2*len(s.slots))
	mask := uint64(len(s.slots) - 1)
	for index := range s.at {
		h := maphash.Bytes(s.seed, s.bytes(uint32(index)))
		i := h & mask
		for ; s.slots[i].index != 0; i = (i + 1) & mask {
		}
		s.slots[i] = slot{uint32(index) + 1, uint32(h >> 32)}
	}
}

// size is the memory that the store holds.
func (s *store) size() int64 {
	return int64(len(s.blocks))*blockBytes + int64(cap(s.at))*12 + int64(cap(s.parent))*4 + int64(cap(s.ordinal))*2 + int64(len(s.slots))*8
}
