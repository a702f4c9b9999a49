package check

import (
	"fmt"
)

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
