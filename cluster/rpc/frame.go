package rpc

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/hashicorp/raft"
)

// A request for one group travels as one or more parts, each a frame of its
// own with its own previous entry, so that a part is by itself a complete
// AppendEntries: a follower stores the first while the second is on its way,
// and other groups' parts pass in between. Only the last part, or one that
// fails, is answered. Big endian:
//
//	0  kind u8 'A'
//	1  flags u8: 1 last part, 2 entries carry a checksum
//	2  length of the sender's server id u8
//	3  length of the receiver's server id u8
//	4  entries u32
//	8  request id u64
//	16 group [20]
//	36 term u64
//	44 previous index u64
//	52 previous term u64
//	60 leader's commit index u64
//	68 leader's last index u64
//	76 bytes of all bodies u32
//	80 crc32c of [0, 80) u32
//	84 crc32c of ids and table u32
//	88 the two server ids, the table, the bodies
//
// The table has one row per entry; indexes count up from the previous index:
//
//	0  term u64
//	8  appended at, Unix nanoseconds, i64
//	16 bytes of data u32
//	20 bytes of extensions u32
//	24 crc32c of data and extensions u32; 0 for data entries if the flag is off
//	28 type u8, zero [3]
const (
	partHeadSize = 88
	partRowSize  = 32

	flagLast = 1
	flagSums = 2 // off: data entries carry their own

	maxPartBytes   = 1 << 20 // of bodies, unless one entry alone is larger
	maxPartEntries = 4096
	inlineBytes    = 2 << 10 // bodies up to this size are copied behind the table
)

// Layout of an answer:
//
//	0  kind u8 'R'
//	1  flags u8: 1 success, 2 no retry back-off
//	2  code u16, not 0 when refused
//	4  bytes of text u16, zero [2]
//	8  request id u64
//	16 term u64
//	24 last log index u64
//	32 crc32c of [0, 32) u32
//	36 text
const (
	replyHeadSize = 36
	maxReplyText  = 1024

	flagSuccess   = 1
	flagNoBackoff = 2
)

// partHead is a decoded frame head.
type partHead struct {
	last, sums     bool
	fromLen, toLen int
	entries        int
	id             uint64
	group          GroupID
	term           uint64
	prevIndex      uint64
	prevTerm       uint64
	commit         uint64
	leaderLast     uint64
	bodies         int
	restSum        uint32
}

// restSize is what lies between the head and the bodies.
func (p *partHead) restSize() int { return p.fromLen + p.toLen + p.entries*partRowSize }

func (p *partHead) encode(b []byte) {
	b[0] = 'A'
	b[1] = 0
	if p.last {
		b[1] |= flagLast
	}
	if p.sums {
		b[1] |= flagSums
	}
	b[2], b[3] = byte(p.fromLen), byte(p.toLen)
	binary.BigEndian.PutUint32(b[4:], uint32(p.entries))
	binary.BigEndian.PutUint64(b[8:], p.id)
	copy(b[16:32], p.group.Topic[:])
	binary.BigEndian.PutUint32(b[32:], uint32(p.group.Partition))
	binary.BigEndian.PutUint64(b[36:], p.term)
	binary.BigEndian.PutUint64(b[44:], p.prevIndex)
	binary.BigEndian.PutUint64(b[52:], p.prevTerm)
	binary.BigEndian.PutUint64(b[60:], p.commit)
	binary.BigEndian.PutUint64(b[68:], p.leaderLast)
	binary.BigEndian.PutUint32(b[76:], uint32(p.bodies))
	binary.BigEndian.PutUint32(b[80:], crc32.Checksum(b[:80], castagnoli))
	binary.BigEndian.PutUint32(b[84:], p.restSum)
}

func (p *partHead) decode(b []byte, maxEntry int) error {
	if b[0] != 'A' {
		return fmt.Errorf("%w: frame of kind %d", ErrCorrupt, b[0])
	}
	if got, want := binary.BigEndian.Uint32(b[80:]), crc32.Checksum(b[:80], castagnoli); got != want {
		return fmt.Errorf("%w: head checksum %08x, want %08x", ErrCorrupt, got, want)
	}
	*p = partHead{
		last: b[1]&flagLast != 0, sums: b[1]&flagSums != 0,
		fromLen: int(b[2]), toLen: int(b[3]),
		entries:    int(binary.BigEndian.Uint32(b[4:])),
		id:         binary.BigEndian.Uint64(b[8:]),
		term:       binary.BigEndian.Uint64(b[36:]),
		prevIndex:  binary.BigEndian.Uint64(b[44:]),
		prevTerm:   binary.BigEndian.Uint64(b[52:]),
		commit:     binary.BigEndian.Uint64(b[60:]),
		leaderLast: binary.BigEndian.Uint64(b[68:]),
		bodies:     int(binary.BigEndian.Uint32(b[76:])),
		restSum:    binary.BigEndian.Uint32(b[84:]),
	}
	copy(p.group.Topic[:], b[16:32])
	p.group.Partition = int32(binary.BigEndian.Uint32(b[32:]))
	if p.entries > maxPartEntries || p.bodies > max(maxPartBytes, maxEntry) || p.prevIndex > math.MaxUint64/2 {
		return fmt.Errorf("%w: part of %d entries and %d bytes after index %d", ErrCorrupt, p.entries, p.bodies, p.prevIndex)
	}
	return nil
}

// row is one line of a part's table.
type row struct {
	term       uint64
	appendedAt int64
	data, ext  int
	sum        uint32
	kind       raft.LogType
}

func (r row) encode(b []byte) {
	binary.BigEndian.PutUint64(b, r.term)
	binary.BigEndian.PutUint64(b[8:], uint64(r.appendedAt))
	binary.BigEndian.PutUint32(b[16:], uint32(r.data))
	binary.BigEndian.PutUint32(b[20:], uint32(r.ext))
	binary.BigEndian.PutUint32(b[24:], r.sum)
	binary.BigEndian.PutUint32(b[28:], uint32(r.kind)<<24)
}

func decodeRow(b []byte) row {
	return row{
		term:       binary.BigEndian.Uint64(b),
		appendedAt: int64(binary.BigEndian.Uint64(b[8:])),
		data:       int(binary.BigEndian.Uint32(b[16:])),
		ext:        int(binary.BigEndian.Uint32(b[20:])),
		sum:        binary.BigEndian.Uint32(b[24:]),
		kind:       raft.LogType(b[28]),
	}
}

func entrySum(l *raft.Log) uint32 {
	return crc32.Update(crc32.Checksum(l.Data, castagnoli), castagnoli, l.Extensions)
}

func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromUnixNano(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

// isData says whether l is a data entry: a command without extensions. Those
// may carry a checksum of their own.
func isData(l *raft.Log) bool { return l.Type == raft.LogCommand && len(l.Extensions) == 0 }

func entryBytes(l *raft.Log) int { return len(l.Data) + len(l.Extensions) }

// cutPart returns how many of the entries go into the next part, and the
// bytes of their bodies.
func cutPart(entries []*raft.Log) (n, bytes int) {
	for n < len(entries) && n < maxPartEntries {
		size := entryBytes(entries[n])
		if n > 0 && bytes+size > maxPartBytes {
			break
		}
		bytes += size
		n++
	}
	return n, bytes
}

// reply is a decoded answer.
type reply struct {
	success, noBackoff bool
	code               code
	id                 uint64
	term, lastLog      uint64
	text               string
}

func (r *reply) encode(b []byte) []byte {
	text := r.text[:min(len(r.text), maxReplyText)]
	var head [replyHeadSize]byte
	head[0] = 'R'
	if r.success {
		head[1] |= flagSuccess
	}
	if r.noBackoff {
		head[1] |= flagNoBackoff
	}
	binary.BigEndian.PutUint16(head[2:], uint16(r.code))
	binary.BigEndian.PutUint16(head[4:], uint16(len(text)))
	binary.BigEndian.PutUint64(head[8:], r.id)
	binary.BigEndian.PutUint64(head[16:], r.term)
	binary.BigEndian.PutUint64(head[24:], r.lastLog)
	binary.BigEndian.PutUint32(head[32:], crc32.Checksum(head[:32], castagnoli))
	return append(append(b, head[:]...), text...)
}

// decode reads a head; text of the returned length follows it.
func (r *reply) decode(b []byte) (text int, err error) {
	if b[0] != 'R' {
		return 0, fmt.Errorf("%w: answer of kind %d", ErrCorrupt, b[0])
	}
	if got, want := binary.BigEndian.Uint32(b[32:]), crc32.Checksum(b[:32], castagnoli); got != want {
		return 0, fmt.Errorf("%w: answer checksum %08x, want %08x", ErrCorrupt, got, want)
	}
	*r = reply{
		success: b[1]&flagSuccess != 0, noBackoff: b[1]&flagNoBackoff != 0,
		code:    code(binary.BigEndian.Uint16(b[2:])),
		id:      binary.BigEndian.Uint64(b[8:]),
		term:    binary.BigEndian.Uint64(b[16:]),
		lastLog: binary.BigEndian.Uint64(b[24:]),
	}
	text = int(binary.BigEndian.Uint16(b[4:]))
	if text > maxReplyText {
		return 0, fmt.Errorf("%w: answer text of %d bytes", ErrCorrupt, text)
	}
	return text, nil
}
