package wire

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// Conn is one client connection.
type Conn struct {
	srv    *Server
	nc     net.Conn
	raw    syscall.RawConn // nil if nc is no TCP connection
	frames frameReader
	ctx    context.Context
	cancel context.CancelCauseFunc
	refund func(*Buf)

	// Watchdog marks in nanoseconds of Config.Now; 0 means that the clock is not running.
	frameStart atomic.Int64
	writeStart atomic.Int64
	lastUse    atomic.Int64

	mu       sync.Mutex
	queue    []*Request    // unsent, in request order
	pending  int           // requests read and not yet sent
	inflight int64         // bytes of request buffers in use and of unsent responses
	writing  bool          // somebody owns the write side: out, and whatever was taken off the queue
	draining bool          // no further requests; close when pending is 0
	closed   bool          // no further writes
	room     chan struct{} // capacity 1: tells the reader that pending or inflight fell

	out outbox // owned by whoever set writing
}

func newConn(srv *Server, nc net.Conn) *Conn {
	c := &Conn{srv: srv, nc: nc, room: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancelCause(srv.ctx)
	c.refund = c.giveBack
	c.frames = frameReader{
		src: nc, pool: srv.pool, maxFrame: srv.limits.MaxFrame, limit: srv.cfg.FrameLimit,
		reserve: c.reserve, refund: c.refund,
		begun: c.frameBegun,
		ended: c.frameEnded,
	}
	if tcp, ok := nc.(*net.TCPConn); ok {
		c.raw, _ = tcp.SyscallConn()
	}
	c.out.init(c)
	c.lastUse.Store(srv.nanos())
	return c
}

// LocalAddr is the address by which the client reached this server.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// RemoteAddr is the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// Context ends when the connection closes.
func (c *Conn) Context() context.Context { return c.ctx }

// Close drops the connection: nothing more is read, responses not yet sent are discarded. reason is logged
// and is the Context's cause; nil means ErrClosed. Requests that are still unanswered must be answered all
// the same: that is what gives their buffers back.
func (c *Conn) Close(reason error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	var unsent []*Request // answered before; who answers from now on frees the response itself
	for _, r := range c.queue {
		if r.answered {
			unsent = append(unsent, r)
		}
	}
	c.queue = nil
	c.mu.Unlock()
	if reason == nil {
		reason = ErrClosed
	}
	c.cancel(reason)
	c.nc.Close()
	c.srv.forget(c, reason)
	for _, r := range unsent {
		r.resp.drop()
	}
}

// serve reads requests and hands them to the handler until the connection ends.
func (c *Conn) serve() {
	defer c.srv.budget.settle(&c.frames)
	lastID := ""
	for {
		buf, err := c.frames.next()
		if err != nil {
			c.Close(err)
			return
		}
		r := &Request{Buf: buf, Conn: c, Received: c.srv.now()}
		if err := r.parse(buf.b, c.srv.flex, lastID); err != nil {
			buf.Release()
			c.Close(err)
			return
		}
		lastID = r.ClientID
		if !c.push(r) {
			buf.Release()
			return
		}
		c.srv.stats.requests.Add(1)
		c.srv.cfg.Handler(r)
	}
}

func (c *Conn) push(r *Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.draining {
		return false
	}
	c.queue = append(c.queue, r)
	c.pending++
	return true
}

// reserve waits until the connection's and the node's limits admit a buffer of the given capacity. Waiting
// is ours, not the client's: the frame deadline starts again. It runs on for a frame that has begun, because
// that one holds what others wait for: half-read frames that fill the budget must not outlive the deadline
// one after the other.
func (c *Conn) reserve(capacity int, begun bool) error {
	for !c.tryReserve(int64(capacity), begun) {
		c.frameStart.Store(0)
		select {
		case <-c.room:
		case <-c.ctx.Done():
			return ErrClosed
		}
	}
	b := c.srv.budget
	if wait := b.tryTake(int64(capacity), &c.frames, begun); wait != nil {
		if !begun {
			c.frameStart.Store(0)
		}
		if err := b.take(c.ctx.Done(), int64(capacity), &c.frames, begun); err != nil {
			c.uncharge(int64(capacity))
			return err
		}
	}
	c.frameBegun()
	return nil
}

func (c *Conn) tryReserve(n int64, begun bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !begun {
		if c.pending >= c.srv.limits.PipelinePerConn {
			return false
		}
		if c.inflight > 0 && c.inflight+n > c.srv.limits.InflightPerConn {
			return false
		}
	}
	c.inflight += n
	return true
}

// giveBack is called when the last reference to one of the connection's request buffers goes.
func (c *Conn) giveBack(b *Buf) {
	n := int64(b.Cap())
	c.srv.budget.give(n, b.small)
	c.uncharge(n)
}

func (c *Conn) uncharge(n int64) {
	c.mu.Lock()
	c.inflight -= n
	c.mu.Unlock()
	c.signalRoom()
}

func (c *Conn) signalRoom() {
	select {
	case c.room <- struct{}{}:
	default:
	}
}

// frameBegun starts the frame's clock unless it runs; it is called several times a frame.
func (c *Conn) frameBegun() {
	if c.frameStart.Load() == 0 {
		c.frameStart.CompareAndSwap(0, c.srv.nanos())
	}
}

func (c *Conn) frameEnded() {
	c.srv.budget.settle(&c.frames)
	c.frameStart.Store(0)
	c.lastUse.Store(c.srv.nanos())
}

// drain lets what was asked be answered and then closes.
func (c *Conn) drain() {
	c.mu.Lock()
	c.draining = true
	idle := c.pending == 0
	c.mu.Unlock()
	if idle {
		c.Close(ErrClosed)
	}
}

// overdue names the deadline that the connection has overstayed at now, if any.
func (c *Conn) overdue(now int64) string {
	l := &c.srv.limits
	if t := c.frameStart.Load(); t != 0 && now-t > int64(l.FrameDeadline) {
		return "frame"
	}
	if t := c.writeStart.Load(); t != 0 && now-t > int64(l.WriteDeadline) {
		return "write"
	}
	c.mu.Lock()
	waiting := c.pending > 0
	c.mu.Unlock()
	if !waiting && now-c.lastUse.Load() > int64(l.IdleDeadline) {
		return "idle"
	}
	return ""
}
