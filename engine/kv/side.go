package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// SideEntry is an entry of a partition's Raft log that takes no Kafka offset.
type SideEntry struct {
	Index, Term uint64
	Type        uint8
	Data, Ext   []byte
}

// Side is one group's side entries.
type Side struct {
	d *DB
	g GroupKey
}

// Side returns the side entries of group g.
func (d *DB) Side(g GroupKey) *Side { return &Side{d: d, g: g} }

// Put writes the entries, replacing those of the same index; durable on return. The bytes are copied.
func (s *Side) Put(entries []SideEntry) error {
	b := s.d.NewBatch()
	defer b.Close()
	for _, e := range entries {
		b.Set(SideKey(s.g, e.Index), encodeSide(e))
	}
	return b.Commit(true)
}

// Get returns the entry at index, or ErrNotFound.
func (s *Side) Get(index uint64) (SideEntry, error) {
	v, err := s.d.Get(SideKey(s.g, index))
	if err != nil {
		return SideEntry{}, err
	}
	return decodeSide(index, v)
}

// Scan calls fn for each entry with index in [from, to) in order; the entry's bytes are the callee's.
func (s *Side) Scan(from, to uint64, fn func(SideEntry) error) error {
	lo, hi := SideRange(s.g, from, to)
	if to == math.MaxUint64 {
		_, hi = SideGroupRange(s.g)
	}
	return s.d.Scan(lo, hi, func(k, v []byte) error {
		index, err := SideIndex(k)
		if err != nil {
			return err
		}
		e, err := decodeSide(index, append([]byte(nil), v...))
		if err != nil {
			return err
		}
		return fn(e)
	})
}

// DeleteFrom removes the entries at index and after; durable on return.
func (s *Side) DeleteFrom(index uint64) error {
	_, hi := SideGroupRange(s.g)
	return s.deleteRange(SideKey(s.g, index), hi)
}

// DeleteBelow removes the entries before index; durable on return.
func (s *Side) DeleteBelow(index uint64) error {
	lo, _ := SideGroupRange(s.g)
	return s.deleteRange(lo, SideKey(s.g, index))
}

func (s *Side) deleteRange(lo, hi []byte) error {
	if _, _, err := s.d.First(lo, hi); errors.Is(err, ErrNotFound) {
		return s.d.Err() // nothing there: spare the sync, which the common truncation does not need
	}
	b := s.d.NewBatch()
	defer b.Close()
	b.DeleteRange(lo, hi)
	return b.Commit(true)
}

// sideVersion starts the value: version, type, term (8), length of Ext (uvarint), Ext, Data.
const sideVersion = 1

func encodeSide(e SideEntry) []byte {
	v := make([]byte, 0, 20+len(e.Ext)+len(e.Data))
	v = append(v, sideVersion, e.Type)
	v = binary.BigEndian.AppendUint64(v, e.Term)
	v = binary.AppendUvarint(v, uint64(len(e.Ext)))
	v = append(v, e.Ext...)
	return append(v, e.Data...)
}

func decodeSide(index uint64, v []byte) (SideEntry, error) {
	if len(v) < 11 {
		return SideEntry{}, fmt.Errorf("%w: side entry %d has %d bytes", ErrCorrupt, index, len(v))
	}
	if v[0] != sideVersion {
		return SideEntry{}, fmt.Errorf("side entry %d: format version %d, this program reads %d", index, v[0], sideVersion)
	}
	e := SideEntry{Index: index, Type: v[1], Term: binary.BigEndian.Uint64(v[2:])}
	rest := v[10:]
	n, k := binary.Uvarint(rest)
	if k <= 0 || n > uint64(len(rest)-k) {
		return SideEntry{}, fmt.Errorf("%w: side entry %d: extension of %d bytes in %d", ErrCorrupt, index, n, len(rest))
	}
	rest = rest[k:]
	if n > 0 {
		e.Ext = rest[:n:n]
	}
	if len(rest) > int(n) {
		e.Data = rest[n:]
	}
	return e, nil
}
