package load

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"gopherlog/bench/hdr"
	"gopherlog/bench/history"
)

// lateFrom is the lateness from which a slot counts as late.
const lateFrom = time.Millisecond

// sender drives one producer. The pacing goroutine owns keys, bodies, choice, next; outcomes arrive on the client's goroutines.
type sender struct {
	run      *runner
	index    uint16
	producer Producer

	keys     *keys
	bodies   *bodies
	choice   partitioner
	topic    int      // of the next message: topics take turns
	sequence []uint64 // next of each lane
	sends    *history.Stream
	acks     *history.Stream
	late     *hdr.Recorder
	ack      *hdr.Recorder
	failures *hdr.Recorder
	sent     *tally
	done     *tally
	tokens   chan struct{} // closed model: what may still be sent
	session  uint16        // incarnation of the producer; changes with transactions only
	txn      *transactions // nil: none

	mu   sync.Mutex
	free []*slot
}

// slot is one message's memory, used again after its outcome.
type slot struct {
	record    Record
	key       []byte
	partition int // flat
	session   uint16
	sequence  uint64
	intended  time.Duration
	bytes     int
	done      func(Ack) // bound to this slot once
}

// paced sends on schedule and sheds what exceeds the outstanding bound.
func (s *sender) paced(ctx context.Context, pacer *Pacer, end time.Duration) error {
	return pacer.Run(ctx, end, func(intended time.Duration) {
		now := s.run.clock.Now()
		if s.run.waiting.Load() >= int64(s.run.plan.Load.MaxOutstanding) {
			s.sent.add(intended, now, func(p *PhaseCounts, k *Tick) { p.Slots++; p.Shed++; k.Slots++; k.Shed++ })
			return
		}
		s.accept(intended, now)
		if s.txn != nil {
			s.txn.due <- intended // has room for every message that can be outstanding
			return
		}
		s.send(intended)
	})
}

// closed sends whenever one of its messages has an outcome.
func (s *sender) closed(ctx context.Context, end time.Duration) error {
	over := time.NewTimer(end - s.run.clock.Now())
	defer over.Stop()
	for {
		select {
		case <-s.tokens:
			now := s.run.clock.Now()
			if now >= end {
				return nil
			}
			s.accept(now, now)
			s.send(now)
		case <-over.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// accept counts a message that will be sent: its lateness is the generator's, whatever a transaction makes it wait for later.
func (s *sender) accept(intended, now time.Duration) {
	s.run.waiting.Add(1)
	lateness := now - intended
	s.late.Record(intended, lateness)
	s.sent.add(intended, now, func(p *PhaseCounts, k *Tick) {
		p.Slots++
		p.Sent++
		k.Slots++
		k.Sent++
		if lateness > lateFrom {
			p.Late++
		}
	})
}

func (s *sender) send(intended time.Duration) {
	sl := s.take()
	sl.intended = intended
	sl.record.Value = s.bodies.next(sl.record.Value)
	sl.bytes = len(sl.record.Value)
	sl.key = s.keys.next(sl.key)
	sl.record.Key = sl.key
	t := s.run.inputs[s.topic]
	var p int
	if s.txn != nil && s.txn.spread > 0 {
		p = s.txn.choose(t.partitions)
	} else {
		s.topic = (s.topic + 1) % len(s.run.inputs)
		p = s.choice.choose(sl.key, sl.bytes, t.partitions)
	}
	sl.record.Topic, sl.record.Partition, sl.partition = t.name, int32(p), t.first+p
	sl.sequence, sl.session = s.sequence[sl.partition], s.session
	s.sequence[sl.partition]++
	h := header{Run: s.run.plan.RunID, Producer: s.index, Session: s.session, Partition: uint32(sl.partition), Sequence: sl.sequence, Intended: intended}
	if s.txn != nil {
		h.Txn = s.txn.number
	}
	h.seal(sl.record.Value)
	if s.sends != nil {
		s.sends.Append(history.Record{Kind: history.Sent, Producer: s.index, Session: s.session, Partition: uint32(sl.partition), Sequence: sl.sequence, Txn: h.Txn, At: intended})
	}
	s.run.outages[sl.partition].sent(intended)
	s.producer.Send(&sl.record, sl.done)
}

// finish books an outcome. Called once per send, from any goroutine.
func (s *sender) finish(sl *slot, a Ack) {
	now := s.run.clock.Now()
	took := now - sl.intended
	r := history.Record{Kind: history.Outcome, Result: history.OK, Producer: s.index, Session: sl.session, Partition: uint32(sl.partition),
		Sequence: sl.sequence, Offset: a.Offset, At: now}
	tracker := &s.run.outages[sl.partition]
	switch {
	case a.Err == nil:
		s.ack.Record(sl.intended, took)
		s.run.highest(sl.partition, a.Offset+1)
		if s.txn != nil {
			s.txn.acked(sl.partition, a.Offset+1)
		} else {
			s.run.stalls[sl.partition].want(a.Offset+1, now)
		}
		tracker.acked(now)
		bytes := int64(sl.bytes)
		s.done.add(sl.intended, now, func(p *PhaseCounts, k *Tick) { p.Acked++; p.Bytes += bytes; k.Acked++ })
	case a.Definite:
		r.Result, r.Class = history.Failed, s.run.errors.class(a.Err)
		s.failures.Record(sl.intended, took)
		tracker.gaveUp()
		s.done.add(sl.intended, now, func(p *PhaseCounts, k *Tick) { p.Failed++; k.Failed++ })
	default:
		r.Result, r.Class = history.Unknown, s.run.errors.class(a.Err)
		s.failures.Record(sl.intended, took)
		tracker.gaveUp()
		s.done.add(sl.intended, now, func(p *PhaseCounts, k *Tick) { p.Unknown++; k.Unknown++ })
	}
	if s.acks != nil {
		s.acks.Append(r)
	}
	s.give(sl)
	s.run.waiting.Add(-1)
	if s.tokens != nil {
		s.tokens <- struct{}{} // has room for every message that can be outstanding
	}
}

func (s *sender) take() *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		sl := s.free[n-1]
		s.free = s.free[:n-1]
		return sl
	}
	sl := &slot{}
	sl.done = func(a Ack) { s.finish(sl, a) }
	return sl
}

func (s *sender) give(sl *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, sl)
}

// ends is the highest offset known to exist, per partition.
type ends []atomic.Int64

func (e ends) raise(i int, to int64) {
	for {
		old := e[i].Load()
		if to <= old || e[i].CompareAndSwap(old, to) {
			return
		}
	}
}
