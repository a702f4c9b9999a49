package check

import "gopherlog/bench/history"

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

// whole says that the committed final read saw everything that was to be seen but what retention deleted, and that this is known; why
// says why not.
func (l *ledger) whole(o Options) (why string) {
	switch {
	case !o.Drained:
		return "the final read did not reach the end of the log"
	case l.holes:
		return "the history has holes"
	}
	for _, at := range l.start {
		if at < 0 {
			return "nobody told what retention deleted"
		}
	}
	return ""
}

// complete says that nothing was deleted, either.
func (l *ledger) complete(o Options) (why string) {
	for _, at := range l.start {
		if at > 0 {
			return "retention deleted messages"
		}
	}
	return l.whole(o)
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
