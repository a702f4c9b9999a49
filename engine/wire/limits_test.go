package wire

import (
	"bytes"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

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
	eventually(t, "seven bad frames are counted", func() bool { return s.Stats().BadFrames == 7 })
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
	eventually(t, "one connection was dropped at a deadline", func() bool { return s.Stats().Overdue == 1 }) // it is closed, then counted
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

// halfFrames opens connections that each have begun a large frame, together hold the node's budget, and send nothing more.
func halfFrames(t *testing.T, s *Server) (n int64) {
	t.Helper()
	n = s.limits.InflightNode/firstChunk - 1
	conns := make([]net.Conn, n)
	half := frame(0, 1, make([]byte, 100<<10))
	binary.BigEndian.PutUint32(half, 8<<20)
	for i := range conns {
		conns[i] = dial(t, s)
		send(t, conns[i], half[:firstChunk/2])
	}
	eventually(t, "all have begun", func() bool { return s.Stats().InflightBytes == n*firstChunk })
	for _, c := range conns {
		send(t, c, half[firstChunk/2:])
	}
	return n
}

func TestHalfFramesThatHoldTheBudgetDoNotStopSmallRequests(t *testing.T) {
	s := start(t, Config{Handler: echo, Limits: Limits{InflightNode: 1 << 20, FrameDeadline: time.Hour}})
	halfFrames(t, s)
	for i := range int32(20) {
		c := dial(t, s)
		send(t, c, frame(0, i, []byte("served")))
		if corr, body := response(t, c); corr != i || string(body) != "served" {
			t.Fatalf("request %d was answered by %d %q", i, corr, body)
		}
	}
}

func TestHalfFramesThatWaitForTheBudgetAreDroppedAtOneDeadline(t *testing.T) {
	// By a clock that stands until all have begun, however long that takes here, and goes on twice: one after the other they would need n deadlines.
	began := time.Now()
	var passed, asked atomic.Int64
	limits := Limits{InflightNode: 2 << 20, FrameDeadline: 5 * time.Second, WriteDeadline: 40 * time.Millisecond} // the shortest says how often the server looks
	s := start(t, Config{Handler: echo, Limits: limits, Now: func() time.Time {
		asked.Add(1)
		return began.Add(time.Duration(passed.Load()))
	}})
	n := halfFrames(t, s)
	passed.Store(int64(limits.FrameDeadline))
	before := asked.Load()
	// Connections that wait for the budget do not ask for the time any more, what looks at them does.
	eventually(t, "the server looks at the deadline", func() bool { return asked.Load() > before+4*n || s.Stats().Overdue > 0 })
	if dropped := s.Stats().Overdue; dropped != 0 {
		t.Fatalf("%d were dropped before their deadline", dropped)
	}
	passed.Store(int64(limits.FrameDeadline + time.Millisecond))
	eventually(t, "half frames are dropped", func() bool { return s.Stats().Overdue == n })
	body := bytes.Repeat([]byte("large"), 100<<10)
	c := dial(t, s)
	go c.Write(frame(0, 7, body))
	if _, got := response(t, c); !bytes.Equal(got, body) {
		t.Fatal("the large request got other bytes back")
	}
}

func TestFloodOfGarbageIsNotAFloodOfLogLines(t *testing.T) {
	var lines lineCounter
	s := start(t, Config{Handler: echo, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	const n = 100
	began := time.Now()
	for range n {
		c := dial(t, s)
		send(t, c, []byte("GET / HTTP/1.1\r\n\r\n"))
		c.Close()
	}
	eventually(t, "all are counted", func() bool { return s.Stats().BadFrames == n })
	if most := int64(dropsLogged) * (2 + int64(time.Since(began)/time.Second)); lines.n.Load() > most || lines.n.Load() == 0 {
		t.Fatalf("%d connections dropped made %d log lines, want 1 to %d", n, lines.n.Load(), most)
	}
}

type lineCounter struct{ n atomic.Int64 }

func (l *lineCounter) Write(p []byte) (int, error) {
	l.n.Add(1)
	return len(p), nil
}
