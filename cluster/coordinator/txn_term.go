package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"gopherlog/cluster/partition"
	"gopherlog/engine/record"
	"gopherlog/txn/kafkatx"
)

// txnTerm is the transactional ids of a shard during one term.
type txnTerm struct {
	*term
	x       *Transactions
	table   *txnTable
	lives   map[string]*txn
	answers map[kafkatx.Request]*asked
	last    kafkatx.Request
	ids     ids
}

// txn is a transactional id with its machine.
type txn struct {
	id     string
	state  kafkatx.State
	flying int // appends without an outcome
	// spoiled: a record could not be appended, and the machine does not know how to go on. It answers NOT_COORDINATOR until all its appends
	// have an outcome; then another one is made of what the log says.
	spoiled bool
	sizes   [2]int   // partitions with data of the last two transactions that were decided, the older one first
	held    []*asked // requests that met a transaction that is ending, oldest first
}

// asked is a request.
type asked struct {
	event func(r kafkatx.Request, fresh int64) kafkatx.Event
	done  func(kafkatx.Answer)
	until time.Time // when it is not held any longer
}

// timerHeld is the kind of the timer that ends waiting; the machine's own kinds are smaller.
const timerHeld = 100

func newTxnTerm(x *Transactions, t *term) *txnTerm {
	return &txnTerm{
		term: t, x: x, table: t.s.table.(*txnTable), lives: map[string]*txn{}, answers: map[kafkatx.Request]*asked{},
		ids: ids{t: t, next: x.cfg.Meta.NextProducerID},
	}
}

// load makes the machines of all transactional ids that the log knows.
func (t *txnTerm) load() {
	for id, m := range t.table.all() {
		t.boot(id, m)
	}
}

// lost ends all machines: whoever waits for one is sent to the next coordinator.
func (t *txnTerm) lost() {
	for _, l := range t.lives {
		t.x.stats.leave(l.state)
		t.refuse(l.held)
		l.held = nil // or they would be handed in again, to a machine made anew whose end nobody sees to
		t.handle(l, kafkatx.Lost{})
	}
	t.ids.abandon(partition.ErrNotCoordinator)
	if n := len(t.answers); n > 0 {
		panic(fmt.Sprintf("coordinator: shard %d of %s, epoch %d: %d requests were never answered", t.s.number, TransactionsTopic, t.epoch, n))
	}
}

// fire hands out a timer that is due.
func (t *txnTerm) fire(k timerKey) {
	l := t.lives[k.id]
	switch {
	case l == nil:
	case k.kind == timerHeld:
		t.expire(l)
	default:
		t.handle(l, kafkatx.Timer{Kind: kafkatx.TimerKind(k.kind)})
	}
}

// live returns the machine of a transactional id, a new one if there is none.
func (t *txnTerm) live(id string) *txn {
	if l := t.lives[id]; l != nil {
		return l
	}
	return t.boot(id, t.table.meta(id))
}

func (t *txnTerm) boot(id string, newest *kafkatx.Meta) *txn {
	l := &txn{id: id}
	t.lives[id] = l
	state, effects := t.x.cfg.Machine.Boot(t.epoch, newest, t.now())
	l.state = state
	t.x.stats.enter(state)
	t.do(l, effects)
	return l
}

// handle lets something happen to a transactional id.
func (t *txnTerm) handle(l *txn, e kafkatx.Event) {
	state, effects := t.x.cfg.Machine.Handle(l.state, e, t.now())
	if !state.Silent {
		t.x.stats.move(l.state, state)
	}
	if was, m := l.state.Meta, state.Meta; was != nil && was.Status == kafkatx.Ongoing && m != nil && m.Status.Decided() {
		l.sizes = [2]int{l.sizes[1], writers(m.Partitions)}
	}
	l.state = state
	t.do(l, effects)
	t.settle(l)
}

// request is handle for an event that is answered.
func (t *txnTerm) request(l *txn, a *asked) {
	t.last++
	r := t.last
	t.answers[r] = a
	fresh := int64(kafkatx.None)
	if id, there := t.ids.peek(); there {
		fresh = id
	}
	t.handle(l, t.skipEpochCheck(l, a.event(r, fresh)))
	if t.answers[r] != nil && !l.gathers() {
		t.bundle.hurry() // it waits for a record
	}
}

// gathers says that the record of a transaction which has begun may wait for more of its partitions. Nobody in it is answered before every
// partition of the transaction before has its marker; until then it waits for as many partitions as each of the last two had, since those that
// join together share an entry. Offsets of groups come behind the data and are not waited for.
func (l *txn) gathers() bool {
	m := l.state.Meta
	return m != nil && m.Status == kafkatx.Ongoing && len(l.state.Unmarked) > 0 && len(m.Partitions) < min(l.sizes[0], l.sizes[1])
}

// writers is how many of the partitions have data.
func writers(all []kafkatx.Partition) (n int) {
	for _, p := range all {
		if p.Topic != OffsetsTopic {
			n++
		}
	}
	return n
}

// settle hands in again what was held, forgets a machine that holds nothing, and replaces one that was spoiled.
func (t *txnTerm) settle(l *txn) {
	if l.state.Ending() || t.lives[l.id] != l {
		return
	}
	if held := l.held; len(held) > 0 && !l.spoiled {
		l.held = nil
		t.timers.stop(timerKey{id: l.id, kind: timerHeld})
		for _, a := range held {
			t.request(t.live(l.id), a)
		}
		return // the last of them settled it
	}
	if l.flying > 0 {
		return
	}
	switch {
	case l.spoiled:
		delete(t.lives, l.id)
		next := t.live(l.id)
		next.held = l.held
		t.settle(next)
	case l.state.Meta == nil && len(l.state.Pending) == 0 && !t.ids.awaits(l.id):
		delete(t.lives, l.id)
	}
}

func (t *txnTerm) do(l *txn, effects []kafkatx.Effect) {
	for _, effect := range effects {
		switch e := effect.(type) {
		case kafkatx.Append:
			t.appendMeta(l, e.Record)
		case kafkatx.Answer:
			t.answer(l, e)
		case kafkatx.WriteMarker:
			if !t.skipMarker(l, e) {
				t.x.markers.send(t, l.id, e)
			}
		case kafkatx.NeedID:
			t.need(l, e.Request)
		case kafkatx.Took:
			t.ids.take(e.ProducerID)
		case kafkatx.SetTimer:
			t.after(timerKey{id: l.id, kind: uint8(e.Kind)}, e.After)
		case kafkatx.ClearTimer:
			t.timers.stop(timerKey{id: l.id, kind: uint8(e.Kind)})
		case kafkatx.Forget: // settle sees that nothing is left
		}
	}
}

// answer lets an answer go, or holds its request: one that met a transaction which is ending is handed in again when that has ended. An answer
// that only a leader may give waits until it is certain that this is the coordinator still.
func (t *txnTerm) answer(l *txn, e kafkatx.Answer) {
	a := t.answers[e.Request]
	if a == nil {
		return
	}
	delete(t.answers, e.Request)
	switch {
	case e.Code == kafkatx.ConcurrentTransactions && t.now().Before(a.until):
		t.hold(l, a)
	case e.Confirm:
		t.confirm(func(still bool) {
			if !still {
				e = elsewhere
			}
			a.done(e)
		})
	default:
		a.done(e)
	}
}

// elsewhere sends a client to the next coordinator.
var elsewhere = kafkatx.Answer{Code: kafkatx.NotCoordinator, ProducerID: kafkatx.None, Epoch: kafkatx.None}

func (t *txnTerm) refuse(all []*asked) {
	for _, a := range all {
		a.done(elsewhere)
	}
}

func (t *txnTerm) hold(l *txn, a *asked) {
	l.held = append(l.held, a)
	t.x.stats.held.Inc()
	t.watch(l)
}

// watch sets the timer to when the first of the held requests has waited enough.
func (t *txnTerm) watch(l *txn) {
	k := timerKey{id: l.id, kind: timerHeld}
	if len(l.held) == 0 {
		t.timers.stop(k)
		return
	}
	first := slices.MinFunc(l.held, func(a, b *asked) int { return a.until.Compare(b.until) })
	t.timers.start(k, first.until)
}

// expire answers what was held long enough.
func (t *txnTerm) expire(l *txn) {
	now := t.now()
	l.held = slices.DeleteFunc(l.held, func(a *asked) bool {
		if now.Before(a.until) {
			return false
		}
		a.done(kafkatx.Answer{Code: kafkatx.ConcurrentTransactions, ProducerID: kafkatx.None, Epoch: kafkatx.None})
		return true
	})
	t.watch(l)
}

// need makes a request wait for a producer id, after which it is handed in again.
func (t *txnTerm) need(l *txn, r kafkatx.Request) {
	a := t.answers[r]
	if a == nil {
		return
	}
	delete(t.answers, r)
	t.ids.await(l.id, func(err error) {
		switch {
		case err == nil:
			t.request(t.live(l.id), a)
		case errors.Is(err, partition.ErrNotCoordinator):
			a.done(elsewhere)
		default:
			a.done(refusal(TxnLoadInProgress)) // clients come again
			t.settle(l)
		}
	})
}

// appendMeta replicates a machine's record. The end of a transaction may wait for the next record: until then it is as if the last marker were
// still on its way, and whoever asks for more makes it go. The beginning of one may wait for more partitions.
func (t *txnTerm) appendMeta(l *txn, m *kafkatx.Meta) {
	l.flying++
	if err := t.x.hit(beforeRecord(m)); err != nil {
		t.post(func() { t.recorded(l, m, err) })
		return
	}
	over := m != nil && (m.Status == kafkatx.CompleteCommit || m.Status == kafkatx.CompleteAbort)
	t.bundle.add(record.Record{Key: kafkatx.EncodeKey(l.id), Value: m.EncodeValue()}, over || l.gathers(), func(err error) {
		if err == nil {
			err = t.x.hit(afterRecord(m))
		}
		t.recorded(l, m, err)
	})
}

// recorded is the outcome of an append.
func (t *txnTerm) recorded(l *txn, m *kafkatx.Meta, err error) {
	l.flying--
	switch {
	case l.spoiled:
		t.settle(l)
	case err == nil:
		t.handle(l, kafkatx.Durable{})
	default:
		t.x.cfg.Logger.Warn("record of a transactional id was not appended", "id", l.id, "record", m, "shard", t.s.number, "error", err)
		l.spoiled = true
		t.x.stats.leave(l.state)
		t.handle(l, kafkatx.Lost{})
	}
}

// marked is what became of a marker: the partition has it, or can never need it.
func (t *txnTerm) marked(id string, e kafkatx.Marked) {
	l := t.lives[id]
	if l == nil {
		return
	}
	waited := l.gathers()
	if t.handle(l, e); waited && !l.gathers() {
		t.bundle.hurry()
	}
}
