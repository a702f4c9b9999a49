package check

import (
	"fmt"
)

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
		if t.expired {
			continue
		}
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
