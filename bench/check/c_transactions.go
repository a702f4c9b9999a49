package check

import (
	"fmt"

	"gopherlog/bench/history"
)

// judgeTransactions is rules C1, C2, C3, C9, C10, C11 and C12: what the committed reads show of each transaction against what was
// asked and answered. Absence is only believed of a log that was read whole.
func judgeTransactions(l *ledger, found map[string]*finding, o Options) error {
	b := &l.book
	c := b.runs
	found["C1"], found["C2"] = &c.c1, &c.c2
	l.polls.conclude(found)
	if err := abortedInTheEnd(l, c); err != nil {
		return err
	}
	if len(b.txns) == 0 {
		for _, id := range []string{"C1", "C2", "C3", "C5", "C8", "C9", "C10", "C12"} {
			found[id] = &finding{missing: "the run has no transactions"}
		}
		found["C11"] = hanging(l, o)
		return nil
	}
	if c.c2.of == 0 {
		c.c2.missing = "nothing of a transaction was read while the load ran"
	}
	found["C3"] = torn(l, c, o)
	found["C9"] = zombies(l)
	found["C10"] = lateEnds(c)
	found["C11"] = hanging(l, o)
	found["C12"] = balance(l, o)
	return nil
}

// whole says that the committed final read saw everything that was to be seen; why says why not.
func (l *ledger) whole(o Options) (why string) {
	switch {
	case !o.Drained:
		return "the final read did not reach the end of the log"
	case l.holes:
		return "the history has holes"
	}
	for _, at := range l.start {
		if at != 0 {
			return "retention deleted messages"
		}
	}
	return ""
}

// abortedInTheEnd is rule C1 on the committed final read. Only where something is wrong is it read again for witnesses.
func abortedInTheEnd(l *ledger, c *txnReads) error {
	var wrong bool
	for i := range l.book.txns {
		t := &l.book.txns[i]
		c.c1.of += int64(t.read)
		l.totals.Readable += int64(t.read)
		wrong = wrong || t.read > 0 && !t.mayShow()
	}
	if !wrong {
		return nil
	}
	return l.delivered(history.RoleDrain, func(r *history.Record) {
		a := l.find(r)
		if a == nil || r.Flags != 0 {
			return
		}
		t := l.book.of(a, r.Sequence)
		if t == nil || t.mayShow() || t.read == 0 {
			return
		}
		c.spoil(t)
		if t.state == history.Aborted {
			c.c1.add("in the final read", func() Example { return l.example(r, t.String()+" was aborted, and its message is readable") })
			return
		}
		c.c1.add("never asked", func() Example {
			return l.example(r, "the commit of "+t.String()+" was never asked, and its message is readable")
		})
	})
}

// torn is rule C3: all of a transaction is readable or nothing is, and all of it where its commit was answered.
func torn(l *ledger, c *txnReads, o Options) *finding {
	f := &finding{missing: l.whole(o)}
	blind := f.missing != ""
	for i := range l.book.txns {
		t := &l.book.txns[i]
		if t.of == 0 {
			continue
		}
		f.of++
		shape := ""
		switch {
		case blind, t.read >= t.of, t.read == 0 && !t.mustShow():
			continue
		case t.read == 0:
			shape = "committed and gone"
		case t.mustShow():
			shape = "committed and torn"
		case t.mayShow():
			shape = "in doubt and torn"
		default:
			shape = "aborted and partly readable"
		}
		c.spoil(t)
		f.add(shape, func() Example {
			return t.example(fmt.Sprintf("%s: %d of %d messages are readable", shape, t.read, t.of))
		})
	}
	return f
}

// zombies is rule C9: what a session asked after a later session of its producer was ready must not be committed.
func zombies(l *ledger) *finding {
	f := &finding{missing: "no transactional id was taken over"}
	for i := range l.book.txns {
		t := &l.book.txns[i]
		at := l.book.fencedAt(t.actor)
		if at == never {
			continue
		}
		f.missing = ""
		f.of++
		switch {
		case t.commit && t.asked > at && t.mustShow():
			f.add("committed", func() Example {
				return t.example(fmt.Sprintf("its commit was asked at %.6f s and answered, a later session was ready at %.6f s", seconds(t.asked), seconds(at)))
			})
		case t.read > 0 && (t.begun != never && t.begun > at || t.asked != never && t.asked > at):
			f.add("readable", func() Example {
				return t.example(fmt.Sprintf("%d messages are readable, a later session was ready at %.6f s", t.read, seconds(at)))
			})
		}
	}
	return f
}

// lateEnds is rule C10, a label: an anomaly behind an end in doubt looks like a marker that came late and ended the next transaction,
// which the protocol before its second transaction version allows.
func lateEnds(c *txnReads) *finding {
	f := &finding{of: int64(len(c.torn)), missing: "no transaction is under C1, C2 or C3"}
	if f.of > 0 {
		f.missing = ""
	}
	for t := range c.late {
		f.add("", func() Example { return t.example("the end of the transaction before it was in doubt") })
	}
	return f
}

// hanging is rule C11, judged on what leaders told at the end of the run.
func hanging(l *ledger, o Options) *finding {
	f := &finding{}
	switch {
	case o.TxnTimeout == 0:
		f.missing = "the transaction timeout is not known"
		return f
	}
	f.missing = "no last stable offset was told"
	limit := o.TxnTimeout + o.Grace
	for p, answers := range l.book.stable {
		if len(answers) == 0 || l.end[p] < 0 {
			continue
		}
		f.missing = ""
		f.of++
		last := answers[0]
		for _, r := range answers {
			if r.At >= last.At {
				last = r
			}
		}
		if last.Offset >= l.end[p] {
			continue
		}
		since := last.At
		for _, r := range answers {
			if r.Offset >= last.Offset {
				since = min(since, r.At)
			}
		}
		if last.At-since > limit {
			f.add("", func() Example {
				e := l.example(&last, fmt.Sprintf("the last stable offset stood there for %.1f s, the log ends at %d", seconds(last.At-since), l.end[p]))
				e.Producer = -1
				return e
			})
		}
	}
	return f
}

// balance is rule C12, free of order and of places: what each producer's committed transactions sent and what the committed final read
// found of it add up to the same sum. It sees torn transactions and doubled messages by another road than C3 and A2.
func balance(l *ledger, o Options) *finding {
	f := &finding{missing: l.whole(o)}
	if f.missing != "" {
		return f
	}
	type account struct{ due, got uint64 }
	accounts := map[uint16]*account{}
	for i := range l.book.txns {
		t := &l.book.txns[i]
		a := accounts[t.producer]
		if a == nil {
			a = &account{}
			accounts[t.producer] = a
		}
		if t.mustShow() || t.mayShow() && t.read > 0 {
			a.due += t.due
		}
		a.got += t.got
	}
	f.of = int64(len(accounts))
	for producer, a := range accounts {
		if a.due != a.got {
			f.add("", func() Example {
				return Example{Offset: -1, Producer: int(producer), What: fmt.Sprintf("its committed transactions sum up to %d, what is readable to %d", a.due, a.got), Seconds: -1}
			})
		}
	}
	return f
}
