package twopc

import (
	"errors"
	"fmt"
	"time"

	"gopherlog/txn/field"
)

// Records are encoded as docs/FORMATS.md draws them. Marked has no encoding: the marker is an ordinary control batch.

// A promise says since version 2 when it was given; everything else is of version 1.
const (
	recordVersion = 1
	datedVersion  = 2
)

// ErrVersion is a record of a format version that this build does not know.
var ErrVersion = errors.New("two-phase commit record: unknown version")

// Kinds of encoded records. Numbers are never used again for something else.
const (
	kindRaised int8 = iota + 1
	kindBegun
	kindCommitted
	kindFinished
	kindOpened
	kindPromised
	kindSkipped
)

// Encode is the record's bytes. A Marked has none: encoding one is a broken invariant.
func Encode(r Record) []byte {
	w := field.Writer{Flexible: true}
	if p, is := r.(Promised); is && p.At != 0 {
		w.Int8(datedVersion)
		writeNamed(&w, kindPromised, p.Txn)
		w.Int64(p.At)
		return w.Bytes
	}
	w.Int8(recordVersion)
	switch r := r.(type) {
	case Raised:
		w.Int8(kindRaised)
		w.Int64(int64(r.Term))
		writeIdentity(&w, r.Owner)
		writeIdentity(&w, r.Prev)
		w.Int32(int32(r.Timeout.Milliseconds()))
	case Begun:
		writeNamed(&w, kindBegun, r.Txn)
	case Committed:
		w.Int8(kindCommitted)
		writeCommitted(&w, r)
	case Finished:
		writeNamed(&w, kindFinished, r.Txn)
	case Opened:
		writeNamed(&w, kindOpened, r.Txn)
		w.Int32(int32(r.Timeout.Milliseconds()))
	case Promised:
		writeNamed(&w, kindPromised, r.Txn)
	case Skipped:
		writeNamed(&w, kindSkipped, r.Txn)
	default:
		panic(fmt.Sprintf("twopc: a %T has no encoding", r))
	}
	return w.Bytes
}

func writeNamed(w *field.Writer, kind int8, t Txn) {
	w.Int8(kind)
	writeTxn(w, t)
}

func writeTxn(w *field.Writer, t Txn) {
	w.Int64(int64(t.Term))
	w.Int32(int32(t.Number))
	writeIdentity(w, t.Owner)
}

func writeCommitted(w *field.Writer, c Committed) {
	writeTxn(w, c.Txn)
	writeIdentity(w, c.Next)
	w.Length(len(c.Members))
	for _, m := range c.Members {
		w.Text(string(m))
	}
}

func writeIdentity(w *field.Writer, i Identity) {
	w.Int64(i.Producer)
	w.Int16(i.Epoch)
}

// Decode is the record of the bytes, which it does not keep. ErrVersion: written by a newer build. field.ErrMalformed: not written by Encode.
func Decode(b []byte) (Record, error) {
	r := field.Reader{Flexible: true, Bytes: b}
	v := r.Int8()
	if r.Err() == nil && v != recordVersion && v != datedVersion {
		return nil, fmt.Errorf("%w %d", ErrVersion, v)
	}
	rec, err := decodeVersion(&r, v)
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, fmt.Errorf("two-phase commit record: %w", err)
	}
	return rec, nil
}

func decodeVersion(r *field.Reader, version int8) (Record, error) {
	kind := r.Int8()
	if version == recordVersion {
		return decodeKind(r, kind)
	}
	if r.Err() == nil && kind != kindPromised {
		return nil, fmt.Errorf("%w %d of kind %d", ErrVersion, version, kind)
	}
	p := Promised{Txn: readTxn(r), At: r.Int64()}
	if r.Err() == nil && p.At == 0 {
		return nil, fmt.Errorf("%w: a promise of version %d without its time", field.ErrMalformed, version)
	}
	return p, r.Err()
}

func decodeKind(r *field.Reader, kind int8) (Record, error) {
	switch kind {
	case kindRaised:
		return Raised{Term: uint64(r.Int64()), Owner: readIdentity(r), Prev: readIdentity(r), Timeout: readMillis(r)}, r.Err()
	case kindBegun:
		return Begun{readTxn(r)}, r.Err()
	case kindCommitted:
		c, err := readCommitted(r)
		return c, err
	case kindFinished:
		return Finished{readTxn(r)}, r.Err()
	case kindOpened:
		return Opened{Txn: readTxn(r), Timeout: readMillis(r)}, r.Err()
	case kindPromised:
		return Promised{Txn: readTxn(r)}, r.Err()
	case kindSkipped:
		return Skipped{readTxn(r)}, r.Err()
	}
	if r.Err() != nil {
		return nil, r.Err()
	}
	return nil, fmt.Errorf("%w: kind %d", field.ErrMalformed, kind)
}

func readTxn(r *field.Reader) Txn {
	return Txn{Term: uint64(r.Int64()), Number: uint32(r.Int32()), Owner: readIdentity(r)}
}

func readIdentity(r *field.Reader) Identity { return Identity{Producer: r.Int64(), Epoch: r.Int16()} }

func readMillis(r *field.Reader) time.Duration { return time.Duration(r.Int32()) * time.Millisecond }

// readCommitted takes a decision. Its members are in the order in which the machines keep them.
func readCommitted(r *field.Reader) (Committed, error) {
	c := Committed{Txn: readTxn(r), Next: readIdentity(r)}
	for range max(r.Length(1), 0) {
		m := Member(r.Text())
		if last := len(c.Members) - 1; last >= 0 && m <= c.Members[last] {
			return Committed{}, fmt.Errorf("%w: members that do not ascend", field.ErrMalformed)
		}
		c.Members = append(c.Members, m)
	}
	return c, r.Err()
}
