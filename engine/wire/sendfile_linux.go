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

// cork holds back part-filled segments while a response is put together.
func (o *outbox) cork(on bool) {
	v := 0
	if on {
		v = 1
	}
	o.c.raw.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK, v) })
}
