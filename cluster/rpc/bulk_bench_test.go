package rpc_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

// BenchmarkBulkPath moves entries from one node to another over TCP through
// the library's pipeline interface, beside a loop that does nothing but write
// the same bytes, read them into one buffer and acknowledge.
func BenchmarkBulkPath(b *testing.B) {
	for _, size := range []int{100, 16 << 10, 1 << 20} {
		per := max(1, min(64, (1<<20)/size)) // entries of one request
		b.Run(fmt.Sprintf("entry=%d/stream", size), func(b *testing.B) { benchStream(b, size, per, false) })
		b.Run(fmt.Sprintf("entry=%d/stream-recycled", size), func(b *testing.B) { benchStream(b, size, per, true) })
		b.Run(fmt.Sprintf("entry=%d/bare", size), func(b *testing.B) { benchBare(b, size, per) })
	}
}

func tcpNode(tb testing.TB, id rpc.NodeID, peers map[rpc.NodeID]string, l net.Listener) *rpc.Node {
	tb.Helper()
	n, err := rpc.New(rpc.Config{Node: id, Listen: l, Peers: peers})
	if err != nil {
		tb.Fatal(err)
	}
	n.Start()
	tb.Cleanup(n.Close)
	return n
}

func loopback(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// sink answers every request of a group with success.
func sink(t rpc.GroupTransport, stop <-chan struct{}) {
	for {
		select {
		case r := <-t.Consumer():
			a, ok := r.Command.(*raft.AppendEntriesRequest)
			if !ok {
				r.Respond(nil, fmt.Errorf("got %T", r.Command))
				continue
			}
			r.Respond(&raft.AppendEntriesResponse{Term: a.Term, Success: true, LastLog: a.PrevLogEntry + uint64(len(a.Entries))}, nil)
		case <-stop:
			return
		}
	}
}

func openPipeline(tb testing.TB, g rpc.GroupTransport, to rpc.ServerID) raft.AppendPipeline {
	tb.Helper()
	for range 500 {
		p, err := g.AppendEntriesPipeline(to.Raft(), to.Address())
		if err == nil {
			return p
		}
		time.Sleep(10 * time.Millisecond)
	}
	tb.Fatal("no pipeline after 5 s")
	return nil
}

func benchStream(b *testing.B, size, per int, recycle bool) {
	l1, l2 := loopback(b), loopback(b)
	n1 := tcpNode(b, 1, map[rpc.NodeID]string{2: l2.Addr().String()}, l1)
	n2 := tcpNode(b, 2, map[rpc.NodeID]string{1: l1.Addr().String()}, l2)
	s1, s2 := rpc.MakeServerID(1, 1), rpc.MakeServerID(2, 1)
	noCheck := func([]byte) error { return nil }
	opts := rpc.GroupOptions{Bulk: true, Verify: noCheck, Recycle: recycle}
	g1, g2 := n1.Group(testTopic, s1, nil, opts), n2.Group(testTopic, s2, nil, opts)
	stop := make(chan struct{})
	defer close(stop)
	go sink(g2, stop)
	p := openPipeline(b, g1, s2)
	defer p.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; i < b.N; i++ {
			f := <-p.Consumer()
			if !f.Response().Success {
				b.Errorf("request %d: %v", i, f.Error())
				return
			}
		}
	}()
	entries := make([]*raft.Log, per)
	for i := range entries {
		entries[i] = &raft.Log{Index: uint64(i + 1), Term: 1, Data: payload(i, size)}
	}
	header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte(s1), Addr: []byte(s1)}
	b.SetBytes(int64(size * per))
	b.ReportAllocs()
	defer reportCPU(b)()
	b.ResetTimer()
	for range b.N {
		args := &raft.AppendEntriesRequest{RPCHeader: header, Term: 1, Entries: append([]*raft.Log(nil), entries...)}
		if _, err := p.AppendEntries(args, new(raft.AppendEntriesResponse)); err != nil {
			b.Fatal(err)
		}
	}
	<-done
}

func benchBare(b *testing.B, size, per int) {
	l := loopback(b)
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		r, buf := bufio.NewReaderSize(c, 64<<10), make([]byte, size*per)
		var head [8]byte
		for {
			if _, err := io.ReadFull(r, head[:]); err != nil {
				return
			}
			if _, err := io.ReadFull(r, buf); err != nil {
				return
			}
			if _, err := c.Write(head[:]); err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	slots := make(chan struct{}, 4)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		var ack [8]byte
		for i := 0; i < b.N; i++ {
			if _, err := io.ReadFull(c, ack[:]); err != nil {
				return
			}
			<-slots
		}
	}()
	bodies := make([][]byte, per)
	for i := range bodies {
		bodies[i] = payload(i, size)
	}
	b.SetBytes(int64(size * per))
	b.ReportAllocs()
	defer reportCPU(b)()
	var head [8]byte
	inline := make([]byte, 0, size*per)
	b.ResetTimer()
	for range b.N {
		slots <- struct{}{}
		binary.BigEndian.PutUint64(head[:], uint64(b.N))
		bufs := net.Buffers{head[:]}
		if size < 2<<10 {
			inline = inline[:0]
			for _, d := range bodies {
				inline = append(inline, d...)
			}
			bufs = append(bufs, inline)
		} else {
			bufs = append(bufs, bodies...)
		}
		if _, err := bufs.WriteTo(c); err != nil {
			b.Fatal(err)
		}
	}
	<-ctx.Done()
}

// reportCPU adds the processor time of the whole process per request: it says
// more than the wall clock while others use the machine.
func reportCPU(b *testing.B) func() {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64((used()-before).Nanoseconds())/float64(b.N)/1000, "cpu-us/op") }
}
