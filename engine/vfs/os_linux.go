package vfs

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// maxIovecs is the kernel's limit of buffers in one call (UIO_MAXIOV).
const maxIovecs = 1024

// WriteVAt implements File with pwritev(2).
func (f *osFile) WriteVAt(bufs [][]byte, off int64) (int, error) {
	if len(bufs) == 1 {
		return f.WriteAt(bufs[0], off)
	}
	total, skip := 0, 0 // skip: bytes of bufs[0] that are written already
	for len(bufs) > 0 {
		n, err := f.pwritev(bufs, skip, off+int64(total))
		total += n
		if err != nil {
			return total, err
		}
		bufs, skip = advance(bufs, skip+n)
		if n == 0 && len(bufs) > 0 {
			return total, io.ErrShortWrite
		}
	}
	return total, nil
}

func (f *osFile) pwritev(bufs [][]byte, skip int, off int64) (int, error) {
	list := bufs[:min(len(bufs), maxIovecs)]
	if skip > 0 {
		list = append([][]byte{list[0][skip:]}, list[1:]...)
	}
	c := calls.Get().(*fdCall)
	c.list, c.off = list, off
	err := c.on(f, "pwritev", c.pwritev)
	n := max(c.n, 0)
	c.list, c.n = nil, 0
	calls.Put(c)
	return n, err
}

// fdCall is one system call on a descriptor. The function values are bound once and used again, so that a call
// allocates nothing.
type fdCall struct {
	list [][]byte
	off  int64
	n    int
	err  error

	pwritev, fdatasync func(fd uintptr)
}

var calls = sync.Pool{New: func() any {
	c := &fdCall{}
	c.pwritev = func(fd uintptr) {
		c.again(func() (err error) { c.n, err = unix.Pwritev(int(fd), c.list, c.off); return err })
	}
	c.fdatasync = func(fd uintptr) {
		c.again(func() error { return unix.Fdatasync(int(fd)) })
	}
	return c
}}

// again makes the call until no signal interrupts it.
func (c *fdCall) again(call func() error) {
	for {
		if c.err = call(); c.err != unix.EINTR {
			return
		}
	}
}

// on makes one of the bound calls while the file's descriptor cannot be closed.
func (c *fdCall) on(f *osFile, op string, call func(fd uintptr)) error {
	err := f.raw.Control(call)
	switch {
	case err != nil:
		err = os.ErrClosed
	case c.err != nil:
		err = c.err
	default:
		return nil
	}
	c.err = nil
	return pathError(op, f.Name(), err)
}

// advance drops the buffers that n bytes cover and returns how many bytes of the next are written.
func advance(bufs [][]byte, n int) ([][]byte, int) {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	return bufs, n
}

// SyncData implements File with fdatasync(2).
func (f *osFile) SyncData() error {
	c := calls.Get().(*fdCall)
	defer calls.Put(c)
	return c.on(f, "fdatasync", c.fdatasync)
}
