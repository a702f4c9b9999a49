// Package producer decides for one partition whether a producer's batch or a transaction's marker is new, a repeat or out of
// place, and keeps what that needs: per producer id its epoch, its last five batches and its open transaction, and the
// transactions that were aborted.
//
// It knows sequence numbers, producer epochs, coordinator epochs and offsets, all in log order. It refuses to know time, locks,
// goroutines, Raft, the network and who coordinates a transaction: the committed State changes only by Apply, Expire and Trim
// in log order, so it is equal on every replica that applied the same log, and survives restart and change of leader through
// Encode and Decode. The rules are Kafka's broker rules since 2.5 (no state: any first sequence is accepted); where this room
// is stricter, the function says so.
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
	Verify                // it would open a transaction: Ask, let the coordinator confirm that it is ongoing, then check again
	Hold                  // its producer's transaction is being verified: keep it in its place, then check again
)

// Reason says why a batch was rejected. Kafka's error codes are chosen by the broker, not here.
type Reason uint8

const (
	OutOfOrder        Reason = iota + 1 // a gap, or a repeat older than the window (Kafka: 45)
	InvalidEpoch                        // an epoch below the newest seen (Kafka: 47)
	InvalidTxnState                     // not transactional, while its producer has a transaction open here (Kafka: 48)
	StillEnding                         // of a newer epoch than the transaction that is open here: its marker must come first (Kafka: 51)
	CoordinatorFenced                   // a marker of an older coordinator than one seen before (Kafka: 52)
)

// Verdict is the answer of Check.
type Verdict struct {
	Kind       Kind
	Reason     Reason // Reject
	BaseOffset int64  // Duplicate of a committed batch; -1 when the original is still in flight, and for markers
	InFlight   any    // Duplicate of a batch in the overlay: the ref that was given to Add
}

// State is what all committed batches of one partition say about its producers. The zero value is not usable: use New.
// It has no lock: the owner orders its methods.
type State struct {
	producers map[int64]*entry
	open      []opening // ascending by first
	aborted   []Aborted // ascending by Last
}

// entry is one producer: batches[:n] in log order, oldest first, all of epoch.
type entry struct {
	epoch   int16
	n       uint8
	last    int64 // offset of the newest record, marker included: what Expire compares with
	stamp   int64 // MaxTimestamp of the newest batch, for tools; no decision reads it
	txn     int64 // first offset of the open transaction, or none
	coord   int32 // coordinator's epoch in the newest marker, or none
	batches [Window]span
}

// none stands for an absent offset or coordinator epoch.
const none = -1

// span is one remembered batch: sequences first..last (inclusive, may wrap) at base.
type span struct {
	first, last int32
	base        int64
}

// New returns the state of an empty log.
func New() *State { return &State{producers: make(map[int64]*entry)} }

// Len is the number of producers remembered.
func (s *State) Len() int { return len(s.producers) }

// Check decides about b, which is no marker, against the committed state and the batches in flight above it. inflight may be
// nil. A batch without producer id is always new. It reads only the batch header, changes nothing and allocates nothing.
//
// A transactional batch without sequence is the coordinator's own, who writes a transaction's offsets: its order does not matter, a repeat
// is appended again, and it is not remembered.
//
// Stricter than Kafka: a batch of a newer epoch never joins a transaction that an older epoch left open here, since the newer
// epoch's COMMIT would make the older one's records visible (StillEnding). And a batch is no repeat of one whose transaction has ended,
// it is OutOfOrder: nobody waits for such a repeat any more, but a client that gave up a batch whose answer was lost, and aborted, may
// give its sequences to the next transaction's records, which were lost if they were taken for the old ones.
func (s *State) Check(b record.Batch, inflight *Overlay) Verdict {
	id := b.ProducerID()
	if id < 0 {
		return Verdict{Kind: Append}
	}
	epoch, first := b.ProducerEpoch(), b.BaseSequence()
	transactional := b.IsTransactional()
	if first < 0 && !transactional {
		return Verdict{Kind: Reject, Reason: OutOfOrder}
	}
	if transactional && inflight.asking(id, epoch) {
		return Verdict{Kind: Hold}
	}
	last := LastSequence(first, b.LastOffsetDelta())
	stored, flying := s.producers[id], inflight.of(id)
	v, known, open, newest := Verdict{}, false, false, epoch
	switch {
	case flying != nil:
		v, known, open, newest = flying.check(epoch, first, last, stored), true, flying.open, flying.epoch
	case stored != nil:
		v, known, open, newest = stored.check(epoch, first, last), true, stored.txn >= 0, stored.epoch
	}
	if first < 0 && v.Reason != InvalidEpoch {
		v = Verdict{Kind: Append}
	}
	switch {
	case v.Kind != Append:
		return v
	case !open && !transactional, open && transactional && epoch == newest:
		return v
	case open && epoch != newest:
		return Verdict{Kind: Reject, Reason: StillEnding}
	case open:
		return Verdict{Kind: Reject, Reason: InvalidTxnState}
	}
	return inflight.opening(id, epoch, first, known)
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

// find looks for the batch that one with these sequences repeats, among those that over does not tell of.
func (e *entry) find(first, last int32) (Verdict, bool) {
	for i := int(e.n) - 1; i >= 0 && !e.over(&e.batches[i]); i-- {
		if b := &e.batches[i]; b.first == first && b.last == last {
			return Verdict{Kind: Duplicate, BaseOffset: b.base}, true
		}
	}
	return Verdict{}, false
}

// over says that b belongs to a transaction that has ended here.
func (e *entry) over(b *span) bool {
	if e.txn >= 0 {
		return b.base < e.txn
	}
	return e.coord != none
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

// Apply takes a committed batch into the state, in log order, exactly once. Of a data batch only the header is read; a
// control batch must be whole. It judges nothing: what the log holds has happened, and a replica must arrive at the same
// state as every other.
func (s *State) Apply(b record.Batch) {
	id := b.ProducerID()
	if id < 0 {
		return
	}
	e := s.producers[id]
	if e == nil {
		e = &entry{epoch: b.ProducerEpoch(), txn: none, coord: none}
		s.producers[id] = e
	}
	if epoch := b.ProducerEpoch(); epoch > e.epoch {
		e.epoch, e.n = epoch, 0
	} else if epoch < e.epoch {
		return
	}
	e.last, e.stamp = b.LastOffset(), b.MaxTimestamp()
	if b.IsControl() {
		s.end(id, e, b)
		return
	}
	if first := b.BaseSequence(); first >= 0 {
		e.push(span{first: first, last: LastSequence(first, b.LastOffsetDelta()), base: b.BaseOffset()})
	}
	if b.IsTransactional() && e.txn < 0 {
		e.txn = b.BaseOffset()
		s.open = append(s.open, opening{first: e.txn, id: id})
	}
}

func (e *entry) push(sp span) {
	if e.n == Window {
		copy(e.batches[:], e.batches[1:])
		e.n--
	}
	e.batches[e.n] = sp
	e.n++
}
