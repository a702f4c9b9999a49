package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

const (
	lengthBytes = 4       // big-endian int32 before each frame
	keyBytes    = 4       // api key and version, the first four bytes of a frame
	minFrame    = 8       // api key, version, correlation id
	aheadBytes  = 4 << 10 // what a connection keeps while it is idle; small requests arrive in one read
	firstChunk  = 64 << 10
)

// frameReader cuts a byte stream into frames. Memory follows the bytes that arrive, not the length that a
// header claims: a buffer starts at 64 KiB, or at the largest frame that this connection has already
// delivered whole, and doubles when it is full.
type frameReader struct {
	src      io.Reader
	pool     *Pool
	maxFrame int
	// limit is Config.FrameLimit.
	limit func(key, version int16) int
	// reserve charges the capacity of a buffer before it exists, and may wait; begun: part of the frame is
	// here. refund is called with a buffer's capacity when its last reference goes.
	reserve func(capacity int, begun bool) error
	refund  func(b *Buf)
	// begun and ended tell the watchdog when a frame's first and last byte arrived.
	begun func()
	ended func()

	ahead  [aheadBytes]byte
	r, w   int
	size   int // of the frame that is being read
	proven int
}

// next returns the next frame without its length, with one reference. io.EOF means that the stream ended
// between frames; an error wrapping ErrFrame that what arrived can be no request.
func (f *frameReader) next() (*Buf, error) {
	size, err := f.header()
	if err != nil {
		return nil, err
	}
	buf, err := f.body(size)
	if err != nil {
		return nil, err
	}
	f.proven = max(f.proven, size)
	f.ended()
	return buf, nil
}

// header reads the length, key and version, and checks them before anything is allocated for the frame.
func (f *frameReader) header() (int, error) {
	if err := f.fill(lengthBytes); err != nil {
		return 0, err
	}
	size := int(int32(binary.BigEndian.Uint32(f.ahead[f.r:])))
	if size < minFrame || size > f.maxFrame {
		return 0, fmt.Errorf("%w: announces %d bytes, want %d to %d", ErrFrame, size, minFrame, f.maxFrame)
	}
	if err := f.fill(lengthBytes + keyBytes); err != nil {
		return 0, err
	}
	if f.limit != nil {
		key := int16(binary.BigEndian.Uint16(f.ahead[f.r+lengthBytes:]))
		version := int16(binary.BigEndian.Uint16(f.ahead[f.r+lengthBytes+2:]))
		if limit := f.limit(key, version); size > limit {
			return 0, fmt.Errorf("%w: api key %d version %d with %d bytes, at most %d are taken for it", ErrFrame, key, version, size, limit)
		}
	}
	f.r += lengthBytes
	return size, nil
}

// fill makes at least n unread bytes available in ahead. n is at most 8.
func (f *frameReader) fill(n int) error {
	if f.w-f.r >= n {
		f.begun()
		return nil
	}
	if f.r > 0 {
		f.w = copy(f.ahead[:], f.ahead[f.r:f.w])
		f.r = 0
	}
	for f.w < n {
		if f.w > 0 {
			f.begun()
		}
		m, err := f.src.Read(f.ahead[f.w:])
		f.w += m
		if err != nil && f.w < n {
			return cutShort(err, f.w > 0)
		}
	}
	f.begun()
	return nil
}

// small says that the frame fits into one first chunk, so that it never waits for more once it has begun.
func (f *frameReader) small() bool { return f.size <= firstChunk }

func (f *frameReader) body(size int) (*Buf, error) {
	f.size = size
	capacity := size
	if first := max(firstChunk, f.proven); size > first {
		capacity = first
	}
	buf, err := f.take(capacity, false)
	if err != nil {
		return nil, err
	}
	have := copy(buf.b[:min(size, capacity)], f.ahead[f.r:f.w])
	f.r += have
	for {
		end := min(size, cap(buf.b))
		n, err := io.ReadFull(f.src, buf.b[have:end])
		have += n
		if err != nil {
			buf.Release()
			return nil, cutShort(err, true)
		}
		if have == size {
			buf.b = buf.b[:size]
			return buf, nil
		}
		if buf, err = f.grow(buf, have, min(size, 2*cap(buf.b))); err != nil {
			return nil, err
		}
	}
}

// take returns a buffer of n bytes whose capacity is charged.
func (f *frameReader) take(n int, begun bool) (*Buf, error) {
	if err := f.reserve(capacityFor(n), begun); err != nil {
		return nil, err
	}
	buf := f.pool.Get(n)
	buf.b = buf.b[:cap(buf.b)]
	buf.small = f.small()
	buf.onFree = f.refund
	return buf, nil
}

func (f *frameReader) grow(old *Buf, have, n int) (*Buf, error) {
	buf, err := f.take(n, true)
	if err == nil {
		copy(buf.b, old.b[:have])
	}
	old.Release()
	return buf, err
}

// cutShort turns the end of the stream inside a frame into ErrFrame.
func cutShort(err error, inside bool) error {
	if inside && (err == io.EOF || err == io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the stream ends inside it", ErrFrame)
	}
	return err
}
