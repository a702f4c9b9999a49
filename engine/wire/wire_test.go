package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
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
	c.SetDeadline(time.Now().Add(20 * time.Second))
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
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
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

func TestHeaderReservesNoMemory(t *testing.T) {
	s := start(t, Config{Handler: echo})
	for range 20 {
		c := dial(t, s)
		send(t, c, append([]byte{0x05, 0xa0, 0, 0}, frame(0, 1, nil)[4:]...)) // announces 90 MiB
	}
	eventually(t, "20 frames have begun", func() bool { return s.Stats().InflightBytes > 0 && s.Stats().Conns == 20 })
	time.Sleep(20 * time.Millisecond)
	if n := s.Stats().InflightBytes; n > 20*firstChunk {
		t.Fatalf("20 headers that announce 90 MiB hold %d bytes, want at most %d", n, 20*firstChunk)
	}
}

func TestGarbageIsDroppedWithoutHurtingOthers(t *testing.T) {
	s := start(t, Config{Handler: echo, FrameLimit: func(key, _ int16) int {
		if key > 3 {
			return 0
		}
		return 1000
	}})
	good := dial(t, s)
	for i, junk := range [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		{0x16, 3, 1, 0, 0xa5, 1, 0, 0},
		{0, 0, 0, 0, 0, 0, 0, 0},
		{0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4},
		frame(99, 1, nil),
		frame(1, 1, make([]byte, 2000)),
		{0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 0xff},
	} {
		c := dial(t, s)
		send(t, c, junk)
		if err := closedByPeer(c); err != nil {
			t.Errorf("garbage %d: %v", i, err)
		}
	}
	if n := s.Stats().BadFrames; n != 7 {
		t.Errorf("%d bad frames counted, want 7", n)
	}
	send(t, good, frame(0, 5, []byte("still here")))
	if _, body := response(t, good); string(body) != "still here" {
		t.Fatalf("a good client got %q", body)
	}
}

func TestSlowlorisIsDroppedAtFrameDeadline(t *testing.T) {
	s := start(t, Config{Handler: echo, Limits: Limits{FrameDeadline: 100 * time.Millisecond}})
	drip := dial(t, s)
	idle := dial(t, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, b := range frame(0, 1, make([]byte, 1<<16)) {
			if _, err := drip.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	if err := closedByPeer(drip); err != nil {
		t.Fatal(err)
	}
	<-done
	send(t, idle, frame(0, 1, nil))
	response(t, idle)
	if n := s.Stats().Overdue; n != 1 {
		t.Fatalf("%d connections dropped at a deadline, want 1", n)
	}
}

func TestIdleConnectionIsClosed(t *testing.T) {
	s := start(t, Config{Handler: echo, Limits: Limits{IdleDeadline: 50 * time.Millisecond}})
	if err := closedByPeer(dial(t, s)); err != nil {
		t.Fatal(err)
	}
}

func TestClientThatStopsReadingCostsBoundedMemoryAndIsDropped(t *testing.T) {
	const answer = 256 << 10
	limits := Limits{WriteDeadline: 300 * time.Millisecond, InflightPerConn: 1 << 20, PipelinePerConn: 1000}
	s := start(t, Config{Limits: limits, Handler: func(r *Request) {
		r.Reply(Response{Pieces: []Piece{{Bytes: make([]byte, answer)}}})
	}})
	c := dial(t, s)
	var most int64
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for i := range int32(2000) {
			if _, err := c.Write(frame(0, i, nil)); err != nil {
				return
			}
		}
	}()
	eventually(t, "the client is dropped", func() bool {
		for _, conn := range s.list() {
			conn.mu.Lock()
			most = max(most, conn.inflight)
			conn.mu.Unlock()
		}
		return s.Stats().Overdue == 1
	})
	if most > limits.InflightPerConn+answer {
		t.Fatalf("a client that does not read held %d bytes, want at most %d", most, limits.InflightPerConn+answer)
	}
	c.Close()
	<-stop
}

func TestOneConnectionTooManyIsRefused(t *testing.T) {
	s := start(t, Config{Handler: echo, Limits: Limits{MaxConns: 2}})
	a, b := dial(t, s), dial(t, s)
	for _, c := range []net.Conn{a, b} {
		send(t, c, frame(0, 1, nil))
		response(t, c)
	}
	if err := closedByPeer(dial(t, s)); err != nil {
		t.Fatal(err)
	}
	a.Close()
	eventually(t, "a place is free", func() bool { return s.Stats().Conns == 1 })
	c := dial(t, s)
	send(t, c, frame(0, 1, nil))
	response(t, c)
}

func TestBytesInFlightStopTheReader(t *testing.T) {
	for _, tc := range []struct {
		name   string
		limits Limits
		conns  int
	}{
		{"per connection", Limits{InflightPerConn: 300 << 10}, 1},
		{"per node", Limits{InflightNode: 300 << 10}, 8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reqs := make(chan *Request, 1000)
			s := start(t, Config{Limits: tc.limits, Handler: func(r *Request) { reqs <- r }})
			const per = 10
			for range tc.conns {
				c := dial(t, s)
				go func() {
					for i := range int32(per) {
						c.Write(frame(0, i, make([]byte, 60<<10)))
					}
					io.Copy(io.Discard, c)
				}()
			}
			time.Sleep(50 * time.Millisecond)
			if n := s.Stats().InflightBytes; n > 300<<10+128<<10 {
				t.Errorf("%d bytes in flight, want at most one frame above %d", n, 300<<10)
			}
			for range per * tc.conns {
				(<-reqs).ReplyNone()
			}
		})
	}
}

func TestFramesLargerThanNodeBudgetGetThroughOneByOne(t *testing.T) {
	s := start(t, Config{Handler: echo, Limits: Limits{InflightNode: 200 << 10}})
	var wg sync.WaitGroup
	for i := range 6 {
		c := dial(t, s)
		wg.Add(1)
		go func() {
			defer wg.Done()
			body := bytes.Repeat([]byte{byte(i)}, 1<<20)
			go c.Write(frame(0, 1, body))
			if _, got := response(t, c); !bytes.Equal(got, body) {
				t.Errorf("connection %d got other bytes back", i)
			}
		}()
	}
	wg.Wait()
}

func TestRetainedBufferSurvivesTheAnswer(t *testing.T) {
	bufs := make(chan *Request, 10)
	s := start(t, Config{Handler: func(r *Request) {
		r.Buf.Retain()
		bufs <- r
		r.Reply(Response{})
	}})
	c := dial(t, s)
	send(t, c, frame(0, 1, []byte("kept")))
	response(t, c)
	r := <-bufs
	if string(r.Body) != "kept" {
		t.Fatalf("body %q after the answer", r.Body)
	}
	if s.Stats().InflightBytes == 0 {
		t.Fatal("a retained buffer is not charged")
	}
	r.Buf.Release()
	if r.Body[0] != poisonByte {
		t.Fatalf("released buffer reads %q, want poison", r.Body)
	}
}

func TestDetachedBufferIsNeverReused(t *testing.T) {
	p := &Pool{Poison: true}
	b := p.Get(100)
	bytes := b.Bytes()
	bytes[0] = 1
	b.Detach()
	b.Release()
	if bytes[0] != 1 {
		t.Fatal("a detached buffer was poisoned")
	}
	for range 100 {
		if c := p.Get(100); &c.b[0] == &bytes[0] {
			t.Fatal("a detached buffer came back from the pool")
		}
	}
}

func TestBufferReleasedTwicePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	b := NewPool().Get(10)
	b.Release()
	b.Release()
}

func TestSizeClassesHoldWhatWasAskedFor(t *testing.T) {
	for n := 1; n <= maxClass; n += 1 + n/7 {
		c := classOf(n)
		if size := classSize(c); size < n || (n > minClass && size > n+n/2) {
			t.Fatalf("%d bytes are in class %d of %d bytes", n, c, size)
		}
		if c > 0 && classSize(c-1) >= n {
			t.Fatalf("%d bytes would fit class %d", n, c-1)
		}
	}
	if classOf(maxClass+1) != -1 || classOf(maxClass) != numClasses-1 {
		t.Fatal("the largest class is wrong")
	}
}

// TestConcurrentFileRangesKeepTheirPositions reads one descriptor from many connections at once: an offset
// shared between them would mix their bytes up.
func TestConcurrentFileRangesKeepTheirPositions(t *testing.T) {
	data := make([]byte, 8<<20)
	for i := range data {
		data[i] = byte(i * 2654435761 >> 13)
	}
	path := filepath.Join(t.TempDir(), "segment")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	released := make(chan struct{}, 1000)
	s := start(t, Config{Handler: func(r *Request) {
		pos := int64(binary.BigEndian.Uint32(r.Body))
		n := int64(binary.BigEndian.Uint32(r.Body[4:]))
		resp := Response{Release: func() { released <- struct{}{} }, Pieces: []Piece{
			{Bytes: []byte("head")}, {File: f, Pos: pos, Len: n}, {Bytes: []byte("mid")}, {File: f, Pos: 0, Len: 10}, {Bytes: []byte("tail")},
		}}
		if pos%2 == 0 {
			r.Reply(resp)
		} else {
			r.ReplyWait(resp)
		}
	}})
	var wg sync.WaitGroup
	const conns, each = 8, 12
	for i := range conns {
		c := dial(t, s)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := range each {
				pos, n := (i*1000003+j*77777)%(4<<20), []int{10, sendfileMin - 11, sendfileMin, 1 << 20, 3 << 20}[j%5]
				body := binary.BigEndian.AppendUint32(nil, uint32(pos))
				send(t, c, frame(0, int32(j), binary.BigEndian.AppendUint32(body, uint32(n))))
				_, got := response(t, c)
				want := "head" + string(data[pos:pos+n]) + "mid" + string(data[:10]) + "tail"
				if string(got) != want {
					t.Errorf("connection %d answer %d: %d bytes differ from the file", i, j, len(got))
				}
			}
		}()
	}
	wg.Wait()
	for range conns * each {
		<-released
	}
}

// memFile has no descriptor.
type memFile struct{ *bytes.Reader }

func (memFile) Fd() uintptr { return InvalidFd }

func TestFileWithoutDescriptorIsCopied(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	s := start(t, Config{Handler: func(r *Request) {
		r.Reply(Response{Pieces: []Piece{{File: memFile{bytes.NewReader(data)}, Pos: 5, Len: int64(len(data) - 5)}, {Bytes: []byte("end")}}})
	}})
	c := dial(t, s)
	send(t, c, frame(0, 1, nil))
	if _, got := response(t, c); string(got) != string(data[5:])+"end" {
		t.Fatal("other bytes")
	}
}

func TestUnreadableFileRangeClosesTheConnection(t *testing.T) {
	released := make(chan struct{})
	s := start(t, Config{Handler: func(r *Request) {
		r.Reply(Response{Pieces: []Piece{{File: memFile{bytes.NewReader(nil)}, Len: 10}}, Release: func() { close(released) }})
	}})
	c := dial(t, s)
	send(t, c, frame(0, 1, nil))
	if err := closedByPeer(c); err != nil {
		t.Fatal(err)
	}
	<-released
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
