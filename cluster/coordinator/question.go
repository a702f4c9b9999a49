package coordinator

import (
	"time"

	"gopherlog/cluster/partition"
	"gopherlog/txn/field"
)

// A partition's question about a transaction goes to the coordinator's node as
//
//	transactional id | producer id i64 | epoch i16 | topic | partition i32 | add i8 | patience i32, milliseconds

func writeQuestion(w *field.Writer, q partition.Question, patience time.Duration) {
	w.Text(q.TransactionalID)
	w.Int64(q.ProducerID)
	w.Int16(q.Epoch)
	w.Text(q.Topic)
	w.Int32(q.Number)
	add := int8(0)
	if q.Add {
		add = 1
	}
	w.Int8(add)
	w.Int32(int32(max(patience, 0).Milliseconds()))
}

// readQuestion takes what writeQuestion appended; the patience begins now.
func readQuestion(r *field.Reader, now time.Time) partition.Question {
	q := partition.Question{TransactionalID: r.Text(), ProducerID: r.Int64(), Epoch: r.Int16(), Topic: r.Text(), Number: r.Int32(), Add: r.Int8() == 1}
	q.Deadline = now.Add(time.Duration(r.Int32()) * time.Millisecond)
	return q
}
