package kafkatx

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"gopherlog/txn/field"
)

// Records of __transaction_state are Kafka's, so its dump-log reads them. Values are written in version 1, and read in versions 0 and 1.
//
//	key:    version i16 = 0 | transactional id string
//	value:  version i16 = 1 | producer id i64 | epoch i16 | timeout in ms i32 | status i8
//	        | partitions: array, null when Empty, of { topic string | array of i32 | tags } | update i64 | start i64
//	        | tags: 0 previous producer id i64, 1 next producer id i64, 2 client's transaction version i16, 1000 last epoch i16
//	        |   1001 owed: commit i8 | start i64 | partitions: as above
//
// Version 0 has no tags and the older strings and arrays. Tags 1000 and 1001 are ours, and other readers skip them: Kafka forgets with a
// coordinator who may still repeat an InitProducerId, and lets that client end; and it begins no transaction before the markers of the one
// before are there.

const (
	keyVersion   = 0
	valueVersion = 1

	tagPrevious  = 0
	tagNext      = 1
	tagVersion   = 2
	tagLastEpoch = 1000
	tagOwed      = 1001
)

// ErrVersion is a record of a version that this code does not know.
var ErrVersion = errors.New("unsupported version of a transaction record")

// EncodeKey is the key of the transactional id's records.
func EncodeKey(transactionalID string) []byte {
	var w field.Writer
	w.Int16(keyVersion)
	w.Text(transactionalID)
	return w.Bytes
}

// DecodeKey reads a key. Another version is ErrVersion, damage is field.ErrMalformed.
func DecodeKey(b []byte) (transactionalID string, err error) {
	r := field.Reader{Bytes: b}
	if v := r.Int16(); r.Err() == nil && v != keyVersion {
		return "", fmt.Errorf("%w: key of version %d, want %d", ErrVersion, v, keyVersion)
	}
	transactionalID = r.Text()
	return transactionalID, r.End()
}

// EncodeValue is the value of a record; of a tombstone it is nil.
func (m *Meta) EncodeValue() []byte {
	if m == nil {
		return nil
	}
	w := field.Writer{}
	w.Int16(valueVersion)
	w.Flexible = true
	w.Int64(m.ProducerID)
	w.Int16(m.Epoch)
	w.Int32(int32(m.Timeout.Milliseconds()))
	w.Int8(int8(m.Status))
	if m.Status == Empty {
		w.Length(-1)
	} else {
		encodePartitions(&w, m.Partitions)
	}
	w.Int64(m.Update)
	w.Int64(m.Start)
	w.Tags(m.tags()...)
	return w.Bytes
}

func encodePartitions(w *field.Writer, sorted []Partition) {
	topics := 0
	for i, p := range sorted {
		if i == 0 || p.Topic != sorted[i-1].Topic {
			topics++
		}
	}
	w.Length(topics)
	for rest := sorted; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(p Partition) bool { return p.Topic != rest[0].Topic })
		if n < 0 {
			n = len(rest)
		}
		w.Text(rest[0].Topic)
		w.Length(n)
		for _, p := range rest[:n] {
			w.Int32(p.Number)
		}
		w.Tags()
		rest = rest[n:]
	}
}

func (m *Meta) tags() (tags []field.Tag) {
	if m.Previous != None {
		tags = append(tags, field.Int64Tag(tagPrevious, m.Previous))
	}
	if m.Next != None {
		tags = append(tags, field.Int64Tag(tagNext, m.Next))
	}
	if m.Version != Version0 {
		tags = append(tags, field.Int16Tag(tagVersion, int16(m.Version)))
	}
	if m.LastEpoch != None {
		tags = append(tags, field.Int16Tag(tagLastEpoch, m.LastEpoch))
	}
	if m.Owed != nil {
		tags = append(tags, field.Tag{Number: tagOwed, Value: m.Owed.encode()})
	}
	return tags
}

func (o *Owed) encode() []byte {
	w := field.Writer{Flexible: true}
	commit := int8(0)
	if o.Commit {
		commit = 1
	}
	w.Int8(commit)
	w.Int64(o.Start)
	encodePartitions(&w, o.Partitions)
	return w.Bytes
}

// DecodeValue reads a value; nil is a tombstone. Another version is ErrVersion, damage is field.ErrMalformed. It never allocates more than
// the bytes can describe.
func DecodeValue(b []byte) (*Meta, error) {
	if b == nil {
		return nil, nil
	}
	r := &field.Reader{Bytes: b}
	v := r.Int16()
	if r.Err() == nil && (v < 0 || v > valueVersion) {
		return nil, fmt.Errorf("%w: value of version %d, want at most %d", ErrVersion, v, valueVersion)
	}
	r.Flexible = v >= 1
	m := &Meta{Previous: None, Next: None, LastEpoch: None}
	m.ProducerID, m.Epoch = r.Int64(), r.Int16()
	m.Timeout = time.Duration(r.Int32()) * time.Millisecond
	m.Status = Status(r.Int8())
	m.Partitions = decodePartitions(r)
	m.Update, m.Start = r.Int64(), r.Int64()
	r.Tags(m.decodeTag)
	if err := r.End(); err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

func decodePartitions(r *field.Reader) (all []Partition) {
	for range r.Length(3) {
		topic := r.Text()
		for range r.Length(4) {
			all = append(all, Partition{topic, r.Int32()})
		}
		r.Tags(nil)
	}
	slices.SortFunc(all, Partition.Compare)
	return slices.Compact(all)
}

func (m *Meta) decodeTag(number uint32, r *field.Reader) bool {
	switch number {
	case tagPrevious:
		m.Previous = r.Int64()
	case tagNext:
		m.Next = r.Int64()
	case tagVersion:
		m.Version = Version(r.Int16())
	case tagLastEpoch:
		m.LastEpoch = r.Int16()
	case tagOwed:
		m.Owed = &Owed{Commit: r.Int8() != 0, Start: r.Int64(), Partitions: decodePartitions(r)}
	default:
		return false
	}
	return true
}

// check refuses what no coordinator writes: Dead and PrepareEpochFence, and numbers that cannot be.
func (m *Meta) check() error {
	switch {
	case !m.Status.resting() && !m.Status.Decided() && m.Status != Ongoing:
		return fmt.Errorf("%w: status %v", field.ErrMalformed, m.Status)
	case m.ProducerID < 0, m.Epoch < 0, m.Timeout < 0, m.Previous < None, m.Next < None, m.LastEpoch < None:
		return fmt.Errorf("%w: %v", field.ErrMalformed, m)
	case m.Owed != nil && (m.Status != Ongoing || len(m.Owed.Partitions) == 0):
		return fmt.Errorf("%w: %v is owed", field.ErrMalformed, m)
	case m.Status == Ongoing && m.Epoch == math.MaxInt16:
		return fmt.Errorf("%w: transaction in epoch %d, which is kept for fencing", field.ErrMalformed, m.Epoch)
	}
	return nil
}
