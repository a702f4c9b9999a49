package producer

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// The encoding, big endian, producers ascending by id, aborted transactions by last offset, so that equal states have equal
// bytes:
//
//	version u8 = 2 | count u32 | count × producer | count u32 | count × { id i64 | first i64 | last i64 | last stable i64 }
//	producer: id i64 | epoch i16 | last offset i64 | timestamp i64 | coordinator epoch i32 | first offset of its transaction i64
//	          | n u8 | n × { first i32 | last i32 | base i64 }
//
// -1: none. Version 1 knew no transactions: it had neither the two fields of a producer nor the second list. It travels inside
// a partition's snapshot, which carries the checksum.

const (
	stateVersion   = 2
	oldVersion     = 1
	oldSize        = 8 + 2 + 8 + 8 + 1
	producerSize   = oldSize + 4 + 8
	spanSize       = 4 + 4 + 8
	abortedSize    = 4 * 8
	stateHeaderLen = 1 + 4
)

// ErrEncoding is returned by Decode for bytes that Encode cannot have written.
var ErrEncoding = errors.New("producer state: malformed encoding")

// Encode appends the state to dst. Equal states give equal bytes.
func (s *State) Encode(dst []byte) []byte {
	dst = append(dst, stateVersion)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s.producers)))
	for _, id := range s.ids() {
		dst = s.producers[id].encode(dst, id)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s.aborted)))
	for _, a := range s.aborted {
		dst = appendInts(dst, a.ProducerID, a.First, a.Last, a.LastStable)
	}
	return dst
}

func (s *State) ids() []int64 {
	ids := make([]int64, 0, len(s.producers))
	for id := range s.producers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func appendInts(dst []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		dst = binary.BigEndian.AppendUint64(dst, uint64(n))
	}
	return dst
}

func (e *entry) encode(dst []byte, id int64) []byte {
	dst = appendInts(dst, id)
	dst = binary.BigEndian.AppendUint16(dst, uint16(e.epoch))
	dst = appendInts(dst, e.last, e.stamp)
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.coord))
	dst = appendInts(dst, e.txn)
	dst = append(dst, e.n)
	for _, b := range e.batches[:e.n] {
		dst = binary.BigEndian.AppendUint32(dst, uint32(b.first))
		dst = binary.BigEndian.AppendUint32(dst, uint32(b.last))
		dst = appendInts(dst, b.base)
	}
	return dst
}

// Decode reads a state that Encode wrote from the front of src and returns the rest. It never allocates more than src
// can describe. An unknown version is an error that says so.
func Decode(src []byte) (*State, []byte, error) {
	if len(src) < stateHeaderLen {
		return nil, nil, fmt.Errorf("%w: %d bytes, want at least %d", ErrEncoding, len(src), stateHeaderLen)
	}
	version, size := src[0], producerSize
	switch version {
	case stateVersion:
	case oldVersion:
		size = oldSize
	default:
		return nil, nil, fmt.Errorf("producer state: version %d is not supported, want %d", version, stateVersion)
	}
	count := int(binary.BigEndian.Uint32(src[1:]))
	src = src[stateHeaderLen:]
	if count > len(src)/size {
		return nil, nil, fmt.Errorf("%w: %d producers in %d bytes", ErrEncoding, count, len(src))
	}
	s := &State{producers: make(map[int64]*entry, count)}
	previous := int64(-1)
	for range count {
		id, e, rest, err := decodeEntry(src, version)
		if err != nil {
			return nil, nil, err
		}
		if id <= previous {
			return nil, nil, fmt.Errorf("%w: producer %d after %d", ErrEncoding, id, previous)
		}
		s.producers[id], src, previous = e, rest, id
		if e.txn >= 0 {
			s.open = append(s.open, opening{first: e.txn, id: id})
		}
	}
	if err := s.sortOpen(); err != nil {
		return nil, nil, err
	}
	if version == oldVersion {
		return s, src, nil
	}
	src, err := s.decodeAborted(src)
	if err != nil {
		return nil, nil, err
	}
	return s, src, nil
}

func decodeEntry(src []byte, version byte) (int64, *entry, []byte, error) {
	size := producerSize
	if version == oldVersion {
		size = oldSize
	}
	if len(src) < size {
		return 0, nil, nil, fmt.Errorf("%w: producer cut short", ErrEncoding)
	}
	id := int64(binary.BigEndian.Uint64(src))
	e := &entry{
		epoch: int16(binary.BigEndian.Uint16(src[8:])),
		last:  int64(binary.BigEndian.Uint64(src[10:])),
		stamp: int64(binary.BigEndian.Uint64(src[18:])),
		coord: none,
		txn:   none,
		n:     src[size-1],
	}
	if version != oldVersion {
		e.coord = int32(binary.BigEndian.Uint32(src[26:]))
		e.txn = int64(binary.BigEndian.Uint64(src[30:]))
	}
	src = src[size:]
	if e.coord < none || e.txn < none {
		return 0, nil, nil, fmt.Errorf("%w: producer %d has coordinator epoch %d, transaction from %d", ErrEncoding, id, e.coord, e.txn)
	}
	if e.n > Window || len(src) < int(e.n)*spanSize {
		return 0, nil, nil, fmt.Errorf("%w: producer %d has %d batches in %d bytes", ErrEncoding, id, e.n, len(src))
	}
	for i := range e.batches[:e.n] {
		e.batches[i] = span{
			first: int32(binary.BigEndian.Uint32(src)),
			last:  int32(binary.BigEndian.Uint32(src[4:])),
			base:  int64(binary.BigEndian.Uint64(src[8:])),
		}
		src = src[spanSize:]
	}
	return id, e, src, nil
}

// sortOpen orders the open transactions; no two begin at the same offset.
func (s *State) sortOpen() error {
	slices.SortFunc(s.open, func(a, b opening) int { return cmp.Compare(a.first, b.first) })
	for i := 1; i < len(s.open); i++ {
		if s.open[i].first == s.open[i-1].first {
			return fmt.Errorf("%w: two transactions begin at offset %d", ErrEncoding, s.open[i].first)
		}
	}
	return nil
}

func (s *State) decodeAborted(src []byte) ([]byte, error) {
	if len(src) < 4 {
		return nil, fmt.Errorf("%w: no list of aborted transactions", ErrEncoding)
	}
	count := int(binary.BigEndian.Uint32(src))
	src = src[4:]
	if count > len(src)/abortedSize {
		return nil, fmt.Errorf("%w: %d aborted transactions in %d bytes", ErrEncoding, count, len(src))
	}
	if count > 0 {
		s.aborted = make([]Aborted, 0, count)
	}
	previous := int64(-1)
	for range count {
		a := decodeAbortedEntry(src)
		if a.First < 0 || a.First > a.Last || a.Last <= previous {
			return nil, fmt.Errorf("%w: aborted transaction [%d, %d] after one that ends at %d", ErrEncoding, a.First, a.Last, previous)
		}
		s.aborted, src, previous = append(s.aborted, a), src[abortedSize:], a.Last
	}
	return src, nil
}

func decodeAbortedEntry(src []byte) Aborted {
	number := func(i int) int64 { return int64(binary.BigEndian.Uint64(src[8*i:])) }
	return Aborted{ProducerID: number(0), First: number(1), Last: number(2), LastStable: number(3)}
}
