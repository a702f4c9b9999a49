package coordinator

import (
	"time"

	"gopherlog/engine/record"
)

const (
	bundleBytes = 256 << 10 // a bundle of this size goes at once
	// patience is how long a record that nobody waits for may wait for another one to go with. It is longer than a producer of small
	// transactions needs to its next one, and what a coordinator that dies meanwhile did not write its successor does again.
	patience = 100 * time.Millisecond
	// timerPatient is the kind of the timer that ends it; it is the shard's, not a machine's.
	timerPatient = 200
)

// bundle is what the machines of a shard append together: the records of one turn of its goroutine are one batch, one entry of the log. So the
// end of a transaction, which nobody waits for, costs no entry of its own where the next one follows soon. It belongs to the term's goroutine.
type bundle struct {
	t      *term
	b      record.Builder
	then   []func(error)
	until  time.Time // when the first record has waited enough
	urgent bool      // it goes at the end of the turn
	timed  bool      // the timer is set
}

// add puts a record behind those that are in the bundle. then is called on the term's goroutine with the outcome, in the order of the records,
// unless the term ends before. patient: nobody waits for it.
func (s *bundle) add(r record.Record, patient bool, then func(error)) {
	if size := len(r.Key) + len(r.Value) + rowOverhead; len(s.then) > 0 && s.b.Size()+size > bundleBytes {
		s.flush() // so that only a record that is too large by itself is refused as that
	}
	now := s.t.now()
	if len(s.then) == 0 {
		s.b.BaseTimestamp, s.until = now.UnixMilli(), now.Add(patience)
	}
	r.TimestampDelta = now.UnixMilli() - s.b.BaseTimestamp
	s.b.Append(r)
	s.then = append(s.then, then)
	switch {
	case s.b.Size() > bundleBytes:
		s.flush()
	case !patient:
		s.urgent = true
	case !s.timed:
		s.watch()
	}
}

// hurry makes what is in the bundle urgent: somebody waits for it.
func (s *bundle) hurry() { s.urgent = len(s.then) > 0 }

// watch sets the timer. It is not taken back when the bundle goes, but set again when it was early.
func (s *bundle) watch() {
	s.timed = true
	s.t.timers.start(timerKey{kind: timerPatient}, s.until)
}

// fire is the timer.
func (s *bundle) fire() {
	s.timed = false
	switch {
	case len(s.then) == 0:
	case s.t.now().Before(s.until):
		s.watch()
	default:
		s.urgent = true
	}
}

// turn is called at the end of every turn.
func (s *bundle) turn() {
	if s.urgent {
		s.flush()
	}
}

func (s *bundle) flush() {
	then := s.then
	s.then, s.urgent = nil, false
	if len(then) == 0 {
		return
	}
	s.t.append(s.b.Finish(), func(err error) {
		for _, fn := range then {
			fn(err)
		}
	}, nil)
}
