package producer

import "slices"

// ExpireBound is the offset for Expire that leaves at most keep producers, forgetting those first that were silent for
// the longest stretch of the log. It is 0 when nothing needs to go.
func (s *State) ExpireBound(keep int) int64 {
	if len(s.producers) <= keep {
		return 0
	}
	lasts := make([]int64, 0, len(s.producers))
	for _, e := range s.producers {
		lasts = append(lasts, e.last)
	}
	slices.Sort(lasts)
	return lasts[len(lasts)-keep-1] + 1
}

// Producer describes one remembered producer, for tools.
type Producer struct {
	ID            int64
	Epoch         int16
	LastSequence  int32 // -1 when no batch of this epoch is known
	LastOffset    int64
	LastTimestamp int64
}

// Producers lists what is remembered, ascending by id.
func (s *State) Producers() []Producer {
	out := make([]Producer, 0, len(s.producers))
	for id, e := range s.producers {
		p := Producer{ID: id, Epoch: e.epoch, LastSequence: -1, LastOffset: e.last, LastTimestamp: e.stamp}
		if e.n > 0 {
			p.LastSequence = e.batches[e.n-1].last
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Producer) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return out
}

// AnyBelow says whether Expire(offset) would forget anything.
func (s *State) AnyBelow(offset int64) bool {
	for _, e := range s.producers {
		if e.last < offset {
			return true
		}
	}
	return false
}
