package partition

import (
	"time"

	"gopherlog/cluster/replica"
	"gopherlog/txn/producer"
)

// round is what one pass over the queue looks up once.
type round struct {
	now      time.Time
	required int // min.insync.replicas
	majority int
	inSync   int // -1: not asked yet
}

func (l *leadership) newRound(now time.Time) round {
	r := round{now: now, required: int(l.p.settings.Load().MinInsyncReplicas), inSync: -1}
	if r.required > 1 {
		r.majority = len(l.p.group.Voters())/2 + 1
	}
	return r
}

// check decides about what was queued, in order: proposals go to props, some batches of transactions wait, everything else is answered.
func (l *leadership) check(queue []*inflight, now time.Time) {
	r := l.newRound(now)
	for _, f := range queue {
		switch {
		case l.draining:
			f.finish(-1, ErrNotLeader)
		case f.task != nil:
			f.task(&r)
		case f.marker != nil:
			l.checkMarker(f, &r)
		case f.req == nil:
			l.propose(f, &r)
		default:
			l.checkBatch(f, &r)
		}
	}
}

func (l *leadership) checkBatch(f *inflight, r *round) {
	if f.req.Acks == AcksAll && r.required > 1 {
		if !l.enoughInSync(r) {
			l.reject(f, ErrNotEnoughReplicas)
			return
		}
		if r.required > r.majority {
			f.wide = r.required
		}
	}
	if l.mustPark(f) {
		l.park(f, ErrConcurrentTransactions)
		return
	}
	v := l.verdict(f)
	if l.votes(f, v) {
		if l.ballots.admit(f, r) {
			l.append(f, r)
		}
		return
	}
	switch v.Kind {
	case producer.Append:
		l.append(f, r)
	case producer.Duplicate:
		l.repeat(f, v)
	case producer.Reject:
		if v.Reason == producer.StillEnding {
			l.park(f, ErrConcurrentTransactions)
			return
		}
		l.reject(f, reasons[v.Reason])
	case producer.Verify, producer.Hold:
		l.verify(f, r)
	}
}

var reasons = map[producer.Reason]error{
	producer.OutOfOrder:        ErrOutOfOrderSequence,
	producer.InvalidEpoch:      ErrInvalidProducerEpoch,
	producer.InvalidTxnState:   ErrNotTransactional,
	producer.StillEnding:       ErrConcurrentTransactions,
	producer.CoordinatorFenced: ErrCoordinatorFenced,
}

func (l *leadership) enoughInSync(r *round) bool {
	if r.inSync < 0 {
		r.inSync = len(l.p.group.InSync(r.now))
	}
	return r.inSync >= r.required
}

func (l *leadership) verdict(f *inflight) producer.Verdict {
	l.p.stateMu.Lock()
	v := l.p.producers.Check(f.batch, l.overlay)
	l.p.stateMu.Unlock()
	return l.p.skipEpochCheck(l.p.skipDedupe(f.batch, v))
}

func (l *leadership) reject(f *inflight, err error) {
	l.p.stats.rejected.Add(1)
	f.finish(-1, err)
}

// repeat answers a repeat with its original's offset, once the original has the outcome that the repeat asks for.
func (l *leadership) repeat(f *inflight, v producer.Verdict) {
	l.p.stats.duplicates.Add(1)
	f.giveBack()
	if f.req.Acks == AcksNone {
		f.answer(-1, nil)
		return
	}
	l.await(f)
	if original, ok := v.InFlight.(*inflight); ok {
		original.repeat(f)
		return
	}
	f.mu.Lock()
	f.finished, f.base = true, v.BaseOffset
	f.mu.Unlock()
	f.settle(v.BaseOffset, nil, l.p.applied.Load())
}

// append takes a new batch into the overlay and proposes it.
func (l *leadership) append(f *inflight, r *round) {
	l.p.stats.batches.Add(1)
	l.p.stats.bytes.Add(int64(len(f.batch)))
	l.overlay.Add(f.batch, f)
	f.producer = f.batch.ProducerID()
	l.await(f)
	twin := l.appendTwice(f)
	base, count := l.next, int64(f.batch.LastOffsetDelta())+1
	l.next += count
	l.ackBeforeCommit(f, base, r.now)
	l.propose(f, r)
	if twin != nil {
		l.next += count
		l.propose(twin, r)
	}
}

// propose puts f behind everything proposed before it.
func (l *leadership) propose(f *inflight, r *round) {
	l.flying = append(l.flying, f)
	if len(l.held) > 0 || f.earliest.After(r.now) {
		l.held = append(l.held, f)
		return
	}
	l.ready(f)
}

// ready gives f to the next ProposeBatch.
func (l *leadership) ready(f *inflight) {
	f.prop.Term, f.prop.Done = l.term, f.committed
	if f.batch != nil {
		f.batch.SetBaseOffset(-1)
		f.batch.SetLeaderEpoch(-1)
		f.prop.Data = f.batch
		if f.held != nil {
			f.prop.Owner = f.held
		}
	}
	if f.req != nil && f.req.Acks != AcksAll {
		f.prop.Appended = f.onAppended
	}
	l.props = append(l.props, &f.prop)
}

// proposeSide puts a control entry directly behind what was proposed before and directly before what is proposed next; done is called once,
// when it is committed and applied or has failed, and must not block. Only the proposer's goroutine may call it.
func (l *leadership) proposeSide(entry []byte, r *round, done func(error)) {
	l.propose(&inflight{p: l.p, producer: -1, ctrlDone: done, prop: replica.Proposal{Ctrl: entry}}, r)
}

// do runs task on the proposer's goroutine, in its place behind what was queued before. Without leadership, or while a failed proposal of
// this term is being cleared away, lost is called instead.
func (l *leadership) do(task func(*round), lost func(error)) {
	f := &inflight{p: l.p, producer: -1, ctrlDone: lost, task: task}
	if !l.enqueue(f) {
		f.finish(-1, ErrNotLeader)
	}
}

// proposeControl replicates a control entry; done is called once, and must not block.
func (l *leadership) proposeControl(entry []byte, roll bool, done func(error)) {
	f := &inflight{p: l.p, producer: -1, ctrlDone: done, prop: replica.Proposal{Ctrl: entry, Roll: roll}}
	if !l.enqueue(f) {
		f.finish(-1, ErrNotLeader)
	}
}
