package check

import (
	"fmt"
)

// skipped is rule B6: everything below a committed position was delivered to some member.
func (g *groupBook) skipped(l *ledger, i uint32, f *groupFindings) {
	p, v := g.at(i), &l.views[i]
	to := p.committed()
	if to == 0 || v.over {
		return
	}
	from := max(p.start, 0)
	f.b6.of += v.count(from, to, nil)
	if l.holes {
		return
	}
	v.each(from, to, p.delivered[0], func(offset int64) bool {
		f.b6.add("", func() Example {
			return g.example(l, i, offset, actor{}, never, fmt.Sprintf("was delivered to nobody, and %d is committed", to))
		})
		return true
	})
}
