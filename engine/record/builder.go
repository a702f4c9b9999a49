package record

import (
	"encoding/binary"
	"math"
)

// Builder assembles a batch record by record, for tests and for the broker's own topics. The zero value
// builds an uncompressed batch without a producer at base timestamp 0.
type Builder struct {
	Codec         Codec
	BaseTimestamp int64
	Producer      *Producer // nil: none
	Transactional bool

	plain    []byte
	count    int32
	maxDelta int64
}

// Producer is the identity that a batch of an idempotent producer carries.
type Producer struct {
	ID       int64
	Epoch    int16
	Sequence int32
}

// Append adds a record. The bytes are copied; OffsetDelta is set by the Builder.
func (b *Builder) Append(rec Record) {
	if b.count == 0 || rec.TimestampDelta > b.maxDelta {
		b.maxDelta = rec.TimestampDelta
	}
	rec.OffsetDelta = b.count
	b.plain = appendRecord(b.plain, rec)
	b.count++
}

// Count returns the records so far; Size the bytes that an uncompressed batch of them takes.
func (b *Builder) Count() int { return int(b.count) }

// Size returns the bytes that an uncompressed batch of the records so far takes.
func (b *Builder) Size() int { return HeaderSize + len(b.plain) }

// Finish returns the batch with base offset 0 and leader epoch -1, and empties the Builder. At least one
// record must have been appended.
func (b *Builder) Finish() Batch {
	if b.count == 0 {
		panic("record: Finish of a batch without records")
	}
	payload, err := Compress(b.Codec, b.plain)
	if err != nil {
		panic("record: compress into memory: " + err.Error())
	}
	p := Producer{NoProducerID, NoProducerEpoch, NoSequence}
	if b.Producer != nil {
		p = *b.Producer
	}
	attributes := int16(b.Codec)
	if b.Transactional {
		attributes |= attrTransactional
	}
	out := newBatch(attributes, payload, b.count, b.BaseTimestamp, b.BaseTimestamp+b.maxDelta, p)
	b.plain, b.count, b.maxDelta = b.plain[:0], 0, 0
	return out
}

func newBatch(attributes int16, payload []byte, count int32, baseTime, maxTime int64, p Producer) Batch {
	if len(payload) > math.MaxInt32-HeaderSize {
		panic("record: batch longer than its length field can say")
	}
	out := make(Batch, HeaderSize, HeaderSize+len(payload))
	be.PutUint32(out[posLength:], uint32(HeaderSize-lengthOverhead+len(payload)))
	out.SetLeaderEpoch(-1)
	out[posMagic] = Magic2
	be.PutUint16(out[posAttributes:], uint16(attributes))
	be.PutUint32(out[posLastOffsetDelta:], uint32(count-1))
	be.PutUint64(out[posBaseTimestamp:], uint64(baseTime))
	be.PutUint64(out[posMaxTimestamp:], uint64(maxTime))
	be.PutUint64(out[posProducerID:], uint64(p.ID))
	be.PutUint16(out[posProducerEpoch:], uint16(p.Epoch))
	be.PutUint32(out[posBaseSequence:], uint32(p.Sequence))
	be.PutUint32(out[posCount:], uint32(count))
	out = append(out, payload...)
	out.setCRC()
	return out
}

func appendRecord(dst []byte, rec Record) []byte {
	var body []byte
	body = append(body, 0) // attributes
	body = binary.AppendVarint(body, rec.TimestampDelta)
	body = binary.AppendVarint(body, int64(rec.OffsetDelta))
	body = appendNullable(body, rec.Key)
	body = appendNullable(body, rec.Value)
	body = binary.AppendVarint(body, int64(len(rec.Headers)))
	for _, h := range rec.Headers {
		body = binary.AppendVarint(body, int64(len(h.Key)))
		body = append(body, h.Key...)
		body = appendNullable(body, h.Value)
	}
	dst = binary.AppendVarint(dst, int64(len(body)))
	return append(dst, body...)
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}
