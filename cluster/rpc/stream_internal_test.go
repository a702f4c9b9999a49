package rpc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// serveAll answers a group's requests with success until it is stopped.
func serveAll(g *group) (stop func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case r := <-g.consumer:
				r.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
			case <-quit:
				return
			}
		}
	})
	return func() { close(quit); wg.Wait() }
}

// deafConn reads from a slice and swallows what is written.
type deafConn struct{ r *bytes.Reader }

func (c deafConn) Read(b []byte) (int, error)       { return c.r.Read(b) }
func (c deafConn) Write(b []byte) (int, error)      { return len(b), nil }
func (c deafConn) Close() error                     { return nil }
func (c deafConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c deafConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c deafConn) SetDeadline(time.Time) error      { return nil }
func (c deafConn) SetReadDeadline(time.Time) error  { return nil }
func (c deafConn) SetWriteDeadline(time.Time) error { return nil }

// readAll runs the receiving end of a plain stream over b.
func readAll(n *Node, b []byte) error {
	conn := deafConn{bytes.NewReader(b)}
	s := &inStream{
		node: n, from: 1, conn: conn, r: bufio.NewReaderSize(conn, streamBuffer),
		box: newOutbox(conn, &n.pool, 0, 0), closed: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(n.ctx)
	s.calls = newCallServer(ctx, n, s.from, s)
	var wg sync.WaitGroup
	wg.Go(s.box.run)
	defer func() { s.box.close(ErrDown); wg.Wait(); cancel(); s.calls.wg.Wait() }()
	return s.read()
}

// encoded is a whole part on the wire.
func encoded(sums bool, entries ...*raft.Log) []byte {
	bodies := 0
	for _, l := range entries {
		bodies += entryBytes(l)
	}
	h := partHead{last: true, sums: sums, id: 1, group: GroupID{Partition: 1}, term: 1}
	bufs, _, _ := encodePart(&buffers{}, nil, h, "1.a", "2.a", entries, bodies)
	return bytes.Join(bufs, nil)
}

func receivingGroup(t *testing.T, cfg Config, opts GroupOptions) (*Node, *group) {
	t.Helper()
	cfg.Node = 2
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	opts.Bulk = true
	return n, n.Group(GroupID{Partition: 1}, "2.a", nil, opts).(*group)
}

func TestDamagedEntryIsNeverHandedOn(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 5000)
	refuseAll := func([]byte) error { return errors.New("batch checksum") }
	for name, c := range map[string]struct {
		verify func([]byte) error
		change func([]byte)
	}{
		"own checksum":          {change: func(b []byte) { b[len(b)-1] ^= 1 }},
		"checksum of the batch": {verify: refuseAll, change: func([]byte) {}},
		"side entry":            {verify: func([]byte) error { return nil }, change: func(b []byte) { b[len(b)-9] ^= 1 }},
		"table":                 {change: func(b []byte) { b[partHeadSize+7] ^= 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			n, g := receivingGroup(t, Config{}, GroupOptions{Verify: c.verify})
			l := &raft.Log{Index: 1, Term: 1, Data: data}
			if name == "side entry" {
				l.Extensions = []byte{1}
			}
			b := encoded(c.verify == nil, l)
			c.change(b)
			if err := readAll(n, b); !errors.Is(err, ErrCorrupt) {
				t.Errorf("stream ended with %v, want %v", err, ErrCorrupt)
			}
			if len(g.consumer) != 0 {
				t.Error("the group was handed a damaged entry")
			}
			if held := n.received.inUse(); held != 0 {
				t.Errorf("%d bytes of budget are lost", held)
			}
		})
	}
}

// A head that claims 60 MiB and then says nothing must not cost 60 MiB.
func TestFrameHeadAloneReservesLittle(t *testing.T) {
	n, _ := receivingGroup(t, Config{}, GroupOptions{})
	b := encoded(true, &raft.Log{Index: 1, Term: 1, Data: make([]byte, 60<<20)})[:partHeadSize+6+partRowSize+100]
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := readAll(n, b); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("stream ended with %v", err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
		t.Errorf("%d bytes were allocated", got)
	}
}

func TestReceivedBytesAreBoundedNodeWide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := receivingGroup(t, Config{ReceiveBudget: 1 << 20}, GroupOptions{})
		one := encoded(true, &raft.Log{Index: 1, Term: 1, Data: make([]byte, 300<<10)})
		if err := readAll(n, bytes.Repeat(one, 6)); !errors.Is(err, io.EOF) {
			t.Errorf("stream ended with %v", err)
		}
		if got := len(g.consumer); got != 3 {
			t.Errorf("%d requests of 300 KiB wait under a budget of 1 MiB, want 3", got)
		}
		stop := serveAll(g)
		synctest.Wait()
		if held := n.received.inUse(); held != 0 {
			t.Errorf("%d bytes are held after everything was answered", held)
		}
		stop()
	})
}

func TestReceiveCostsFourAllocationsWhateverTheNumberOfEntries(t *testing.T) {
	n, g := receivingGroup(t, Config{}, GroupOptions{})
	var entries []*raft.Log
	for i := range 64 {
		entries = append(entries, &raft.Log{Index: uint64(i + 1), Term: 1, Data: make([]byte, 100)})
	}
	b := encoded(true, entries...)
	conn := deafConn{bytes.NewReader(nil)}
	s := &inStream{node: n, from: 1, conn: conn, r: bufio.NewReaderSize(conn, 64<<10), closed: make(chan struct{})}
	s.box = newOutbox(conn, &n.pool, 0, 0)
	body := bytes.NewReader(nil)
	got := testing.AllocsPerRun(100, func() {
		body.Reset(b)
		s.r.Reset(body)
		var h partHead
		if _, err := io.ReadFull(s.r, s.head[:]); err != nil {
			t.Fatal(err)
		}
		if err := h.decode(s.head[:], 1<<20); err != nil {
			t.Fatal(err)
		}
		if err := s.readPart(&h); err != nil {
			t.Fatal(err)
		}
		r := <-g.consumer
		r.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
	})
	if got > 10 { // of which two are the answer's, made here, and its way back; the race detector adds some
		t.Errorf("%.0f allocations a request", got)
	}
}

// The group's goroutine may be writing the entries of a request when the group
// is closed: their buffer must not be used for others.
func TestBufferOfAnUnansweredRequestIsNotRecycled(t *testing.T) {
	n, g := receivingGroup(t, Config{Poison: true}, GroupOptions{Recycle: true})
	data := bytes.Repeat([]byte("x"), 5000)
	if err := readAll(n, encoded(true, &raft.Log{Index: 1, Term: 1, Data: data})); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	r := <-g.consumer
	g.Close()
	for n.received.inUse() != 0 {
		time.Sleep(time.Millisecond)
	}
	if !bytes.Equal(r.Command.(*raft.AppendEntriesRequest).Entries[0].Data, data) {
		t.Error("the entry changed while the group held it")
	}
}

func TestBufferOfAnAnsweredRequestIsRecycled(t *testing.T) {
	n, g := receivingGroup(t, Config{Poison: true}, GroupOptions{Recycle: true})
	if err := readAll(n, encoded(true, &raft.Log{Index: 1, Term: 1, Data: bytes.Repeat([]byte("x"), 5000)})); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	r := <-g.consumer
	entry := r.Command.(*raft.AppendEntriesRequest).Entries[0]
	r.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
	for n.received.inUse() != 0 {
		time.Sleep(time.Millisecond)
	}
	if entry.Data[0] != 0xDB {
		t.Errorf("entry holds %x after its answer", entry.Data[:4])
	}
}
