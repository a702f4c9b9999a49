package twopc

import (
	"fmt"

	"gopherlog/txn/field"
)

// Kinds of messages between nodes. Numbers are never used again for something else.
const (
	kindPrepare int8 = iota + 1
	kindVote
	kindOutcome
	kindEnded
	kindQuery
)

// WriteMessage appends a message, in the flexible encoding.
func WriteMessage(w *field.Writer, m Message) {
	switch m := m.(type) {
	case Prepare:
		writeNamed(w, kindPrepare, m.Txn)
	case Vote:
		writeNamed(w, kindVote, m.Txn)
		w.Text(string(m.From))
		w.Int8(toInt8(m.Yes))
	case Outcome:
		writeNamed(w, kindOutcome, m.Txn)
		w.Int8(toInt8(m.Commit))
		w.Int16(m.Epoch)
	case Ended:
		writeNamed(w, kindEnded, m.Txn)
		w.Text(string(m.From))
	case Query:
		writeNamed(w, kindQuery, m.Txn)
		w.Text(string(m.From))
	default:
		panic(fmt.Sprintf("twopc: a %T has no encoding", m))
	}
}

// ReadMessage takes what WriteMessage appended.
func ReadMessage(r *field.Reader) (Message, error) {
	kind, t := r.Int8(), readTxn(r)
	var m Message
	switch kind {
	case kindPrepare:
		m = Prepare{t}
	case kindVote:
		m = Vote{Txn: t, From: Member(r.Text()), Yes: r.Int8() != 0}
	case kindOutcome:
		m = Outcome{Txn: t, Commit: r.Int8() != 0, Epoch: r.Int16()}
	case kindEnded:
		m = Ended{Txn: t, From: Member(r.Text())}
	case kindQuery:
		m = Query{Txn: t, From: Member(r.Text())}
	default:
		if r.Err() == nil {
			return nil, fmt.Errorf("two-phase commit message: %w: kind %d", field.ErrMalformed, kind)
		}
	}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("two-phase commit message: %w", err)
	}
	return m, nil
}

// WriteTxn appends the name of a transaction.
func WriteTxn(w *field.Writer, t Txn) { writeTxn(w, t) }

// ReadTxn takes what WriteTxn appended.
func ReadTxn(r *field.Reader) Txn { return readTxn(r) }
