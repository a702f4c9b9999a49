package coordinator

import (
	"context"
	"sync"
	"time"

	"gopherlog/cluster/partition"
	"gopherlog/engine/record"
)

// term is one leadership of a shard, and the one goroutine that runs its machines. Everything that happens to a machine comes through the
// queue, in order; what machines append goes to the partition in order, in this term or never.
type term struct {
	s        *shard
	epoch    int32
	machines machines

	wakeup chan struct{} // capacity 1

	mu    sync.Mutex // guards what follows
	queue []func()
	asked int // requests among queue
	over  bool

	// owned by run
	timers     *timers
	bundle     bundle
	grown      int64 // bytes appended since the log's size was looked at
	trimming   bool
	doubts     []func(still bool) // who waits to know whether the term goes on
	confirming bool
}

// begin prepares a term, which is to be run. s.mu is held.
func (s *shard) begin(epoch int32) *term {
	t := &term{s: s, epoch: epoch, wakeup: make(chan struct{}, 1), timers: newTimers()}
	t.bundle.t = t
	t.machines = s.of.kind.begin(t)
	return t
}

// end tells the term that it is over. It does not wait.
func (t *term) end() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.nudge()
}

// ended says whether the term is over, from any goroutine.
func (t *term) ended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over
}

func (t *term) nudge() {
	select {
	case t.wakeup <- struct{}{}:
	default:
	}
}

// post queues what is to happen; false: the term is over.
func (t *term) post(fn func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.enqueue(fn)
}

func (t *term) enqueue(fn func()) bool {
	if t.over {
		return false
	}
	t.queue = append(t.queue, fn)
	if len(t.queue) == 1 {
		t.nudge()
	}
	return true
}

// ask queues a request, or returns why not.
func (t *term) ask(fn func()) code {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked >= maxAsked {
		return codeLoading // clients come again
	}
	if !t.enqueue(fn) {
		return codeNotCoordinator
	}
	t.asked++
	return codeNone
}

// take empties the queue; last says that nothing will ever be in it again.
func (t *term) take(spare []func()) (queue []func(), last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	queue, t.queue, t.asked = t.queue, spare[:0], 0
	return queue, t.over
}

func (t *term) run() {
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	start := t.now()
	defer t.barrier()()
	t.machines.load()
	t.s.of.logger.Debug("coordinator loaded", "topic", t.s.of.kind.topic, "shard", t.s.number, "epoch", t.epoch, "took", t.now().Sub(start))
	var spare []func()
	for {
		now := t.now() // taken first: a timer fires only when everybody was heard who asked before it was due
		queue, last := t.take(spare)
		for _, fn := range queue {
			fn()
		}
		clear(queue)
		spare = queue
		if last {
			t.machines.lost()
			tell(t.doubts, false)
			return
		}
		for k, due := t.timers.pop(now); due; k, due = t.timers.pop(now) {
			if k.kind == timerPatient {
				t.bundle.fire()
				continue
			}
			t.machines.fire(k)
		}
		t.bundle.turn()
		t.rest(alarm)
	}
}

func (t *term) now() time.Time { return t.s.of.now() }

// rest waits until something is queued or a timer is due.
func (t *term) rest(alarm *time.Timer) {
	if due, ok := t.timers.next(); ok {
		alarm.Reset(max(due.Sub(t.now()), 0))
	} else {
		alarm.Reset(time.Hour)
	}
	select {
	case <-t.wakeup:
	case <-alarm.C:
	}
}

// after sets or replaces a timer.
func (t *term) after(k timerKey, d time.Duration) { t.timers.start(k, t.now().Add(d)) }

// append replicates a batch. then is called on this goroutine with the outcome; when the term ends before there is one, lost is called
// instead, on whichever goroutine, unless it is nil.
func (t *term) append(b record.Batch, then func(error), lost func()) {
	t.send(&partition.AppendRequest{Batch: b}, then, lost)
}

// send is append of a batch with something beside it.
func (t *term) send(r *partition.AppendRequest, then func(error), lost func()) {
	size := int64(len(r.Batch))
	r.Acks, r.Epoch = partition.AcksAll, t.epoch
	r.Done = func(r partition.AppendResult) {
		there := t.post(func() {
			t.count(size)
			then(r.Err)
		})
		if !there && lost != nil {
			lost()
		}
	}
	t.s.part.Append(r)
}

// confirm calls done, on this goroutine as long as the term goes on, with whether this is certainly the shard's coordinator still: who was
// deposed does not know what its successor did. Those who ask while an answer is awaited share the next one.
func (t *term) confirm(done func(still bool)) {
	t.doubts = append(t.doubts, done)
	t.resolve()
}

func (t *term) resolve() {
	if t.confirming || len(t.doubts) == 0 {
		return
	}
	doubts := t.doubts
	t.doubts, t.confirming = nil, true
	t.s.part.Confirm(t.epoch, func(err error) {
		there := t.post(func() {
			t.confirming = false
			tell(doubts, err == nil)
			t.resolve()
		})
		if !there {
			tell(doubts, false)
		}
	})
}

func tell(doubts []func(bool), still bool) {
	for _, done := range doubts {
		done(still)
	}
}

// count looks at the log's size from time to time.
func (t *term) count(bytes int64) {
	if t.grown += bytes; t.grown >= trimLook {
		t.trim()
	}
}

// trim lets the log begin behind what the table holds already, when it is much longer than the table.
func (t *term) trim() {
	t.grown = 0
	if t.trimming || t.s.part.Size() < max(trimFrom, trimFactor*t.s.table.size()) {
		return
	}
	t.trimming = true
	t.s.of.wg.Go(func() {
		ctx, cancel := context.WithTimeout(t.s.of.ctx, trimTimeout)
		defer cancel()
		_, err := t.s.part.DeleteRecords(ctx, t.s.part.HighWatermark())
		if err != nil {
			t.s.of.logger.Debug("log of a shard was not trimmed", "topic", t.s.of.kind.topic, "shard", t.s.number, "error", err)
		}
		t.post(func() { t.trimming = false })
	})
}
