package producer

import "slices"

// Expire forgets every producer whose newest record lies below the offset, unless a transaction of it is open: its marker must
// still find it. It is a replicated command: all replicas apply it at the same place of the log, so no clock, and no timestamp
// that a client chose, can make them differ. It returns how many were forgotten.
func (s *State) Expire(below int64) int {
	before := len(s.producers)
	for id, e := range s.producers {
		if e.expires(below) {
			delete(s.producers, id)
		}
	}
	return before - len(s.producers)
}

func (e *entry) expires(below int64) bool { return e.last < below && e.txn < 0 }

// AnyBelow says whether Expire(offset) would forget anything.
func (s *State) AnyBelow(offset int64) bool {
	for _, e := range s.producers {
		if e.expires(offset) {
			return true
		}
	}
	return false
}

// ExpireBound is the offset for Expire that leaves at most keep producers, or those with an open transaction if they are more,
// forgetting those first that were silent for the longest stretch of the log. It is 0 when nothing needs to go.
func (s *State) ExpireBound(keep int) int64 {
	lasts := make([]int64, 0, len(s.producers))
	for _, e := range s.producers {
		if e.txn < 0 {
			lasts = append(lasts, e.last)
		}
	}
	surplus := min(len(s.producers)-keep, len(lasts))
	if surplus <= 0 {
		return 0
	}
	slices.Sort(lasts)
	return lasts[surplus-1] + 1
}

// Producer describes one remembered producer, for tools.
type Producer struct {
	ID               int64
	Epoch            int16
	LastSequence     int32 // -1 when no batch of this epoch is known
	LastOffset       int64
	LastTimestamp    int64
	CoordinatorEpoch int32 // of the newest marker; -1: none
	Transaction      int64 // first offset of its open transaction; -1: none
}

// Producers lists what is remembered, ascending by id.
func (s *State) Producers() []Producer {
	out := make([]Producer, 0, len(s.producers))
	for _, id := range s.ids() {
		e := s.producers[id]
		p := Producer{id, e.epoch, none, e.last, e.stamp, e.coord, e.txn}
		if e.n > 0 {
			p.LastSequence = e.batches[e.n-1].last
		}
		out = append(out, p)
	}
	return out
}
