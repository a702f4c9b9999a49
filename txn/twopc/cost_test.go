package twopc

import (
	"fmt"
	"testing"
	"time"
)

// lockstep runs one coordinator and its participants without faults and counts: messages arrive at once, and all records that wait become
// durable together, which is one quorum round.
type lockstep struct {
	c       Config
	s       Coordinator
	p       map[Member]Participant
	waiting []func() // what becomes durable next
	records map[string]int
	answers []Answer
}

func newLockstep(members []Member) *lockstep {
	l := &lockstep{c: Defaults(), p: map[Member]Participant{}, records: map[string]int{}}
	l.s, _ = l.c.Boot(2, NewLedger().Apply(Raised{Term: 2, Owner: Identity{7, 0}, Prev: Nobody, Timeout: time.Minute}))
	for _, m := range members {
		l.p[m], _ = l.c.Join(m, Standing{}, time.Time{})
	}
	return l
}

func (l *lockstep) coordinator(e Event) {
	var fx []Effect
	l.s, fx = l.c.Coordinate(l.s, e, time.Time{})
	for _, f := range fx {
		switch f := f.(type) {
		case Tell:
			l.participant(f.To, f.Message.(Event))
		case Append:
			l.append(f.Record, func() { l.coordinator(Durable(f)) })
		case Answer:
			l.answers = append(l.answers, f)
		}
	}
}

func (l *lockstep) participant(m Member, e Event) {
	p, fx := l.c.Participate(l.p[m], e, time.Time{})
	l.p[m] = p
	for _, f := range fx {
		switch f := f.(type) {
		case Report:
			l.coordinator(f.Message.(Event))
		case Append:
			l.append(f.Record, func() { l.participant(m, Durable(f)) })
		}
	}
}

func (l *lockstep) append(r Record, then func()) {
	l.records[fmt.Sprintf("%T", r)[len("twopc."):]]++
	l.waiting = append(l.waiting, then)
}

// round makes everything durable that waits.
func (l *lockstep) round() {
	due := l.waiting
	l.waiting = nil
	for _, f := range due {
		f()
	}
}

// Besides data: P promises, one decision, P markers and a record that nothing waits for; two quorum rounds inside EndTxn. An abort: P
// markers, and at version 2 the record of the next epoch, which is the one round that the client waits for.
func TestCostOfATransactionInRecordsAndRounds(t *testing.T) {
	for _, c := range []struct {
		commit  bool
		version int8
		rounds  int
		records func(p int) map[string]int
	}{
		{true, 0, 2, func(p int) map[string]int {
			return map[string]int{"Promised": p, "Committed": 1, "Marked": p, "Finished": 1}
		}},
		{true, 2, 2, func(p int) map[string]int {
			return map[string]int{"Promised": p, "Committed": 1, "Marked": p, "Finished": 1}
		}},
		{false, 0, 0, func(p int) map[string]int { return map[string]int{"Marked": p} }},
		{false, 2, 1, func(p int) map[string]int { return map[string]int{"Marked": p, "Raised": 1} }},
	} {
		for _, n := range []int{1, 2, 4, 8, 16} {
			var members []Member
			for i := range n {
				members = append(members, Member(fmt.Sprintf("p%02d", i)))
			}
			l := newLockstep(members)
			l.coordinator(Add{Request: 1, Owner: Identity{7, 0}, Members: members, Version: c.version})
			for _, m := range members {
				l.participant(m, Batch{Request: 1, Owner: Identity{7, 0}, Verified: l.s.Txn, Timeout: time.Minute})
			}
			l.round()
			clear(l.records)
			l.answers = nil
			l.coordinator(End{Request: 2, Owner: Identity{7, 0}, Commit: c.commit, Version: c.version})
			rounds := 0
			for ; len(l.answers) == 0; rounds++ {
				l.round()
			}
			for len(l.waiting) > 0 {
				l.round()
			}
			if want := fmt.Sprint(c.records(n)); rounds != c.rounds || fmt.Sprint(l.records) != want || l.s.Phase != Ready {
				t.Errorf("commit %v, version %d, %d partitions: %d rounds, records %v, %s; want %d rounds, records %s", c.commit, c.version, n, rounds, l.records, l.s.Phase, c.rounds, want)
			}
		}
	}
}
