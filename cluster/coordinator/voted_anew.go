package coordinator

import (
	"time"

	"gopherlog/engine/record"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/twopc"
)

// timerRevive is the kind of the timer after which a spoiled machine may be replaced.
const timerRevive = 101

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
