package rpctest

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipeBytes is what one direction of a connection holds before writes wait.
const pipeBytes = 256 << 10

// conn is one end of a connection in memory.
type conn struct {
	in, out       *pipe
	local, remote net.Addr
}

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }
func (c *conn) LocalAddr() net.Addr         { return c.local }
func (c *conn) RemoteAddr() net.Addr        { return c.remote }

// Close ends both directions: the peer reads what was sent and then the end.
func (c *conn) Close() error {
	c.out.closeWrite()
	c.in.fail(net.ErrClosed)
	return nil
}

func (c *conn) SetDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	c.out.setWriteDeadline(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error  { c.in.setReadDeadline(t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.out.setWriteDeadline(t); return nil }

// packet is one write and when it may be read.
type packet struct {
	data []byte
	at   time.Time
}

// pipe is one direction of a connection, over one directed link.
type pipe struct {
	net  *Network
	link linkID

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	packets []packet
	held    int
	ended   bool  // the writer closed
	err     error // both sides fail with it
	readBy  time.Time
	writeBy time.Time
}

func newPipe(n *Network, l linkID) *pipe {
	return &pipe{net: n, link: l, changed: make(chan struct{})}
}

func (p *pipe) changedLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pipe) wake() {
	p.mu.Lock()
	p.changedLocked()
	p.mu.Unlock()
}

func (p *pipe) write(b []byte) (n int, err error) {
	for {
		_, delay := p.net.state(p.link) // over a cut link, too, bytes leave; reading waits
		p.mu.Lock()
		switch {
		case p.err != nil:
			err = p.err
		case p.ended:
			err = net.ErrClosed
		case !p.writeBy.IsZero() && !time.Now().Before(p.writeBy):
			err = os.ErrDeadlineExceeded
		}
		if err != nil || len(b) == 0 {
			p.mu.Unlock()
			return n, err
		}
		if room := pipeBytes - p.held; room > 0 {
			m := min(room, len(b))
			p.packets = append(p.packets, packet{append([]byte(nil), b[:m]...), time.Now().Add(delay)})
			p.held += m
			n += m
			b = b[m:]
			p.changedLocked()
			p.mu.Unlock()
			continue
		}
		changed, until := p.changed, p.writeBy
		p.mu.Unlock()
		wait(changed, until)
	}
}

func (p *pipe) read(b []byte) (int, error) {
	for {
		cut, _ := p.net.state(p.link)
		p.mu.Lock()
		now := time.Now()
		switch {
		case p.err != nil:
			err := p.err
			p.mu.Unlock()
			return 0, err
		case !p.readBy.IsZero() && !now.Before(p.readBy):
			p.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			p.mu.Unlock()
			return 0, nil
		}
		until := p.readBy
		if len(p.packets) > 0 && !cut {
			first := &p.packets[0]
			if !now.Before(first.at) {
				n := copy(b, first.data)
				p.held -= n
				if first.data = first.data[n:]; len(first.data) == 0 {
					p.packets = p.packets[1:]
				}
				p.changedLocked()
				p.mu.Unlock()
				return n, nil
			}
			if until.IsZero() || first.at.Before(until) {
				until = first.at
			}
		}
		if len(p.packets) == 0 && p.ended && !cut {
			p.mu.Unlock()
			p.net.forget(p)
			return 0, io.EOF
		}
		changed := p.changed
		p.mu.Unlock()
		wait(changed, until)
	}
}

// wait returns when changed is closed or until is reached.
func wait(changed <-chan struct{}, until time.Time) {
	if until.IsZero() {
		<-changed
		return
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	}
}

func (p *pipe) closeWrite() {
	p.mu.Lock()
	p.ended = true
	p.changedLocked()
	p.mu.Unlock()
}

// fail breaks the pipe at once for both sides.
func (p *pipe) fail(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
		p.packets, p.held = nil, 0
	}
	p.changedLocked()
	p.mu.Unlock()
	p.net.forget(p)
}

func (p *pipe) setReadDeadline(t time.Time) {
	p.mu.Lock()
	p.readBy = t
	p.changedLocked()
	p.mu.Unlock()
}

func (p *pipe) setWriteDeadline(t time.Time) {
	p.mu.Lock()
	p.writeBy = t
	p.changedLocked()
	p.mu.Unlock()
}
