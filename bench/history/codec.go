package history

import (
	"encoding/binary"
	"fmt"
	"time"
)

// The tag byte of a record: kind in bits 0-2; bit 3 set when producer and session follow (they equal the last record's otherwise);
// bits 4-6 hold the result of an outcome or the flags of a delivery; bit 7 marks an offset that is unknown.
const (
	tagKind    = 0x07
	tagLane    = 0x08
	tagShift   = 4
	tagDetail  = 0x07
	tagNoPlace = 0x80
)

// coder is the state that deltas refer to. It begins anew with each block, so that a block can be read alone.
type coder struct {
	producer, session uint16
	lane              bool // producer and session were set
	at                int64
	places            []place
}

// place is the last sequence and offset of one partition within the block.
type place struct{ sequence, offset int64 }

func (r *Record) isAnswer() bool { return r.Kind >= EndAnswer }

func newCoder(partitions int) *coder { return &coder{places: make([]place, partitions)} }

func (c *coder) reset() {
	c.lane, c.at = false, 0
	clear(c.places)
}

// append encodes r; the result is at most MaxRecordBytes longer.
func (c *coder) append(b []byte, r *Record) []byte {
	c.mustFit(r)
	tag := byte(r.Kind)
	lane := !r.isAnswer() && (!c.lane || c.producer != r.Producer || c.session != r.Session)
	if lane {
		tag |= tagLane
	}
	switch r.Kind {
	case Outcome:
		tag |= byte(r.Result) << tagShift
		if r.Offset < 0 || r.Result != OK {
			tag |= tagNoPlace
		}
	case Delivered:
		tag |= r.Flags << tagShift
	}
	b = append(b, tag)
	if lane {
		b = binary.AppendUvarint(b, uint64(r.Producer))
		b = binary.AppendUvarint(b, uint64(r.Session))
		c.producer, c.session, c.lane = r.Producer, r.Session, true
	}
	b = binary.AppendUvarint(b, uint64(r.Partition))
	p := &c.places[r.Partition]
	if !r.isAnswer() {
		b = binary.AppendVarint(b, int64(r.Sequence)-p.sequence)
		p.sequence = int64(r.Sequence)
	}
	if r.Kind == Outcome && r.Result != OK {
		b = append(b, r.Class)
	}
	if r.Kind != Sent && tag&tagNoPlace == 0 {
		b = binary.AppendVarint(b, r.Offset-p.offset)
		p.offset = r.Offset
	}
	if r.isAnswer() {
		b = binary.AppendUvarint(b, uint64(uint32(r.Epoch+1)))
		b = binary.AppendUvarint(b, uint64((r.At-r.Asked)/time.Microsecond))
	}
	at := int64(r.At / time.Microsecond)
	b = binary.AppendVarint(b, at-c.at)
	c.at = at
	return b
}

// mustFit panics where a caller breaks the limits: a shortened record would accuse a broker of what we did.
func (c *coder) mustFit(r *Record) {
	if int(r.Partition) >= len(c.places) || r.Producer > MaxProducer || r.Session > MaxSession || r.Sequence > MaxSequence ||
		r.Offset > MaxOffset || r.At > MaxTime || r.Asked > r.At || r.Flags > tagDetail || r.Result > Unknown {
		panic(fmt.Sprintf("history: record beyond the format's limits: %+v with %d partitions", *r, len(c.places)))
	}
}

// next decodes the record at the head of b and returns what follows it.
func (c *coder) next(b []byte, r *Record) ([]byte, error) {
	d := decoder{b: b}
	tag := d.byte()
	*r = Record{Kind: Kind(tag & tagKind), Offset: -1}
	if r.Kind < Sent || r.Kind > StartAnswer {
		return nil, fmt.Errorf("unknown record kind %d", r.Kind)
	}
	if tag&tagLane != 0 {
		c.producer, c.session = uint16(d.uvarint()), uint16(d.uvarint())
	}
	r.Partition = uint32(d.uvarint())
	if int(r.Partition) >= len(c.places) {
		return nil, fmt.Errorf("partition %d of %d", r.Partition, len(c.places))
	}
	p := &c.places[r.Partition]
	if !r.isAnswer() {
		r.Producer, r.Session = c.producer, c.session
		p.sequence += d.varint()
		r.Sequence = uint64(p.sequence)
	}
	switch r.Kind {
	case Outcome:
		if r.Result = Result(tag >> tagShift & tagDetail); r.Result != OK {
			r.Class = d.byte()
		}
	case Delivered:
		r.Flags = tag >> tagShift & tagDetail
	}
	if r.Kind != Sent && tag&tagNoPlace == 0 {
		p.offset += d.varint()
		r.Offset = p.offset
	}
	var took int64
	if r.isAnswer() {
		r.Epoch = int32(uint32(d.uvarint())) - 1
		took = int64(d.uvarint())
	}
	if p.sequence < 0 || p.sequence > MaxSequence || p.offset < 0 || p.offset > MaxOffset {
		return nil, fmt.Errorf("sequence %d at offset %d is beyond the format's limits", p.sequence, p.offset)
	}
	c.at += d.varint()
	r.At = time.Duration(c.at) * time.Microsecond
	if r.isAnswer() {
		r.Asked = r.At - time.Duration(took)*time.Microsecond
	}
	return d.b, d.err
}

// decoder reads bytes and varints and remembers that it ran out.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.err = errShortRecord
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uvarint() uint64 {
	if len(d.b) > 0 && d.b[0] < 0x80 {
		v := d.b[0]
		d.b = d.b[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.err = errShortRecord
		d.b = nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	u := d.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}
