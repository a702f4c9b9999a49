package partition

import (
	"sync"
	"time"

	"gopherlog/cluster/replica"
	"gopherlog/txn/producer"
)

// leadership is one term in which this replica leads: the queue of what shall be proposed and the one goroutine that
// proposes. The goroutine alone touches the overlay and calls ProposeBatch; every proposal carries the term, so none can
// be stored in another one, after its repeat was stored in between.
type leadership struct {
	p     *Partition
	term  uint64
	epoch int32

	wakeup chan struct{} // capacity 1
	stop   chan struct{}

	mu      sync.Mutex // guards queue, answers, closed
	queue   []*inflight
	answers []coordinatorSaid
	closed  bool

	// owned by run
	overlay  *producer.Overlay
	flying   []*inflight // proposed or held back, in order of proposal, until over
	waiting  []*inflight // requests that may need their deadline, repeats included; answered ones go at the next sweep
	earliest time.Time   // no deadline in waiting is earlier
	sweepAt  int         // sweep when waiting is this long
	held     []*inflight // sabotage: proposals kept back
	parked   map[owner]*parked
	asking   int // questions without an answer

	parkedBytes int64
	props       []*replica.Proposal
	spare       []*inflight
	next        int64 // the log end after everything proposed (sabotage predicts offsets with it)
	draining    bool  // a proposal failed: nothing is taken until all others are over
	ballots     *ballots
}

// newLeadership prepares a term. Its proposer is started when p.lead shows it, or answers to what it says first would find nobody.
func (p *Partition) newLeadership(term uint64) *leadership {
	l := &leadership{
		p: p, term: term, epoch: int32(term),
		wakeup:  make(chan struct{}, 1),
		stop:    make(chan struct{}),
		overlay: producer.NewOverlay(),
	}
	l.ballots = newBallots(l)
	return l
}

// end tells the proposer to stop; it does not wait.
func (l *leadership) end() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	close(l.stop)
}

// admit charges f to both budgets, waiting for room until the deadline passes or the leadership ends.
func (l *leadership) admit(f *inflight) error {
	p := l.p
	deadline := f.deadline
	if !p.own.take(f.charge, deadline, p.now, l.stop) {
		return l.notAdmitted()
	}
	if !p.budget.take(f.charge, deadline, p.now, l.stop) {
		p.own.give(f.charge)
		return l.notAdmitted()
	}
	return nil
}

func (l *leadership) notAdmitted() error {
	select {
	case <-l.stop:
		return ErrNotLeader
	default:
		return ErrTimeout
	}
}

// enqueue appends f to the queue; false if the leadership is over.
func (l *leadership) enqueue(f *inflight) bool {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return false
	}
	l.queue = append(l.queue, f)
	first := len(l.queue) == 1
	l.mu.Unlock()
	if first {
		l.nudge()
	}
	return true
}

func (l *leadership) nudge() {
	select {
	case l.wakeup <- struct{}{}:
	default:
	}
}

// run is the proposer.
func (l *leadership) run() {
	l.next = l.p.log.EndOffset()
	l.ballots.join()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if next := l.step(l.p.now()); next > 0 {
			timer.Reset(next)
		} else {
			timer.Stop()
		}
		select {
		case <-l.stop:
			l.abandon()
			return
		case <-l.wakeup:
		case <-timer.C:
		}
	}
}

// step does all that can be done now and returns after how long there is more to do by itself; 0 when never.
func (l *leadership) step(now time.Time) time.Duration {
	l.retire()
	l.ballots.step(now)
	l.hear(now)
	for queue := l.take(); len(queue) > 0; queue = l.take() {
		l.check(queue, now)
		l.release(now)
		l.retire()
		clear(queue)
		l.spare = queue[:0]
	}
	l.release(now)
	l.sweep(now)
	return l.nextStep(now)
}

// hear takes what coordinators said, and asks them again where it is time.
func (l *leadership) hear(now time.Time) {
	if l.asking == 0 && len(l.parked) == 0 {
		return
	}
	l.askAgain(now)
	answers := l.takeAnswers()
	if len(answers) == 0 {
		return
	}
	r := l.newRound(now)
	for _, a := range answers {
		l.asking--
		l.said(a, &r)
	}
}

func (l *leadership) take() []*inflight {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.queue
	l.queue, l.spare = l.spare, nil
	return queue
}

// retire forgets proposals that are over, in order, and their place in the overlay.
func (l *leadership) retire() {
	n := 0
	for n < len(l.flying) && l.flying[n].over.Load() {
		f := l.flying[n]
		l.overlay.Done(f.producer)
		if f.err != nil {
			l.draining = true
		}
		n++
	}
	l.flying = shift(l.flying, n)
	if l.draining {
		l.unpark(ErrNotLeader)
		l.ballots.lost()
	}
	if l.draining && len(l.flying) == 0 {
		// What is applied is now all there is of this term.
		l.draining = false
		l.overlay.Reset()
		l.ballots.join()
	}
}

// shift drops the first n elements, keeping the memory.
func shift(list []*inflight, n int) []*inflight {
	if n == 0 {
		return list
	}
	kept := copy(list, list[n:])
	clear(list[kept:])
	return list[:kept]
}

// release proposes what was checked, in one call: the group appends it with one write.
func (l *leadership) release(now time.Time) {
	if len(l.held) > 0 {
		l.releaseHeld(now)
	}
	if len(l.props) == 0 {
		return
	}
	props := l.props
	l.props = nil
	if err := l.p.group.ProposeBatch(props); err != nil {
		l.p.logger.Debug("proposals refused", "partition", l.p.label, "term", l.term, "error", err)
		for _, prop := range props {
			prop.Done(-1, err)
		}
	}
}

// abandon answers what was not proposed. What was proposed, and what waits for more replicas, is answered by the group: it
// does so at once when it loses its leadership.
func (l *leadership) abandon() {
	for _, f := range l.held {
		f.finish(-1, ErrNotLeader)
	}
	l.held = nil
	l.unpark(ErrNotLeader)
	l.ballots.lost()
	for queue := l.take(); len(queue) > 0; queue = l.take() {
		for _, f := range queue {
			f.finish(-1, ErrNotLeader)
		}
	}
}

// tidyAfter is how long an idle partition keeps the bytes of its last committed proposals.
const tidyAfter = 100 * time.Millisecond

// minSweep is how many answered requests may stay in waiting.
const minSweep = 64

// await makes the deadline of f's request count.
func (l *leadership) await(f *inflight) {
	if f.awaited {
		return
	}
	f.awaited = true
	l.waiting = append(l.waiting, f)
	if d := f.deadline; !d.IsZero() && (l.earliest.IsZero() || d.Before(l.earliest)) {
		l.earliest = d
	}
}

// sweep answers requests whose deadline has passed, while their batches go on, and forgets those that were answered. It
// looks only when a deadline can have passed or waiting has doubled.
func (l *leadership) sweep(now time.Time) {
	due := !l.earliest.IsZero() && !now.Before(l.earliest)
	if !due && len(l.waiting) < max(l.sweepAt, minSweep) {
		return
	}
	kept := l.waiting[:0]
	l.earliest = time.Time{}
	for _, f := range l.waiting {
		d := f.deadline
		if !d.IsZero() && !now.Before(d) {
			f.answer(-1, f.late())
		}
		if f.answered.Load() {
			continue
		}
		kept = append(kept, f)
		if !d.IsZero() && (l.earliest.IsZero() || d.Before(l.earliest)) {
			l.earliest = d
		}
	}
	clear(l.waiting[len(kept):])
	l.waiting, l.sweepAt = kept, 2*len(kept)
	if len(l.parked) > 0 {
		l.sweepParked()
	}
}

// late says what was missing at the deadline: the end of a transaction or its coordinator's word, the commit, or replicas above the
// majority.
func (f *inflight) late() error {
	if f.parked != nil {
		return f.parked
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wide > 0 && f.finished && f.err == nil {
		return ErrNotEnoughReplicasAfterAppend
	}
	return ErrTimeout
}

// nextStep is the time until the earliest deadline or held proposal; 0 if there is none.
func (l *leadership) nextStep(now time.Time) time.Duration {
	at := l.earliest
	if tidy := now.Add(tidyAfter); len(l.flying) > 0 && (at.IsZero() || tidy.Before(at)) {
		at = tidy
	}
	if len(l.held) > 0 && (at.IsZero() || l.held[0].earliest.Before(at)) {
		at = l.held[0].earliest
	}
	for _, q := range []time.Time{l.nextQuestion(), l.ballots.earliest} {
		if !q.IsZero() && (at.IsZero() || q.Before(at)) {
			at = q
		}
	}
	if at.IsZero() {
		return 0
	}
	return max(at.Sub(now), time.Millisecond)
}
