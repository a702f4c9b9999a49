package vfs

import (
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// maxIovecs is the kernel's limit of buffers in one call (UIO_MAXIOV).
const maxIovecs = 1024

// WriteVAt implements File with pwritev(2).
func (f *osFile) WriteVAt(bufs [][]byte, off int64) (int, error) {
	if len(bufs) == 1 {
		return f.WriteAt(bufs[0], off)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	total, skip := 0, 0 // skip: bytes of bufs[0] that are written already
	for len(bufs) > 0 {
		n, err := f.pwritev(raw, bufs, skip, off+int64(total))
		total += n
		if err != nil {
			return total, fmt.Errorf("pwritev %s: %w", f.Name(), err)
		}
		bufs, skip = advance(bufs, skip+n)
		if n == 0 && len(bufs) > 0 {
			return total, io.ErrShortWrite
		}
	}
	return total, nil
}

type rawConn interface {
	Write(func(fd uintptr) bool) error
}

func (f *osFile) pwritev(raw rawConn, bufs [][]byte, skip int, off int64) (n int, err error) {
	list := bufs[:min(len(bufs), maxIovecs)]
	if skip > 0 {
		list = append([][]byte{list[0][skip:]}, list[1:]...)
	}
	callErr := raw.Write(func(fd uintptr) bool {
		for {
			n, err = unix.Pwritev(int(fd), list, off)
			if err != unix.EINTR {
				return true
			}
		}
	})
	if callErr != nil {
		return 0, callErr
	}
	return max(n, 0), err
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
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var syncErr error
	err = raw.Control(func(fd uintptr) {
		for {
			if syncErr = unix.Fdatasync(int(fd)); syncErr != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	if syncErr != nil {
		return fmt.Errorf("fdatasync %s: %w", f.Name(), syncErr)
	}
	return nil
}
