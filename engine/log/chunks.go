package log

import "sync"

// chunks keeps the last read-ahead of two readers, so that a catching-up follower which asks for one
// entry after the other costs one read per chunk. The bytes are charged to the node's cache budget; without
// room a chunk is not kept.
type chunks struct {
	mu   sync.Mutex
	slot [2]chunk
	old  int // the slot to be replaced next
}

// chunk is entries that were read together; next is the index that its reader asks for afterwards.
type chunk struct {
	entries []Entry
	next    uint64
	cuts    uint64 // Log.cuts when they were read
	charged int64
	budget  *Budget
	refused bool // no room for a chunk: the reader gets one entry at a time
}

// get returns a kept entry that was read since the last cut.
func (c *chunks) get(index, cuts uint64) (Entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.slot {
		s := &c.slot[i]
		if n := len(s.entries); n > 0 && s.cuts == cuts && index >= s.entries[0].Index && index <= s.entries[n-1].Index {
			return s.entries[index-s.entries[0].Index], true
		}
	}
	return Entry{}, false
}

// sequential notes a miss at index and reports whether it is the one a reader would ask for next.
func (c *chunks) sequential(index uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.slot {
		if c.slot[i].next == index && index > 0 {
			c.old = 1 - i
			c.slot[i].next = index + 1
			return !c.slot[i].refused
		}
	}
	c.slot[c.old].drop()
	c.slot[c.old].next = index + 1
	c.old = 1 - c.old
	return false
}

// keep stores what a sequential reader will ask for; without room its next reads are of one entry each, until
// clear.
func (c *chunks) keep(entries []Entry, cuts uint64, budget *Budget) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.slot {
		s := &c.slot[i]
		if s.next != entries[0].Index+1 {
			continue
		}
		s.drop()
		var n int64
		for k := range entries {
			n += charge(&entries[k])
		}
		if !budget.charge(n) {
			s.next, s.refused = entries[0].Index+1, true
			return
		}
		s.entries, s.cuts, s.charged, s.budget = entries, cuts, n, budget
		s.next = entries[len(entries)-1].Index + 1
		return
	}
}

func (s *chunk) drop() {
	if s.charged > 0 {
		s.budget.release(s.charged)
	}
	*s = chunk{}
}

// clear forgets everything: entries may have been cut, or nobody reads any more.
func (c *chunks) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.slot {
		c.slot[i].drop()
	}
}
