package coordinator

import (
	"errors"
	"slices"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/record"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/twopc"
)

// Points at which a test may stop a coordinator of voted transactions. An error leaves the step out: the request goes elsewhere, the message is
// lost, or the machine begins anew from the log.
var (
	pointPrepare  = failpoint.Register("voted/before-prepare", "EndTxn asks to commit, PREPARE is not sent yet")
	pointVoted    = failpoint.Register("voted/before-decision", "every vote is in and says yes, the decision is not written yet")
	pointVote     = failpoint.Register("voted/after-vote", "a vote has come, the coordinator has not counted it yet")
	pointDecision = failpoint.Register("voted/after-decision", "the decision is durable, nobody was told yet")
	pointOutcomes = failpoint.Register("voted/between-outcomes", "a participant has ended the transaction, others have not")
)

// votedTerm is the transactional ids of a shard of VotedTopic during one term.
type votedTerm struct {
	*term
	v     *Voted
	table *votedTable
	lives map[string]*voted
	boots map[string]uint8 // machines of an id that this term had before
	asked map[twopc.Request]*paper
	last  twopc.Request
	ids   ids
	news  news // partitions that have heard of a leader since tellAgain
}

// voted is a transactional id with its machine. Machines are kept for the whole term: what they hold in memory is what the term fence is
// about.
type voted struct {
	id     string
	state  twopc.Coordinator
	flying int // appends without an outcome
	// spoiled: a record could not be appended, or the id is being forgotten. The machine is silent; when all its appends have an outcome and
	// leadership is certain, another one is made of what the log says, in a term of its own.
	spoiled bool
	proving bool     // leadership is being confirmed before a spoiled machine is replaced
	held    []*paper // requests that met something that is under way, oldest first
	again   bool     // held ones are being handed in again
	hasty   bool     // sabotage: nobody is asked to vote on the transaction in hand
	// Of the transaction in hand: when it began, and when its participants were asked to vote (zero: they were not), since when some may be in
	// doubt. A machine that was made of a decision which others took knows when that was written, no more.
	began, asked time.Time
	// aborted: the newest transaction that this machine saw was given up, and nobody has taken the id over since. It leaves no record.
	aborted bool
}

// paper is a request.
type paper struct {
	event   func(r twopc.Request, fresh int64) twopc.Event
	done    func(twopc.Answer)
	until   time.Time // when it is not held any longer
	takesID bool      // it may need an unused producer id
	commits bool      // it asks for a commit
	of      *voted
}

func (a *paper) refuse(c kafkatx.Code) { a.done(twopc.Answer{Result: asCode + twopc.Result(c)}) }

// timerPatience is the kind of the timer that ends waiting; the machine's own kinds are smaller.
const timerPatience = 100

// timerRevive is the kind of the timer after which a spoiled machine may be replaced.
const timerRevive = 101

func newVotedTerm(v *Voted, t *term) *votedTerm {
	return &votedTerm{
		term: t, v: v, table: t.s.table.(*votedTable), lives: map[string]*voted{}, boots: map[string]uint8{}, asked: map[twopc.Request]*paper{},
		ids: ids{t: t, next: v.cfg.Meta.NextProducerID},
	}
}

// load makes the machines of decided transactions, which tell the outcome again; the others come when they are asked for.
func (t *votedTerm) load() {
	for id, l := range t.table.unfinished() {
		t.boot(id, l)
	}
	t.after(timerKey{}, t.v.cfg.SweepEvery)
}

// lost ends all machines: whoever waits for one is sent to the next coordinator.
func (t *votedTerm) lost() {
	for _, l := range t.lives {
		l.state, _ = t.v.cfg.Machine.Coordinate(l.state, twopc.Lost{}, t.now())
		t.refuse(l.held)
		l.held = nil
	}
	t.ids.abandon(partition.ErrNotCoordinator)
	for _, a := range t.asked {
		a.refuse(kafkatx.NotCoordinator)
	}
	clear(t.asked)
}

func (t *votedTerm) refuse(all []*paper) {
	for _, a := range all {
		a.refuse(kafkatx.NotCoordinator)
	}
}

// fire hands out a timer that is due.
func (t *votedTerm) fire(k timerKey) {
	l := t.lives[k.id]
	switch {
	case k == (timerKey{}):
		t.sweep()
		t.after(timerKey{}, t.v.cfg.SweepEvery)
	case l == nil:
	case k.kind == timerPatience:
		t.expire(l)
	case k.kind == timerRevive:
		t.settle(l)
	default:
		t.handle(l, twopc.Timer{Kind: twopc.TimerKind(k.kind)})
	}
}

// live returns the machine of a transactional id, a new one if there is none.
func (t *votedTerm) live(id string) *voted {
	if l := t.lives[id]; l != nil {
		return l
	}
	return t.boot(id, t.table.ledger(id))
}

// boot makes a machine. One that is not the first of its id in this leadership gets a term of its own: what its predecessor held in memory is
// forgotten as if leadership had changed. So a machine's term is the shard's, followed by eight bits that count.
func (t *votedTerm) boot(id string, ledger twopc.Ledger) *voted {
	l := &voted{id: id}
	t.lives[id] = l
	state, fx := t.v.cfg.Machine.Boot(uint64(uint32(t.epoch))<<bootBits|uint64(t.boots[id]), ledger)
	l.state = state
	if !ledger.Finished {
		l.began = time.UnixMilli(t.table.written(id))
		l.asked = l.began
	}
	t.do(l, fx)
	return l
}

const bootBits = 8

// handle lets something happen to a transactional id, and hands in again what waited for it.
func (t *votedTerm) handle(l *voted, e twopc.Event) {
	before := l.state
	state, fx := t.v.cfg.Machine.Coordinate(before, e, t.now())
	l.state = state
	t.date(l, before, state)
	l.conclude(before, state, e)
	t.v.stats.step(before, state, e)
	t.do(l, fx)
	if l.state.Phase != before.Phase || l.state.Doomed != before.Doomed {
		t.again(l)
	}
	t.settle(l)
}

// date notes when a transaction began and when its votes were asked for.
func (t *votedTerm) date(l *voted, before, after twopc.Coordinator) {
	if after.Txn != before.Txn {
		l.began, l.asked = t.now(), time.Time{}
	}
	if after.Phase != before.Phase && (after.Phase == twopc.Voting || after.Phase == twopc.Deciding && before.Phase != twopc.Voting) {
		l.asked = t.now()
	}
}

// conclude notes how the newest transaction ended, for describe.
func (l *voted) conclude(before, after twopc.Coordinator, e twopc.Event) {
	_, init := e.(twopc.Init)
	switch {
	case gaveUp(before, after):
		l.aborted = true
	case after.Phase == before.Phase:
	case after.Phase == twopc.Deciding, after.Phase == twopc.Raising && init:
		l.aborted = false
	}
}

// again hands in what was held, in order, as long as that changes something.
func (t *votedTerm) again(l *voted) {
	if l.again {
		return
	}
	l.again = true
	defer func() { l.again = false }()
	for phase, first := l.state.Phase, true; len(l.held) > 0 && (first || l.state.Phase != phase) && !l.spoiled; first = false {
		phase = l.state.Phase
		held := l.held
		l.held = nil
		for _, a := range held {
			t.request(l, a)
		}
	}
	t.watch(l)
}

// request is handle for an event that is answered.
func (t *votedTerm) request(l *voted, a *paper) {
	a.of = l
	switch {
	case l.spoiled:
		t.hold(l, a)
		return
	case a.commits && l.state.Phase == twopc.Open && t.hit(pointPrepare):
		a.refuse(kafkatx.NotCoordinator)
		return
	}
	fresh := int64(-1)
	if a.takesID && t.v.cfg.Machine.NeedsProducerID(l.state) {
		id, there := t.ids.peek()
		if !there {
			t.await(a)
			return
		}
		t.ids.take(id)
		fresh = id
	}
	if a.commits && l.state.Phase == twopc.Open {
		l.hasty = t.commitBeforeVotes()
	}
	t.last++
	t.asked[t.last] = a
	t.handle(l, a.event(t.last, fresh))
}

func (t *votedTerm) hit(point failpoint.Name) bool { return t.v.cfg.Failpoints.Hit(point) != nil }

// settle forgets a machine that holds nothing, and replaces one that was spoiled.
func (t *votedTerm) settle(l *voted) {
	if l.flying > 0 || t.lives[l.id] != l || l.again {
		return
	}
	switch {
	case l.spoiled && t.boots[l.id] < 1<<bootBits-1:
		t.revive(l)
	case !l.spoiled && l.state.Phase == twopc.Fresh && len(l.held) == 0 && !t.ids.awaits(l.id):
		delete(t.lives, l.id)
	}
}

// revive replaces a machine that was spoiled once it is certain that this is the coordinator still. A record whose append failed may be committed
// by a successor: the log that is here does not tell then, and what it does not hold would be taken for aborted.
func (t *votedTerm) revive(l *voted) {
	if l.proving {
		return
	}
	l.proving = true
	t.confirm(func(still bool) {
		t.post(func() {
			l.proving = false
			switch {
			case t.lives[l.id] != l:
			case still:
				t.replace(l)
			default: // the term is about to end; if not, it is tried again
				t.after(timerKey{id: l.id, kind: timerRevive}, reviveAfter)
			}
		})
	})
}

// replace makes a machine of what the log says.
func (t *votedTerm) replace(l *voted) {
	delete(t.lives, l.id)
	t.boots[l.id]++
	next := t.live(l.id)
	next.held = l.held
	t.again(next)
	t.settle(next)
}

// reviveAfter is when leadership is confirmed once more.
const reviveAfter = time.Second

// spoil silences a machine: it does not know what the log says.
func (t *votedTerm) spoil(l *voted) {
	l.spoiled = true
	l.state, _ = t.v.cfg.Machine.Coordinate(l.state, twopc.Lost{}, t.now())
	for r, a := range t.asked {
		if a.of == l {
			delete(t.asked, r)
			a.refuse(kafkatx.NotCoordinator)
		}
	}
	t.settle(l)
}

func (t *votedTerm) do(l *voted, fx []twopc.Effect) {
	for _, f := range fx {
		switch f := f.(type) {
		case twopc.Append:
			t.appendRecord(l, f.Record)
		case twopc.Tell:
			t.tell(l, f)
		case twopc.Answer:
			t.answer(l, f)
		case twopc.SetTimer:
			t.after(timerKey{id: l.id, kind: uint8(f.Kind)}, f.After)
		case twopc.ClearTimer:
			t.timers.stop(timerKey{id: l.id, kind: uint8(f.Kind)})
		}
	}
}

// appendRecord replicates a machine's record. That everybody has ended a transaction may wait for the next record: until then it is as if the
// last acknowledgement were still on its way.
func (t *votedTerm) appendRecord(l *voted, r twopc.Record) {
	_, decision := r.(twopc.Committed)
	if decision && t.hit(pointVoted) {
		t.spoil(l)
		return
	}
	l.flying++
	_, over := r.(twopc.Finished)
	t.bundle.add(record.Record{Key: []byte(l.id), Value: twopc.Encode(r)}, over, func(err error) {
		l.flying--
		switch {
		case l.spoiled:
			t.settle(l)
		case err != nil:
			t.v.cfg.Logger.Warn("record of a voted transaction was not appended: its coordinator begins anew", "id", l.id, "shard", t.s.number, "error", err)
			t.spoil(l)
		case decision && t.hit(pointDecision):
			t.spoil(l)
		default:
			t.handle(l, twopc.Durable{Record: r})
		}
	})
}

// tell sends a message to a participant. One whose partition was deleted answers nothing, which the machine learns when that is certain.
func (t *votedTerm) tell(l *voted, f twopc.Tell) {
	if p, ask := f.Message.(twopc.Prepare); ask && l.hasty {
		t.post(func() { t.hear(l.id, twopc.Vote{Txn: p.Txn, From: f.To, Yes: true}) })
		return
	}
	if !t.v.post.send(letter{id: l.id, message: f.Message, to: f.To}) {
		t.v.post.lookFor(f.To, func() { t.post(func() { t.gone(l, f.To) }) })
	}
}

func (t *votedTerm) gone(l *voted, m twopc.Member) {
	if t.lives[l.id] == l && !l.spoiled {
		t.handle(l, twopc.Gone{Member: m})
	}
}

// hear takes a participant's message.
func (t *votedTerm) hear(id string, m twopc.Message) {
	e, ok := m.(twopc.Event)
	if !ok {
		return
	}
	l := t.live(id)
	if l.spoiled {
		return
	}
	switch m := m.(type) {
	case twopc.Vote:
		t.v.stats.vote(m.Yes)
		if l.state.Phase == twopc.Voting && t.hit(pointVote) {
			return
		}
	case twopc.Ended:
		if l.state.Phase == twopc.Committing && len(l.state.Missing) > 1 && t.hit(pointOutcomes) {
			return
		}
	}
	t.handle(l, e)
}

// answer lets an answer go, or holds its request: one that met something under way is handed in again when that has changed. An answer that a
// client cannot go on from waits until it is certain that this is the coordinator still.
func (t *votedTerm) answer(l *voted, f twopc.Answer) {
	a := t.asked[f.Request]
	if a == nil {
		return
	}
	delete(t.asked, f.Request)
	switch {
	case f.Result == twopc.Busy && t.now().Before(a.until):
		t.hold(l, a)
	case f.Confirm:
		t.confirm(func(still bool) {
			if !still {
				a.refuse(kafkatx.NotCoordinator)
				return
			}
			a.done(f)
		})
	default:
		a.done(f)
	}
}

func (t *votedTerm) hold(l *voted, a *paper) {
	l.held = append(l.held, a)
	t.watch(l)
}

// watch sets the timer to when the first of the held requests has waited enough.
func (t *votedTerm) watch(l *voted) {
	k := timerKey{id: l.id, kind: timerPatience}
	if len(l.held) == 0 {
		t.timers.stop(k)
		return
	}
	t.timers.start(k, slices.MinFunc(l.held, func(a, b *paper) int { return a.until.Compare(b.until) }).until)
}

// expire answers what was held long enough.
func (t *votedTerm) expire(l *voted) {
	now := t.now()
	l.held = slices.DeleteFunc(l.held, func(a *paper) bool {
		if now.Before(a.until) {
			return false
		}
		a.done(twopc.Answer{Result: twopc.Busy})
		return true
	})
	t.watch(l)
	t.settle(l)
}

// await hands a request in again when there is a producer id for it.
func (t *votedTerm) await(a *paper) {
	t.ids.await(a.of.id, func(err error) {
		switch {
		case err == nil:
			t.request(t.live(a.of.id), a)
		case errors.Is(err, partition.ErrNotCoordinator):
			a.refuse(kafkatx.NotCoordinator)
		default:
			a.refuse(TxnLoadInProgress) // clients come again
			t.settle(a.of)
		}
	})
}

// lookAgain repeats at once what is said to partitions that have another leader now.
func (t *votedTerm) lookAgain(old, image *meta.Image) {
	t.repeat(func(m twopc.Member) bool {
		topic, number, ok := memberPartition(m)
		return ok && leaderMoved(old.Topic(topic), image.Topic(topic), number)
	})
}

// tellAgain repeats at once what is said to these partitions.
func (t *votedTerm) tellAgain(moved map[twopc.Member]bool) {
	t.repeat(func(m twopc.Member) bool { return moved[m] })
}

func (t *votedTerm) repeat(moved func(twopc.Member) bool) {
	for _, l := range t.lives {
		if len(l.state.Missing) == 0 || l.spoiled {
			continue
		}
		if slices.ContainsFunc(l.state.Missing, moved) {
			l.state.Tries = 0 // it was said in vain to who led before
			t.handle(l, twopc.Timer{Kind: twopc.TimerResend})
		}
	}
}

// sweep forgets transactional ids that nobody used for long.
func (t *votedTerm) sweep() {
	for _, id := range t.table.before(t.now().Add(-t.v.cfg.Expiry)) {
		l := t.lives[id]
		if l == nil {
			l = t.live(id)
		}
		if l.state.Phase != twopc.Ready || l.flying > 0 || len(l.held) > 0 || l.spoiled {
			continue
		}
		l.flying++
		t.bundle.add(record.Record{Key: []byte(id)}, false, func(err error) { // without a value: it is forgotten
			l.flying--
			if err != nil {
				t.v.cfg.Logger.Debug("transactional id was not forgotten", "id", id, "error", err)
			}
			t.settle(l)
		})
		t.spoil(l)
	}
	t.trim()
}

// wordOf is what a partition is told.
func wordOf(a twopc.Answer) (partition.Verified, error) {
	switch a.Result {
	case twopc.Done:
		return partition.Verified{Ongoing: true, Txn: a.Txn, Timeout: a.Timeout}, nil
	case twopc.Busy:
		return partition.Verified{}, partition.ErrConcurrentTransactions
	case twopc.Aborted, twopc.Stale:
		return partition.Verified{}, partition.ErrTransactionAborted
	case twopc.Fenced:
		return partition.Verified{}, partition.ErrProducerFenced
	case twopc.BadState:
		return partition.Verified{}, partition.ErrInvalidTxnState
	case twopc.BadID:
		return partition.Verified{}, partition.ErrInvalidProducerIDMapping
	}
	return partition.Verified{}, partition.ErrNotCoordinator
}

// defaultHaste: the planted fault acts on one of so many transactions.
const defaultHaste = 100

// commitBeforeVotes plants a fault: the coordinator takes it that everybody says yes.
func (t *votedTerm) commitBeforeVotes() bool {
	on, odds := t.v.cfg.Failpoints.Sabotage(failpoint.CommitBeforeVotes)
	if odds <= 0 {
		odds = defaultHaste
	}
	return on && t.v.ends.Add(1)%odds == 0
}
