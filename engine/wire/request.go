package wire

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Request is one frame with its header taken apart.
type Request struct {
	Key           int16
	Version       int16
	CorrelationID int32
	ClientID      string // empty if the client sent null
	// Body is what follows the header. It aliases Buf and is valid until the request is answered or let go; whoever
	// needs it longer calls Buf.Retain first.
	Body     []byte
	Buf      *Buf
	Conn     *Conn
	Received time.Time // when the frame was complete

	answered bool // under Conn.mu: resp is set
	resp     Response
}

const keyApiVersions = 18

// flexible answers whether a version of an API has tagged fields, for all that kmsg knows.
type flexible struct{ from []int16 }

// newFlexible asks kmsg once, so that reading a header needs neither a switch nor an allocation.
func newFlexible() flexible {
	f := flexible{from: make([]int16, kmsg.MaxKey+1)}
	for key := range f.from {
		f.from[key] = 1<<15 - 1
		req := kmsg.RequestForKey(int16(key))
		if req == nil {
			continue
		}
		for v := int16(0); v <= req.MaxVersion(); v++ {
			req.SetVersion(v)
			if req.IsFlexible() {
				f.from[key] = v
				break
			}
		}
	}
	return f
}

func (f flexible) is(key, version int16) bool {
	return key >= 0 && int(key) < len(f.from) && version >= f.from[key]
}

// responseHeader is the number of bytes between length and body. ApiVersions answers with the oldest header
// for ever: its client does not yet know what the server speaks.
func (f flexible) responseHeader(key, version int16) int {
	if f.is(key, version) && key != keyApiVersions {
		return 5
	}
	return 4
}

// parse fills r from a frame. lastID is the client id that the connection sent before, so that the common
// case allocates nothing.
func (r *Request) parse(frame []byte, flex flexible, lastID string) error {
	if len(frame) < minFrame {
		return fmt.Errorf("%w: %d bytes of header", ErrFrame, len(frame))
	}
	r.Key = int16(binary.BigEndian.Uint16(frame))
	r.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	r.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
	rest := frame[minFrame:]
	if len(rest) < 2 {
		return fmt.Errorf("%w: no client id", ErrFrame)
	}
	n := int(int16(binary.BigEndian.Uint16(rest)))
	rest = rest[2:]
	if n > len(rest) || n < -1 {
		return fmt.Errorf("%w: client id of %d bytes, %d left", ErrFrame, n, len(rest))
	}
	if n > 0 {
		if r.ClientID = lastID; string(rest[:n]) != lastID {
			r.ClientID = string(rest[:n])
		}
		rest = rest[n:]
	}
	if flex.is(r.Key, r.Version) {
		var err error
		if rest, err = skipTags(rest); err != nil {
			return err
		}
	}
	r.Body = rest
	return nil
}

// skipTags drops the tagged fields of a request header: none is defined that a broker needs.
func skipTags(b []byte) ([]byte, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, fmt.Errorf("%w: tag section", ErrFrame)
	}
	b = b[n:]
	for ; count > 0; count-- {
		if _, n = binary.Uvarint(b); n <= 0 {
			return nil, fmt.Errorf("%w: tag", ErrFrame)
		}
		b = b[n:]
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, fmt.Errorf("%w: tag of %d bytes, %d left", ErrFrame, size, len(b))
		}
		b = b[n+int(size):]
	}
	return b, nil
}
