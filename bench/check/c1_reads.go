package check

import (
	"fmt"

	"gopherlog/bench/history"
)

// txnReads judges what committed readers were given while the load ran: rules C1 and C2.
type txnReads struct {
	l      *ledger
	c1, c2 finding
	late   map[*txn]bool // transactions with an anomaly whose predecessor ended in doubt
	torn   map[*txn]bool // all with one
}

func newTxnReads(l *ledger) *txnReads {
	return &txnReads{l: l, late: map[*txn]bool{}, torn: map[*txn]bool{}}
}

// judge looks at a message that a committed reader was given.
func (c *txnReads) judge(a *lane, r *history.Record) {
	t := c.l.book.of(a, r.Sequence)
	if t == nil {
		return
	}
	c.c1.of++
	c.c2.of++
	switch {
	case t.state == history.Aborted:
		c.spoil(t)
		c.c1.add("read during the run", func() Example { return c.l.example(r, t.String()+" was aborted, and its message delivered") })
	case !t.commit:
		c.spoil(t)
		c.c2.add("never asked", func() Example { return c.l.example(r, "the commit of "+t.String()+" was never asked") })
	case r.At < t.asked:
		c.spoil(t)
		c.c2.add("before", func() Example {
			return c.l.example(r, fmt.Sprintf("the commit of %s was asked at %.6f s only", t, seconds(t.asked)))
		})
	}
}

// spoil remembers a transaction with an anomaly, for rule C10.
func (c *txnReads) spoil(t *txn) {
	c.torn[t] = true
	if t.late {
		c.late[t] = true
	}
}
