package partition

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"gopherlog/cluster/replica"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/record"
	"gopherlog/txn/producer"
	"gopherlog/txn/twopc"
)

// Ballot is how this node's participants of voted transactions reach their coordinators.
type Ballot interface {
	// Owns decides by the transactional id whether its transactions are voted on.
	Owns(transactionalID string) bool
	// Report carries a message to the coordinator of the transactional id. It may be lost. It does not block.
	Report(transactionalID string, m twopc.Message)
}

// Points at which a test may stop a participant. After an error the step is left out, as if the node had died there, until leadership changes.
var (
	pointPromise  = failpoint.Register("voted/before-promise", "PREPARE has come, the promise is not appended yet")
	pointPromised = failpoint.Register("voted/after-promise", "the promise is durable, YES is not said yet")
	pointMarker   = failpoint.Register("voted/before-marker", "the outcome has come, the marker is not appended yet")
)

// MemberOf is the name of a partition as a participant.
func MemberOf(topic string, number int32) twopc.Member {
	return twopc.Member(fmt.Sprintf("%s-%d", topic, number))
}

// Hear hands a coordinator's message to this replica's participant. Unless it leads, the message is lost. It does not block.
func (p *Partition) Hear(transactionalID string, m twopc.Message) {
	e, ok := m.(twopc.Event)
	if l := p.lead.Load(); ok && l != nil && p.ballot != nil {
		l.ballots.post(func() { l.ballots.heard(transactionalID, e) })
	}
}

// AskAgain makes participants with something open ask at once: a coordinator has moved, and knows only what was decided. It does not block.
func (p *Partition) AskAgain() {
	if l := p.lead.Load(); l != nil && p.ballot != nil {
		l.ballots.post(l.ballots.askAll)
	}
}

// ballots are the participants of voted transactions, on the leader and for its term. All but post belongs to the proposer's goroutine: so
// what they append lies in the order in which they decided.
type ballots struct {
	l      *leadership
	p      *Partition
	config twopc.Config

	silent bool // a record could not be appended: nothing happens until what was appended before is over

	of       map[string]*ballot
	earliest time.Time // no timer is due before; zero: none is set
	r        *round    // of this step
	moved    bool      // one came into doubt or out of it in this step

	// How many are in doubt, and since when the first of them is, in nanoseconds since 1970: for anybody.
	doubts     atomic.Int32
	doubtSince atomic.Int64
}

// ballot is one participant.
type ballot struct {
	id       string
	state    twopc.Participant
	verified Verified // what the coordinator said last, not used yet
	due      map[twopc.TimerKind]time.Time
	verdict  twopc.Result // of the batch in hand
	decreed  func(error)  // who waits for the marker that an operator decreed
}

func newBallots(l *leadership) *ballots {
	return &ballots{l: l, p: l.p, config: l.p.voted, of: map[string]*ballot{}}
}

// post runs fn on the proposer's goroutine, behind what was queued before; not at all if the leadership ends first.
func (b *ballots) post(fn func()) {
	b.l.do(func(r *round) { b.during(r, fn) }, func(error) {})
}

// during lets fn propose in a round.
func (b *ballots) during(r *round, fn func()) {
	outer := b.r
	b.r = r
	fn()
	if b.r = outer; b.moved {
		b.tell()
	}
}

// join makes the participants of what is open here: all that is committed is applied.
func (b *ballots) join() {
	if b.p.ballot == nil {
		return
	}
	b.silent = false
	b.p.stateMu.Lock()
	known := make(map[string]twopc.Standing, len(b.p.standings.open))
	for _, id := range b.p.standings.open {
		known[id] = b.p.standings.of[id].Standing
	}
	b.p.stateMu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(known)) {
		b.make(id, known[id])
	}
	b.tell()
}

func (b *ballots) make(id string, st twopc.Standing) *ballot {
	state, fx := b.config.Join(MemberOf(b.p.topic, b.p.number), st, b.l.p.now())
	t := &ballot{id: id, state: state, due: map[twopc.TimerKind]time.Time{}}
	b.of[id] = t
	b.do(t, fx)
	b.follow(twopc.Idle, state.Stage)
	return t
}

// get returns a participant, a new one if there is none: what the log says of it is applied, or it would be here.
func (b *ballots) get(id string) *ballot {
	if t := b.of[id]; t != nil {
		return t
	}
	b.p.stateMu.Lock()
	st := twopc.Standing{}
	if s := b.p.standings.of[id]; s != nil {
		st = s.Standing
	}
	b.p.stateMu.Unlock()
	return b.make(id, st)
}

// lost ends all participants: a record was not appended, or the term is over.
func (b *ballots) lost() {
	if len(b.of) > 0 {
		b.of, b.earliest = map[string]*ballot{}, time.Time{}
		b.tell()
	}
	b.silent = true
}

// step lets happen what is due.
func (b *ballots) step(now time.Time) {
	if !b.earliest.IsZero() && !now.Before(b.earliest) {
		r := b.l.newRound(now)
		b.during(&r, func() { b.fire(now) })
	}
}

func (b *ballots) fire(now time.Time) {
	b.earliest = time.Time{}
	for _, id := range slices.Sorted(maps.Keys(b.of)) {
		t := b.of[id]
		if t == nil { // what was due for another one ended it
			continue
		}
		for _, k := range []twopc.TimerKind{twopc.TimerTransaction, twopc.TimerAsk} {
			if at, set := t.due[k]; set && !now.Before(at) {
				delete(t.due, k)
				b.happen(t, twopc.Timer{Kind: k})
			}
		}
		for _, at := range t.due {
			b.wakeAt(at)
		}
	}
}

func (b *ballots) wakeAt(at time.Time) {
	if b.earliest.IsZero() || at.Before(b.earliest) {
		b.earliest = at
	}
}

func (b *ballots) heard(id string, e twopc.Event) {
	if b.silent {
		return
	}
	t := b.get(id)
	b.obey(t, e)
	b.happen(t, e)
}

func (b *ballots) askAll() {
	for _, id := range slices.Sorted(maps.Keys(b.of)) {
		if t := b.of[id]; t.state.Stage == twopc.Prepared || t.state.Stage == twopc.Working {
			t.state.Tries = 0 // it was asked in vain who coordinated before
			b.happen(t, twopc.Timer{Kind: twopc.TimerAsk})
		}
	}
}

// happen lets something happen to a participant, and checks again what waited for it.
func (b *ballots) happen(t *ballot, e twopc.Event) {
	if b.participate(t, e) {
		b.resume(t.id)
	}
}

// participate is the participant's step. It tells whether the stage changed.
func (b *ballots) participate(t *ballot, e twopc.Event) (changed bool) {
	before := t.state.Stage
	state, fx := b.config.Participate(t.state, e, b.l.p.now())
	t.state = state
	b.follow(before, state.Stage)
	b.do(t, fx)
	b.rest(t)
	return t.state.Stage != before
}

// rest forgets a participant of which the log says all that it knows.
func (b *ballots) rest(t *ballot) {
	if t.state.Stage == twopc.Idle && len(t.due) == 0 && t.verified == (Verified{}) && b.of[t.id] == t {
		delete(b.of, t.id)
	}
}

func (b *ballots) follow(before, after twopc.Stage) {
	b.moved = b.moved || (before == twopc.Prepared) != (after == twopc.Prepared)
}

// tell publishes how many participants are in doubt, and since when.
func (b *ballots) tell() {
	n, oldest := 0, time.Time{}
	for _, t := range b.of {
		if t.state.Stage != twopc.Prepared {
			continue
		}
		if n++; n == 1 || t.state.Since.Before(oldest) {
			oldest = t.state.Since
		}
	}
	b.moved = false
	if n > 0 {
		b.doubtSince.Store(oldest.UnixNano())
	}
	b.doubts.Store(int32(n))
}

func (b *ballots) do(t *ballot, fx []twopc.Effect) {
	for _, f := range fx {
		switch f := f.(type) {
		case twopc.Append:
			if !b.append(t, f.Record) {
				return
			}
		case twopc.Report:
			b.p.ballot.Report(t.id, f.Message)
		case twopc.Answer:
			t.verdict = f.Result
		case twopc.SetTimer:
			at := b.l.p.now().Add(f.After)
			t.due[f.Kind] = at
			b.wakeAt(at)
		case twopc.ClearTimer:
			delete(t.due, f.Kind)
		}
	}
}

// append replicates a participant's record behind everything that was proposed before; false: a test stopped it.
func (b *ballots) append(t *ballot, rec twopc.Record) bool {
	var point failpoint.Name
	switch rec.(type) {
	case twopc.Promised:
		point = pointPromise
	case twopc.Marked:
		point = pointMarker
	}
	if point != "" && b.p.failpoints.Hit(point) != nil {
		b.stop(t)
		return false
	}
	_, opened := rec.(twopc.Opened)
	decreed := t.decreed
	t.decreed = nil
	done := func(err error) {
		if decreed != nil {
			decreed(err)
		}
		if err == nil && !opened { // nothing waits for that one; and after an error everything is lost: see retire
			b.post(func() { b.durable(t, rec) })
		}
	}
	if m, is := rec.(twopc.Marked); is {
		b.mark(m, done)
	} else {
		b.l.proposeSide(encodeVoted(t.id, rec), b.r, done)
	}
	return true
}

// mark proposes the ordinary marker, by which readers see the end of the transaction. What waits for it is checked again when it is durable.
func (b *ballots) mark(m twopc.Marked, done func(error)) {
	kind := record.Abort
	if m.Commit {
		kind = record.Commit
	}
	f := &inflight{p: b.p, producer: m.Txn.Owner.Producer, ctrlDone: done}
	f.batch = record.BuildControl(kind, f.producer, m.Epoch, int32(m.Txn.Term>>8), b.r.now.UnixMilli())
	b.l.overlay.Add(f.batch, f)
	b.p.stats.markers.Add(1)
	b.l.next++
	b.l.propose(f, b.r)
}

func (b *ballots) durable(t *ballot, rec twopc.Record) {
	if b.silent || b.of[t.id] != t {
		return
	}
	if _, is := rec.(twopc.Promised); is && b.p.failpoints.Hit(pointPromised) != nil {
		b.stop(t)
		return
	}
	b.happen(t, twopc.Durable{Record: rec})
}

// stop lets a participant do nothing more in this term.
func (b *ballots) stop(t *ballot) {
	b.follow(t.state.Stage, twopc.Deposed)
	t.state, _ = b.config.Participate(t.state, twopc.Lost{}, time.Time{})
	clear(t.due)
}

// admit offers a batch that fits its producer's sequence to the participant. With true it is to be appended now, behind what admit proposed;
// else it waits or was answered.
func (b *ballots) admit(f *inflight, r *round) bool {
	if b.silent {
		b.l.reject(f, ErrNotLeader)
		return false
	}
	t := b.get(f.req.TransactionalID)
	owner := twopc.Identity{Producer: f.batch.ProducerID(), Epoch: f.batch.ProducerEpoch()}
	e := twopc.Batch{Request: 1, Owner: owner}
	if t.verified.Txn.Owner == owner {
		e.Verified, e.Timeout = t.verified.Txn, t.verified.Timeout
	}
	t.verified, t.verdict = Verified{}, 0
	b.during(r, func() {
		if b.participate(t, e) { // what waits is looked at when f has its place
			b.post(func() { b.resume(t.id) })
		}
	})
	return b.admitted(f, t.verdict, r)
}

func (b *ballots) admitted(f *inflight, verdict twopc.Result, r *round) bool {
	switch verdict {
	case twopc.Admitted:
		return true
	case twopc.Unverified:
		b.l.verify(f, r)
	case twopc.Busy:
		b.l.park(f, ErrConcurrentTransactions)
	case twopc.Fenced:
		b.refuse(f, r, ErrProducerFenced)
	case twopc.BadState:
		b.refuse(f, r, ErrInvalidTxnState)
	default: // a test stopped the participant
		b.l.reject(f, ErrNotLeader)
	}
	return false
}

// refuse answers what the client cannot go on from, once an empty entry behind everything else shows that this leader knew.
func (b *ballots) refuse(f *inflight, r *round, why error) {
	b.p.stats.rejected.Add(1)
	b.l.proposeSide(encodeCommand(commandExpire, 0), r, func(err error) {
		if err == nil {
			err = why
		}
		f.finish(-1, err)
	})
}

// said keeps the coordinator's word for the batches that wait for it, while recheck checks them again.
func (b *ballots) said(v Verified, waiting []*inflight, recheck func()) {
	if v.Txn.None() || b.silent || b.p.ballot == nil || len(waiting) == 0 {
		recheck()
		return
	}
	id := waiting[0].req.TransactionalID
	b.get(id).verified = v
	recheck()
	if t := b.of[id]; t != nil {
		t.verified = Verified{}
		b.rest(t)
	}
}

// resume checks again what waited for the participant.
func (b *ballots) resume(id string) {
	var ready []owner
	for o, k := range b.l.parked {
		if k.question == 0 && len(k.batches) > 0 && k.batches[0].req.TransactionalID == id {
			ready = append(ready, o)
		}
	}
	slices.SortFunc(ready, func(x, y owner) int { return int(x.epoch) - int(y.epoch) })
	for _, o := range ready {
		k := b.l.parked[o]
		delete(b.l.parked, o)
		b.l.resumeAll(k, nil, b.r)
	}
}

// votes says that the participant is to judge a batch that fits its producer's sequence: the outcome of its transaction is voted on.
func (l *leadership) votes(f *inflight, v producer.Verdict) bool {
	fits := v.Kind == producer.Append || v.Kind == producer.Reject && v.Reason == producer.StillEnding
	return fits && l.p.ballot != nil && f.batch.IsTransactional() && l.p.ballot.Owns(f.req.TransactionalID)
}

// protects says that a voted transaction of the producer is open here: nothing but its vote ends it.
func (b *ballots) protects(producer int64) bool {
	for _, t := range b.of {
		if t.state.Stage != twopc.Idle && t.state.Txn.Owner.Producer == producer {
			return true
		}
	}
	return false
}

// stood applies a record of a participant. stateMu is held. One that this version cannot read was written by a newer one or is damage: going
// on would make replicas differ.
func (p *Partition) stood(e *replica.Committed) {
	id, rec, err := decodeVoted(e.Ctrl)
	if err != nil {
		panic(fmt.Sprintf("partition %s: control entry %d: %v", p.label, e.Index, err))
	}
	p.standings.apply(id, rec, e.NextOffset)
	p.note(id, rec, e.Index)
}

// marked applies what a marker means for the voted transaction of its producer. stateMu is held.
func (p *Partition) marked(e *replica.Committed) {
	if !e.Batch.IsControl() || len(p.standings.open) == 0 {
		return
	}
	kind, _, err := record.ParseControl(e.Batch)
	if err != nil || kind != record.Commit && kind != record.Abort {
		return
	}
	id, before, voted := p.standings.marked(e.Batch.ProducerID(), kind == record.Commit, e.Batch.ProducerEpoch(), e.NextOffset)
	if voted {
		p.note(id, twopc.Marked{Txn: before.Txn, Commit: kind == record.Commit}, e.Index)
	}
}

func (p *Partition) note(id string, rec twopc.Record, index uint64) {
	if p.facts.Keeps() {
		txn, what := WhatOf(rec)
		p.facts.Add(Fact{ID: id, Txn: txn.String(), What: what, Topic: p.topic, Partition: p.number, Index: int64(index)})
	}
}

// Doubt tells how many participants here wait for the outcome of what they promised, and for how long the first of them does: since its
// promise, by the clocks of who led then and who leads now. Only a leader knows.
func (p *Partition) Doubt() (n int, age time.Duration) {
	l := p.lead.Load()
	if l == nil {
		return 0, 0
	}
	if n = int(l.ballots.doubts.Load()); n == 0 {
		return 0, 0
	}
	return n, max(p.now().Sub(time.Unix(0, l.ballots.doubtSince.Load())), 0)
}
