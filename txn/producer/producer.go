// Package producer decides whether a batch of an idempotent producer is new, a repeat or out of order, and keeps per
// partition what that decision needs: for each producer id its epoch and its last five batches.
//
// It knows sequence numbers, producer epochs and base offsets of batches in log order. It refuses to know time, locks,
// goroutines, Raft and the network: the committed State changes only by Apply and Expire in log order, so it is equal on
// every replica that applied the same log, and survives restart and change of leader through Encode and Decode.
// The rules are Kafka's broker rules since 2.5 (no state: any first sequence is accepted).
package producer

import "gopherlog/engine/record"

// Window is how many batches per producer are remembered: what one client may have in flight on a connection.
const Window = 5

// Kind says what to do with a batch.
type Kind uint8

const (
	Append    Kind = iota // new: append it
	Duplicate             // a repeat: answer with the original's base offset, once the original is committed
	Reject                // neither: answer Reason
)

// Reason says why a batch was rejected. Kafka's error codes are chosen by the broker, not here.
type Reason uint8

const (
	OutOfOrder   Reason = iota + 1 // a gap, or a repeat older than the window (Kafka: 45)
	InvalidEpoch                   // an epoch below the newest seen (Kafka: 47)
)

// Verdict is the answer of Check.
type Verdict struct {
	Kind       Kind
	Reason     Reason // Reject
	BaseOffset int64  // Duplicate of a committed batch; -1 when the original is still in flight
	InFlight   any    // Duplicate of a batch in the overlay: the ref that was given to Add
}

// State is what all committed batches of one partition say about its producers. The zero value is not usable: use New.
// It has no lock: the owner orders Apply, Expire and Check.
type State struct {
	producers map[int64]*entry
}

// entry is one producer: batches[:n] in log order, oldest first, all of epoch.
type entry struct {
	epoch   int16
	n       uint8
	last    int64 // offset of the newest record, marker included: what Expire compares with
	stamp   int64 // MaxTimestamp of the newest batch, for tools; no decision reads it
	batches [Window]span
}

// span is one remembered batch: sequences first..last (inclusive, may wrap) at base.
type span struct {
	first, last int32
	base        int64
}

// New returns the state of an empty log.
func New() *State { return &State{producers: make(map[int64]*entry)} }

// Len is the number of producers remembered.
func (s *State) Len() int { return len(s.producers) }

// Check decides about b against the committed state and the batches in flight above it. inflight may be nil. A batch
// without producer id is always new. It reads only the batch header, changes nothing and allocates nothing.
func (s *State) Check(b record.Batch, inflight *Overlay) Verdict {
	id := b.ProducerID()
	if id < 0 {
		return Verdict{Kind: Append}
	}
	epoch, first := b.ProducerEpoch(), b.BaseSequence()
	if first < 0 {
		return Verdict{Kind: Reject, Reason: OutOfOrder}
	}
	last := LastSequence(first, b.LastOffsetDelta())
	stored := s.producers[id]
	if inflight != nil {
		if f := inflight.producers[id]; f != nil {
			return f.check(epoch, first, last, stored)
		}
	}
	if stored == nil {
		return Verdict{Kind: Append}
	}
	return stored.check(epoch, first, last)
}

func (e *entry) check(epoch int16, first, last int32) Verdict {
	switch {
	case epoch < e.epoch:
		return Verdict{Kind: Reject, Reason: InvalidEpoch}
	case epoch > e.epoch:
		return startOfEpoch(first)
	}
	if v, ok := e.find(first, last); ok {
		return v
	}
	if e.n == 0 {
		return startOfEpoch(first)
	}
	return follows(e.batches[e.n-1].last, first)
}

func (e *entry) find(first, last int32) (Verdict, bool) {
	for i := int(e.n) - 1; i >= 0; i-- {
		if b := &e.batches[i]; b.first == first && b.last == last {
			return Verdict{Kind: Duplicate, BaseOffset: b.base}, true
		}
	}
	return Verdict{}, false
}

// startOfEpoch: the first batch of a newer epoch must carry sequence 0.
func startOfEpoch(first int32) Verdict {
	if first == 0 {
		return Verdict{Kind: Append}
	}
	return Verdict{Kind: Reject, Reason: OutOfOrder}
}

func follows(previous, first int32) Verdict {
	if NextSequence(previous) == first {
		return Verdict{Kind: Append}
	}
	return Verdict{Kind: Reject, Reason: OutOfOrder}
}

// Apply takes a committed batch into the state, in log order, exactly once. Only the header is read. It judges nothing:
// what the log holds has happened, and a replica must arrive at the same state as every other.
func (s *State) Apply(b record.Batch) {
	id := b.ProducerID()
	if id < 0 {
		return
	}
	e := s.producers[id]
	if e == nil {
		e = &entry{epoch: b.ProducerEpoch()}
		s.producers[id] = e
	}
	if epoch := b.ProducerEpoch(); epoch > e.epoch {
		e.epoch, e.n = epoch, 0
	} else if epoch < e.epoch {
		return
	}
	e.last, e.stamp = b.LastOffset(), b.MaxTimestamp()
	if b.IsControl() {
		return // a marker ends a transaction and carries no sequence
	}
	first := b.BaseSequence()
	e.push(span{first: first, last: LastSequence(first, b.LastOffsetDelta()), base: b.BaseOffset()})
}

func (e *entry) push(sp span) {
	if e.n == Window {
		copy(e.batches[:], e.batches[1:])
		e.n--
	}
	e.batches[e.n] = sp
	e.n++
}

// Expire forgets every producer whose newest record lies below the offset. It is a replicated command: all replicas
// apply it at the same place of the log, so no clock, and no timestamp that a client chose, can make them differ.
// It returns how many were forgotten.
func (s *State) Expire(below int64) int {
	before := len(s.producers)
	for id, e := range s.producers {
		if e.last < below {
			delete(s.producers, id)
		}
	}
	return before - len(s.producers)
}
