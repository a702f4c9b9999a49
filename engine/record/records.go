package record

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// Record is one record of a batch. A nil Key or Value is Kafka's null.
type Record struct {
	OffsetDelta    int32
	TimestampDelta int64
	Key            []byte
	Value          []byte
	Headers        []RecordHeader
}

// RecordHeader is one header of a record.
type RecordHeader struct {
	Key   string
	Value []byte
}

// Records yields the batch's records, decompressed first if need be; keys and values lie within the
// batch, or within the decompressed copy. It ends with the first error: ErrCorrupt, ErrCodec or
// ErrTooLarge.
func Records(b Batch) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if b.Count() < 0 {
			yield(Record{}, fmt.Errorf("%w: a batch of %d records", ErrCorrupt, b.Count()))
			return
		}
		plain, err := Decompress(b.Codec(), b.Payload())
		if err != nil {
			yield(Record{}, err)
			return
		}
		for i := range b.Count() {
			var rec Record
			rec, plain, err = parseRecord(plain)
			if err != nil {
				yield(Record{}, fmt.Errorf("record %d of %d: %w", i, b.Count(), err))
				return
			}
			if !yield(rec, nil) {
				return
			}
		}
		if len(plain) > 0 {
			yield(Record{}, fmt.Errorf("%w: %d bytes follow the last of %d records", ErrCorrupt, len(plain), b.Count()))
		}
	}
}

// DecodeMessage decodes the first record of plain, uncompressed records and returns the rest.
func DecodeMessage(plain []byte) (Record, []byte, error) { return parseRecord(plain) }

func parseRecord(b []byte) (Record, []byte, error) {
	r := reader{b: b}
	size := int64(r.varint32())
	if r.bad || size < 0 || size > int64(len(r.b)) {
		return Record{}, b, fmt.Errorf("%w: record length %d with %d bytes left", ErrCorrupt, size, len(r.b))
	}
	rest := r.b[size:]
	r.b = r.b[:size]
	r.bytes(1) // attributes: unused
	rec := Record{TimestampDelta: r.varint(), OffsetDelta: r.varint32()}
	rec.Key = r.nullable()
	rec.Value = r.nullable()
	rec.Headers = r.headers()
	if r.bad || len(r.b) > 0 {
		return Record{}, b, fmt.Errorf("%w: record of %d bytes does not hold its fields", ErrCorrupt, size)
	}
	return rec, rest, nil
}

// reader takes fields off the front of b; after the first that does not fit, bad is set and all are zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) varint() int64 {
	if r.bad {
		return 0
	}
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint32() int32 {
	if r.bad {
		return 0
	}
	v, next := varint32(r.b, 0)
	if next > len(r.b) {
		r.bad = true
		return 0
	}
	r.b = r.b[next:]
	return v
}

func (r *reader) bytes(n int64) []byte {
	if r.bad || n < 0 || n > int64(len(r.b)) {
		r.bad = true
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) nullable() []byte {
	n := int64(r.varint32())
	if n == -1 {
		return nil
	}
	return r.bytes(n)
}

// headers reads the header list; each header takes at least two bytes, so that a count beyond that is
// refused before memory is given to it.
func (r *reader) headers() []RecordHeader {
	n := int64(r.varint32())
	if r.bad || n < 0 || n > int64(len(r.b))/2 {
		r.bad = true
		return nil
	}
	if n == 0 {
		return nil
	}
	out := make([]RecordHeader, 0, n)
	for range n {
		key := r.bytes(int64(r.varint32()))
		out = append(out, RecordHeader{Key: string(key), Value: r.nullable()})
	}
	return out
}
