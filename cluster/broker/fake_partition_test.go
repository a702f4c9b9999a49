package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/log"
	"gopherlog/engine/record"
	"gopherlog/txn/producer"
	"gopherlog/txn/twopc"
)

// fakePartition commits what it appends at once, unless hold is set.
type fakePartition struct {
	w        *world
	id       meta.TopicID
	log      *log.Log
	settings partition.Settings

	mu           sync.Mutex
	epoch        int32
	leads        bool
	elected      bool // leads without having committed anything in its term
	deposed      bool // another leads, and this one does not know it
	elsewhere    meta.NodeID
	outOfService error
	hold         bool
	failWith     error
	held         []func()
	hw, start    int64
	waiters      map[*partition.Waiter]bool
	lastAppend   *partition.AppendRequest
	reads        int
	awaited      int // how often somebody asked to be told of a leader
	kept         partition.Kept
	stable       int64 // last stable offset is so many below the high watermark
	aborted      []producer.Aborted
	markers      []producer.Marker
	producers    []producer.Producer
	inDoubt      []partition.InDoubt
	decrees      []string
}

func (p *fakePartition) TopicID() meta.TopicID        { return p.id }
func (p *fakePartition) Settings() partition.Settings { return p.settings }

func (p *fakePartition) Append(r *partition.AppendRequest) {
	p.mu.Lock()
	p.lastAppend = r
	if err := p.appendError(); err != nil {
		p.mu.Unlock()
		r.Done(partition.AppendResult{BaseOffset: -1, LogStart: -1, Err: err})
		return
	}
	base := p.log.EndOffset()
	batch := append(record.Batch(nil), r.Batch...)
	batch.SetBaseOffset(-1)
	if err := p.log.Append([]log.Entry{{Index: p.log.LastIndex() + 1, Term: uint64(p.epoch), Data: batch}}); err != nil {
		p.w.t.Errorf("append: %v", err)
	}
	finish := func() {
		if p.kept != nil {
			p.kept.Apply(batch)
		}
		p.commit()
		r.Done(partition.AppendResult{BaseOffset: base, LogStart: p.LogStart()})
	}
	if p.hold {
		p.held = append(p.held, finish)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	finish()
}

func (p *fakePartition) appendError() error {
	switch {
	case p.failWith != nil:
		return p.failWith
	case !p.leads, p.elected, p.lastAppend.Epoch != 0 && p.lastAppend.Epoch != p.epoch:
		return partition.ErrNotLeader
	}
	return nil
}

func (p *fakePartition) Confirm(epoch int32, done func(error)) {
	p.mu.Lock()
	var err error
	if !p.leads || p.deposed || p.epoch != epoch {
		err = partition.ErrNotLeader
	}
	p.mu.Unlock()
	done(err)
}

// commit moves the high watermark to the log end and wakes who waits for it.
func (p *fakePartition) commit() {
	p.mu.Lock()
	p.hw = p.log.EndOffset()
	p.mu.Unlock()
	p.wake()
}

func (p *fakePartition) release() {
	p.mu.Lock()
	held := p.held
	p.held, p.hold = nil, false
	p.mu.Unlock()
	for _, f := range held {
		f()
	}
}

// lead changes the leadership.
func (p *fakePartition) lead(leads bool, epoch int32) {
	p.mu.Lock()
	p.leads, p.epoch = leads, epoch
	p.mu.Unlock()
	p.wake()
}

func (p *fakePartition) wake() {
	p.mu.Lock()
	waiters := p.waiters
	p.waiters = map[*partition.Waiter]bool{}
	p.mu.Unlock()
	for w := range waiters {
		select {
		case w.C <- struct{}{}:
		default:
		}
	}
}

func (p *fakePartition) CheckEpoch(known int32) (int32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.leads || p.elected:
		return -1, partition.ErrNotLeader
	case known >= 0 && known < p.epoch:
		return p.epoch, partition.ErrFencedEpoch
	case known > p.epoch:
		return p.epoch, partition.ErrUnknownEpoch
	}
	return p.epoch, nil
}

func (p *fakePartition) Read(r partition.ReadRequest) (partition.ReadResult, error) {
	res := partition.ReadResult{HighWatermark: -1, LastStable: -1, LogStart: -1, LeaderEpoch: -1, DivergingEpoch: -1, DivergingEnd: -1}
	epoch, err := p.CheckEpoch(r.CurrentEpoch)
	if err != nil {
		return res, err
	}
	p.mu.Lock()
	p.reads++
	p.mu.Unlock()
	res.LeaderEpoch, res.HighWatermark, res.LastStable, res.LogStart = epoch, p.HighWatermark(), p.LastStable(), p.LogStart()
	if r.Offset < res.LogStart || r.Offset > p.log.EndOffset() {
		return res, partition.ErrOffsetOutOfRange
	}
	if r.LastFetchedEpoch >= 0 {
		if e, end := p.log.EpochEnd(r.LastFetchedEpoch); e < r.LastFetchedEpoch || end < r.Offset {
			res.DivergingEpoch, res.DivergingEnd = e, end
			return res, nil
		}
	}
	limit := p.end(r.Isolation)
	if r.Offset >= limit {
		return res, nil
	}
	s, err := p.log.Slice(r.Offset, limit, r.MaxBytes, r.MinOne)
	if err == nil && s.Bytes == 0 {
		s.Release()
		s = nil
	}
	if res.Slice = s; r.Isolation == partition.ReadCommitted {
		res.Aborted = p.aborted
	}
	return res, err
}

func (p *fakePartition) Park(w *partition.Waiter, end int64, epoch int32, isolation int8) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.hw
	if isolation == partition.ReadCommitted {
		now -= p.stable
	}
	if now != end || !p.leads || p.epoch != epoch {
		return false
	}
	p.waiters[w] = true
	return true
}

// Unsettled: who neither leads nor knows who does will hear of it.
func (p *fakePartition) Unsettled(known int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unsettled(known)
}

func (p *fakePartition) unsettled(known int32) bool {
	if p.leads && !p.elected {
		return known > p.epoch
	}
	return p.elsewhere == 0 || known > p.epoch
}

func (p *fakePartition) AwaitLeader(w *partition.Waiter, known int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.unsettled(known) {
		return false
	}
	p.awaited++
	p.waiters[w] = true
	return true
}

func (p *fakePartition) Unpark(w *partition.Waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiters, w)
}

func (p *fakePartition) readCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reads
}

func (p *fakePartition) parked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiters)
}

func (p *fakePartition) HighWatermark() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hw
}
func (p *fakePartition) LastStable() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hw - p.stable
}
func (p *fakePartition) LogStart() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.start
}
func (p *fakePartition) EndOffset() int64 { return p.log.EndOffset() }
func (p *fakePartition) Size() int64      { return p.log.Size() }

func (p *fakePartition) Leader() (rpc.NodeID, int32, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.leads:
		return 1, p.epoch, !p.elected
	case p.elsewhere != 0:
		return p.elsewhere, p.epoch, false
	}
	return meta.NoLeader, -1, false
}

func (p *fakePartition) Status() replica.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := replica.Status{Role: replica.Follower, Term: uint64(p.epoch)}
	if p.leads {
		s.Role = replica.Leader
	}
	return s
}

func (p *fakePartition) InSyncNodes() []rpc.NodeID { return []rpc.NodeID{1} }
func (p *fakePartition) OffsetForTimestamp(ts int64, isolation int8) (int64, int64, int32, bool, error) {
	return p.log.OffsetForTimestamp(ts, p.end(isolation))
}
func (p *fakePartition) MaxTimestamp(isolation int8) (int64, int64, error) {
	return p.log.MaxTimestamp(p.end(isolation))
}
func (p *fakePartition) end(isolation int8) int64 {
	if isolation == partition.ReadCommitted {
		return p.LastStable()
	}
	return p.HighWatermark()
}
func (p *fakePartition) WriteMarker(m producer.Marker, _ time.Time, done func(error)) {
	p.mu.Lock()
	p.markers = append(p.markers, m)
	err := p.failWith
	p.mu.Unlock()
	done(err)
}
func (p *fakePartition) Producers() []producer.Producer { return p.producers }
func (p *fakePartition) Doubts() []partition.InDoubt    { return p.inDoubt }
func (p *fakePartition) Decree(id string, owner twopc.Identity, commit bool, done func(error)) {
	p.mu.Lock()
	p.decrees = append(p.decrees, fmt.Sprintf("%s %s %v", id, owner, commit))
	err := p.failWith
	p.mu.Unlock()
	done(err)
}
func (p *fakePartition) EpochEnd(epoch int32) (int32, int64) { return p.log.EpochEnd(epoch) }
func (p *fakePartition) LastEpoch() int32                    { return p.log.LastEpoch() }
func (p *fakePartition) DeleteRecords(_ context.Context, offset int64) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start = max(p.start, offset)
	return p.start, nil
}
