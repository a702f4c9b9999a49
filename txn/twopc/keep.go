package twopc

import (
	"fmt"

	"gopherlog/txn/field"
)

// Ledgers and standings are kept in the snapshots of the logs that they are made of. They travel inside a partition's snapshot, which
// carries the checksum and the version.

// Write appends the ledger.
func (l Ledger) Write(w *field.Writer) {
	w.Int64(int64(l.Term))
	writeIdentity(w, l.Owner)
	writeIdentity(w, l.Prev)
	w.Int32(int32(l.Timeout.Milliseconds()))
	writeCommitted(w, l.Last)
	w.Int8(toInt8(l.Finished))
	writeTxn(w, l.Begun)
}

// ReadLedger takes what Write appended; Err of the reader tells whether it was whole.
func ReadLedger(r *field.Reader) (Ledger, error) {
	l := Ledger{Term: uint64(r.Int64()), Owner: readIdentity(r), Prev: readIdentity(r), Timeout: readMillis(r)}
	last, err := readCommitted(r)
	if err != nil {
		return Ledger{}, fmt.Errorf("ledger: %w", err)
	}
	l.Last = last
	l.Finished, l.Begun = r.Int8() != 0, readTxn(r)
	return l, r.Err()
}

// Write appends the standing, in its version 2.
func (s Standing) Write(w *field.Writer) {
	writeTxn(w, s.Txn)
	w.Int8(toInt8(s.Promised))
	w.Int64(s.At)
	w.Int32(int32(s.Timeout.Milliseconds()))
	writeTxn(w, s.Ended)
}

// ReadStanding takes a standing of version 1, which does not say when a promise was given, or 2; Err of the reader tells whether it was
// whole.
func ReadStanding(r *field.Reader, version int8) Standing {
	s := Standing{Txn: readTxn(r), Promised: r.Int8() != 0}
	if version >= 2 {
		s.At = r.Int64()
	}
	s.Timeout, s.Ended = readMillis(r), readTxn(r)
	return s
}

func toInt8(b bool) int8 {
	if b {
		return 1
	}
	return 0
}
