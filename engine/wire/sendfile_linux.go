package wire

import (
	"fmt"
	"io"
	"syscall"
)

const haveSendfile = true

// sendfileState is the argument and result of the one bound closure that a connection sends files with.
type sendfileState struct {
	fn   func(fd uintptr) bool
	from int
	pos  int64
	left int64
	err  error
}

func (s *sendfileState) init(o *outbox) { s.fn = o.sendfileStep }

// sendfile sends a file range from the page cache. The offset is explicit: io.Copy would move the file's own
// position, which all connections share.
func (o *outbox) sendfile(p *Piece) error {
	s := &o.file
	s.from, s.pos, s.left, s.err = int(p.File.Fd()), p.Pos, p.Len, nil
	o.c.writeStart.Store(o.c.srv.nanos())
	err := o.c.raw.Write(s.fn)
	o.c.writeStart.Store(0)
	o.c.srv.stats.bytesOut.Add(p.Len - s.left)
	if err == nil {
		err = s.err
	}
	return err
}

// sendfileStep sends what the socket takes; false asks the poller to call again when it takes more.
func (o *outbox) sendfileStep(fd uintptr) bool {
	s := &o.file
	for s.left > 0 {
		n, err := syscall.Sendfile(int(fd), s.from, &s.pos, int(min(s.left, sendfileChunk)))
		if n > 0 {
			s.left -= int64(n)
			o.c.writeStart.Store(o.c.srv.nanos())
		}
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return false
		case err != nil:
			s.err = err
			return true
		case n == 0:
			s.err = fmt.Errorf("%w: %d bytes missing at %d: %w", ErrFile, s.left, s.pos, io.ErrUnexpectedEOF)
			return true
		}
	}
	return true
}

// leadMax is how many bytes in front of a file are joined, so that one call sends them.
const leadMax = 1 << 10

// leadState is the argument and result of the bound closures that a file's lead and the cork are sent with.
type leadState struct {
	fn   func(fd uintptr) bool
	join []byte
	left []byte
	err  error

	corkFn func(fd uintptr)
	corked int
}

func (s *leadState) init(o *outbox) { s.fn, s.corkFn = o.leadStep, o.corkStep }

// flushLead writes the gathered bytes that a file follows. Unless the connection is corked it says so to the kernel.
func (o *outbox) flushLead(corked bool) error {
	n := 0
	for _, b := range o.vec {
		n += len(b)
	}
	if corked || n > leadMax {
		return o.flushVec()
	}
	defer o.reset()
	s := &o.lead
	s.join, s.err = s.join[:0], nil
	for _, b := range o.vec {
		s.join = append(s.join, b...)
	}
	s.left = s.join
	o.c.writeStart.Store(o.c.srv.nanos())
	err := o.c.raw.Write(s.fn)
	o.c.writeStart.Store(0)
	o.c.srv.stats.bytesOut.Add(int64(n - len(s.left)))
	if err == nil {
		err = s.err
	}
	return err
}

// leadStep sends what the socket takes; false asks the poller to call again when it takes more.
func (o *outbox) leadStep(fd uintptr) bool {
	s := &o.lead
	for len(s.left) > 0 {
		n, err := syscall.SendmsgN(int(fd), s.left, nil, nil, syscall.MSG_MORE)
		s.left = s.left[max(n, 0):]
		switch err {
		case nil, syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			s.err = err
			return true
		}
	}
	return true
}

// cork holds back part-filled segments while a response is put together.
func (o *outbox) cork(on bool) {
	o.lead.corked = 0
	if on {
		o.lead.corked = 1
	}
	o.c.raw.Control(o.lead.corkFn)
}

func (o *outbox) corkStep(fd uintptr) {
	syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK, o.lead.corked)
}
