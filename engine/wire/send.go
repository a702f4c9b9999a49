package wire

import (
	"fmt"
	"io"
	"net"
	"syscall"
)

const (
	sendfileMin   = 64 << 10  // measured with both ends: equal from 32 to 64 KiB; below, more system calls cost more than the copy
	copyChunk     = 256 << 10 // memory that a copied file range costs, whatever its length
	gatherMax     = 16        // responses that go out in one write
	inlineMax     = 64 << 10  // largest response that Reply tries to write itself
	inlineRounds  = 4         // responses that one Reply writes at most
	sendfileChunk = 4 << 20   // the watchdog sees progress at least this often
)

// outbox is the write side of a connection. All of it belongs to the goroutine that set Conn.writing.
type outbox struct {
	c     *Conn
	batch []*Request // taken off the queue, not yet sent
	vec   [][]byte   // gathered bytes
	bufs  net.Buffers
	held  []*Buf // copies that vec points into

	// Arguments and results of the bound system calls below: closures made once, so that a write allocates nothing.
	tryBuf []byte
	tryN   int
	tryErr error
	tryFn  func(fd uintptr) bool
	file   sendfileState
	lead   leadState
}

func (o *outbox) init(c *Conn) {
	o.c = c
	o.tryFn = o.tryWrite
	o.file.init(o)
	o.lead.init(o)
}

// complete records the answer to r and writes whatever has its turn, unless somebody else is writing.
func (c *Conn) complete(r *Request, resp Response, wait bool) {
	c.mu.Lock()
	if r.answered {
		c.mu.Unlock()
		panic(fmt.Sprintf("wire: request answered twice (api key %d, correlation id %d)", r.Key, r.CorrelationID))
	}
	r.answered = true
	r.resp = resp
	if c.closed {
		c.mu.Unlock()
		r.resp.drop()
		return
	}
	c.inflight += resp.memory
	if c.writing || c.queue[0] != r {
		c.mu.Unlock()
		return
	}
	c.writing = true
	c.mu.Unlock()
	c.flush(wait)
}

// flush writes answered requests from the head of the queue until none is left or, if it may not wait,
// until the socket is full; then a goroutine goes on. The caller owns the write side and gives it up here.
func (c *Conn) flush(wait bool) {
	for round := 0; c.take(wait); round++ {
		var err error
		if wait {
			err = c.out.send()
		} else {
			rest, ok := c.out.try(round)
			if !ok {
				c.flushLater(rest)
				return
			}
			err = c.out.tryErr
		}
		if err != nil {
			c.Close(err)
		}
		c.settle()
	}
}

// flushLater continues in a goroutine that may wait. rest is what is left of the response at the head of the
// batch if part of it was written.
func (c *Conn) flushLater(rest []byte) {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.srv.wg.Add(1) // not zero before: the reader counts itself until the connection is closed
	}
	c.mu.Unlock()
	if closed {
		c.settle()
		return
	}
	go func() {
		defer c.srv.wg.Done()
		var err error
		if rest != nil {
			err = c.out.write(rest)
		} else {
			err = c.out.send()
		}
		if err != nil {
			c.Close(err)
		}
		c.settle()
		c.flush(true)
	}()
}

// take moves answered requests from the queue to the batch. If there are none it gives up the write side.
func (c *Conn) take(wait bool) bool {
	c.mu.Lock()
	n := 0
	if !c.closed {
		n = c.ready(wait)
	}
	if n == 0 {
		c.writing = false
		last := c.draining && c.pending == 0 && !c.closed
		c.mu.Unlock()
		if last {
			c.Close(ErrClosed)
		}
		return false
	}
	c.out.batch = append(c.out.batch[:0], c.queue[:n]...)
	left := copy(c.queue, c.queue[n:])
	clear(c.queue[left:])
	c.queue = c.queue[:left]
	c.mu.Unlock()
	return true
}

// ready counts the answered requests at the head that may go together.
func (c *Conn) ready(wait bool) int {
	most := 1
	if wait {
		most = gatherMax
	}
	n := 0
	for n < len(c.queue) && n < most && c.queue[n].answered {
		n++
		if c.queue[n-1].resp.fileBytes > 0 {
			break
		}
	}
	return n
}

// settle frees the batch and tells the reader.
func (c *Conn) settle() {
	var memory int64
	for i, r := range c.out.batch {
		memory += r.resp.memory
		r.resp.drop()
		c.out.batch[i] = nil
	}
	n := len(c.out.batch)
	c.out.batch = c.out.batch[:0]
	c.lastUse.Store(c.srv.nanos())
	c.mu.Lock()
	c.pending -= n
	c.inflight -= memory
	c.mu.Unlock()
	c.signalRoom()
}

// try writes the batch's only response without waiting. ok is false if a goroutine has to go on: with rest,
// or if that is nil with the whole response.
func (o *outbox) try(round int) (rest []byte, ok bool) {
	o.tryErr = nil
	resp := &o.batch[0].resp
	if resp.empty() {
		return nil, true
	}
	if o.c.raw == nil || resp.whole == nil || len(*resp.whole) > inlineMax || round >= inlineRounds {
		return nil, false
	}
	o.tryBuf = *resp.whole
	if err := o.c.raw.Write(o.tryFn); err != nil {
		o.tryErr = err
		return nil, true
	}
	if o.tryErr != nil {
		return nil, true
	}
	o.c.srv.stats.bytesOut.Add(int64(o.tryN))
	if o.tryN < len(o.tryBuf) {
		return o.tryBuf[o.tryN:], false
	}
	return nil, true
}

func (o *outbox) tryWrite(fd uintptr) bool {
	for {
		n, err := syscall.Write(int(fd), o.tryBuf)
		if err == syscall.EINTR {
			continue
		}
		o.tryN = max(n, 0)
		if err != nil && err != syscall.EAGAIN {
			o.tryErr = err
		}
		return true
	}
}

// send writes the batch and waits for the client as long as it takes something.
func (o *outbox) send() error {
	for _, r := range o.batch {
		resp := &r.resp
		switch {
		case resp.empty():
		case resp.whole != nil:
			o.vec = append(o.vec, *resp.whole)
		default:
			if err := o.sendPieces(resp); err != nil {
				o.reset()
				return err
			}
		}
	}
	return o.flushVec()
}

func (o *outbox) sendPieces(resp *Response) error {
	o.vec = append(o.vec, resp.headBytes[:resp.headLen])
	if resp.fileBytes >= sendfileMin && o.c.raw != nil && canSendfile(resp.Pieces) {
		return o.sendDirect(resp.Pieces)
	}
	for i := range resp.Pieces {
		p := &resp.Pieces[i]
		if p.File != nil {
			if err := o.copyFile(p); err != nil {
				return err
			}
		} else if len(p.Bytes) > 0 {
			o.vec = append(o.vec, p.Bytes)
		}
	}
	return nil
}

// sendDirect lets the kernel send the files. Nothing leaves in a segment of its own that could share one with what follows: bytes
// before the only file are announced as a beginning; anything else is corked, which takes two more system calls.
func (o *outbox) sendDirect(pieces []Piece) error {
	last := len(pieces) - 1
	corked := pieces[last].File == nil
	for i := range last {
		corked = corked || pieces[i].File != nil
	}
	if corked {
		o.cork(true)
		defer o.cork(false)
	}
	for i := range pieces {
		p := &pieces[i]
		if p.File == nil {
			if len(p.Bytes) > 0 {
				o.vec = append(o.vec, p.Bytes)
			}
			continue
		}
		if err := o.flushLead(corked); err != nil {
			return err
		}
		if err := o.sendfile(p); err != nil {
			return err
		}
	}
	return o.flushVec()
}

// copyFile reads a file range and writes it; the last chunk stays in vec so that it leaves with what follows.
func (o *outbox) copyFile(p *Piece) error {
	for pos, end := p.Pos, p.Pos+p.Len; pos < end; {
		buf := o.c.srv.pool.Get(int(min(end-pos, copyChunk)))
		o.held = append(o.held, buf)
		n, err := p.File.ReadAt(buf.b, pos)
		if n < len(buf.b) {
			if err == nil {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("%w: %d of %d bytes at %d: %w", ErrFile, n, len(buf.b), pos, err)
		}
		o.vec = append(o.vec, buf.b)
		pos += int64(n)
		if pos < end {
			if err := o.flushVec(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flushVec writes the gathered bytes.
func (o *outbox) flushVec() error {
	defer o.reset()
	switch len(o.vec) {
	case 0:
		return nil
	case 1:
		return o.write(o.vec[0])
	}
	o.c.writeStart.Store(o.c.srv.nanos())
	defer o.c.writeStart.Store(0)
	o.bufs = o.vec
	n, err := o.bufs.WriteTo(o.c.nc)
	o.c.srv.stats.bytesOut.Add(n)
	return err
}

func (o *outbox) write(b []byte) error {
	o.c.writeStart.Store(o.c.srv.nanos())
	defer o.c.writeStart.Store(0)
	n, err := o.c.nc.Write(b)
	o.c.srv.stats.bytesOut.Add(int64(n))
	return err
}

func (o *outbox) reset() {
	clear(o.vec)
	o.vec = o.vec[:0]
	for i, b := range o.held {
		b.Release()
		o.held[i] = nil
	}
	o.held = o.held[:0]
}

func canSendfile(pieces []Piece) bool {
	for i := range pieces {
		if f := pieces[i].File; f != nil && f.Fd() == InvalidFd {
			return false
		}
	}
	return haveSendfile
}
