package load

import (
	"sort"
	"sync"
)

const maxClasses = 255 // the last stands for all further texts

// errorTable numbers error texts in the order of their first occurrence.
type errorTable struct {
	mu      sync.Mutex
	numbers map[string]uint8
	counts  map[string]int64
}

func newErrorTable() *errorTable {
	return &errorTable{numbers: map[string]uint8{}, counts: map[string]int64{}}
}

// class counts err and tells its number, from 1.
func (t *errorTable) class(err error) uint8 {
	what := err.Error()
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.numbers[what]
	if !ok {
		if len(t.numbers) >= maxClasses-1 {
			what, n = "(other)", maxClasses
		} else {
			n = uint8(len(t.numbers) + 1)
			t.numbers[what] = n
		}
	}
	t.counts[what]++
	return n
}

// list is every text with its count, most frequent first.
func (t *errorTable) list() []ErrorCount {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]ErrorCount, 0, len(t.counts))
	for what, n := range t.counts {
		out = append(out, ErrorCount{What: what, Count: n})
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Count != out[j].Count {
			return out[i].Count > out[j].Count
		}
		return out[i].What < out[j].What
	})
	return out
}
