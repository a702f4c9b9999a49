package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"gopherlog/cluster/rpc"
	"gopherlog/engine/failpoint"
)

// socketPair starts two nodes over TCP on loopback.
func socketPair(t *testing.T, change func(*rpc.Config)) (n1, n2 *rpc.Node, addr2 string) {
	t.Helper()
	l1, l2 := loopback(t), loopback(t)
	start := func(id, other rpc.NodeID, own, peer net.Listener) *rpc.Node {
		cfg := rpc.Config{Node: id, Listen: own, Peers: map[rpc.NodeID]string{other: peer.Addr().String()}}
		if change != nil {
			change(&cfg)
		}
		n, err := rpc.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		n.Start()
		t.Cleanup(n.Close)
		return n
	}
	return start(1, 2, l1, l2), start(2, 1, l2, l1), l2.Addr().String()
}

func TestOnePortCarriesBothProtocols(t *testing.T) {
	n1, n2, _ := socketPair(t, nil)
	n2.Handle("hello", func(context.Context, rpc.NodeID, []byte) ([]byte, error) { return []byte("there"), nil })
	g1 := n1.Group(testTopic, server1, nil, rpc.GroupOptions{Bulk: true})
	g2 := n2.Group(testTopic, server2, nil, rpc.GroupOptions{Bulk: true, Recycle: true})
	var sum atomic.Int64
	defer answerWith(g2, func(cmd any) (any, error) {
		a := cmd.(*raft.AppendEntriesRequest)
		for _, l := range a.Entries {
			if !bytes.Equal(l.Data, payload(int(l.Index), len(l.Data))) {
				t.Errorf("entry %d is damaged", l.Index)
			}
			sum.Add(int64(len(l.Data)))
		}
		return success(a), nil
	})()
	if b, err := n1.Call(t.Context(), 2, "hello", nil); err != nil || string(b) != "there" {
		t.Errorf("call: %q, %v", b, err)
	}
	p := openPipeline(t, g1, server2)
	defer p.Close()
	want := int64(0)
	index := uint64(0)
	for i := range 30 {
		a := request(index)
		for range i%7 + 1 {
			index++
			size := []int{10, 3000, 70 << 10, 1 << 20}[i%4]
			a.Entries = append(a.Entries, entry(index, size))
			want += int64(size)
		}
		if _, err := p.AppendEntries(a, &raft.AppendEntriesResponse{}); err != nil {
			t.Fatal(err)
		}
		if i == 0 || i > 3 { // a pipeline opens once the first request was accepted
			if f := <-p.Consumer(); !f.Response().Success {
				t.Fatal(f.Error())
			}
		}
	}
	for range 3 {
		<-p.Consumer()
	}
	if sum.Load() != want {
		t.Errorf("%d of %d bytes arrived", sum.Load(), want)
	}
}

func TestConnectionThatSpeaksNeitherProtocolIsDropped(t *testing.T) {
	_, n2, addr := socketPair(t, nil)
	for name, b := range map[string]string{
		"HTTP/1":        "GET / HTTP/1.1\r\n\r\n",
		"Kafka":         "\x00\x00\x00\x20\x00\x12\x00\x03",
		"damaged hello": "GLB1" + strings.Repeat("\xff", 40),
	} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(b)); err != nil {
			t.Fatal(err)
		}
		conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
		if _, err := io.ReadAll(conn); errors.Is(err, context.DeadlineExceeded) || err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: the connection was kept: %v", name, err)
		}
		conn.Close()
	}
	eventually(t, "links up", func() bool { return n2.Alive(1) })
}

func TestOtherVersionIsRefusedAsAVersion(t *testing.T) {
	_, _, addr := socketPair(t, nil)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// magic, version 9, from 1, to 2, no cluster id; the checksum is computed
	// over these bytes.
	if _, err := conn.Write(rpc.HelloOfVersion(9, 1, 2)); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	b, _ := io.ReadAll(conn)
	if !strings.Contains(string(b), "node 2 speaks version 3, node 1 speaks version 9") {
		t.Errorf("answer %q", b)
	}
}

func TestFailpointOnTheStreamLooksLikeABrokenLink(t *testing.T) {
	sets := map[rpc.NodeID]*failpoint.Set{1: failpoint.New(), 2: failpoint.New()}
	n1, n2, _ := socketPair(t, func(c *rpc.Config) { c.Failpoints = sets[c.Node] })
	g1 := n1.Group(testTopic, server1, nil, rpc.GroupOptions{Bulk: true})
	g2 := n2.Group(testTopic, server2, nil, rpc.GroupOptions{Bulk: true})
	var arrived atomic.Int64
	defer answerWith(g2, func(cmd any) (any, error) {
		arrived.Add(1)
		return success(cmd.(*raft.AppendEntriesRequest)), nil
	})()
	for _, c := range []struct {
		node    rpc.NodeID
		name    failpoint.Name
		arrives int64 // times that the request reaches the group until it succeeds
	}{{1, "rpc/send-append", 1}, {2, "rpc/receive-append", 1}, {2, "rpc/answer-append", 2}} {
		if err := sets[c.node].Arm(c.name, failpoint.Action{Kind: failpoint.Error, Nth: 1}); err != nil {
			t.Fatal(err)
		}
		arrived.Store(0)
		if resp, err := send(g1, server2, request(0, entry(1, 10))); err != nil || !resp.Success {
			t.Errorf("%s: %+v, %v", c.name, resp, err)
		}
		if arrived.Load() != c.arrives || sets[c.node].Hits(c.name) == 0 {
			t.Errorf("%s: the request arrived %d times, want %d", c.name, arrived.Load(), c.arrives)
		}
		sets[c.node].Disarm(c.name)
	}
}

func TestMetricsHaveNamesAndHelp(t *testing.T) {
	described, running := prometheus.NewRegistry(), prometheus.NewRegistry()
	if err := rpc.DescribeMetrics(described); err != nil {
		t.Fatal(err)
	}
	n, err := rpc.New(rpc.Config{Node: 1, Registerer: running})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	a, err := described.Gather()
	if err != nil {
		t.Fatal(err)
	}
	b, err := running.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(a) < 10 || len(a) != len(b) {
		t.Errorf("%d metrics described, %d registered", len(a), len(b))
	}
	for _, f := range a {
		if !strings.HasPrefix(f.GetName(), "gopherlog_rpc_") || f.GetHelp() == "" {
			t.Errorf("%s: %q", f.GetName(), f.GetHelp())
		}
	}
}
