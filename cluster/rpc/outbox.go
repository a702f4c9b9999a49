package rpc

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// outbox merges the writes of many goroutines on one connection. A sender that
// finds it idle writes by itself, without a hand-off; what piles up meanwhile
// is written by run in one vectored write.
type outbox struct {
	conn    net.Conn
	raw     syscall.RawConn // nil: not a socket
	pool    *buffers
	limit   int           // queued bytes above which send waits; 0 never waits
	timeout time.Duration // of one write; 0 none

	mu      sync.Mutex
	queue   net.Buffers
	spare   net.Buffers // the other of two slices that take turns
	heads   [][]byte    // pooled buffers that queue points into
	idle    [][]byte    // the other of two
	loans   []*Loan     // of bytes in queue
	settled []*Loan     // the other of two
	queued  int
	writing bool
	err     error
	room    chan struct{} // closed when the queue was taken; nil when nobody waits

	wake   chan struct{}
	closed chan struct{}
}

func newOutbox(conn net.Conn, pool *buffers, limit int, timeout time.Duration) *outbox {
	o := &outbox{
		conn: conn, pool: pool, limit: limit, timeout: timeout,
		wake: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	if c, ok := conn.(syscall.Conn); ok {
		o.raw, _ = c.SyscallConn()
	}
	return o
}

// send queues bufs, in order and without others in between, and usually writes
// them. The bytes must not change until they are written: the outbox keeps the
// loan so long. head, when not nil, is a pooled buffer that bufs points into; the
// outbox puts it back.
func (o *outbox) send(bufs [][]byte, head []byte, size int, loan *Loan) error {
	return o.sendWithin(o.limit, bufs, head, size, loan)
}

// sendWithin is send with another limit.
func (o *outbox) sendWithin(limit int, bufs [][]byte, head []byte, size int, loan *Loan) error {
	o.mu.Lock()
	for o.err == nil && limit > 0 && o.queued > 0 && o.queued+size > limit {
		if o.room == nil {
			o.room = make(chan struct{})
		}
		room := o.room
		o.mu.Unlock()
		select {
		case <-room:
		case <-o.closed:
		}
		o.mu.Lock()
	}
	if o.err != nil {
		err := o.err
		o.mu.Unlock()
		return err
	}
	o.queue = append(o.queue, bufs...)
	if head != nil {
		o.heads = append(o.heads, head)
	}
	if loan != nil {
		loan.retain()
		o.loans = append(o.loans, loan)
	}
	o.queued += size
	if o.writing {
		o.mu.Unlock()
		return nil
	}
	o.writing = true
	o.mu.Unlock()
	more, err := o.flush()
	if more {
		o.wake <- struct{}{} // room for one; only the current writer sends
	}
	return err
}

// offer sends one pooled buffer, which the outbox puts back, unless much waits already or the outbox is closed: then false, and it goes back at
// once. It does not block: what an idle connection does not take now is written by run.
func (o *outbox) offer(b []byte) bool {
	o.mu.Lock()
	if o.err != nil || o.queued+len(b) > offerRoom {
		o.mu.Unlock()
		o.pool.put(b)
		return false
	}
	if o.writing || o.raw == nil {
		idle := !o.writing
		o.writing = true
		o.pushLocked(b, b)
		o.mu.Unlock()
		if idle {
			o.wake <- struct{}{} // room for one; only the current writer sends
		}
		return true
	}
	o.writing = true
	o.mu.Unlock()
	n := o.try(b)

	o.mu.Lock()
	if n < len(b) && o.err == nil { // the rest goes before what came meanwhile
		o.pushLocked(b[n:], b)
		copy(o.queue[1:], o.queue)
		o.queue[0] = b[n:]
	}
	o.writing = len(o.queue) > 0
	more := o.writing
	o.mu.Unlock()
	if n == len(b) {
		o.pool.put(b)
	}
	if more {
		o.wake <- struct{}{}
	}
	return true
}

// pushLocked queues b, which lies in the pooled buffer head.
func (o *outbox) pushLocked(b, head []byte) {
	o.queue, o.heads, o.queued = append(o.queue, b), append(o.heads, head), o.queued+len(b)
}

// try writes as much of b as the socket takes at once. Errors are left to the next write. The caller owns writing.
func (o *outbox) try(b []byte) (n int) {
	_ = o.raw.Write(func(fd uintptr) bool {
		n, _ = syscall.Write(int(fd), b)
		return true
	})
	return max(n, 0)
}

// flush writes what is queued. The caller owns writing; more means that it
// still does and that there is more to write.
func (o *outbox) flush() (more bool, err error) {
	o.mu.Lock()
	bufs, heads, loans := o.queue, o.heads, o.loans
	o.queue, o.heads, o.loans = o.spare[:0], o.idle[:0], o.settled[:0]
	o.queued = 0
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
	o.mu.Unlock()

	if o.timeout > 0 {
		o.conn.SetWriteDeadline(time.Now().Add(o.timeout))
	}
	rest := bufs
	_, err = rest.WriteTo(o.conn)
	clear(bufs)
	for i, h := range heads {
		o.pool.put(h)
		heads[i] = nil
	}
	releaseAll(loans)

	o.mu.Lock()
	defer o.mu.Unlock()
	o.spare, o.idle, o.settled = bufs[:0], heads[:0], loans[:0]
	if err != nil {
		o.failLocked(err)
		return false, err
	}
	if len(o.queue) == 0 {
		o.writing = false
		return false, nil
	}
	return true, nil
}

// run writes what senders left behind until the outbox is closed.
func (o *outbox) run() {
	for {
		select {
		case <-o.wake:
			for {
				more, err := o.flush()
				if err != nil {
					return
				}
				if !more {
					break
				}
			}
		case <-o.closed:
			return
		}
	}
}

func (o *outbox) failLocked(err error) {
	if o.err != nil {
		return
	}
	o.err = err
	close(o.closed)
	releaseAll(o.loans) // what is being written was taken off
	o.queue, o.heads, o.loans = nil, nil, nil
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// close fails what is queued and yet to come, and closes the connection.
func (o *outbox) close(err error) {
	o.mu.Lock()
	o.failLocked(err)
	o.mu.Unlock()
	o.conn.Close()
}

func releaseAll(loans []*Loan) {
	for i, l := range loans {
		l.Release()
		loans[i] = nil
	}
}
