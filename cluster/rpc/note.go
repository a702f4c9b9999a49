package rpc

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"time"
)

// Short calls travel on the plain stream too, between the parts: there a message costs one write and wakes who reads the stream, while the link
// hands it from goroutine to goroutine on either side. When much waits on the stream the link carries them. Big endian:
//
//	0  kind u8 'M'
//	1  length of the method u8, zero [2]
//	4  bytes of data u32
//	8  call id u64; 0: no answer is wanted
//	16 the caller's patience, nanoseconds, i64
//	24 crc32c of [0, 24) u32
//	28 crc32c of method and data u32
//	32 method, data
//
// Its answer comes among those to parts, a long one in pieces, with heads of the same size:
//
//	0  kind u8 'C'
//	1  flags u8: 1 last piece
//	2  code u16, not 0 when refused
//	4  bytes of this piece u32, or of the sentence of a refusal
//	8  call id u64
//	16 crc32c of the piece u32
//	20 zero [12]
//	32 crc32c of [0, 32) u32
//	36 the piece
const (
	noteHeadSize  = 32
	offerRoom     = 64 << 10  // bytes that may wait on the stream before a short call takes the link
	answerPiece   = 64 << 10  // the longest piece of an answer; others' answers pass in between
	answerRoom    = 128 << 10 // bytes that may wait on the stream before an answer waits
	maxNoteMethod = 255
)

// note is a short call, or a message that wants no answer (id 0).
type note struct {
	id       uint64
	method   string
	data     []byte
	patience time.Duration
}

// encode appends the note; there must be a checksum over method and data, so they are copied.
func (m *note) encode(b []byte) []byte {
	var head [noteHeadSize]byte
	head[0], head[1] = 'M', byte(len(m.method))
	binary.BigEndian.PutUint32(head[4:], uint32(len(m.data)))
	binary.BigEndian.PutUint64(head[8:], m.id)
	binary.BigEndian.PutUint64(head[16:], uint64(m.patience))
	binary.BigEndian.PutUint32(head[24:], crc32.Checksum(head[:24], castagnoli))
	at := len(b)
	b = append(append(append(b, head[:]...), m.method...), m.data...)
	binary.BigEndian.PutUint32(b[at+28:], crc32.Checksum(b[at+noteHeadSize:], castagnoli))
	return b
}

// decodeHead takes a note's head over, but for the method, and returns what is behind it: the length of the method, of all, and its checksum.
func (m *note) decodeHead(b []byte) (method, rest int, sum uint32, err error) {
	if got, want := binary.BigEndian.Uint32(b[24:]), crc32.Checksum(b[:24], castagnoli); got != want {
		return 0, 0, 0, fmt.Errorf("%w: head checksum %08x of a call, want %08x", ErrCorrupt, got, want)
	}
	size := binary.BigEndian.Uint32(b[4:])
	if size > maxSmallCall {
		return 0, 0, 0, fmt.Errorf("%w: short call of %d bytes", ErrCorrupt, size)
	}
	m.id, m.patience = binary.BigEndian.Uint64(b[8:]), time.Duration(binary.BigEndian.Uint64(b[16:]))
	return int(b[1]), int(b[1]) + int(size), binary.BigEndian.Uint32(b[28:]), nil
}

// readNote reads a note whose kind was seen; late is told when its rest is still on its way. Its data is the garbage collector's.
func readNote(r *bufio.Reader, late func()) (m note, err error) {
	var head [noteHeadSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return m, err
	}
	method, rest, sum, err := m.decodeHead(head[:])
	if err != nil {
		return m, err
	}
	if r.Buffered() < rest {
		late()
	}
	b := make([]byte, rest)
	if _, err := io.ReadFull(r, b); err != nil {
		return m, err
	}
	if crc32.Checksum(b, castagnoli) != sum {
		return m, fmt.Errorf("%w: checksum of a call", ErrCorrupt)
	}
	m.method, m.data = string(b[:method]), b[method:]
	return m, nil
}

// noteAnswer is the answer to a call, or a piece of it.
type noteAnswer struct {
	id   uint64
	last bool
	code code
	data []byte
}

func (a *noteAnswer) encode(b []byte) []byte {
	var head [replyHeadSize]byte
	head[0] = 'C'
	if a.last {
		head[1] |= flagLast
	}
	binary.BigEndian.PutUint16(head[2:], uint16(a.code))
	binary.BigEndian.PutUint32(head[4:], uint32(len(a.data)))
	binary.BigEndian.PutUint64(head[8:], a.id)
	binary.BigEndian.PutUint32(head[16:], crc32.Checksum(a.data, castagnoli))
	binary.BigEndian.PutUint32(head[32:], crc32.Checksum(head[:32], castagnoli))
	return append(append(b, head[:]...), a.data...)
}

// readNoteAnswer reads what follows a head of kind 'C'.
func readNoteAnswer(head []byte, r io.Reader) (a noteAnswer, err error) {
	if got, want := binary.BigEndian.Uint32(head[32:]), crc32.Checksum(head[:32], castagnoli); got != want {
		return a, fmt.Errorf("%w: answer checksum %08x, want %08x", ErrCorrupt, got, want)
	}
	n := binary.BigEndian.Uint32(head[4:])
	if n > answerPiece {
		return a, fmt.Errorf("%w: piece of %d bytes of an answer", ErrCorrupt, n)
	}
	a.last = head[1]&flagLast != 0
	a.id, a.code = binary.BigEndian.Uint64(head[8:]), code(binary.BigEndian.Uint16(head[2:]))
	a.data = make([]byte, n)
	if _, err := io.ReadFull(r, a.data); err != nil {
		return a, err
	}
	if crc32.Checksum(a.data, castagnoli) != binary.BigEndian.Uint32(head[16:]) {
		return a, fmt.Errorf("%w: checksum of an answer", ErrCorrupt)
	}
	return a, nil
}

// noteWaiter takes the answer to a call.
type noteWaiter struct {
	done   chan struct{}
	pieces []byte // belongs to the goroutine that reads the stream
	data   []byte
	err    error
}

func (w *noteWaiter) end(data []byte, err error) {
	w.data, w.err = data, err
	close(w.done)
}

// call makes a short call; went is false when nothing was sent, because much waits here or the stream is broken.
func (s *outStream) call(ctx context.Context, method string, req []byte) (answer []byte, err error, went bool) {
	if err := ctx.Err(); err != nil {
		return nil, err, true
	}
	deadline, _ := ctx.Deadline()
	m := note{id: s.node.nextID(), method: method, data: req, patience: time.Until(deadline)}
	w := &noteWaiter{done: make(chan struct{})}
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return nil, nil, false
	}
	s.asked[m.id] = w
	s.mu.Unlock()
	if !s.say(&m) {
		s.takeAsked(m.id)
		return nil, nil, false
	}
	select {
	case <-w.done:
		return w.data, w.err, true
	case <-ctx.Done():
		s.takeAsked(m.id)
		return nil, ctx.Err(), true
	}
}

// say sends a note; false: nothing of it was sent. It does not block.
func (s *outStream) say(m *note) bool {
	if len(m.method) > maxNoteMethod {
		return false
	}
	return s.box.offer(m.encode(s.node.pool.get(noteHeadSize + len(m.method) + len(m.data))[:0]))
}

func (s *outStream) takeAsked(id uint64) *noteWaiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.asked[id]
	delete(s.asked, id)
	return w
}

func (s *outStream) whoAsked(id uint64) *noteWaiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[id]
}

// answered takes a piece of an answer, and completes the call with the last one. Only the goroutine that reads the stream calls it.
func (s *outStream) answered(head []byte, r io.Reader) error {
	a, err := readNoteAnswer(head, r)
	if err != nil {
		return err
	}
	w := s.whoAsked(a.id)
	if w == nil {
		return nil // it was given up
	}
	switch {
	case len(w.pieces)+len(a.data) > maxCallBytes:
		return fmt.Errorf("%w: answer above %d bytes", ErrCorrupt, maxCallBytes)
	case len(w.pieces) == 0:
		w.pieces = a.data
	default:
		w.pieces = append(w.pieces, a.data...)
	}
	if !a.last {
		return nil
	}
	switch w = s.takeAsked(a.id); {
	case w == nil: // given up meanwhile
	case a.code != 0:
		w.end(nil, fromCode(a.code, string(a.data)))
	default:
		w.end(w.pieces, nil)
	}
	return nil
}

// take serves a note: a message at once, a call on a goroutine.
func (s *inStream) take() error {
	limited := false
	m, err := readNote(s.r, func() {
		limited = true
		s.conn.SetReadDeadline(time.Now().Add(bodyDeadline))
	})
	if err != nil {
		return err
	}
	if limited {
		s.conn.SetReadDeadline(time.Time{})
	}
	if m.id == 0 {
		s.node.told(s.from, m.method, m.data)
		return nil
	}
	s.calls.take(m)
	return nil
}

// answerCall sends the answer to a call, piece by piece, and waits while much waits before it. When the connection breaks the caller fails.
func (s *inStream) answerCall(id uint64, data []byte, err error) {
	if err != nil {
		s.refuseCall(id, err)
		return
	}
	for a := (noteAnswer{id: id}); !a.last; {
		n := min(len(data), answerPiece)
		a.data, data, a.last = data[:n], data[n:], n == len(data)
		b := a.encode(s.node.pool.get(replyHeadSize + n)[:0])
		one := [1][]byte{b}
		if s.box.sendWithin(answerRoom, one[:], b, len(b), nil) != nil {
			return
		}
	}
}

// refuseCall answers with an error. It does not block: when much waits already the caller hears nothing and gives up.
func (s *inStream) refuseCall(id uint64, err error) {
	a := noteAnswer{id: id, last: true}
	code, text := toCode(err)
	a.code, a.data = code, []byte(text[:min(len(text), maxReplyText)])
	s.box.offer(a.encode(s.node.pool.get(replyHeadSize + len(a.data))[:0]))
}

// Tell sends a message that wants no answer to another node, or to this one. It does not block. Messages may be lost, after a nil too, and may
// pass each other. At most 64 KiB.
func (n *Node) Tell(to NodeID, method string, data []byte) error {
	if len(data) > maxSmallCall {
		return fmt.Errorf("rpc: message of %d bytes, at most %d", len(data), maxSmallCall)
	}
	if to == n.cfg.Node {
		n.told(to, method, data)
		return nil
	}
	p := n.peer(to)
	if p == nil {
		return &remoteError{ErrUnknownPeer, fmt.Sprintf("rpc: no address for node %d", to)}
	}
	if s := p.plain(); s != nil && s.say(&note{method: method, data: data}) {
		return nil
	}
	l, _ := p.current()
	if l == nil {
		return ErrDown
	}
	return l.tell(method, data)
}

// Hear calls h with the messages of a method; nil ends that. It must not block: what peers send waits behind it.
func (n *Node) Hear(method string, h func(from NodeID, data []byte)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h == nil {
		delete(n.hearers, method)
		return
	}
	n.hearers[method] = h
}

// told hands a message to who hears it. One that nobody hears is lost.
func (n *Node) told(from NodeID, method string, data []byte) {
	n.mu.RLock()
	h := n.hearers[method]
	n.mu.RUnlock()
	if h != nil {
		h(from, data)
	}
}

// plain is the plain stream, nil while it is down.
func (p *peer) plain() *outStream {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stream
}
