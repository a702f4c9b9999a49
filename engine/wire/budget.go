package wire

import "sync"

// smallShare is the part of the budget that frames of one first chunk always find, whatever larger frames
// hold: metadata, fetches and small batches go on while clients that announced much send nothing.
const smallShare = 8

// budget bounds the bytes of request buffers of all connections. A frame that has begun to arrive may
// overdraw it, one frame at a time: otherwise half-read frames that hold the whole budget would wait for each
// other. Memory is thus bounded by the limit, the small frames' share of it on top, and one frame.
type budget struct {
	mu        sync.Mutex
	limit     int64
	used      int64 // small included
	small     int64 // held by small frames
	overdrawn *frameReader
	freed     chan struct{} // closed and replaced when bytes or the overdraft come free; nil without waiters
}

// take charges n bytes to the budget or waits until they are there. begun says that f holds part of a frame
// already. It returns ErrClosed when done closes first.
func (b *budget) take(done <-chan struct{}, n int64, f *frameReader, begun bool) error {
	for {
		wait := b.tryTake(n, f, begun)
		if wait == nil {
			return nil
		}
		select {
		case <-wait:
		case <-done:
			return ErrClosed
		}
	}
}

func (b *budget) tryTake(n int64, f *frameReader, begun bool) (wait <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fits := b.used+n <= b.limit || b.overdrawn == f || f.small() && b.small+n <= b.limit/smallShare
	if !fits && b.overdrawn == nil && (begun || b.used == 0) {
		b.overdrawn = f
		fits = true
	}
	if fits {
		b.used += n
		if f.small() {
			b.small += n
		}
		return nil
	}
	if b.freed == nil {
		b.freed = make(chan struct{})
	}
	return b.freed
}

// give returns n bytes; small says that a small frame took them.
func (b *budget) give(n int64, small bool) {
	b.mu.Lock()
	b.used -= n
	if small {
		b.small -= n
	}
	b.announce()
	b.mu.Unlock()
}

// settle ends f's overdraft, if it has it: its frame is complete or dropped.
func (b *budget) settle(f *frameReader) {
	b.mu.Lock()
	if b.overdrawn == f {
		b.overdrawn = nil
		b.announce()
	}
	b.mu.Unlock()
}

func (b *budget) announce() {
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
