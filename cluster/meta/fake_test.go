package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/vfs"
)

// world is a network and a control group without Raft: commands are applied everywhere at once, the leader is whoever the test says,
// and answers get lost when the test says so.
type world struct {
	t       *testing.T
	mu      sync.Mutex
	nodes   map[NodeID]*fakeNode
	members []Member
	log     [][]byte
	leader  rpc.ServerID
	loseMod int // every so manieth answer of Apply is lost
	applied int
}

type fakeNode struct {
	w        *world
	id       NodeID
	peers    map[NodeID]string
	handlers map[string]rpc.Handler
	up       bool
	fs       vfs.FS
	ctl      *Controller
	control  *fakeControl
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, nodes: map[NodeID]*fakeNode{}}
	t.Cleanup(func() {
		for _, n := range w.nodes {
			n.stop()
		}
	})
	return w
}

// node adds a node with an empty disk that lists the others as peers.
func (w *world) node(id NodeID, peers ...NodeID) *fakeNode {
	n := &fakeNode{w: w, id: id, peers: map[NodeID]string{}, fs: newDir(w.t)}
	for _, p := range peers {
		n.peers[p] = fmt.Sprint("node", p)
	}
	w.nodes[id] = n
	return n
}

func (n *fakeNode) start() {
	n.w.t.Helper()
	id, err := ReadIdentity(n.fs, "data", n.id)
	if err != nil {
		n.w.t.Fatal(err)
	}
	n.w.mu.Lock()
	n.handlers, n.up = map[string]rpc.Handler{}, true
	n.w.mu.Unlock()
	ctl, err := Open(Config{Identity: id, Node: n, Self: Broker{Host: fmt.Sprint("host", n.id), Port: 9092, RPCAddr: fmt.Sprint("node", n.id)}, OpenControl: n.openControl})
	if err != nil {
		n.w.t.Fatal(err)
	}
	n.ctl = ctl
}

func (n *fakeNode) stop() {
	if n.ctl == nil {
		return
	}
	n.w.mu.Lock()
	n.up = false
	n.w.mu.Unlock()
	if err := n.ctl.Close(context.Background()); err != nil {
		n.w.t.Error(err)
	}
	n.ctl = nil
}

func (n *fakeNode) wipe() { n.fs = newDir(n.w.t) }

func (n *fakeNode) ready() {
	n.w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.ctl.WaitReady(ctx); err != nil {
		_, reason := n.ctl.Ready()
		n.w.t.Fatalf("node %d: %v: %s", n.id, err, reason)
	}
}

func (n *fakeNode) Handle(method string, h rpc.Handler) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.handlers[method] = h
}

func (n *fakeNode) Peers() map[NodeID]string   { return n.peers }
func (n *fakeNode) SetPeer(_ NodeID, _ string) {}

// Raft is not played here, so nobody succeeds anybody: see the tests over Raft.
func (n *fakeNode) ReportsDead(NodeID) map[NodeID]bool { return nil }
func (n *fakeNode) OnPeerChange(func(NodeID, bool))    {}
func (n *fakeNode) OnReport(func(NodeID))              {}

func (n *fakeNode) Alive(id NodeID) bool {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	other := n.w.nodes[id]
	return other != nil && other.up
}

func (n *fakeNode) Call(ctx context.Context, to NodeID, method string, req []byte) ([]byte, error) {
	n.w.mu.Lock()
	other := n.w.nodes[to]
	if other == nil || !other.up || other.handlers[method] == nil || !n.up {
		n.w.mu.Unlock()
		return nil, rpc.ErrDown
	}
	h := other.handlers[method]
	n.w.mu.Unlock()
	return h(ctx, n.id, req)
}

// fakeControl is one node's member.
type fakeControl struct {
	w    *world
	self rpc.ServerID
	fsm  replica.ControlFSM
	next int // log entries that were applied here; under world.mu
}

var errFake = errors.New("planted: the answer is lost")

func (n *fakeNode) openControl(fsm replica.ControlFSM, self rpc.ServerID, founders []rpc.ServerID) (Control, error) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.control = &fakeControl{w: n.w, self: self, fsm: fsm}
	if n.w.members == nil {
		for _, id := range founders {
			n.w.members = append(n.w.members, Member{ID: id, Voter: true})
		}
		if len(founders) > 0 {
			n.w.leader = self
		}
	}
	n.control.catchUp()
	return n.control, nil
}

// catchUp applies what this member has not seen; without membership nothing reaches it.
func (c *fakeControl) catchUp() {
	if !slices.ContainsFunc(c.w.members, func(m Member) bool { return m.ID == c.self }) {
		return
	}
	for ; c.next < len(c.w.log); c.next++ {
		c.fsm.Apply(uint64(c.next+1), c.w.log[c.next])
	}
}

func (c *fakeControl) Apply(_ context.Context, cmd []byte) (any, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.w.leader != c.self {
		return nil, replica.ErrNotLeader
	}
	for _, n := range c.w.nodes {
		if n.control != nil && n.control != c && n.up {
			n.control.catchUp()
		}
	}
	c.catchUp()
	c.w.log = append(c.w.log, cmd)
	out := c.fsm.Apply(uint64(len(c.w.log)), cmd)
	c.next = len(c.w.log)
	for _, n := range c.w.nodes {
		if n.control != nil && n.up {
			n.control.catchUp()
		}
	}
	c.w.applied++
	if c.w.loseMod > 0 && c.w.applied%c.w.loseMod == 0 {
		return nil, errFake
	}
	return out, nil
}

func (c *fakeControl) Barrier(context.Context) error { return nil }

func (c *fakeControl) Leader() rpc.ServerID {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if !slices.ContainsFunc(c.w.members, func(m Member) bool { return m.ID == c.self }) {
		return "" // nobody sends it heartbeats
	}
	return c.w.leader
}

func (c *fakeControl) IsLeader() bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return c.w.leader == c.self
}

func (c *fakeControl) Members() []Member {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return slices.Clone(c.w.members)
}

func (c *fakeControl) change(fn func([]Member) []Member) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.w.leader != c.self {
		return replica.ErrNotLeader
	}
	c.w.members = fn(c.w.members)
	return nil
}

func (c *fakeControl) AddNonvoter(_ context.Context, id rpc.ServerID) error {
	return c.change(func(m []Member) []Member { return append(m, Member{ID: id}) })
}

func (c *fakeControl) AddVoter(_ context.Context, id rpc.ServerID) error {
	return c.change(func(m []Member) []Member {
		m = slices.Clone(m)
		m[slices.IndexFunc(m, func(m Member) bool { return m.ID == id })].Voter = true
		return m
	})
}

func (c *fakeControl) RemoveServer(_ context.Context, id rpc.ServerID) error {
	return c.change(func(m []Member) []Member {
		return slices.DeleteFunc(slices.Clone(m), func(m Member) bool { return m.ID == id })
	})
}

func (c *fakeControl) CaughtUp(rpc.ServerID) bool { return true }

func (c *fakeControl) TransferTo(_ context.Context, id rpc.ServerID) error {
	c.w.lead(id)
	return nil
}

func (c *fakeControl) Campaign() error { return nil }

func (c *fakeControl) Close(context.Context) error { return nil }

func (w *world) lead(id rpc.ServerID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leader = id
}

func (w *world) loseEvery(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loseMod = n
}
