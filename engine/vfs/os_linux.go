package vfs

import (
	"io"
	"os"

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

func (f *osFile) pwritev(bufs [][]byte, skip int, off int64) (n int, err error) {
	list := bufs[:min(len(bufs), maxIovecs)]
	if skip > 0 {
		list = append([][]byte{list[0][skip:]}, list[1:]...)
	}
	err = f.withFd("pwritev", func(fd int) (err error) {
		n, err = unix.Pwritev(fd, list, off)
		return err
	})
	return max(n, 0), err
}

// withFd makes a system call, again when a signal interrupted it, while the descriptor cannot be closed.
func (f *osFile) withFd(op string, call func(fd int) error) error {
	var err error
	if f.raw.Control(func(fd uintptr) {
		for {
			if err = call(int(fd)); err != unix.EINTR {
				return
			}
		}
	}) != nil {
		err = os.ErrClosed
	}
	if err != nil {
		return pathError(op, f.Name(), err)
	}
	return nil
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
func (f *osFile) SyncData() error { return f.withFd("fdatasync", unix.Fdatasync) }
