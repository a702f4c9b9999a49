package group

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"gopherlog/txn/field"
)

// Records of __consumer_offsets are Kafka's, so its dump-log reads them. A key's version tells what the record is about:
//
//	0, 1  key: version i16 | group string | topic string | partition i32
//	      value 3: version i16 | offset i64 | leader epoch i32 | metadata string | committed at i64
//	2     key: version i16 | group string
//	      value 3: version i16 | protocol type string | generation i32 | protocol, leader: nullable strings | since i64
//	               | members: array of { id string | instance nullable string | client id, client host: strings
//	                 | rebalance timeout, session timeout in ms: i32 | subscription, assignment: byte strings }
//
// Values are written in version 3, as Kafka does, or in 4 where a tagged field says more, and read in versions 0 to 4. A value that is absent is a tombstone.

const (
	offsetKeyVersion = 1
	groupKeyVersion  = 2
	writeVersion     = 3
	flexibleVersion  = 4
)

// ErrVersion is a record of a version that this code does not know.
var ErrVersion = errors.New("unsupported version of a group record")

// Key says what a record is about: an offset, or the group itself when Topic is empty.
type Key struct {
	Group     string
	Topic     string
	Partition int32
}

// Encode is the key as it is written.
func (k Key) Encode() []byte {
	var w field.Writer
	if k.Topic == "" {
		w.Int16(groupKeyVersion)
		w.Text(k.Group)
		return w.Bytes
	}
	w.Int16(offsetKeyVersion)
	w.Text(k.Group)
	w.Text(k.Topic)
	w.Int32(k.Partition)
	return w.Bytes
}

// DecodeKey reads a key. Another version is ErrVersion, and such records are to be skipped: Kafka keeps other things in the same topic.
// Damage is field.ErrMalformed.
func DecodeKey(b []byte) (k Key, err error) {
	r := field.Reader{Bytes: b}
	switch v := r.Int16(); {
	case r.Err() != nil:
	case v == groupKeyVersion:
		k.Group = r.Text()
	case v == 0 || v == offsetKeyVersion:
		k.Group, k.Topic, k.Partition = r.Text(), r.Text(), r.Int32()
		if r.Err() == nil && k.Topic == "" {
			return Key{}, fmt.Errorf("%w: offset of a topic without a name", field.ErrMalformed)
		}
	default:
		return Key{}, fmt.Errorf("%w: key of version %d, want at most %d", ErrVersion, v, groupKeyVersion)
	}
	if err := r.End(); err != nil {
		return Key{}, err
	}
	return k, nil
}

// Offset is a committed offset.
type Offset struct {
	Offset      int64
	LeaderEpoch int32 // -1: unknown
	Metadata    string
	Committed   int64 // in milliseconds
	Expires     int64 // in milliseconds, in records of old brokers; -1: by the rule
	// TopicID tells topics apart that had one name after the other; zero: unknown, as in records of older brokers.
	TopicID [16]byte
}

// Encode is the value as it is written.
func (o Offset) Encode() []byte {
	var w field.Writer
	version := int16(writeVersion)
	if o.TopicID != [16]byte{} {
		version, w.Flexible = flexibleVersion, true
	}
	w.Int16(version)
	w.Int64(o.Offset)
	w.Int32(o.LeaderEpoch)
	w.Text(o.Metadata)
	w.Int64(o.Committed)
	if w.Flexible {
		w.Tags(field.Tag{Number: topicIDTag, Value: bytes.Clone(o.TopicID[:])})
	}
	return w.Bytes
}

const topicIDTag = 0

// DecodeOffset reads the value of an offset; it must not be a tombstone.
func DecodeOffset(b []byte) (Offset, error) {
	r, v, err := value(b)
	if err != nil {
		return Offset{}, err
	}
	o := Offset{Offset: r.Int64(), LeaderEpoch: -1, Expires: -1}
	if v >= 3 {
		o.LeaderEpoch = r.Int32()
	}
	o.Metadata, o.Committed = r.Text(), r.Int64()
	if v == 1 {
		o.Expires = r.Int64()
	}
	r.Tags(func(number uint32, value *field.Reader) bool {
		if number != topicIDTag {
			return false
		}
		binary.BigEndian.PutUint64(o.TopicID[:8], uint64(value.Int64()))
		binary.BigEndian.PutUint64(o.TopicID[8:], uint64(value.Int64()))
		return true
	})
	return o, r.End()
}

// value begins to read a value.
func value(b []byte) (*field.Reader, int16, error) {
	r := &field.Reader{Bytes: b}
	v := r.Int16()
	if r.Err() == nil && (v < 0 || v > flexibleVersion) {
		return nil, 0, fmt.Errorf("%w: value of version %d, want at most %d", ErrVersion, v, flexibleVersion)
	}
	r.Flexible = v >= flexibleVersion
	return r, v, r.Err()
}

// Record is what the log keeps of a group: its last generation. It is never changed after it was made. A nil *Record is the tombstone.
type Record struct {
	ProtocolType string
	Generation   int32
	Protocol     string // empty: none
	Leader       string // empty: none
	Since        int64  // -1: not known
	Members      []RecordMember
	// Unassigned: the generation has begun, and its assignment is missing.
	Unassigned bool
}

// RecordMember is a member in a Record.
type RecordMember struct {
	ID, Instance         string
	ClientID, ClientHost string
	Rebalance, Session   time.Duration
	Subscription         []byte
	Assignment           []byte
}

func (r *Record) String() string {
	if r == nil {
		return "tombstone"
	}
	s := fmt.Sprintf("generation %d %s/%s", r.Generation, r.ProtocolType, r.Protocol)
	if r.Unassigned {
		s += " begins:"
	}
	for _, m := range r.Members {
		s += fmt.Sprintf(" %s:%x", m.ID, m.Assignment)
	}
	return s
}

// record is the state as the log keeps it, with these assignments or, if nil, with those that the members have.
func (s *step) record(assignments map[string][]byte) *Record {
	r := &Record{ProtocolType: s.ProtocolType, Generation: s.Generation, Protocol: s.Protocol, Leader: s.Leader, Since: s.now.UnixMilli()}
	for _, m := range s.Members {
		assignment := m.Assignment
		if assignments != nil {
			assignment = assignments[m.ID]
		}
		r.Members = append(r.Members, RecordMember{m.ID, m.Instance, m.ClientID, m.ClientHost, m.Rebalance, m.Session, m.metadata(s.Protocol), assignment})
	}
	return r
}

func (m RecordMember) member(protocol string) *Member {
	return &Member{ID: m.ID, Instance: m.Instance, ClientID: m.ClientID, ClientHost: m.ClientHost, Session: m.Session, Rebalance: m.Rebalance,
		Protocols: []Protocol{{protocol, m.Subscription}}, Assignment: m.Assignment, Synced: true}
}

// Encode is the value as it is written; of a tombstone it is nil.
func (r *Record) Encode() []byte {
	if r == nil {
		return nil
	}
	var w field.Writer
	version := int16(writeVersion)
	if r.Unassigned {
		version, w.Flexible = flexibleVersion, true
	}
	w.Int16(version)
	w.Text(r.ProtocolType)
	w.Int32(r.Generation)
	w.String(nullable(r.Protocol))
	w.String(nullable(r.Leader))
	w.Int64(r.Since)
	w.Length(len(r.Members))
	for _, m := range r.Members {
		w.Text(m.ID)
		w.String(nullable(m.Instance))
		w.Text(m.ClientID)
		w.Text(m.ClientHost)
		w.Int32(int32(m.Rebalance.Milliseconds()))
		w.Int32(int32(m.Session.Milliseconds()))
		w.Blob(m.Subscription)
		w.Blob(m.Assignment)
		w.Tags()
	}
	if r.Unassigned {
		w.Tags(field.Tag{Number: unassignedTag})
	}
	return w.Bytes
}

// unassignedTag marks the record of a generation whose assignment is missing; it has no value.
const unassignedTag = 1000

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// DecodeRecord reads the value of a group; nil is a tombstone. It never allocates more than the bytes can describe, and refers to them.
func DecodeRecord(b []byte) (*Record, error) {
	if b == nil {
		return nil, nil
	}
	r, v, err := value(b)
	if err != nil {
		return nil, err
	}
	out := &Record{ProtocolType: r.Text(), Generation: r.Int32(), Protocol: text(r.String()), Leader: text(r.String()), Since: -1}
	if v >= 2 {
		out.Since = r.Int64()
	}
	for range r.Length(15) {
		out.Members = append(out.Members, decodeMember(r, v))
	}
	r.Tags(func(number uint32, _ *field.Reader) bool {
		out.Unassigned = out.Unassigned || number == unassignedTag
		return number == unassignedTag
	})
	if err := r.End(); err != nil {
		return nil, err
	}
	return out, out.unique()
}

// unique refuses members that are there twice.
func (r *Record) unique() error {
	seen := make(map[string]bool, 2*len(r.Members))
	for _, m := range r.Members {
		if seen["m"+m.ID] || m.Instance != "" && seen["i"+m.Instance] {
			return fmt.Errorf("%w: member %q is there twice", field.ErrMalformed, m.ID)
		}
		seen["m"+m.ID], seen["i"+m.Instance] = true, true
	}
	return nil
}

func decodeMember(r *field.Reader, v int16) RecordMember {
	m := RecordMember{ID: r.Text()}
	if v >= 3 {
		m.Instance = text(r.String())
	}
	m.ClientID, m.ClientHost = r.Text(), r.Text()
	rebalance := int32(0)
	if v >= 1 {
		rebalance = r.Int32()
	}
	session := r.Int32()
	if v < 1 {
		rebalance = session
	}
	m.Rebalance, m.Session = time.Duration(rebalance)*time.Millisecond, time.Duration(session)*time.Millisecond
	m.Subscription, m.Assignment = r.Blob(), r.Blob()
	r.Tags(nil)
	return m
}
