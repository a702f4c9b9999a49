package load

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// A partitioner chooses the partition of the next message among n. The harness chooses, not the client: so that every driver spreads
// alike, and sequences in a lane have no gaps. One goroutine at a time.
type partitioner interface {
	choose(key []byte, valueBytes, n int) int
}

func newPartitioner(name string, seed int64, producer int) partitioner {
	rnd := rand.New(rand.NewPCG(uint64(seed), 0x706172<<16|uint64(producer)))
	switch name {
	case "fnv1a":
		return hashed(fnv1a)
	case "murmur2":
		return hashed(func(key []byte) uint32 { return murmur2(key) & 0x7fffffff })
	case "round_robin":
		at := roundRobin(producer)
		return &at
	case "sticky":
		return &sticky{rnd: rnd, at: -1}
	}
	panic(fmt.Sprintf("load: partitioner %q", name))
}

type hashed func(key []byte) uint32

func (h hashed) choose(key []byte, _, n int) int { return int(h(key) % uint32(n)) }

type roundRobin int

func (r *roundRobin) choose(_ []byte, _, n int) int {
	at := int(*r) % n
	*r++
	return at
}

// stickyBytes is how much goes to one partition before sticky moves on.
const stickyBytes = 64 << 10

type sticky struct {
	rnd  *rand.Rand
	at   int
	left int
}

func (s *sticky) choose(_ []byte, valueBytes, n int) int {
	if s.left <= 0 || s.at >= n {
		next := s.rnd.IntN(n)
		if next == s.at && n > 1 {
			next = (next + 1) % n
		}
		s.at, s.left = next, stickyBytes
	}
	s.left -= valueBytes
	return s.at
}

// fnv1a is the 32-bit FNV-1a hash.
func fnv1a(b []byte) uint32 {
	h := uint32(2166136261)
	for _, c := range b {
		h = (h ^ uint32(c)) * 16777619
	}
	return h
}

// murmur2 is the hash that Kafka's clients place keys by: MurmurHash2, 32 bits, seed 0x9747b28c.
func murmur2(b []byte) uint32 {
	const m, r = 0x5bd1e995, 24
	h := uint32(0x9747b28c) ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := binary.LittleEndian.Uint32(b) * m
		k = (k ^ k>>r) * m
		h = h*m ^ k
	}
	if len(b) > 0 {
		var tail [4]byte
		copy(tail[:], b)
		h = (h ^ binary.LittleEndian.Uint32(tail[:])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
