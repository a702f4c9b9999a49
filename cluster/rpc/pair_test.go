package rpc_test

import (
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
	"gopherlog/cluster/rpc/rpctest"
)

var (
	server1 = rpc.MakeServerID(1, 0xabc)
	server2 = rpc.MakeServerID(2, 0xabc)
	server3 = rpc.MakeServerID(3, 0xabc)
)

// nodes starts nodes 1..n on a network in memory.
func nodes(t *testing.T, n int, change func(*rpc.Config)) (*rpctest.Network, map[rpc.NodeID]*rpc.Node) {
	t.Helper()
	network := rpctest.New()
	var ids []rpc.NodeID
	for id := range rpc.NodeID(n) {
		ids = append(ids, id+1)
	}
	out := map[rpc.NodeID]*rpc.Node{}
	for _, id := range ids {
		out[id] = startNode(t, network, id, ids, change)
	}
	return network, out
}

func startNode(t *testing.T, network *rpctest.Network, id rpc.NodeID, ids []rpc.NodeID, change func(*rpc.Config)) *rpc.Node {
	t.Helper()
	cfg := rpc.Config{
		Node: id, Listen: network.Listen(id), Dial: network.Dial(id), Peers: network.Peers(ids...),
		ClusterID: func() string { return "test" }, Poison: true,
	}
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

// request is an AppendEntries of server1 in term 1.
func request(prev uint64, entries ...*raft.Log) *raft.AppendEntriesRequest {
	a := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte(server1), Addr: []byte(server1)},
		Term:      1, PrevLogEntry: prev, Entries: entries,
	}
	if prev > 0 {
		a.PrevLogTerm = 1
	}
	return a
}

func heartbeat(term uint64) *raft.AppendEntriesRequest {
	a := request(0)
	a.Term = term
	return a
}

func entry(index uint64, size int) *raft.Log {
	return &raft.Log{Index: index, Term: 1, Data: payload(int(index), size), AppendedAt: time.Unix(1, 2)}
}

// send calls AppendEntries outside of a pipeline.
func send(g rpc.GroupTransport, to rpc.ServerID, a *raft.AppendEntriesRequest) (*raft.AppendEntriesResponse, error) {
	resp := &raft.AppendEntriesResponse{}
	err := g.AppendEntries(to.Raft(), to.Address(), a, resp)
	return resp, err
}

func success(a *raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
	return &raft.AppendEntriesResponse{Term: a.Term, Success: true, LastLog: a.PrevLogEntry + uint64(len(a.Entries))}
}

// answerWith serves a group's requests until the returned function is called.
func answerWith(g rpc.GroupTransport, h func(cmd any) (any, error)) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case r := <-g.Consumer():
				r.Respond(h(r.Command))
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-done }
}

// eventually waits for cond in small steps, up to a generous limit.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for range 3000 {
		if cond() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("not after 30 s: %s", what)
}

// within fails unless f returns within d.
func within(t *testing.T, d time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	start := time.Now()
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(d + 30*time.Second):
		t.Fatalf("%s: still not done", what)
	}
	if took := time.Since(start); took > d {
		t.Errorf("%s took %v, want at most %v", what, took, d)
	}
}

type netConn = net.Conn
