package record

import (
	"errors"
	"fmt"
)

// What can be wrong with a batch; each is wrapped with the particulars.
var (
	ErrShort     = errors.New("record: more bytes needed")            // not damage: the batch goes on after the buffer
	ErrCorrupt   = errors.New("record: corrupt batch")                // length or CRC do not fit the bytes
	ErrMagic     = errors.New("record: unsupported batch format")     // magic other than 2
	ErrCodec     = errors.New("record: unknown compression")          // codec above zstd
	ErrInvalid   = errors.New("record: invalid batch")                // whole, but breaks a rule of the format
	ErrTimestamp = errors.New("record: invalid timestamp in batch")   // a client claims log append time
	ErrTooLarge  = errors.New("record: decompressed batch too large") // beyond MaxDecompressed
)

// Header is a batch's header, decoded.
type Header struct {
	BaseOffset      int64
	Length          int // of the whole batch
	LeaderEpoch     int32
	Magic           int8
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	Count           int32
}

// LastOffset is the offset of the last record.
func (h Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// PeekHeader decodes a header from at least HeaderSize bytes. It checks magic and length only; the batch
// itself need not be there.
func PeekHeader(b []byte) (Header, error) {
	if _, err := wholeLength(b); err != nil {
		return Header{}, err
	}
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("%w: header has %d of %d bytes", ErrShort, len(b), HeaderSize)
	}
	x := Batch(b)
	return Header{
		BaseOffset: x.BaseOffset(), Length: x.Length(), LeaderEpoch: x.LeaderEpoch(), Magic: x.Magic(),
		CRC: x.CRC(), Attributes: x.Attributes(), LastOffsetDelta: x.LastOffsetDelta(),
		BaseTimestamp: x.BaseTimestamp(), MaxTimestamp: x.MaxTimestamp(), ProducerID: x.ProducerID(),
		ProducerEpoch: x.ProducerEpoch(), BaseSequence: x.BaseSequence(), Count: x.Count(),
	}, nil
}

// wholeLength returns the length of the batch that starts at b, which may reach beyond b.
func wholeLength(b []byte) (int, error) {
	if len(b) <= posMagic {
		return 0, fmt.Errorf("%w: %d bytes do not hold a batch header", ErrShort, len(b))
	}
	if magic := int8(b[posMagic]); magic != Magic2 {
		return 0, fmt.Errorf("%w: magic %d, want %d", ErrMagic, magic, Magic2)
	}
	length := int32(be.Uint32(b[posLength:]))
	if length < HeaderSize-lengthOverhead {
		return 0, fmt.Errorf("%w: length field %d, want at least %d", ErrCorrupt, length, HeaderSize-lengthOverhead)
	}
	return lengthOverhead + int(length), nil
}

// Parse returns the first whole batch of b and what follows it, both within b. It checks magic and length
// only. A batch that reaches beyond b is ErrShort.
func Parse(b []byte) (Batch, []byte, error) {
	n, err := wholeLength(b)
	if err != nil {
		return nil, b, err
	}
	if n > len(b) {
		return nil, b, fmt.Errorf("%w: batch has %d of %d bytes", ErrShort, len(b), n)
	}
	return Batch(b[:n:n]), b[n:], nil
}

// CheckCRC compares the stored CRC with the bytes.
func (b Batch) CheckCRC() error {
	if got, want := b.computeCRC(), b.CRC(); got != want {
		return fmt.Errorf("%w: CRC-32C of the bytes is %08x, header says %08x", ErrCorrupt, got, want)
	}
	return nil
}

// Validate checks that b is exactly one sound batch: magic, length, CRC, compression, counts and
// producer fields that fit together. It does not decompress. What only a stored batch may carry
// (control bit, any base offset) passes.
func (b Batch) Validate() error {
	n, err := wholeLength(b)
	switch {
	case err != nil:
		return err
	case n > len(b):
		return fmt.Errorf("%w: batch has %d of %d bytes", ErrShort, len(b), n)
	case n < len(b):
		return fmt.Errorf("%w: %d bytes follow the batch", ErrInvalid, len(b)-n)
	}
	if err := b.CheckCRC(); err != nil {
		return err
	}
	return b.validateFields()
}

func (b Batch) validateFields() error {
	switch count := b.Count(); {
	case b.Codec() > Zstd:
		return fmt.Errorf("%w: codec %d", ErrCodec, b.Codec())
	case count < 1:
		return fmt.Errorf("%w: %d records", ErrInvalid, count)
	case b.LastOffsetDelta() != count-1:
		return fmt.Errorf("%w: last offset delta %d with %d records", ErrInvalid, b.LastOffsetDelta(), count)
	case b.ProducerID() < NoProducerID:
		return fmt.Errorf("%w: producer id %d", ErrInvalid, b.ProducerID())
	case b.IsTransactional() && !b.HasProducerID():
		return fmt.Errorf("%w: transactional without a producer id", ErrInvalid)
	case b.HasProducerID() && b.ProducerEpoch() < 0:
		return fmt.Errorf("%w: producer id %d with epoch %d", ErrInvalid, b.ProducerID(), b.ProducerEpoch())
	}
	return nil
}

// ValidateProduce is Validate and what a client must keep to as well: base offset 0, no control bit,
// create time, a sequence exactly when there is a producer id, records that consumers can decode
// (CheckRecords).
func (b Batch) ValidateProduce() error {
	if err := b.Validate(); err != nil {
		return err
	}
	switch {
	case b.BaseOffset() != 0:
		return fmt.Errorf("%w: base offset %d from a client, want 0", ErrInvalid, b.BaseOffset())
	case b.IsControl():
		return fmt.Errorf("%w: control batch from a client", ErrInvalid)
	case b.IsLogAppendTime():
		return fmt.Errorf("%w: a client may not claim log append time", ErrTimestamp)
	case b.HasProducerID() && b.BaseSequence() < 0:
		return fmt.Errorf("%w: producer id %d without a sequence", ErrInvalid, b.ProducerID())
	}
	return b.CheckRecords()
}

// ParseProduce returns the one batch that the records of a produce request for one partition must be,
// without its CRC checked: call ValidateProduce. More or fewer than one batch is ErrInvalid.
func ParseProduce(b []byte) (Batch, error) {
	batch, rest, err := Parse(b)
	switch {
	case errors.Is(err, ErrShort):
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	case err != nil:
		return nil, err
	case len(rest) > 0:
		return nil, fmt.Errorf("%w: %d bytes follow the one batch that a partition may get per request", ErrInvalid, len(rest))
	}
	return batch, nil
}
