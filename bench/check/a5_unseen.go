package check

import (
	"fmt"

	"gopherlog/bench/history"
)

// unseen is rule A5: acknowledged and not read, but the final read did not get far enough to say more. It is never a proof.
type unseen struct{ finding }

func (f *unseen) count(l *ledger, r *history.Record) {
	f.add("", func() Example {
		return l.example(r, fmt.Sprintf("was acknowledged; the final read stands at %d", l.next[r.Partition]))
	})
}
