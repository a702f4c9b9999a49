package record

import (
	"fmt"
	"strconv"
)

// ControlType is what a control batch says about its producer's open transaction.
type ControlType int16

const (
	Abort  ControlType = 0
	Commit ControlType = 1
)

// String returns Kafka's word.
func (t ControlType) String() string {
	switch t {
	case Abort:
		return "ABORT"
	case Commit:
		return "COMMIT"
	}
	return "control(" + strconv.Itoa(int(t)) + ")"
}

// BuildControl returns the marker that ends producer's transaction: one record with a four-byte key
// (clients loop on other sizes) and the coordinator's epoch as value. Base offset 0, leader epoch -1.
func BuildControl(t ControlType, producerID int64, producerEpoch int16, coordinatorEpoch int32, timestamp int64) Batch {
	key := make([]byte, 4)
	be.PutUint16(key[2:], uint16(t))
	value := make([]byte, 6)
	be.PutUint32(value[2:], uint32(coordinatorEpoch))
	payload := appendRecord(nil, Record{Key: key, Value: value})
	p := Producer{producerID, producerEpoch, NoSequence}
	return newBatch(attrTransactional|attrControl, payload, 1, timestamp, timestamp, p)
}

// ParseControl reads a marker. Bytes that are no marker are ErrInvalid or ErrCorrupt.
func ParseControl(b Batch) (t ControlType, coordinatorEpoch int32, err error) {
	if !b.IsControl() {
		return 0, 0, fmt.Errorf("%w: not a control batch", ErrInvalid)
	}
	rec, _, err := parseRecord(b.Payload())
	switch {
	case err != nil:
		return 0, 0, err
	case len(rec.Key) < 4 || len(rec.Value) < 6:
		return 0, 0, fmt.Errorf("%w: control record with key of %d and value of %d bytes", ErrInvalid, len(rec.Key), len(rec.Value))
	case be.Uint16(rec.Key) != 0:
		return 0, 0, fmt.Errorf("%w: control record version %d", ErrInvalid, be.Uint16(rec.Key))
	}
	return ControlType(be.Uint16(rec.Key[2:])), int32(be.Uint32(rec.Value[2:])), nil
}
