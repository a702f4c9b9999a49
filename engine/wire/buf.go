package wire

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	minClass   = 4 << 10   // smallest pooled capacity
	maxClass   = 128 << 20 // largest; above it a buffer is allocated exactly and never pooled
	classSteps = 2         // classes per doubling: 2^k and 1.5 * 2^k
	numClasses = 31        // 4 KiB, 6 KiB, 8 KiB, … 96 MiB, 128 MiB
	poisonByte = 0xA5
)

// Pool hands out byte buffers by size class. It keeps what sync.Pool keeps: buffers that nobody takes
// again go to the garbage collector. Safe for concurrent use. The zero value is ready.
type Pool struct {
	// Poison overwrites a buffer when its last reference goes, so that a test sees who reads too late.
	Poison  bool
	classes [numClasses]sync.Pool
}

// NewPool returns an empty pool.
func NewPool() *Pool { return &Pool{} }

// Get returns a buffer of length n (contents arbitrary) with one reference. Its capacity is the size class
// of n, at most 1.5 times n above 4 KiB: whoever budgets memory charges Cap.
func (p *Pool) Get(n int) *Buf {
	class := classOf(n)
	if class < 0 {
		return (&Buf{b: make([]byte, n), class: -1, pool: p}).first()
	}
	if b, ok := p.classes[class].Get().(*Buf); ok {
		b.b = b.b[:n]
		return b.first()
	}
	return (&Buf{b: make([]byte, n, classSize(class)), class: class, pool: p}).first()
}

// Buf is a byte buffer that is counted twice. References (Retain, Release) are those of the request: while one
// is left, the buffer counts against what its client may have in flight. Holds (Hold, Drop) are those of whoever
// needs the bytes longer, a log's tail cache or a peer's stream: they carry budgets of their own. Bytes cut out
// of the buffer stay valid while one reference or hold is left, and no longer.
type Buf struct {
	b      []byte
	class  int
	pool   *Pool
	refs   atomic.Int32
	holds  atomic.Int32 // one stands for all references
	small  bool         // charged as a small frame's
	onFree func(b *Buf) // the budget that the buffer was charged to; called once, with the last reference
}

func (b *Buf) first() *Buf {
	b.onFree = nil
	b.refs.Store(1)
	b.holds.Store(1)
	return b
}

// Bytes returns the contents; valid until the holder's reference is released.
func (b *Buf) Bytes() []byte { return b.b }

// Cap is what the buffer costs in memory.
func (b *Buf) Cap() int { return cap(b.b) }

// Retain adds a reference. The caller must hold one already.
func (b *Buf) Retain() {
	if n := b.refs.Add(1); n <= 1 {
		panic(fmt.Sprintf("wire: Retain of a released buffer (references now %d)", n))
	}
}

// Release gives one reference back. With the last one the charge is returned, and the memory goes back to the
// pool unless it is held.
func (b *Buf) Release() {
	n := b.refs.Add(-1)
	if n > 0 {
		return
	}
	if n < 0 {
		panic(fmt.Sprintf("wire: Release of a released buffer (references now %d)", n))
	}
	if free := b.onFree; free != nil {
		b.onFree = nil
		free(b)
	}
	b.Drop()
}

// Hold keeps the bytes, not the charge, until Drop. The caller must have a reference or a hold already.
func (b *Buf) Hold() {
	if n := b.holds.Add(1); n <= 1 {
		panic(fmt.Sprintf("wire: Hold of a free buffer (holds now %d)", n))
	}
}

// Drop ends a hold. It takes no lock and does not block. The last one returns the memory to its pool: nobody may
// look at the bytes afterwards.
func (b *Buf) Drop() {
	n := b.holds.Add(-1)
	if n > 0 {
		return
	}
	if n < 0 {
		panic(fmt.Sprintf("wire: Drop of a free buffer (holds now %d)", n))
	}
	b.b = b.b[:cap(b.b)]
	if b.pool.Poison {
		for i := range b.b {
			b.b[i] = poisonByte
		}
	}
	if b.class >= 0 {
		b.pool.classes[b.class].Put(b)
	}
}

// classOf returns the smallest class that holds n bytes, -1 if there is none.
func classOf(n int) int {
	if n <= minClass {
		return 0
	}
	if n > maxClass {
		return -1
	}
	exp := bits.Len(uint(n-1)) - 1 // 2^exp < n <= 2^(exp+1)
	class := (exp - 12) * classSteps
	if n <= 3<<(exp-1) {
		return class + 1
	}
	return class + classSteps
}

func classSize(class int) int {
	size := minClass << (class / classSteps)
	if class%classSteps == 1 {
		size += size / 2
	}
	return size
}

// capacityFor is the capacity that Get(n) gives.
func capacityFor(n int) int {
	if class := classOf(n); class >= 0 {
		return classSize(class)
	}
	return n
}
