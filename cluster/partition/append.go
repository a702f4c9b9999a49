package partition

import (
	"sync"
	"sync/atomic"
	"time"

	"gopherlog/cluster/replica"
	"gopherlog/engine/record"
	"gopherlog/engine/wire"
	"gopherlog/txn/producer"
)

// Acks of a produce request.
const (
	AcksNone   int16 = 0  // answered like AcksLeader; the client hears of an error only, by its connection closing
	AcksLeader int16 = 1  // answered when the leader wrote it
	AcksAll    int16 = -1 // answered when committed, and on min.insync.replicas if those are more than a majority
)

// copyBelow: smaller batches are copied out of their request's buffer, so that a hundred bytes do not keep a megabyte alive
// in the log's caches; the buffer is then free for reuse at once.
const copyBelow = 64 << 10

// AppendRequest asks for one batch to be appended.
type AppendRequest struct {
	// Batch is one whole batch that the caller has validated (structure, CRC, no control bit). Its base offset and leader
	// epoch are overwritten.
	Batch record.Batch
	// Buf is the buffer that Batch lies in. The partition takes references of its own; the caller keeps its own until it
	// releases it. nil: the bytes belong to the partition from now on.
	Buf  *wire.Buf
	Acks int16
	// Epoch is the leader epoch in which it may be appended, in any other it is ErrNotLeader; 0: whichever it is.
	Epoch int32
	// TransactionalID is whose transaction a transactional batch belongs to.
	TransactionalID string
	// Version 2: the client leaves it to the partition to become part of the transaction.
	Version producer.TransactionVersion
	// Deadline is until when to wait for the outcome; zero waits for ever.
	Deadline time.Time
	// Done is called exactly once, from any goroutine, possibly before Append returns. It must not block.
	Done func(AppendResult)
}

// AppendResult is the outcome. With an error BaseOffset is -1, and the batch may or may not be in the log (see the errors).
type AppendResult struct {
	BaseOffset int64
	LogStart   int64
	Err        error
}

// Append hands the batch to the partition's proposer. It blocks, until the deadline at most, while the partition's or the
// node's budget for waiting batches is used up, and otherwise returns at once.
func (p *Partition) Append(r *AppendRequest) {
	l := p.lead.Load()
	if err := p.admissible(r, l); err != nil {
		p.stats.rejected.Add(1)
		r.Done(AppendResult{BaseOffset: -1, LogStart: -1, Err: err})
		return
	}
	f := &inflight{p: p, req: r, charge: charge(r), producer: -1, deadline: r.Deadline}
	if err := l.admit(f); err != nil {
		r.Done(AppendResult{BaseOffset: -1, LogStart: -1, Err: err})
		return
	}
	f.batch = f.own(r)
	if !l.enqueue(f) {
		f.finish(-1, ErrNotLeader)
	}
}

func (p *Partition) admissible(r *AppendRequest, l *leadership) error {
	if l == nil {
		if err := p.group.Status().Failed; err != nil {
			return ErrStorage
		}
		return ErrNotLeader
	}
	if r.Epoch != 0 && r.Epoch != l.epoch {
		return ErrNotLeader
	}
	if p.kept == nil && r.Batch.ProducerID() >= 0 && r.Batch.BaseSequence() < 0 {
		return ErrOutOfOrderSequence // only coordinators write without
	}
	if limit := p.settings.Load().MaxMessageBytes; limit > 0 && len(r.Batch) > int(limit) {
		return ErrTooLarge
	}
	if p.disk.full.Load() {
		return errDiskFull
	}
	return nil
}

// charge is what a batch costs in memory until it is committed: its copy, or its share of a pooled buffer, whose capacity is
// at most one and a half times what it holds.
func charge(r *AppendRequest) int64 {
	n := int64(len(r.Batch))
	if r.Buf != nil && n >= copyBelow {
		n += n / 2
	}
	return max(n, minCharge)
}

// inflight is one proposal on its way: a batch with the requests that wait for it, a marker, or a control entry.
type inflight struct {
	p    *Partition
	prop replica.Proposal
	req  *AppendRequest // nil for a marker or a control entry

	batch    record.Batch
	held     *wire.Buf // the memory of batch, counted as the client's until the outcome; nil: the garbage collector's
	charge   int64
	producer int64     // id whose overlay entry this is; -1 none
	earliest time.Time // not to be proposed before (sabotage only)
	wide     int       // replicas that an acks=all answer must stand on, if more than a majority
	ctrlDone func(error)
	deadline time.Time        // zero: never
	marker   *producer.Marker // to be checked and turned into a batch
	task     func(*round)     // to be run in its place, and no proposal
	truth    error            // what to answer to a marker once it is certain
	awaited  bool             // in the proposer's list of deadlines
	parked   error            // waits before the log: the answer at its deadline

	answered atomic.Bool // the request's Done was called
	over     atomic.Bool // finish was called: the proposer may retire it

	mu       sync.Mutex // guards what follows
	appended bool
	finished bool
	base     int64
	err      error
	repeats  []*inflight // repeats of this batch: they get its outcome
}

// own returns bytes that nobody will reuse: a copy of a small batch, or the batch itself with a reference to its buffer.
func (f *inflight) own(r *AppendRequest) record.Batch {
	if r.Buf == nil {
		return r.Batch
	}
	if len(r.Batch) < copyBelow {
		return append(record.Batch(nil), r.Batch...)
	}
	r.Buf.Retain()
	f.held = r.Buf
	return r.Batch
}

// giveBack returns the charge and the reference to the buffer.
func (f *inflight) giveBack() {
	if f.held != nil {
		f.held.Release()
		f.held = nil
	}
	f.batch = nil
	f.p.own.give(f.charge)
	f.p.budget.give(f.charge)
	f.charge = 0
}

// onAppended: the batch is written here. It answers whoever does not ask for more.
func (f *inflight) onAppended(base int64) {
	f.mu.Lock()
	f.appended, f.base = true, base
	repeats := f.repeats
	f.mu.Unlock()
	f.answerWritten(base)
	for _, r := range repeats {
		r.answerWritten(base)
	}
}

func (f *inflight) answerWritten(base int64) {
	if f.req != nil && f.req.Acks != AcksAll {
		f.answer(base, nil)
	}
}

// committed is the proposal's Done.
func (f *inflight) committed(base int64, err error) { f.finish(base, fromReplica(err)) }

// finish is the outcome. Requests that must stand on more replicas than a majority wait on.
func (f *inflight) finish(base int64, err error) {
	if err != nil {
		base = -1
	}
	f.giveBack()
	f.mu.Lock()
	f.finished, f.base, f.err = true, base, err
	repeats := f.repeats
	f.repeats = nil
	f.mu.Unlock()
	f.settle(base, err, f.prop.Index())
	for _, r := range repeats {
		r.settle(base, err, f.prop.Index())
	}
	f.over.Store(true)
}

// settle answers with the outcome of the batch, or waits for more replicas first.
func (f *inflight) settle(base int64, err error, index uint64) {
	if err == nil && f.wide > 0 {
		f.p.group.WaitCommittedOn(f.wide, index, func(err error) { f.answer(base, fromReplica(err)) })
		return
	}
	f.answer(base, err)
}

// repeat makes r wait for the outcome of f, which is the same batch.
func (f *inflight) repeat(r *inflight) {
	f.mu.Lock()
	finished, appended, base, err := f.finished, f.appended, f.base, f.err
	if !finished {
		f.repeats = append(f.repeats, r)
	}
	f.mu.Unlock()
	if finished {
		r.settle(base, err, f.prop.Index())
	} else if appended {
		r.answerWritten(base)
	}
}

// answer calls the request's Done unless it was called already.
func (f *inflight) answer(base int64, err error) {
	if f.answered.Swap(true) {
		return
	}
	if err != nil {
		base = -1
	}
	switch {
	case f.req != nil:
		f.req.Done(AppendResult{BaseOffset: base, LogStart: f.p.logStart.Load(), Err: err})
	case f.ctrlDone != nil:
		if err == nil {
			err = f.truth
		}
		f.ctrlDone(err)
	}
}
