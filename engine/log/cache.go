package log

import (
	"sync"
	"sync/atomic"
)

// slotCharge is what a cached entry costs beside its bytes.
const slotCharge = 96

// Budget is a number of bytes that the tail caches of a node share. Its own lock is never held together
// with a log's.
type Budget struct {
	limit int64
	used  atomic.Int64

	mu   sync.Mutex
	logs []*Log
	turn int
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Used is how many bytes are charged now, by the capacity of the buffers held.
func (b *Budget) Used() int64 { return b.used.Load() }

// charge takes n bytes unless that exceeds the limit.
func (b *Budget) charge(n int64) bool {
	if b == nil {
		return true
	}
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *Budget) release(n int64) {
	if b != nil {
		b.used.Add(-n)
	}
}

func (b *Budget) join(l *Log) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logs = append(b.logs, l)
}

func (b *Budget) leave(l *Log) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, x := range b.logs {
		if x == l {
			b.logs = append(b.logs[:i], b.logs[i+1:]...)
			return
		}
	}
}

// reclaimTries bounds how many other logs one append asks to give up cached bytes.
const reclaimTries = 4

// reclaim makes some other logs drop half of their caches, in turn, so that idle ones do not keep the
// budget from busy ones. The caller holds no lock.
func (b *Budget) reclaim(asking *Log) {
	for range reclaimTries {
		b.mu.Lock()
		if len(b.logs) == 0 {
			b.mu.Unlock()
			return
		}
		b.turn = (b.turn + 1) % len(b.logs)
		victim := b.logs[b.turn]
		b.mu.Unlock()
		if victim != asking && victim.shrinkCache(2) > 0 {
			return
		}
	}
}

// cache holds the newest entries [first, next), in a ring indexed by the entry's index, oldest out first.
// Log.mu guards it.
type cache struct {
	slots       []Entry // a power of two
	first, next uint64
	kept        uint64 // no entry below it has an owner
	bytes       int64
	limit       int64
	budget      *Budget
}

// pinned is the share of an owner's memory, as 1/pinned, below which an entry is copied out of it.
const pinned = 4

// charge is what a cached entry costs: the capacity of its buffer, or its share of an owner's, whose capacity is at most
// one and a half times what it holds.
func charge(e *Entry) int64 {
	n := int64(cap(e.Data))
	if e.Owner != nil {
		n = min(int64(e.Owner.Cap()), int64(len(e.Data)+len(e.Data)/2))
	}
	return n + int64(cap(e.Ext)) + slotCharge
}

// ownedFactor: entries with an owner leave the cache when all peers have them, so it may hold that many times its limit of
// them. It has room for all that a partition may have in flight.
const ownedFactor = 3

func (c *cache) get(index uint64) (Entry, bool) {
	if index < c.first || index >= c.next {
		return Entry{}, false
	}
	return c.slots[index&uint64(len(c.slots)-1)], true
}

// put adds the next entry; it reports false when the node's budget has no room for it.
func (c *cache) put(e Entry) bool {
	if e.Index != c.next {
		c.reset(e.Index)
	}
	n, limit := charge(&e), c.limit
	if e.Owner != nil {
		limit *= ownedFactor
	}
	for c.bytes+n > limit && c.first < c.next {
		c.drop()
	}
	if c.bytes+n > limit {
		c.reset(e.Index + 1)
		return true
	}
	for !c.budget.charge(n) {
		if c.first == c.next {
			c.reset(e.Index + 1)
			return false
		}
		c.drop()
	}
	if int(c.next-c.first) == len(c.slots) {
		c.grow()
	}
	if e.Owner != nil {
		e.Owner.Hold()
	}
	c.slots[e.Index&uint64(len(c.slots)-1)] = e
	c.next++
	c.bytes += n
	return true
}

// drop forgets the oldest entry.
func (c *cache) drop() {
	slot := &c.slots[c.first&uint64(len(c.slots)-1)]
	c.forget(slot)
	c.first++
}

func (c *cache) forget(slot *Entry) {
	n := charge(slot)
	c.bytes -= n
	c.budget.release(n)
	if slot.Owner != nil {
		slot.Owner.Drop()
	}
	*slot = Entry{}
}

// shed keeps of the entries up to index that have an owner the header only.
func (c *cache) shed(index uint64) {
	for c.kept = max(c.kept, c.first); c.kept < c.next && c.kept <= index; c.kept++ {
		slot := &c.slots[c.kept&uint64(len(c.slots)-1)]
		if slot.Owner == nil {
			continue
		}
		before := charge(slot)
		slot.Owner.Drop()
		slot.Data, slot.Owner, slot.head = slot.head, nil, nil
		freed := before - charge(slot)
		c.bytes -= freed
		c.budget.release(freed)
	}
}

// cut forgets the entries from index on.
func (c *cache) cut(index uint64) {
	for c.next > c.first && c.next > index {
		c.next--
		c.kept = min(c.kept, c.next)
		c.forget(&c.slots[c.next&uint64(len(c.slots)-1)])
	}
	if c.next > index {
		c.reset(index)
	}
}

// trim forgets the entries below index.
func (c *cache) trim(index uint64) {
	for c.first < c.next && c.first < index {
		c.drop()
	}
}

// reset forgets everything; the next entry to come is index.
func (c *cache) reset(index uint64) {
	for c.first < c.next {
		c.drop()
	}
	c.first, c.next, c.kept = index, index, index
}

// keep drops the oldest entries until at most n bytes are held.
func (c *cache) keep(n int64) (freed int64) {
	before := c.bytes
	for c.bytes > n && c.first < c.next {
		c.drop()
	}
	if c.first == c.next {
		c.slots = nil
	}
	return before - c.bytes
}

func (c *cache) grow() {
	old := *c
	c.slots = make([]Entry, max(16, 2*len(old.slots)))
	for i := old.first; i < old.next; i++ {
		c.slots[i&uint64(len(c.slots)-1)] = old.slots[i&uint64(len(old.slots)-1)]
	}
}

// shrinkCache keeps 1/part of the cache's bytes and returns how many it freed.
func (l *Log) shrinkCache(part int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if part == 0 {
		return l.cache.keep(0)
	}
	return l.cache.keep(l.cache.bytes / part)
}

// owned returns the entry to cache: with its own buffer, or a copy when it would pin a much larger one.
func owned(e Entry) Entry {
	n, room := len(e.Data), cap(e.Data)
	small := room > 2*n+1024 && n < 64<<10
	if e.Owner != nil {
		small = e.Owner.Cap() > pinned*n
	}
	if small {
		e.Data = append(make([]byte, 0, n), e.Data...)
		e.Owner, e.head = nil, nil
	}
	return e
}

// Replicated says that every peer holds the log up to index. Pooled bytes that were cached for them are given
// back; the headers stay.
func (l *Log) Replicated(index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cache.shed(index)
}
