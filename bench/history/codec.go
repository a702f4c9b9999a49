package history

import (
	"encoding/binary"
	"fmt"
	"time"
)

// The tag byte of a record: wire kind in bits 0-3; bit 4 set when producer and session follow (they equal the last record's otherwise);
// bits 5-7 hold the detail: the flags of a delivery, the step of a transaction, the result of an outcome or of a commit (bits 5-6, bit 7
// marks an offset that is unknown), or of a Sent that its transaction's number follows.
const (
	tagKind    = 0x0f
	tagLane    = 0x10
	tagShift   = 5
	tagResult  = 0x03
	tagNoPlace = 0x80
	maxDetail  = 0x07
	txnFollows = 1 // detail of a Sent
)

// Wire kinds beyond those of Kind.
const (
	wireDeliveredTxn = 10 // a Delivered whose transaction's number follows
	wireCommitAsked  = 11 // a Group of step CommitAsked
)

// laneBits is where the producer stands beside the session in the number of a lane.
const laneBits = 11

// coder is the state that deltas refer to. It begins anew with each block, so that a block can be read alone.
type coder struct {
	producer, session uint16
	lane              bool // producer and session were set
	at                int64
	places            []place
	txns              []uint32 // by producer: the last transaction's number
}

// place is the last sequence and offset of one partition within the block, and the last offset in it that an Origin named.
type place struct{ sequence, offset, origin int64 }

func (r *Record) isAnswer() bool { return r.Kind >= EndAnswer && r.Kind <= StableAnswer }

// inLane says whether a record is of a producer or a member.
func (r *Record) inLane() bool { return !r.isAnswer() && r.Kind != Origin }

// has says which fields a step of a member carries.
func (s Step) has() (offset, epoch bool) {
	switch s {
	case Assigned, Revoked, Lost:
		return false, true
	case CommitAsked:
		return true, true
	case Position, Processed, CommitAnswered:
		return true, false
	}
	return false, false
}

func newCoder(partitions int) *coder { return &coder{places: make([]place, partitions)} }

func (c *coder) reset() {
	c.lane, c.at = false, 0
	clear(c.places)
	clear(c.txns)
}

// txn is the last transaction's number of the lane's producer.
func (c *coder) txn() *uint32 {
	for len(c.txns) <= int(c.producer) {
		c.txns = append(c.txns, 0)
	}
	return &c.txns[c.producer]
}

// append encodes r; the result is at most MaxRecordBytes longer.
func (c *coder) append(b []byte, r *Record) []byte {
	c.mustFit(r)
	tagAt := len(b)
	b = append(b, byte(r.Kind))
	if r.inLane() && (!c.lane || c.producer != r.Producer || c.session != r.Session) {
		b[tagAt] |= tagLane
		b = binary.AppendUvarint(b, uint64(r.Producer)<<laneBits|uint64(r.Session))
		c.producer, c.session, c.lane = r.Producer, r.Session, true
	}
	switch r.Kind {
	case Transaction:
		b = c.appendTransaction(b, r, tagAt)
	case Group:
		b = c.appendGroup(b, r, tagAt)
	case Origin:
		p := &c.places[r.Partition]
		b = binary.AppendUvarint(b, uint64(r.Partition))
		b = binary.AppendVarint(b, r.Offset-p.origin)
		p.origin = r.Offset
		return b
	default:
		b = c.appendMessage(b, r, tagAt)
	}
	at := int64(r.At / time.Microsecond)
	b = binary.AppendVarint(b, at-c.at)
	c.at = at
	return b
}

func (c *coder) appendMessage(b []byte, r *Record, tagAt int) []byte {
	b = binary.AppendUvarint(b, uint64(r.Partition))
	p := &c.places[r.Partition]
	if !r.isAnswer() {
		b = binary.AppendVarint(b, int64(r.Sequence)-p.sequence)
		p.sequence = int64(r.Sequence)
	}
	placed := r.Kind != Sent
	switch r.Kind {
	case Sent:
		if *c.txn() != r.Txn {
			b[tagAt] |= txnFollows << tagShift
			b = c.appendTxn(b, r.Txn)
		}
	case Outcome:
		b[tagAt] |= byte(r.Result) << tagShift
		if placed = r.Offset >= 0 && r.Result == OK; !placed {
			b[tagAt] |= tagNoPlace
		}
		if r.Result != OK {
			b = append(b, r.Class)
		}
	case Delivered:
		b[tagAt] |= r.Flags << tagShift
		if *c.txn() != r.Txn {
			b[tagAt] = b[tagAt]&^tagKind | wireDeliveredTxn
			b = c.appendTxn(b, r.Txn)
		}
	}
	if placed {
		b = binary.AppendVarint(b, r.Offset-p.offset)
		p.offset = r.Offset
	}
	if r.isAnswer() {
		b = binary.AppendUvarint(b, uint64(uint32(r.Epoch+1)))
		b = binary.AppendUvarint(b, uint64((r.At-r.Asked)/time.Microsecond))
	}
	return b
}

func (c *coder) appendTxn(b []byte, txn uint32) []byte {
	last := c.txn()
	b = binary.AppendVarint(b, int64(txn)-int64(*last))
	*last = txn
	return b
}

func (c *coder) appendTransaction(b []byte, r *Record, tagAt int) []byte {
	b[tagAt] |= byte(r.Step) << tagShift
	switch r.Step {
	case Inited:
		return binary.AppendUvarint(b, uint64(uint32(r.Epoch+1)))
	case Aborted, InDoubt:
		b = append(b, r.Class)
	}
	return c.appendTxn(b, r.Txn)
}

func (c *coder) appendGroup(b []byte, r *Record, tagAt int) []byte {
	if r.Step == CommitAsked {
		b[tagAt] = b[tagAt]&^tagKind | wireCommitAsked
	} else {
		b = append(b, byte(r.Step))
	}
	b = binary.AppendUvarint(b, uint64(r.Partition))
	offset, epoch := r.Step.has()
	if offset {
		b = binary.AppendUvarint(b, uint64(r.Offset+1))
	}
	if epoch {
		b = binary.AppendUvarint(b, uint64(uint32(r.Epoch+1)))
	}
	switch r.Step {
	case PollEnd:
		b = binary.AppendUvarint(b, uint64((r.At-r.Asked)/time.Microsecond))
	case CommitAsked:
		b = binary.AppendUvarint(b, uint64(r.Txn))
	case CommitAnswered:
		b[tagAt] |= byte(r.Result) << tagShift
		if r.Result != OK {
			b = append(b, r.Class)
		}
		b = binary.AppendUvarint(b, uint64((r.At-r.Asked)/time.Microsecond))
	}
	return b
}

// mustFit panics where a caller breaks the limits: a shortened record would accuse a broker of what we did.
func (c *coder) mustFit(r *Record) {
	if int(r.Partition) >= len(c.places) || r.Producer > MaxProducer || r.Session > MaxSession || r.Sequence > MaxSequence || r.Txn > MaxTxn ||
		r.Offset > MaxOffset || r.At > MaxTime || r.Asked > r.At || r.Flags > maxDetail || r.Result > Unknown ||
		r.Kind == Transaction && (r.Step < Inited || r.Step > InDoubt) || r.Kind == Group && (r.Step < Assigned || r.Step > Thawed || r.Offset < -1) {
		panic(fmt.Sprintf("history: record beyond the format's limits: %+v with %d partitions", *r, len(c.places)))
	}
}

// next decodes the record at the head of b and returns what follows it.
func (c *coder) next(b []byte, r *Record) ([]byte, error) {
	d := decoder{b: b}
	tag := d.byte()
	kind := tag & tagKind
	*r = Record{Kind: Kind(kind), Offset: -1}
	switch {
	case kind == wireDeliveredTxn:
		r.Kind = Delivered
	case kind == wireCommitAsked:
		r.Kind, r.Step = Group, CommitAsked
	case r.Kind < Sent || r.Kind > Group:
		return nil, fmt.Errorf("unknown record kind %d", kind)
	}
	if tag&tagLane != 0 {
		lane := d.uvarint()
		if lane >= 1<<laneBits*(MaxProducer+1) {
			return nil, fmt.Errorf("lane %d is beyond the format's limits", lane)
		}
		c.producer, c.session = uint16(lane>>laneBits), uint16(lane&MaxSession)
	}
	if r.inLane() {
		r.Producer, r.Session = c.producer, c.session
	}
	var err error
	var took int64 // µs from Asked to At
	switch r.Kind {
	case Transaction:
		err = c.nextTransaction(&d, r, tag)
	case Group:
		took, err = c.nextGroup(&d, r, tag)
	case Origin:
		return d.b, c.nextOrigin(&d, r)
	default:
		return c.nextMessage(&d, r, tag)
	}
	if err != nil {
		return nil, err
	}
	c.nextTime(&d, r)
	if r.Step == PollEnd || r.Step == CommitAnswered {
		r.Asked = r.At - time.Duration(took)*time.Microsecond
	}
	return d.b, d.err
}

func (c *coder) nextTime(d *decoder, r *Record) {
	c.at += d.varint()
	r.At = time.Duration(c.at) * time.Microsecond
}

func (c *coder) nextOrigin(d *decoder, r *Record) error {
	p, err := c.place(d, r)
	if err != nil {
		return err
	}
	p.origin += d.varint()
	if r.Offset = p.origin; r.Offset < 0 || r.Offset > MaxOffset {
		return fmt.Errorf("offset %d is beyond the format's limits", r.Offset)
	}
	return d.err
}

func (c *coder) place(d *decoder, r *Record) (*place, error) {
	r.Partition = uint32(d.uvarint())
	if int(r.Partition) >= len(c.places) {
		return nil, fmt.Errorf("partition %d of %d", r.Partition, len(c.places))
	}
	return &c.places[r.Partition], nil
}

func (c *coder) nextMessage(d *decoder, r *Record, tag byte) ([]byte, error) {
	p, err := c.place(d, r)
	if err != nil {
		return nil, err
	}
	if !r.isAnswer() {
		p.sequence += d.varint()
		r.Sequence = uint64(p.sequence)
	}
	placed := r.Kind != Sent
	switch r.Kind {
	case Sent:
		err = c.nextTxn(d, r, tag>>tagShift&txnFollows != 0)
	case Outcome:
		placed = tag&tagNoPlace == 0
		if r.Result = Result(tag >> tagShift & tagResult); r.Result != OK {
			r.Class = d.byte()
		}
	case Delivered:
		r.Flags = tag >> tagShift
		err = c.nextTxn(d, r, tag&tagKind == wireDeliveredTxn)
	}
	if err != nil {
		return nil, err
	}
	if placed {
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
	c.nextTime(d, r)
	if r.isAnswer() {
		r.Asked = r.At - time.Duration(took)*time.Microsecond
	}
	return d.b, d.err
}

// nextTxn is the transaction of a record: the last one of its producer, unless another follows.
func (c *coder) nextTxn(d *decoder, r *Record, follows bool) error {
	last := c.txn()
	if follows {
		n := int64(*last) + d.varint()
		if n < 0 || n > MaxTxn {
			return fmt.Errorf("transaction %d is beyond the format's limits", n)
		}
		*last = uint32(n)
	}
	r.Txn = *last
	return nil
}

func (c *coder) nextTransaction(d *decoder, r *Record, tag byte) error {
	r.Step = Step(tag >> tagShift)
	switch r.Step {
	case 0:
		return fmt.Errorf("unknown step %d of a transaction", r.Step)
	case Inited:
		r.Epoch = int32(uint32(d.uvarint())) - 1
		return nil
	case Aborted, InDoubt:
		r.Class = d.byte()
	}
	return c.nextTxn(d, r, true)
}

func (c *coder) nextGroup(d *decoder, r *Record, tag byte) (took int64, err error) {
	if r.Step != CommitAsked {
		if r.Step = Step(d.byte()); r.Step < Assigned || r.Step > Thawed {
			return 0, fmt.Errorf("unknown step %d of a group", r.Step)
		}
	}
	if _, err := c.place(d, r); err != nil {
		return 0, err
	}
	offset, epoch := r.Step.has()
	if offset {
		o := d.uvarint()
		if o > MaxOffset+1 {
			return 0, fmt.Errorf("offset %d is beyond the format's limits", o)
		}
		r.Offset = int64(o) - 1
	}
	if epoch {
		r.Epoch = int32(uint32(d.uvarint())) - 1
	}
	switch r.Step {
	case PollEnd:
		took = int64(d.uvarint())
	case CommitAsked:
		n := d.uvarint()
		if n > MaxTxn {
			return 0, fmt.Errorf("transaction %d is beyond the format's limits", n)
		}
		r.Txn = uint32(n)
	case CommitAnswered:
		if r.Result = Result(tag >> tagShift & tagResult); r.Result != OK {
			r.Class = d.byte()
		}
		took = int64(d.uvarint())
	}
	return took, nil
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
