package check

import (
	"fmt"
)

// torn is rule C3: all of a transaction is readable or nothing is, and all of it where its commit was answered.
func torn(l *ledger, c *txnReads, o Options) *finding {
	f := &finding{missing: l.whole(o)}
	blind := f.missing != ""
	for i := range l.book.txns {
		t := &l.book.txns[i]
		if t.of == 0 || t.expired {
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
