package check

import (
	"fmt"
)

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
