package check

import (
	"fmt"
	"slices"
)

// zombies is rule B9: a commit of a generation that was over when it was asked is refused.
func (g *groupBook) zombies(l *ledger, i uint32, f *groupFindings) {
	p := g.at(i)
	held := slices.Clone(p.holdings)
	slices.SortStableFunc(held, func(a, b holding) int { return int(a.from - b.from) })
	byAsked := slices.Clone(p.commits)
	slices.SortStableFunc(byAsked, func(a, b commit) int { return int(a.asked - b.asked) })
	newest, next := holding{generation: -1}, 0
	for _, c := range byAsked {
		for ; next < len(held) && held[next].from < c.asked; next++ {
			if held[next].generation > newest.generation {
				newest = held[next]
			}
		}
		if !c.ok {
			continue
		}
		f.b9.of++
		if c.generation >= 0 && c.generation < newest.generation {
			f.b9.add("", func() Example {
				return g.example(l, i, c.next, c.by, c.at, fmt.Sprintf("a commit of generation %d was accepted, asked after %s had the partition in generation %d", c.generation, newest.by, newest.generation))
			})
		}
	}
}
