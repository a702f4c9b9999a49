package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// frame is a request as a client writes it: header version 1, key 0, and a body.
func frame(key int16, corr int32, body []byte) []byte {
	b := make([]byte, 0, 64+len(body))
	b = binary.BigEndian.AppendUint32(b, uint32(8+2+2+len(body)))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(corr))
	b = binary.BigEndian.AppendUint16(b, 2)
	b = append(b, "me"...)
	return append(b, body...)
}

// response reads one response: correlation id and body.
func response(t testing.TB, c io.Reader) (int32, []byte) {
	t.Helper()
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		t.Fatalf("reading a response: %v", err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:])-4)
	if _, err := io.ReadFull(c, body); err != nil {
		t.Fatalf("reading a response of %d bytes: %v", len(body), err)
	}
	return int32(binary.BigEndian.Uint32(head[4:])), body
}

func start(t testing.TB, cfg Config) *Server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listener = ln
	if cfg.Pool == nil {
		cfg.Pool = &Pool{Poison: true}
	}
	s := New(cfg)
	s.Start()
	t.Cleanup(func() {
		s.Close()
		if n := s.Stats(); n.Conns != 0 || n.InflightBytes != 0 {
			t.Errorf("after Close %d connections and %d bytes are in use, want none", n.Conns, n.InflightBytes)
		}
	})
	return s
}

func dial(t testing.TB, s *Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.cfg.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t testing.TB, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

func echo(r *Request) {
	body := bytes.Clone(r.Body)
	r.Reply(Response{Pieces: []Piece{{Bytes: body}}})
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never happened: %s", what)
}

// closedByPeer reports that the server has dropped the connection.
func closedByPeer(c net.Conn) error {
	n, err := c.Read(make([]byte, 1))
	if err == nil || n > 0 {
		return fmt.Errorf("read %d bytes from a connection that should be closed", n)
	}
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		return fmt.Errorf("connection is still open")
	}
	return nil
}

func TestResponsesLeaveInRequestOrder(t *testing.T) {
	reqs := make(chan *Request, 100)
	s := start(t, Config{Handler: func(r *Request) { reqs <- r }})
	c := dial(t, s)
	const n = 40
	for i := range n {
		send(t, c, frame(0, int32(i), []byte{byte(i)}))
	}
	var all []*Request
	for range n {
		all = append(all, <-reqs)
	}
	var wg sync.WaitGroup
	for i := n - 1; i >= 0; i-- {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if i%3 == 0 {
				all[i].ReplyWait(Response{Pieces: []Piece{{Bytes: []byte{byte(i)}}}})
				return
			}
			echo(all[i])
		}()
	}
	for i := range n {
		if corr, body := response(t, c); corr != int32(i) || body[0] != byte(i) {
			t.Fatalf("response %d has correlation id %d and body %v", i, corr, body)
		}
	}
	wg.Wait()
}

func TestParkedRequestDoesNotStopReadAhead(t *testing.T) {
	parked := make(chan *Request, 1)
	seen := make(chan int16, 10)
	s := start(t, Config{Handler: func(r *Request) {
		seen <- r.Key
		if r.Key == 1 {
			parked <- r
			return
		}
		echo(r)
	}})
	c := dial(t, s)
	send(t, c, frame(1, 1, nil))
	send(t, c, frame(0, 2, nil))
	if a, b := <-seen, <-seen; a != 1 || b != 0 {
		t.Fatalf("handler saw keys %d, %d", a, b)
	}
	echo(<-parked)
	for want := int32(1); want <= 2; want++ {
		if corr, _ := response(t, c); corr != want {
			t.Fatalf("correlation id %d, want %d", corr, want)
		}
	}
}

func TestRequestWithoutResponseKeepsItsPlace(t *testing.T) {
	s := start(t, Config{Handler: func(r *Request) {
		if r.Key == 0 {
			r.ReplyNone()
			return
		}
		echo(r)
	}})
	c := dial(t, s)
	send(t, c, append(frame(0, 1, nil), frame(1, 2, []byte("x"))...))
	if corr, _ := response(t, c); corr != 2 {
		t.Fatalf("correlation id %d, want 2", corr)
	}
}

func TestLargeFramesOfManySizesArriveWhole(t *testing.T) {
	s := start(t, Config{Handler: echo})
	c := dial(t, s)
	for _, n := range []int{0, 1, aheadBytes - 16, aheadBytes, firstChunk - 12, firstChunk, firstChunk + 1, 1 << 20, 3<<20 + 7} {
		body := bytes.Repeat([]byte{byte(n)}, n)
		go c.Write(frame(0, 7, body))
		if _, got := response(t, c); !bytes.Equal(got, body) {
			t.Fatalf("echo of %d bytes came back as %d bytes, or other ones", n, len(got))
		}
	}
}

func TestServerOverAPipe(t *testing.T) {
	client, server := net.Pipe()
	s := New(Config{Handler: echo})
	s.serve(server)
	defer s.Close()
	go client.Write(frame(0, 3, []byte("through memory")))
	if corr, body := response(t, client); corr != 3 || string(body) != "through memory" {
		t.Fatalf("got %d %q", corr, body)
	}
}

func TestShutdownAnswersWhatWasAsked(t *testing.T) {
	reqs := make(chan *Request, 1)
	s := start(t, Config{Handler: func(r *Request) { reqs <- r }})
	c := dial(t, s)
	send(t, c, frame(0, 9, []byte("late")))
	r := <-reqs
	down := make(chan struct{})
	go func() { s.Shutdown(t.Context()); close(down) }()
	time.Sleep(10 * time.Millisecond)
	echo(r)
	if _, body := response(t, c); string(body) != "late" {
		t.Fatalf("got %q", body)
	}
	<-down
	if err := closedByPeer(c); err != nil {
		t.Fatal(err)
	}
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	parked := make(chan *Request, 10)
	s := start(t, Config{Handler: func(r *Request) { parked <- r }})
	for range 5 {
		c := dial(t, s)
		send(t, c, frame(0, 1, nil))
	}
	for range 5 {
		r := <-parked
		defer r.ReplyNone() // after Close: buffers must come back all the same
	}
	s.Close()
	eventually(t, "goroutines are gone", func() bool { return runtime.NumGoroutine() <= before })
}

func TestAnsweringTwicePanics(t *testing.T) {
	got := make(chan any, 1)
	s := start(t, Config{Handler: func(r *Request) {
		r.Buf.Retain()
		r.ReplyNone()
		defer func() { got <- recover() }()
		r.ReplyNone()
	}})
	send(t, dial(t, s), frame(0, 1, nil))
	if v := <-got; v == nil || !strings.Contains(fmt.Sprint(v), "twice") {
		t.Fatalf("recovered %v", v)
	}
}

// TestResponseIsFreedOnceWhenItsConnectionCloses answers and closes at the same time, again and again.
func TestResponseIsFreedOnceWhenItsConnectionCloses(t *testing.T) {
	reqs := make(chan *Request, 10)
	s := start(t, Config{Handler: func(r *Request) { reqs <- r }})
	for range 200 {
		c := dial(t, s)
		send(t, c, append(frame(0, 1, nil), frame(0, 2, nil)...))
		var freed [2]atomic.Int32
		var wg sync.WaitGroup
		both := [2]*Request{<-reqs, <-reqs}
		for i, r := range both {
			if i == 0 {
				wg.Go(func() { r.Conn.Close(nil) })
			}
			wg.Go(func() {
				r.Reply(Response{Pieces: []Piece{{Bytes: []byte("x")}}, Release: func() { freed[i].Add(1) }})
			})
		}
		wg.Wait()
		c.Close()
		for i := range freed {
			eventually(t, "the response is freed", func() bool { return freed[i].Load() > 0 })
			if n := freed[i].Load(); n != 1 {
				t.Fatalf("response %d was freed %d times", i, n)
			}
		}
	}
}
