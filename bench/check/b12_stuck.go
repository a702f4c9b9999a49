package check

import (
	"fmt"
)

// stuck is rule B12: a group that is not at the end of a partition reads it until the end of the run.
func (g *groupBook) stuck(l *ledger, i uint32, f *groupFindings) {
	p, v := g.at(i), &l.views[i]
	if p.position == -2 || v.over || !p.any && len(p.holdings) == 0 {
		return
	}
	f.b12.missing = ""
	f.b12.of++
	left := v.count(max(p.position, 0), v.end, nil)
	if left == 0 {
		return
	}
	if idle := g.last - p.lastRead; idle > l.grace {
		f.b12.add("", func() Example {
			return g.example(l, i, p.position, actor{}, p.lastRead, fmt.Sprintf("%d messages were left, and nothing was delivered in the last %.1f s", left, seconds(idle)))
		})
		return
	}
	f.b12.shape("behind, and reading")
}
