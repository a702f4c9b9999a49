package producer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// The encoding, big endian, producers ascending by id, so that equal states have equal bytes:
//
//	version u8 = 1 | count u32 | count × { id i64 | epoch i16 | last offset i64 | timestamp i64 | n u8 | n × { first i32 | last i32 | base i64 } }
//
// It travels inside a partition's snapshot, which carries the checksum.

const (
	stateVersion   = 1
	producerSize   = 8 + 2 + 8 + 8 + 1
	spanSize       = 4 + 4 + 8
	stateHeaderLen = 1 + 4
)

// ErrEncoding is returned by Decode for bytes that Encode cannot have written.
var ErrEncoding = errors.New("producer state: malformed encoding")

// Encode appends the state to dst. Equal states give equal bytes.
func (s *State) Encode(dst []byte) []byte {
	ids := make([]int64, 0, len(s.producers))
	for id := range s.producers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	dst = append(dst, stateVersion)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(ids)))
	for _, id := range ids {
		dst = s.producers[id].encode(dst, id)
	}
	return dst
}

func (e *entry) encode(dst []byte, id int64) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(id))
	dst = binary.BigEndian.AppendUint16(dst, uint16(e.epoch))
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.last))
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.stamp))
	dst = append(dst, e.n)
	for _, b := range e.batches[:e.n] {
		dst = binary.BigEndian.AppendUint32(dst, uint32(b.first))
		dst = binary.BigEndian.AppendUint32(dst, uint32(b.last))
		dst = binary.BigEndian.AppendUint64(dst, uint64(b.base))
	}
	return dst
}

// Decode reads a state that Encode wrote from the front of src and returns the rest. It never allocates more than src
// can describe. An unknown version is an error that says so.
func Decode(src []byte) (*State, []byte, error) {
	if len(src) < stateHeaderLen {
		return nil, nil, fmt.Errorf("%w: %d bytes, want at least %d", ErrEncoding, len(src), stateHeaderLen)
	}
	if src[0] != stateVersion {
		return nil, nil, fmt.Errorf("producer state: version %d is not supported, want %d", src[0], stateVersion)
	}
	count := int(binary.BigEndian.Uint32(src[1:]))
	src = src[stateHeaderLen:]
	if count > len(src)/producerSize {
		return nil, nil, fmt.Errorf("%w: %d producers in %d bytes", ErrEncoding, count, len(src))
	}
	s := &State{producers: make(map[int64]*entry, count)}
	previous := int64(-1)
	for range count {
		id, e, rest, err := decodeEntry(src)
		if err != nil {
			return nil, nil, err
		}
		if id <= previous {
			return nil, nil, fmt.Errorf("%w: producer %d after %d", ErrEncoding, id, previous)
		}
		s.producers[id], src, previous = e, rest, id
	}
	return s, src, nil
}

func decodeEntry(src []byte) (int64, *entry, []byte, error) {
	if len(src) < producerSize {
		return 0, nil, nil, fmt.Errorf("%w: producer cut short", ErrEncoding)
	}
	id := int64(binary.BigEndian.Uint64(src))
	e := &entry{
		epoch: int16(binary.BigEndian.Uint16(src[8:])),
		last:  int64(binary.BigEndian.Uint64(src[10:])),
		stamp: int64(binary.BigEndian.Uint64(src[18:])),
		n:     src[26],
	}
	src = src[producerSize:]
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
