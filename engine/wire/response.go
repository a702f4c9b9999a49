package wire

import (
	"encoding/binary"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// File is the part of an open file that a response needs. Fd may answer InvalidFd (a file in memory): then
// the bytes are read and written instead of sent by the kernel.
type File interface {
	ReadAt(p []byte, off int64) (int, error)
	Fd() uintptr
}

// InvalidFd is the descriptor of a file that has none.
const InvalidFd = ^uintptr(0)

// Piece is a part of a response: Bytes, or if File is set its bytes [Pos, Pos+Len). The file's range must not
// change and must stay readable until Response.Release is called.
type Piece struct {
	Bytes    []byte
	File     File
	Pos, Len int64
}

// Response is a message body in pieces; length and response header are added by Reply. Release, if set, is
// called exactly once, when the last byte has left or never will.
type Response struct {
	Pieces  []Piece
	Release func()

	whole     *[]byte // length, header and body in one, from encodePool
	headBytes [lengthBytes + 5]byte
	headLen   int   // length and header in front of Pieces
	memory    int64 // bytes held until the response is sent
	fileBytes int64
}

// maxPooledEncoding is the largest encoding buffer that is kept for reuse.
const maxPooledEncoding = 64 << 10

var encodePool = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}

// Reply answers the request and releases its buffer. It never waits for the client: what the socket does
// not take at once, or comes from a file, is left to a goroutine.
func (r *Request) Reply(resp Response) { r.answer(resp, false) }

// ReplyWait is Reply for a goroutine that may wait for the client, up to the write deadline; it saves a
// goroutine when the response is large. Other responses that become ready meanwhile are written too.
func (r *Request) ReplyWait(resp Response) { r.answer(resp, true) }

// ReplyMessage encodes m and answers with it; m is not kept. It never waits for the client.
func (r *Request) ReplyMessage(m kmsg.Response) { r.answerMessage(m, false) }

// ReplyMessageWait is ReplyMessage for a goroutine that may wait for the client.
func (r *Request) ReplyMessageWait(m kmsg.Response) { r.answerMessage(m, true) }

// LetGo gives the request's buffer back before the request is answered: one that waits for other clients, as a JoinGroup does, must not keep
// them from being read. Body and Buf are nil afterwards. It is called once at most, before the request is handed to whoever answers it.
func (r *Request) LetGo() {
	r.release()
	r.Buf, r.Body = nil, nil
}

func (r *Request) release() {
	if r.Buf != nil {
		r.Buf.Release()
	}
}

// ReplyNone answers a request whose client expects no response (acks=0), or none that it could read.
func (r *Request) ReplyNone() {
	r.release()
	r.Conn.complete(r, Response{}, false)
}

func (r *Request) answer(resp Response, wait bool) {
	n := r.Conn.srv.flex.responseHeader(r.Key, r.Version)
	for _, p := range resp.Pieces {
		if p.File != nil {
			resp.fileBytes += p.Len
		} else {
			resp.memory += int64(len(p.Bytes))
		}
	}
	binary.BigEndian.PutUint32(resp.headBytes[:], uint32(int64(n)+resp.fileBytes+resp.memory))
	binary.BigEndian.PutUint32(resp.headBytes[lengthBytes:], uint32(r.CorrelationID))
	r.release()
	resp.headLen = lengthBytes + n
	r.Conn.complete(r, resp, wait)
}

func (r *Request) answerMessage(m kmsg.Response, wait bool) {
	m.SetVersion(r.Version)
	p := encodePool.Get().(*[]byte)
	b := append((*p)[:0], 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(r.CorrelationID))
	if r.Conn.srv.flex.responseHeader(r.Key, r.Version) == 5 {
		b = append(b, 0)
	}
	b = m.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-lengthBytes))
	*p = b
	r.release()
	r.Conn.complete(r, Response{whole: p, memory: int64(cap(b))}, wait)
}

// empty reports that nothing is to be sent.
func (r *Response) empty() bool { return r.whole == nil && r.headLen == 0 }

// drop frees what the response holds, sent or not.
func (r *Response) drop() {
	if r.whole != nil && cap(*r.whole) <= maxPooledEncoding {
		encodePool.Put(r.whole)
	}
	r.whole = nil
	if r.Release != nil {
		r.Release()
		r.Release = nil
	}
}
