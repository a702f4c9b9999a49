package record

import (
	"encoding/binary"
	"fmt"
)

// minRecord is the least that a record takes: its length, attributes, two deltas, two null lengths and no headers.
const minRecord = 7

// CheckRecords walks over the records of b without reading their keys and values: as many as the header says, numbered from 0 on,
// each as long as it says and its fields within it, nothing behind the last. A batch that passes is one whose records a consumer can
// decode. It allocates nothing and takes a few nanoseconds a record. Records that are compressed are not looked into, since that
// would cost a decompression per batch: their number is compared with what the codec can unfold at most. The errors are ErrInvalid.
func (b Batch) CheckRecords() error {
	p, count := b.Payload(), int(b.Count())
	if codec := b.Codec(); codec != None {
		if limit := len(p) * mostUnfolded(codec) / minRecord; count > limit {
			return fmt.Errorf("%w: %d records in %d bytes of %s", ErrInvalid, count, len(p), codec)
		}
		return nil
	}
	pos := 0
	for i := range count {
		start := pos
		if pos = shortRecordEnd(p, start, int32(i)); pos < 0 {
			pos = recordEnd(p, start, int32(i))
		}
		if pos < 0 {
			return fmt.Errorf("%w: record %d of %d, at byte %d of the batch, does not hold its fields or its number", ErrInvalid, i, count, HeaderSize+start)
		}
	}
	if pos != len(p) {
		return fmt.Errorf("%w: %d bytes follow the last of %d records", ErrInvalid, len(p)-pos, count)
	}
	return nil
}

// mostUnfolded is more than what any byte of the codec can become: deflate, LZ4 and snappy by their formats, zstd as runs of 128 KiB in
// four bytes.
func mostUnfolded(c Codec) int {
	switch c {
	case Gzip:
		return 1100
	case Snappy:
		return maxSnappyRatio
	case LZ4:
		return 256
	}
	return 32 << 10
}

// shortRecordEnd is recordEnd for the usual record: no headers, and numbers of at most two bytes. It returns -1 for any other, sound
// or not.
func shortRecordEnd(p []byte, pos int, delta int32) int {
	const head = 10 // no field up to the key's length ends later
	if pos+head > len(p) {
		return -1
	}
	size, pos := shortVarint(p, pos)
	end := pos + int(size>>1)
	timestamp, pos := shortVarint(p, pos+1) // attributes are unused
	number, pos := shortVarint(p, pos)
	key, pos := shortVarint(p, pos)
	pos += int(key >> 1) // null is 1
	if pos+2 >= len(p) {
		return -1
	}
	value, pos := shortVarint(p, pos)
	pos += int(value >> 1)
	switch {
	case (size|timestamp|number|key|value)>>14 != 0, size&1 != 0, number != uint32(delta)<<1, key&1 != 0 && key > 1, value&1 != 0 && value > 1,
		pos+1 != end, pos >= len(p), p[pos] != 0:
		return -1
	}
	return end
}

// shortVarint reads an unsigned number of one or two bytes; where it is longer, the result is 1<<14 or more. Two bytes must be there.
func shortVarint(p []byte, pos int) (u uint32, next int) {
	if a := p[pos]; a < 0x80 {
		return uint32(a), pos + 1
	}
	return uint32(p[pos]&0x7f) | uint32(p[pos+1])<<7, pos + 2
}

// recordEnd returns where the record with the given offset delta that starts at pos ends, or -1. A field that does not fit makes pos
// larger than len(p), where it stays until the end.
func recordEnd(p []byte, pos int, delta int32) int {
	size, pos := varint32(p, pos)
	end := pos + int(size)
	pos = skipVarint64(p, pos+1) // attributes are unused, then the timestamp
	number, pos := varint32(p, pos)
	key, pos := varint32(p, pos)
	pos += int(max(key, 0))
	value, pos := varint32(p, pos)
	pos += int(max(value, 0))
	headers, pos := varint32(p, pos)
	if size < 0 || number != delta || key < -1 || value < -1 || headers < 0 || pos > end {
		return -1
	}
	if headers > 0 {
		pos = headersEnd(p, pos, headers)
	}
	if pos != end || end > len(p) {
		return -1
	}
	return end
}

// headersEnd skips n headers; each takes two bytes, so that a large n ends with the bytes.
func headersEnd(p []byte, pos int, n int32) int {
	for ; n > 0 && pos < len(p); n-- {
		var key, value int32
		if key, pos = varint32(p, pos); key < 0 {
			return len(p) + 1
		}
		if value, pos = varint32(p, pos+int(key)); value < -1 {
			return len(p) + 1
		}
		pos += int(max(value, 0))
	}
	if n > 0 {
		return len(p) + 1
	}
	return pos
}

// varint32 reads a zigzag number of at most 32 bits, which Kafka's clients take in at most five bytes. One that is not there is 0 with
// a next position beyond p.
func varint32(p []byte, pos int) (v int32, next int) {
	if pos < len(p) && p[pos] < 0x80 {
		u := p[pos]
		return int32(u>>1) ^ -int32(u&1), pos + 1
	}
	return longVarint32(p, pos)
}

func longVarint32(p []byte, pos int) (v int32, next int) {
	var u uint64
	for i := range 5 {
		if pos+i >= len(p) {
			break
		}
		c := p[pos+i]
		u |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 && u <= 1<<32-1 {
			return int32(uint32(u)>>1) ^ -int32(u&1), pos + i + 1
		}
	}
	return 0, len(p) + 1
}

// skipVarint64 returns the position behind a number of at most 64 bits.
func skipVarint64(p []byte, pos int) int {
	if pos < len(p) && p[pos] < 0x80 {
		return pos + 1
	}
	if pos < len(p) {
		if _, n := binary.Uvarint(p[pos:]); n > 0 {
			return pos + n
		}
	}
	return len(p) + 1
}
