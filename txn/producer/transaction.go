package producer

import (
	"cmp"
	"fmt"
	"slices"

	"gopherlog/engine/record"
)

// opening is an open transaction: its first offset here, and whose it is.
type opening struct {
	first int64
	id    int64
}

// Aborted is a transaction that was aborted: read_committed consumers skip what its producer wrote in [First, Last].
type Aborted struct {
	ProducerID int64
	First      int64 // offset of its first batch
	Last       int64 // offset of its marker
	LastStable int64 // the last stable offset once the marker was there, however far the high watermark was
}

// end takes a marker: the transaction of its producer, if there is one, ends at its offset.
func (s *State) end(id int64, e *entry, b record.Batch) {
	kind, coordinator, err := record.ParseControl(b)
	if err != nil {
		panic(fmt.Sprintf("producer: marker in %v: %v", b, err))
	}
	e.coord = coordinator
	if e.txn < 0 || kind != record.Abort && kind != record.Commit {
		return
	}
	first := e.txn
	e.txn = none
	at, ok := slices.BinarySearchFunc(s.open, first, func(o opening, first int64) int { return cmp.Compare(o.first, first) })
	if !ok {
		panic(fmt.Sprintf("producer: transaction of producer %d from offset %d is not among the %d open ones", id, first, len(s.open)))
	}
	s.open = slices.Delete(s.open, at, at+1)
	if kind == record.Abort {
		s.aborted = append(s.aborted, Aborted{id, first, b.LastOffset(), s.LastStable(b.NextOffset())})
	}
}

// LastStable is the last stable offset when the high watermark is at end: below it no transaction is open. It never goes
// back as the state and the high watermark go forward. It may lie below the log start when records of an open transaction
// were deleted.
func (s *State) LastStable(end int64) int64 {
	if len(s.open) > 0 {
		return min(end, s.open[0].first)
	}
	return end
}

// Open is the number of open transactions.
func (s *State) Open() int { return len(s.open) }

// AbortedIn appends to dst the aborted transactions that a reader of [from, to) must know, ascending by the offset of their
// markers: those that end at or behind from and begin below to. The reader must not read beyond the last stable offset.
func (s *State) AbortedIn(dst []Aborted, from, to int64) []Aborted {
	at, _ := slices.BinarySearchFunc(s.aborted, from, func(a Aborted, from int64) int { return cmp.Compare(a.Last, from) })
	for ; at < len(s.aborted); at++ {
		a := &s.aborted[at]
		if a.First < to {
			dst = append(dst, *a)
		}
		if a.LastStable >= to {
			break // whatever was open then began at or behind to, and so did everything later
		}
	}
	return dst
}

// Trim forgets aborted transactions that end below start, the new log start. It belongs to the replicated command that
// moves the log start.
func (s *State) Trim(start int64) {
	n, _ := slices.BinarySearchFunc(s.aborted, start, func(a Aborted, start int64) int { return cmp.Compare(a.Last, start) })
	s.aborted = slices.Delete(s.aborted, 0, n)
}

// TransactionVersion is how the client ends transactions.
type TransactionVersion int16

const (
	Version0 TransactionVersion = 0 // Kafka's original: an epoch lasts for many transactions
	Version2 TransactionVersion = 2 // KIP-890: each end raises the producer's epoch, and markers carry the raised one
)

// Marker is a request to end a producer's transaction here.
type Marker struct {
	ProducerID       int64
	Epoch            int16
	CoordinatorEpoch int32
	Version          TransactionVersion
	Commit           bool
}

// Coordinator is the coordinator's epoch in the newest marker of a producer, committed or in flight; -1 if none is known.
func (s *State) Coordinator(producerID int64, inflight *Overlay) int32 {
	newest := int32(none)
	if stored := s.producers[producerID]; stored != nil {
		newest = stored.coord
	}
	if flying := inflight.of(producerID); flying != nil {
		newest = max(newest, flying.coord)
	}
	return newest
}

// CheckMarker decides whether a marker is to be appended. Duplicate: the marker itself is in flight or is known to have been
// committed, so a coordinator that lost its memory may send markers again. What was verified for the producer counts no more,
// whatever the verdict: a batch that comes after the marker must be verified again.
//
// At version 2 a marker never ends a transaction of its own epoch, which is a later one than it was meant for, and a producer
// that has that epoch shows that the marker was here. At version 0 nothing shows that: the marker is appended even where nothing
// is open, because a leader that was deposed and does not know it yet must not say that there is nothing to end.
func (s *State) CheckMarker(m Marker, inflight *Overlay) Verdict {
	inflight.forget(m.ProducerID)
	coordinator, epoch, open := int32(none), int16(none), false
	if stored := s.producers[m.ProducerID]; stored != nil {
		coordinator, epoch, open = stored.coord, stored.epoch, stored.txn >= 0
	}
	flying := inflight.of(m.ProducerID)
	var marker any
	if flying != nil {
		coordinator, epoch, open, marker = max(coordinator, flying.coord), flying.epoch, flying.open, flying.marker
	}
	switch {
	case m.CoordinatorEpoch < coordinator:
		return Verdict{Kind: Reject, Reason: CoordinatorFenced}
	case m.Epoch < epoch, m.Epoch == epoch && open && m.Version >= Version2:
		return Verdict{Kind: Reject, Reason: InvalidEpoch}
	case m.Epoch > epoch, open, marker == nil && m.Version < Version2:
		return Verdict{Kind: Append}
	}
	return Verdict{Kind: Duplicate, BaseOffset: none, InFlight: marker}
}
