// Package record reads, checks and patches Kafka record batches of format 2 in place, and builds the
// control batches that end transactions.
//
// It knows the bytes of one batch; it knows nothing of files, partitions or who sent it.
package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// HeaderSize is the length of a batch before its records.
const HeaderSize = 61

// Magic2 is the only batch format that GopherLog stores.
const Magic2 = 2

// NoProducerID, NoProducerEpoch and NoSequence stand in a batch that has none; NoTimestamp likewise.
const (
	NoProducerID    int64 = -1
	NoProducerEpoch int16 = -1
	NoSequence      int32 = -1
	NoTimestamp     int64 = -1
)

// Field positions within a batch.
const (
	posBaseOffset      = 0
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21 // the CRC covers from here to the end
	posLastOffsetDelta = 23
	posBaseTimestamp   = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posBaseSequence    = 53
	posCount           = 57

	lengthOverhead = 12 // bytes before and in the length field, which it does not count
)

// Attribute bits.
const (
	codecMask            int16 = 0x07
	attrLogAppendTime    int16 = 0x08
	attrTransactional    int16 = 0x10
	attrControl          int16 = 0x20
	attrHasDeleteHorizon int16 = 0x40
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is exactly one whole batch, as Parse returns it. The accessors read the bytes in place and
// need the header to be there; they check nothing.
type Batch []byte

var be = binary.BigEndian

// BaseOffset is the offset of the first record.
func (b Batch) BaseOffset() int64 { return int64(be.Uint64(b[posBaseOffset:])) }

// LastOffset is the offset of the last record.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// NextOffset is the offset after the last record.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// Length is the whole batch's length in bytes as its header states it.
func (b Batch) Length() int { return lengthOverhead + int(int32(be.Uint32(b[posLength:]))) }

// LeaderEpoch is the partition leader epoch: the Raft term of a stored batch.
func (b Batch) LeaderEpoch() int32 { return int32(be.Uint32(b[posLeaderEpoch:])) }

// Magic is the format version.
func (b Batch) Magic() int8 { return int8(b[posMagic]) }

// CRC is the stored CRC-32C.
func (b Batch) CRC() uint32 { return be.Uint32(b[posCRC:]) }

// Attributes are the flag bits.
func (b Batch) Attributes() int16 { return int16(be.Uint16(b[posAttributes:])) }

// Codec is the compression of the records.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & codecMask) }

// LastOffsetDelta is the last record's offset minus the first's.
func (b Batch) LastOffsetDelta() int32 { return int32(be.Uint32(b[posLastOffsetDelta:])) }

// BaseTimestamp is the first record's timestamp in milliseconds.
func (b Batch) BaseTimestamp() int64 { return int64(be.Uint64(b[posBaseTimestamp:])) }

// MaxTimestamp is the largest timestamp in milliseconds.
func (b Batch) MaxTimestamp() int64 { return int64(be.Uint64(b[posMaxTimestamp:])) }

// ProducerID is the producer's id, or NoProducerID.
func (b Batch) ProducerID() int64 { return int64(be.Uint64(b[posProducerID:])) }

// ProducerEpoch is the producer's epoch.
func (b Batch) ProducerEpoch() int16 { return int16(be.Uint16(b[posProducerEpoch:])) }

// BaseSequence is the first record's sequence number, or NoSequence.
func (b Batch) BaseSequence() int32 { return int32(be.Uint32(b[posBaseSequence:])) }

// LastSequence is the last record's sequence number; after 2^31-1 follows 0.
func (b Batch) LastSequence() int32 {
	if b.BaseSequence() < 0 {
		return NoSequence
	}
	return AddSequence(b.BaseSequence(), b.LastOffsetDelta())
}

// AddSequence returns the sequence number n records after seq; after 2^31-1 follows 0.
func AddSequence(seq, n int32) int32 { return int32((int64(seq) + int64(n)) & 0x7fffffff) }

// Count is the number of records.
func (b Batch) Count() int32 { return int32(be.Uint32(b[posCount:])) }

// IsControl reports a control batch: a transaction marker, hidden from consumers.
func (b Batch) IsControl() bool { return b.Attributes()&attrControl != 0 }

// IsTransactional reports a batch that belongs to a transaction.
func (b Batch) IsTransactional() bool { return b.Attributes()&attrTransactional != 0 }

// IsLogAppendTime reports that the broker set the timestamps.
func (b Batch) IsLogAppendTime() bool { return b.Attributes()&attrLogAppendTime != 0 }

// HasProducerID reports a batch of an idempotent or transactional producer.
func (b Batch) HasProducerID() bool { return b.ProducerID() >= 0 }

// Payload is the records, compressed as they are stored.
func (b Batch) Payload() []byte { return b[HeaderSize:] }

// SetBaseOffset patches the offset, which lies outside the CRC.
func (b Batch) SetBaseOffset(offset int64) { be.PutUint64(b[posBaseOffset:], uint64(offset)) }

// SetLeaderEpoch patches the epoch, which lies outside the CRC.
func (b Batch) SetLeaderEpoch(epoch int32) { be.PutUint32(b[posLeaderEpoch:], uint32(epoch)) }

// computeCRC returns the CRC-32C of what the stored one covers.
func (b Batch) computeCRC() uint32 { return crc32.Checksum(b[posAttributes:], castagnoli) }

// setCRC stores the CRC that the bytes need.
func (b Batch) setCRC() { be.PutUint32(b[posCRC:], b.computeCRC()) }

// String summarises the header for logs and panics.
func (b Batch) String() string {
	if len(b) < HeaderSize {
		return fmt.Sprintf("batch of %d bytes", len(b))
	}
	return fmt.Sprintf("batch [%d, %d) epoch %d, %d bytes, producer %d/%d seq %d",
		b.BaseOffset(), b.NextOffset(), b.LeaderEpoch(), len(b), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence())
}
