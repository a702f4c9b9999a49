package producer

import (
	"fmt"

	"gopherlog/engine/record"
)

// maxFree bounds how many emptied per-producer queues are kept for reuse.
const maxFree = 64

// Overlay holds the batches that a leader appended in its term and that are not known to be committed yet, per producer
// in append order, and which producers may open a transaction. It belongs to one goroutine and to one term: whoever leaves
// the term calls Reset. A nil *Overlay is empty, for reading.
//
// The committed State may already contain batches that the overlay still holds (they are removed a little later); the
// newest batch of the overlay is never older than the newest one of the State, so the overlay decides what comes next.
type Overlay struct {
	producers map[int64]*flights
	free      []*flights
	n         int

	asks  map[int64]ask
	asked Ask
}

// flights are the batches of one producer in flight; those of the newest epoch start at since.
type flights struct {
	epoch  int16
	open   bool  // a transaction is open after the newest batch
	coord  int32 // coordinator's epoch in the newest marker, or none
	since  int
	ended  int // what lies before it in the queue belongs to transactions that have ended, the marker included; 0: no marker is in flight
	queue  []flight
	marker any // ref of the newest marker in flight; nil: none
}

// flight is a batch, or what has no sequence, first is negative then: a marker, or a batch of a coordinator.
type flight struct {
	first, last int32
	ref         any
}

// NewOverlay returns an empty overlay.
func NewOverlay() *Overlay {
	return &Overlay{producers: make(map[int64]*flights), asks: make(map[int64]ask)}
}

// Len is the number of batches in flight.
func (o *Overlay) Len() int { return o.n }

func (o *Overlay) of(id int64) *flights {
	if o == nil {
		return nil
	}
	return o.producers[id]
}

// Add records that b was proposed; ref comes back in the verdict of a repeat. Batches without producer id are ignored. Of a
// data batch only the header is read; a control batch must be whole.
func (o *Overlay) Add(b record.Batch, ref any) {
	id := b.ProducerID()
	if id < 0 {
		return
	}
	f := o.producers[id]
	if f == nil {
		f = o.take()
		f.epoch = b.ProducerEpoch()
		o.producers[id] = f
	}
	if epoch := b.ProducerEpoch(); epoch != f.epoch {
		f.epoch, f.since = epoch, len(f.queue)
	}
	o.n++
	if b.IsControl() {
		f.end(b, ref)
		o.forget(id)
		return
	}
	sent := flight{first: none, last: none, ref: ref}
	if first := b.BaseSequence(); first >= 0 {
		sent.first, sent.last = first, LastSequence(first, b.LastOffsetDelta())
	}
	f.queue = append(f.queue, sent)
	if b.IsTransactional() && !f.open {
		f.open = true
		o.forget(id)
	}
}

func (f *flights) end(b record.Batch, ref any) {
	_, coordinator, err := record.ParseControl(b)
	if err != nil {
		panic(fmt.Sprintf("producer: marker in %v: %v", b, err))
	}
	f.queue = append(f.queue, flight{first: none, last: none, ref: ref})
	f.open, f.coord, f.marker, f.ended = false, coordinator, ref, len(f.queue)
}

// Done removes the oldest batch of the producer: batches commit in the order in which they were added. Calling it for a
// producer without batches in flight is a broken invariant.
func (o *Overlay) Done(id int64) {
	if id < 0 {
		return
	}
	f := o.producers[id]
	if f == nil {
		panic(fmt.Sprintf("producer: batch of producer %d done, but none in flight", id))
	}
	copy(f.queue, f.queue[1:])
	f.queue[len(f.queue)-1] = flight{}
	f.queue = f.queue[:len(f.queue)-1]
	f.since, f.ended = max(f.since-1, 0), max(f.ended-1, 0)
	o.n--
	if len(f.queue) == 0 {
		delete(o.producers, id)
		o.give(f)
	}
}

// Reset forgets everything in flight, and who may open a transaction: the term ended.
func (o *Overlay) Reset() {
	clear(o.producers)
	clear(o.asks)
	o.n = 0
}

func (o *Overlay) take() *flights {
	if last := len(o.free) - 1; last >= 0 {
		f := o.free[last]
		o.free = o.free[:last]
		return f
	}
	return &flights{coord: none}
}

func (o *Overlay) give(f *flights) {
	*f = flights{coord: none, queue: f.queue[:0]}
	if len(o.free) < maxFree && cap(f.queue) <= 4*Window {
		o.free = append(o.free, f)
	}
}

func (f *flights) check(epoch int16, first, last int32, stored *entry) Verdict {
	switch {
	case epoch < f.epoch:
		return Verdict{Kind: Reject, Reason: InvalidEpoch}
	case epoch > f.epoch:
		return startOfEpoch(first)
	}
	newest := int32(none)
	for i := len(f.queue) - 1; i >= f.since; i-- {
		b := &f.queue[i]
		if i >= f.ended && b.first == first && b.last == last {
			return Verdict{Kind: Duplicate, BaseOffset: none, InFlight: b.ref}
		}
		if newest < 0 {
			newest = b.last
		}
	}
	if stored != nil && stored.epoch == epoch {
		if v, ok := stored.find(first, last); ok && f.ended == 0 {
			return v
		}
		if newest < 0 && stored.n > 0 {
			newest = stored.batches[stored.n-1].last
		}
	}
	if newest < 0 {
		return startOfEpoch(first) // only a marker: see entry.check
	}
	return follows(newest, first)
}
