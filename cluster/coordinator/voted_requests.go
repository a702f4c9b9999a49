package coordinator

import (
	"errors"
	"slices"
	"time"

	"gopherlog/cluster/partition"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/twopc"
)

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

func (t *votedTerm) refuse(all []*paper) {
	for _, a := range all {
		a.refuse(kafkatx.NotCoordinator)
	}
}
