package partition

import (
	"slices"
	"time"

	"gopherlog/cluster/replica"
	"gopherlog/engine/record"
	"gopherlog/txn/producer"
	"gopherlog/txn/twopc"
)

// Coordinators tells which transactions are ongoing.
type Coordinators interface {
	// Verify asks the transaction's coordinator whether it is ongoing and has this partition. done is called exactly once, from any
	// goroutine, no later than a little after the question's deadline. Neither Verify nor done blocks.
	//
	// The error is one of ErrInvalidProducerEpoch, ErrProducerFenced, ErrInvalidTxnState, ErrInvalidProducerIDMapping: the batch is
	// refused; ErrConcurrentTransactions, the transaction before is still ending, for which the one who was asked has waited already;
	// or ErrNotCoordinator: nobody could tell, although the question waited for a coordinator. After these two it is asked again until the
	// batch's deadline.
	Verify(q Question, done func(Verified, error))
}

// Question is what a partition asks about the producer of a batch.
type Question struct {
	TransactionalID string
	ProducerID      int64
	Epoch           int16
	Topic           string
	Number          int32
	Add             bool // let the transaction have the partition from now on (transaction version 2)
	// MinTerm is the oldest term whose coordinator may answer: those of older ones were deposed.
	MinTerm  int32
	Deadline time.Time
}

// Verified is the coordinator's answer.
type Verified struct {
	Ongoing bool
	// Term is that of the coordinator who says so; 0: nothing can be concluded from it. One that is older than the newest marker of the
	// producer here was deposed, and does not know that the transaction has ended.
	Term    int32
	Txn     twopc.Txn     // of a voted transaction: its name
	Timeout time.Duration // of a voted transaction
}

// Producers describes what is remembered of the producers, ascending by id.
func (p *Partition) Producers() []producer.Producer {
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	return p.producers.Producers()
}

// OpenTransactions is the number of transactions that are open here.
func (p *Partition) OpenTransactions() int {
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	return p.producers.Open()
}

// WriteMarker ends a producer's transaction here. done is called once and must not block: with nil when the marker, or a fact that makes
// it needless, is committed and applied by this leader. ErrCoordinatorFenced and ErrInvalidProducerEpoch (the producer has gone on, or the
// transaction that is open is a later one) are as certain. After ErrNotLeader and ErrTimeout the marker may still become durable; one whose
// deadline passed before it was proposed never does. A zero deadline never passes.
func (p *Partition) WriteMarker(m producer.Marker, deadline time.Time, done func(error)) {
	f := &inflight{p: p, producer: -1, ctrlDone: done, marker: &m, deadline: deadline}
	l := p.lead.Load()
	if l == nil || !l.enqueue(f) {
		f.finish(-1, ErrNotLeader)
	}
}

// checkMarker decides about a marker. What it answers without proposing it may rest on what is not committed yet, or on the memory of a
// leader that was deposed: an empty entry behind everything else shows that it is true.
func (l *leadership) checkMarker(f *inflight, r *round) {
	if !f.deadline.IsZero() && !r.now.Before(f.deadline) {
		f.finish(-1, ErrTimeout)
		return
	}
	if l.ballots.protects(f.marker.ProducerID) {
		f.finish(-1, ErrInvalidTxnState)
		return
	}
	l.p.stateMu.Lock()
	v := l.p.producers.CheckMarker(*f.marker, l.overlay)
	l.p.stateMu.Unlock()
	original, flying := v.InFlight.(*inflight)
	switch {
	case v.Kind == producer.Append:
		l.appendMarker(f, r)
	case flying:
		l.await(f)
		original.repeat(f)
	default:
		f.truth = reasons[v.Reason]
		f.prop = replica.Proposal{Ctrl: encodeCommand(commandExpire, 0)}
		l.await(f)
		l.propose(f, r)
	}
}

func (l *leadership) appendMarker(f *inflight, r *round) {
	m := f.marker
	kind := record.Abort
	if m.Commit {
		kind = record.Commit
	}
	f.batch = record.BuildControl(kind, m.ProducerID, m.Epoch, m.CoordinatorEpoch, r.now.UnixMilli())
	l.overlay.Add(f.batch, f)
	f.producer = m.ProducerID
	l.p.stats.markers.Add(1)
	l.await(f)
	l.next++
	l.propose(f, r)
	l.ended(m.ProducerID, r)
}

// aborted lists the aborted transactions that a reader of [from, to) must know. ok is false when the log start has passed from meanwhile:
// then some of them may be forgotten.
func (p *Partition) aborted(from, to int64) (list []producer.Aborted, ok bool) {
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	return p.producers.AbortedIn(nil, from, to), from >= p.trimmedTo
}

// owner is a producer in one epoch.
type owner struct {
	id    int64
	epoch int16
}

func ownerOf(b record.Batch) owner { return owner{b.ProducerID(), b.ProducerEpoch()} }

// parked are the batches of one owner that wait, in order: for the coordinator's answer to a question, or (without one) for the marker of
// the transaction before.
type parked struct {
	batches  []*inflight
	question producer.Ask // 0: a marker must come
	minTerm  int32        // of who may answer
	asked    time.Time
	again    time.Time // when to repeat the question; zero: the answer is to come
	backoff  time.Duration
	full     bool // one was turned away: those behind it are too
}

// maxParked bounds the bytes of batches of one partition that wait for coordinators and markers, so that others find room in the
// partition's budget. What comes above it is refused, and its client comes again.
const maxParked = PartitionBudget / 4

// Repeating a question that came back without an answer. It waits for its coordinator where it is put, so this paces only what nothing tells
// the end of: there were more questions than may wait, or the coordinators are being closed.
const (
	firstBackoff = 5 * time.Millisecond
	lastBackoff  = 250 * time.Millisecond
	// questionTime bounds a question about a batch without deadline.
	questionTime = 30 * time.Second
)

// coordinatorSaid is the answer to a question.
type coordinatorSaid struct {
	owner    owner
	question producer.Ask
	verified Verified
	err      error
}

// park keeps f in its place behind what waits already; nil if there is no room.
func (l *leadership) park(f *inflight, why error) *parked {
	o := ownerOf(f.batch)
	k := l.parked[o]
	if k == nil {
		if l.parked == nil {
			l.parked = make(map[owner]*parked)
		}
		k = &parked{}
		l.parked[o] = k
	}
	if k.full = k.full || l.parkedBytes+f.charge > maxParked; k.full {
		if len(k.batches) == 0 && k.question == 0 {
			delete(l.parked, o)
		}
		l.reject(f, ErrNotEnoughReplicas)
		return nil
	}
	l.parkedBytes += f.charge
	if k.question != 0 {
		why = ErrNotEnoughReplicas
	}
	f.parked = why
	k.batches = append(k.batches, f)
	l.await(f)
	return k
}

// mustPark: something of the same owner waits, and f comes behind it.
func (l *leadership) mustPark(f *inflight) bool {
	return len(l.parked) > 0 && f.batch.ProducerID() >= 0 && l.parked[ownerOf(f.batch)] != nil
}

// verify parks a batch that would open a transaction and asks its coordinator.
func (l *leadership) verify(f *inflight, r *round) {
	if l.p.coordinators == nil || f.req.TransactionalID == "" {
		l.reject(f, ErrInvalidTxnState)
		return
	}
	o := ownerOf(f.batch)
	k := l.park(f, ErrNotEnoughReplicas)
	if k == nil || k.question != 0 {
		return
	}
	k.question = l.overlay.Ask(o.id, o.epoch)
	l.ask(o, k, r.now)
}

// ask puts the question of k, for its first batch.
func (l *leadership) ask(o owner, k *parked, now time.Time) {
	first := k.batches[0]
	deadline := first.deadline
	if deadline.IsZero() {
		deadline = now.Add(questionTime)
	}
	k.asked, k.again = now, time.Time{}
	question := k.question
	l.asking++
	l.p.stats.verifications.Add(1)
	l.p.coordinators.Verify(Question{
		TransactionalID: first.req.TransactionalID, ProducerID: o.id, Epoch: o.epoch, Topic: l.p.topic, Number: l.p.number,
		Add: first.req.Version >= producer.Version2, MinTerm: k.minTerm, Deadline: deadline,
	}, func(v Verified, err error) { l.heard(coordinatorSaid{o, question, v, err}) })
}

// heard hands an answer to the proposer.
func (l *leadership) heard(a coordinatorSaid) {
	l.mu.Lock()
	if !l.closed {
		l.answers = append(l.answers, a)
	}
	l.mu.Unlock()
	l.nudge()
}

func (l *leadership) takeAnswers() []coordinatorSaid {
	l.mu.Lock()
	defer l.mu.Unlock()
	answers := l.answers
	l.answers = nil
	return answers
}

// said takes an answer: what waited for it is checked again, in order, or refused.
func (l *leadership) said(a coordinatorSaid, r *round) {
	k := l.parked[a.owner]
	if k == nil || k.question != a.question {
		return
	}
	if a.err == nil && a.verified.Ongoing {
		if by := l.deposed(a.owner.id, a.verified.Term); by > k.minTerm && len(k.batches) > 0 {
			k.minTerm = by
			l.ask(a.owner, k, r.now) // of the successor: it is awaited there
			return
		} else if by > 0 {
			a.err = ErrNotCoordinator
		}
	}
	if isAny(a.err, ErrNotCoordinator, ErrConcurrentTransactions) && len(k.batches) > 0 {
		k.backoff = min(max(2*k.backoff, firstBackoff), lastBackoff)
		if k.again = k.asked.Add(k.backoff); k.again.After(r.now) {
			return
		}
		l.ask(a.owner, k, r.now)
		return
	}
	delete(l.parked, a.owner)
	version := producer.Version0
	if len(k.batches) > 0 {
		version = k.batches[0].req.Version
	}
	err := a.err
	if err == nil && !a.verified.Ongoing {
		err = ErrInvalidTxnState
	}
	l.overlay.Answer(a.owner.id, a.question, err == nil, version)
	l.ballots.said(a.verified, k.batches, func() { l.resumeAll(k, err, r) })
}

// deposed is the term of the successor of a coordinator of that term, if a marker of the producer by one is here; 0: none is.
func (l *leadership) deposed(producerID int64, term int32) int32 {
	if term == 0 {
		return 0
	}
	l.p.stateMu.Lock()
	defer l.p.stateMu.Unlock()
	if by := l.p.producers.Coordinator(producerID, l.overlay); term < by {
		return by
	}
	return 0
}

func (l *leadership) resumeAll(k *parked, refusal error, r *round) {
	for _, f := range k.batches {
		l.parkedBytes -= f.charge
	}
	for _, f := range k.batches {
		if refusal == nil && !f.deadline.IsZero() && !r.now.Before(f.deadline) {
			refusal = f.parked // and what comes behind it would leave a gap
		}
		l.resume(f, refusal, r)
	}
}

// resume checks a batch again that waited. With refusal it goes only if it was appended before, so that no later one overtakes what was
// refused.
func (l *leadership) resume(f *inflight, refusal error, r *round) {
	f.parked = nil
	if refusal == nil {
		l.checkBatch(f, r)
		return
	}
	if v := l.verdict(f); v.Kind == producer.Duplicate {
		l.repeat(f, v)
		return
	}
	l.reject(f, refusal)
}

// ended checks again what waited for the end of the producer's transaction.
func (l *leadership) ended(id int64, r *round) {
	if len(l.parked) == 0 {
		return
	}
	var ready []owner
	for o, k := range l.parked {
		if o.id == id && k.question == 0 {
			ready = append(ready, o)
		}
	}
	slices.SortFunc(ready, func(a, b owner) int { return int(a.epoch) - int(b.epoch) })
	for _, o := range ready {
		k := l.parked[o]
		delete(l.parked, o)
		l.resumeAll(k, nil, r)
	}
}

// askAgain repeats the questions that nobody could answer.
func (l *leadership) askAgain(now time.Time) {
	for o, k := range l.parked {
		if !k.again.IsZero() && !k.again.After(now) {
			if len(k.batches) == 0 {
				delete(l.parked, o)
				continue
			}
			l.ask(o, k, now)
		}
	}
}

// sweepParked forgets batches whose deadline passed while they waited, and refuses those behind them, which would leave a gap.
func (l *leadership) sweepParked() {
	for o, k := range l.parked {
		at := slices.IndexFunc(k.batches, func(f *inflight) bool { return f.answered.Load() })
		if at < 0 {
			continue
		}
		for _, f := range k.batches[at:] {
			l.parkedBytes -= f.charge
			f.finish(-1, f.parked)
		}
		clear(k.batches[at:])
		if k.batches = k.batches[:at]; at == 0 && (k.question == 0 || !k.again.IsZero()) {
			delete(l.parked, o)
		}
	}
}

// unpark answers everything that waits.
func (l *leadership) unpark(err error) {
	for _, k := range l.parked {
		for _, f := range k.batches {
			f.finish(-1, err)
		}
	}
	l.parked, l.parkedBytes = nil, 0
}

// nextQuestion is when a question is to be repeated; zero if none is.
func (l *leadership) nextQuestion() (at time.Time) {
	for _, k := range l.parked {
		if !k.again.IsZero() && (at.IsZero() || k.again.Before(at)) {
			at = k.again
		}
	}
	return at
}
