package rpc

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestACallOnAPlainStreamIsReadAsItWasWritten(t *testing.T) {
	for _, m := range []note{
		{},
		{id: 7, method: "txn.verify", data: []byte("what"), patience: time.Second},
		{id: 1<<64 - 1, method: string(make([]byte, maxNoteMethod)), data: make([]byte, maxSmallCall), patience: -1},
	} {
		b := m.encode([]byte("before"))[len("before"):]
		got, err := readNote(bufio.NewReader(bytes.NewReader(b)), func() {})
		if err != nil || got.id != m.id || got.method != m.method || !bytes.Equal(got.data, m.data) || got.patience != m.patience {
			t.Errorf("%v: %v, %v", m, got, err)
		}
		for _, at := range []int{1, 4, 9, 17, 25, 29, len(b) - 1} {
			bad := bytes.Clone(b)
			bad[at] ^= 0x10
			if _, err := readNote(bufio.NewReader(bytes.NewReader(bad)), func() {}); !errors.Is(err, ErrCorrupt) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%v with byte %d changed: %v", m, at, err)
			}
		}
	}
}

func TestTheAnswerToACallIsReadAsItWasWritten(t *testing.T) {
	for _, a := range []noteAnswer{{id: 1}, {id: 2, code: codeOther, data: []byte("no room on disk")}, {id: 3, last: true, data: make([]byte, answerPiece)}} {
		b := a.encode(nil)
		got, err := readNoteAnswer(b[:replyHeadSize], bytes.NewReader(b[replyHeadSize:]))
		if err != nil || got.id != a.id || got.code != a.code || got.last != a.last || !bytes.Equal(got.data, a.data) {
			t.Errorf("%v: %v, %v", a, got, err)
		}
		for _, at := range []int{2, 4, 9, 16, 33} {
			bad := bytes.Clone(b)
			bad[at] ^= 0x10
			if _, err := readNoteAnswer(bad[:replyHeadSize], bytes.NewReader(bad[replyHeadSize:])); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%v with byte %d changed: %v", a, at, err)
			}
		}
	}
}

// stuckConn takes no byte until it is closed.
type stuckConn struct {
	deafConn
	closed chan struct{}
	wrote  chan int
}

func (c stuckConn) Write(b []byte) (int, error) {
	select {
	case c.wrote <- len(b):
	default:
	}
	<-c.closed
	return 0, net.ErrClosed
}

func (c stuckConn) Close() error { close(c.closed); return nil }

func TestAnOutboxThatIsStuckTakesOnlyALittleMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := stuckConn{closed: make(chan struct{}), wrote: make(chan int, 1)}
		pool := &buffers{poison: true}
		o := newOutbox(conn, pool, streamQueue, 0)
		ended := make(chan bool)
		go func() { o.run(); close(ended) }()
		offer := func() bool {
			b := append(pool.get(1000)[:0], make([]byte, 1000)...)
			return o.offer(b)
		}
		if !offer() {
			t.Fatal("an idle outbox took nothing")
		}
		<-conn.wrote
		n := 0
		for offer() {
			n++
		}
		if n != offerRoom/1000 {
			t.Errorf("%d more were taken, want %d", n, offerRoom/1000)
		}
		o.close(ErrDown)
		<-ended
		if offer() {
			t.Error("a closed outbox took something")
		}
	})
}

// What a socket does not take at once goes after it, before what came meanwhile, and nobody who offers waits.
func TestWhatIsOfferedToASocketArrivesInOrder(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	for _, err := range []error{near.(*net.TCPConn).SetWriteBuffer(8 << 10), far.(*net.TCPConn).SetReadBuffer(8 << 10)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	pool := &buffers{poison: true}
	o := newOutbox(near, pool, streamQueue, 0)
	if o.raw == nil {
		t.Fatal("a socket is not written at once")
	}
	ended := make(chan bool)
	go func() { o.run(); close(ended) }()
	const size = 1500
	offer := func(i int) bool {
		b := pool.get(size)
		for at := 0; at < size; at += 4 {
			binary.BigEndian.PutUint32(b[at:], uint32(i))
		}
		return o.offer(b)
	}
	sent := 0
	for offer(sent) {
		sent++ // until the socket and the queue are full
	}
	read := make(chan error)
	go func() {
		b := make([]byte, size)
		for i := range 2 * sent {
			if _, err := io.ReadFull(far, b); err != nil {
				read <- err
				return
			}
			for at := 0; at < size; at += 4 {
				if got := binary.BigEndian.Uint32(b[at:]); got != uint32(i) {
					read <- fmt.Errorf("%d came in place of %d", got, i)
					return
				}
			}
		}
		read <- nil
	}()
	for i := sent; i < 2*sent; {
		if offer(i) {
			i++
		} else {
			runtime.Gosched()
		}
	}
	if err := <-read; err != nil {
		t.Error(err)
	}
	o.close(ErrDown)
	<-ended
}
