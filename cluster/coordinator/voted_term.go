package coordinator

import (
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

func (t *votedTerm) hit(point failpoint.Name) bool { return t.v.cfg.Failpoints.Hit(point) != nil }

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
