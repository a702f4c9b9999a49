package partition

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"gopherlog/txn/field"
	"gopherlog/txn/twopc"
)

// standings are what the committed entries of a partition say about the voted transactions that it takes part in: one standing per
// transactional id. They change only by committed entries in the order of the log, so they are equal on every replica, survive restarts
// and installs with the snapshot, and a new leader knows what its predecessors promised once everything committed is applied.
type standings struct {
	of   map[string]*standing
	open map[int64]string // producer id of an open transaction to its transactional id: a marker names no other
}

type standing struct {
	twopc.Standing
	at int64 // the log's end when it changed last: what expire compares with
}

func newStandings() *standings {
	return &standings{of: map[string]*standing{}, open: map[int64]string{}}
}

// apply takes a record of a transactional id.
func (s *standings) apply(id string, r twopc.Record, end int64) {
	st := s.of[id]
	if st == nil {
		st = &standing{}
		s.of[id] = st
	}
	if !st.Txn.None() && s.open[st.Txn.Owner.Producer] == id {
		delete(s.open, st.Txn.Owner.Producer)
	}
	st.Standing, st.at = st.Standing.Apply(r), end
	if !st.Txn.None() {
		s.open[st.Txn.Owner.Producer] = id
	}
}

// marked takes a marker: it ends the voted transaction that its producer has open here, if there is one.
func (s *standings) marked(producer int64, commit bool, epoch int16, end int64) (id string, before twopc.Standing, voted bool) {
	id, voted = s.open[producer]
	if !voted {
		return "", twopc.Standing{}, false
	}
	before = s.of[id].Standing
	s.apply(id, twopc.Marked{Txn: before.Txn, Commit: commit, Epoch: epoch}, end)
	return id, before, true
}

// expires says that nothing is open and that it was silent since below: messages about what it remembers have all been given up.
func (st *standing) expires(below int64) bool { return st.Txn.None() && st.at < below }

// expire forgets what was silent since below.
func (s *standings) expire(below int64) {
	maps.DeleteFunc(s.of, func(_ string, st *standing) bool { return st.expires(below) })
}

// anyBelow says that expire would forget something.
func (s *standings) anyBelow(below int64) bool {
	for _, st := range s.of {
		if st.expires(below) {
			return true
		}
	}
	return false
}

// commandVoted is a record of a voted transaction: see encodeVoted.
const commandVoted commandKind = 3

// standingsVersion is that of what is written; version 1 is read, too.
const standingsVersion = 2

// encode appends the standings, ascending by transactional id: version i8 = 2 | count | count × { id | log's end i64 | standing }, in the
// flexible encoding, behind the length of all that as u32. Equal standings give equal bytes.
func (s *standings) encode(dst []byte) []byte {
	at := len(dst)
	w := field.Writer{Flexible: true, Bytes: append(dst, 0, 0, 0, 0)}
	w.Int8(standingsVersion)
	w.Length(len(s.of))
	for _, id := range slices.Sorted(maps.Keys(s.of)) {
		st := s.of[id]
		w.Text(id)
		w.Int64(st.at)
		st.Write(&w)
	}
	binary.BigEndian.PutUint32(w.Bytes[at:], uint32(len(w.Bytes)-at-4))
	return w.Bytes
}

// decodeStandings takes standings off the front of src.
func decodeStandings(src []byte) (*standings, []byte, error) {
	if len(src) < 4 || uint64(binary.BigEndian.Uint32(src)) > uint64(len(src)-4) {
		return nil, nil, fmt.Errorf("standings: %w: %d bytes", field.ErrMalformed, len(src))
	}
	n := 4 + binary.BigEndian.Uint32(src)
	r := &field.Reader{Flexible: true, Bytes: src[4:n]}
	v := r.Int8()
	if r.Err() == nil && (v < 1 || v > standingsVersion) {
		return nil, nil, fmt.Errorf("standings of version %d are not supported, want 1 to %d", v, standingsVersion)
	}
	s := newStandings()
	for range max(r.Length(1), 0) {
		id := r.Text()
		st := &standing{at: r.Int64()}
		st.Standing = twopc.ReadStanding(r, v)
		if r.Err() != nil {
			break
		}
		s.of[id] = st
		if !st.Txn.None() {
			s.open[st.Txn.Owner.Producer] = id
		}
	}
	if err := r.End(); err != nil {
		return nil, nil, fmt.Errorf("standings: %w", err)
	}
	return s, src[n:], nil
}

// A voted transaction's records lie in control entries: kind u8 = 3 | transactional id | record (txn/twopc), the id in the flexible encoding.

func encodeVoted(id string, r twopc.Record) []byte {
	w := field.Writer{Flexible: true, Bytes: []byte{byte(commandVoted)}}
	w.Text(id)
	w.Bytes = append(w.Bytes, twopc.Encode(r)...)
	return w.Bytes
}

func decodeVoted(b []byte) (id string, rec twopc.Record, err error) {
	r := &field.Reader{Flexible: true, Bytes: b[1:]}
	id = r.Text()
	if err := r.Err(); err != nil {
		return "", nil, fmt.Errorf("%w: %w", errCommand, err)
	}
	if rec, err = twopc.Decode(r.Bytes); err != nil {
		return "", nil, fmt.Errorf("%w: %w", errCommand, err)
	}
	return id, rec, nil
}
