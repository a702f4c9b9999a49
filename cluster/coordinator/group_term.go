package coordinator

import (
	"errors"

	"fmt"
	"time"

	"gopherlog/cluster/partition"
	"gopherlog/txn/group"
)

// groupTerm is the groups of a shard during one term.
type groupTerm struct {
	*term
	g       *Groups
	table   *table
	lives   map[string]*live
	answers map[group.Request]func(group.Effect)
	last    group.Request

	sweepAt time.Time      // when all groups are swept next
	unknown map[known]bool // topics that the image did not know at the last sweep
	doubted []string       // groups that hold offsets of such

	gathered gathered
}

func newGroupTerm(g *Groups, t *term) *groupTerm {
	return &groupTerm{term: t, g: g, table: t.s.table.(*table), lives: map[string]*live{}, answers: map[group.Request]func(group.Effect){}}
}

// live is a group with its machine.
type live struct {
	id     string
	state  group.State
	flying int // appends without an outcome
	// spoiled: a record could not be appended, and the machine does not know how to go on. It answers NOT_COORDINATOR until all its appends
	// have an outcome; then another one is made of what the log says.
	spoiled bool
	// tooLarge: that record never can be. Who waits for it is told UNKNOWN_SERVER_ERROR, as by Kafka: to join anew would not help.
	tooLarge bool
	counted  counted // in the metrics
}

// load makes the machines of all groups that the log knows.
func (t *groupTerm) load() {
	start := t.now()
	for id, r := range t.table.recorded() {
		t.boot(id, r)
	}
	t.after(timerKey{}, sweepSoon)
	t.g.stats.loads.Observe(t.now().Sub(start).Seconds())
}

// lost ends all machines: whoever waits for one is sent to the next coordinator.
func (t *groupTerm) lost() {
	abandon(t.gathered.parts)
	t.gathered.parts = nil
	for _, l := range t.lives {
		t.handle(l, group.Lost{})
	}
	if n := len(t.answers); n > 0 {
		panic(fmt.Sprintf("coordinator: shard %d, epoch %d: %d requests were never answered", t.s.number, t.epoch, n))
	}
}

// fire hands out a timer that is due.
func (t *groupTerm) fire(k timerKey) {
	if k == (timerKey{}) {
		t.after(timerKey{}, t.sweep())
		return
	}
	if l := t.lives[k.id]; l != nil {
		t.handle(l, group.Timer{Kind: group.TimerKind(k.kind), Member: k.member})
	}
}

// live returns a group's machine, a new one if there is none.
func (t *groupTerm) live(id string) *live {
	if l := t.lives[id]; l != nil {
		return l
	}
	r, _ := t.table.record(id)
	return t.boot(id, r)
}

func (t *groupTerm) boot(id string, newest *group.Record) *live {
	l := &live{id: id}
	t.lives[id] = l
	state, effects := t.g.cfg.Group.Boot(newest, t.g.cfg.Now())
	l.state = state
	t.g.stats.count(l, true)
	t.do(l, effects)
	return l
}

// handle lets something happen to a group.
func (t *groupTerm) handle(l *live, e group.Event) {
	state, effects := t.g.cfg.Group.Handle(l.state, e, t.g.cfg.Now())
	if state.Generation > l.state.Generation {
		t.g.stats.rebalances.Add(1)
	}
	l.state = state
	t.g.stats.count(l, true)
	t.do(l, effects)
	t.settle(l)
}

// request is handle for an event that is answered; event gives it the request's number.
func (t *groupTerm) request(l *live, answer func(group.Effect), event func(group.Request) group.Event) {
	t.last++
	t.answers[t.last] = answer
	t.handle(l, t.forgetGeneration(l, event(t.last)))
}

// settle forgets a machine that holds nothing, and replaces one that was spoiled.
func (t *groupTerm) settle(l *live) {
	if l.flying > 0 || t.lives[l.id] != l {
		return
	}
	switch {
	case l.spoiled:
		t.bury(l)
		t.settle(t.live(l.id))
	case l.state.Blank():
		t.bury(l)
	}
}

func (t *groupTerm) bury(l *live) {
	t.g.stats.count(l, false)
	delete(t.lives, l.id)
}

func (t *groupTerm) do(l *live, effects []group.Effect) {
	for _, effect := range effects {
		switch e := effect.(type) {
		case group.Append:
			t.appendRecord(l, e.Record)
		case group.Joined:
			if l.tooLarge && e.Code == group.NotCoordinator {
				e.Code = UnknownServerError
			}
			t.answer(e.Request, e, grave(e.Code))
		case group.Synced:
			if l.tooLarge && e.Code == group.NotCoordinator {
				e.Code = UnknownServerError
			}
			t.answer(e.Request, e, grave(e.Code))
		case group.Left:
			t.answer(e.Request, e, fences(e.Codes))
		case group.Answer:
			t.answer(e.Request, e, grave(e.Code))
		case group.SetTimer:
			t.after(timerKey{l.id, uint8(e.Kind), e.Member}, e.After)
		case group.ClearTimer:
			t.timers.stop(timerKey{l.id, uint8(e.Kind), e.Member})
		case group.Forget: // settle sees that it is blank
		}
	}
}

// grave says whether a client ends for good on a code, or a member gives up its partitions, and with them what it has not committed.
func grave(c group.Code) bool {
	return c == group.FencedInstanceID || c == group.GroupIDNotFound || c == group.UnknownMemberID || c == group.IllegalGeneration
}

func fences(codes []group.Code) bool {
	for _, c := range codes {
		if c == group.FencedInstanceID {
			return true
		}
	}
	return false
}

// answer lets an answer go. A grave one goes only when it is certain that this is the coordinator still: who was deposed does not know whom
// its successor took in, nor which generation that began.
func (t *groupTerm) answer(r group.Request, e group.Effect, grave bool) {
	answer := t.answers[r]
	if answer == nil {
		return
	}
	delete(t.answers, r)
	if !grave {
		answer(e)
		return
	}
	t.confirm(func(still bool) {
		if !still {
			e = misled(e)
		}
		answer(e)
	})
}

// misled is what is said in place of an answer that only the coordinator may give.
func misled(e group.Effect) group.Effect {
	switch e := e.(type) {
	case group.Joined:
		return group.Joined{Request: e.Request, Code: group.NotCoordinator, Generation: -1, MemberID: e.MemberID}
	case group.Synced:
		return group.Synced{Request: e.Request, Code: group.NotCoordinator}
	case group.Left:
		codes := make([]group.Code, len(e.Codes))
		for i := range codes {
			codes[i] = group.NotCoordinator
		}
		return group.Left{Request: e.Request, Codes: codes}
	case group.Answer:
		return group.Answer{Request: e.Request, Code: group.NotCoordinator}
	}
	return e
}

// appendRecord replicates a machine's record.
func (t *groupTerm) appendRecord(l *live, r *group.Record) {
	t.appendOf(l, func(err error) {
		switch {
		case l.spoiled:
		case err == nil:
			t.handle(l, group.Durable{})
		default:
			t.g.cfg.Logger.Warn("group's record was not appended: its members join anew", "group", l.id, "shard", t.s.number, "error", err)
			l.spoiled, l.tooLarge = true, errors.Is(err, partition.ErrTooLarge)
			t.handle(l, group.Lost{})
		}
	}, nil, pair{group.Key{Group: l.id}, r.Encode()})
}
