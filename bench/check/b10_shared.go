package check

import (
	"fmt"
	"slices"
)

// shared is rule B10: one partition is held by one member of a generation at a time.
func (g *groupBook) shared(l *ledger, i uint32, f *groupFindings) {
	held := slices.Clone(g.at(i).holdings)
	f.b10.of += int64(len(held))
	slices.SortStableFunc(held, func(a, b holding) int { return int(a.from - b.from) })
	last := map[int32]holding{} // by generation: the holding that lasts longest
	for _, h := range held {
		before, ok := last[h.generation]
		if ok && before.by != h.by && h.from < before.to {
			f.b10.add("", func() Example {
				return g.example(l, i, -1, h.by, h.from, fmt.Sprintf("%s was given the partition in generation %d while %s held it", h.by, h.generation, before.by))
			})
		}
		if !ok || h.to > before.to {
			last[h.generation] = h
		}
	}
}
