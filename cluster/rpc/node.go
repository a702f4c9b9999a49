package rpc

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"gopherlog/cluster/rpc/rpcpb"
)

// Node is one broker's end of all that nodes say to each other. Its methods
// may be called from any goroutine.
//
// Lock order: Node.mu, then one of peer.mu, group.mu, link.mu, outStream.mu.
// None of them is held across I/O or a wait.
type Node struct {
	cfg       Config
	pool      buffers
	received  *budget
	ids       atomic.Uint64
	reported  atomic.Uint64 // reports given so far
	born      time.Time
	tick      atomic.Int64 // when pings were last sent, nanoseconds since born
	grpc      *grpc.Server
	grpcConns *handedListener
	ctx       context.Context
	stop      context.CancelFunc
	closing   chan struct{}
	closeOnce sync.Once
	wg        sync.WaitGroup
	events    events
	counts    counters

	mu       sync.RWMutex
	started  bool
	peers    map[NodeID]*peer
	groups   map[GroupID]*group
	handlers map[string]Handler
	hearers  map[string]func(NodeID, []byte)
	conns    map[net.Conn]struct{} // accepted and open
}

// New builds a node. Nothing runs before Start.
func New(cfg Config) (*Node, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("rpc: %w", err)
	}
	cfg = cfg.withDefaults()
	n := &Node{
		cfg: cfg, born: time.Now(), received: newBudget(cfg.ReceiveBudget), closing: make(chan struct{}),
		peers: make(map[NodeID]*peer), groups: make(map[GroupID]*group),
		handlers: make(map[string]Handler), hearers: make(map[string]func(NodeID, []byte)), conns: make(map[net.Conn]struct{}),
	}
	if err := n.register(cfg.Registerer); err != nil {
		return nil, fmt.Errorf("rpc: metrics: %w", err)
	}
	n.pool.poison = cfg.Poison
	n.events.init()
	n.ctx, n.stop = context.WithCancel(context.Background())
	n.handlers[whoLeadsMethod] = n.answerWhoLeads
	for id, addr := range cfg.Peers {
		if id != cfg.Node {
			n.peers[id] = newPeer(n, id, addr)
		}
	}
	return n, nil
}

// Start listens and dials.
func (n *Node) Start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.started || n.isClosed() {
		return
	}
	n.started = true
	n.ticked()
	if n.cfg.Listen != nil {
		n.serve()
	}
	for _, p := range n.peers {
		n.startPeer(p)
	}
	n.wg.Go(n.pingAll)
	n.wg.Go(func() { n.events.run(n.closing) })
}

func (n *Node) serve() {
	n.grpcConns = newHandedListener(n.cfg.Listen.Addr())
	n.grpc = grpc.NewServer(
		grpc.WaitForHandlers(true),
		grpc.InitialWindowSize(grpcWindow),
		grpc.InitialConnWindowSize(4*grpcWindow),
		grpc.ConnectionTimeout(sniffTimeout),
	)
	rpcpb.RegisterPeerServer(n.grpc, &service{node: n})
	n.wg.Go(func() { n.grpc.Serve(n.grpcConns) }) // ends with Close
	n.wg.Go(n.accept)
}

func (n *Node) startPeer(p *peer) {
	ctx, cancel := context.WithCancel(n.ctx)
	p.stop = cancel
	n.wg.Go(func() { p.run(ctx) })
}

// Close ends every connection, call and goroutine of the node, and detaches
// the groups that are still attached.
func (n *Node) Close() {
	n.closeOnce.Do(func() {
		n.mu.Lock()
		close(n.closing)
		groups := slices.Collect(maps.Values(n.groups))
		conns := slices.Collect(maps.Keys(n.conns))
		peers := slices.Collect(maps.Values(n.peers))
		n.mu.Unlock()
		n.stop()
		if n.cfg.Listen != nil {
			n.cfg.Listen.Close()
		}
		for _, g := range groups {
			g.Close()
		}
		for _, p := range peers {
			if l, _ := p.current(); l != nil {
				l.close(ErrClosed)
			}
		}
		for _, c := range conns {
			c.Close()
		}
		if n.grpc != nil {
			n.grpcConns.Close()
			n.grpc.Stop()
		}
	})
	n.wg.Wait()
}

func (n *Node) isClosed() bool {
	select {
	case <-n.closing:
		return true
	default:
		return false
	}
}

// Self returns this node's id.
func (n *Node) Self() NodeID { return n.cfg.Node }

func (n *Node) nextID() uint64 { return n.ids.Add(1) }

func (n *Node) track(c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isClosed() {
		return false
	}
	n.conns[c] = struct{}{}
	return true
}

func (n *Node) untrack(c net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

// Group attaches a group. A handle that was attached for the same group is
// closed. log may be nil: then requests are only cut, never filled, and
// snapshots are always delivered.
func (n *Node) Group(id GroupID, self ServerID, log GroupLog, opts GroupOptions) GroupTransport {
	g := newGroup(n, id, self, log, opts)
	n.mu.Lock()
	if n.isClosed() {
		n.mu.Unlock()
		g.closed = true
		g.Abort()
		return g
	}
	old := n.groups[id]
	n.groups[id] = g
	n.wg.Go(g.run)
	n.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return g
}

func (n *Node) group(id GroupID) *group {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.groups[id]
}

func (n *Node) detach(g *group) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.groups[g.id] == g {
		delete(n.groups, g.id)
	}
}

// SetStalled makes a group stop sending requests and refuse those that come,
// so that the others elect a leader whose disk answers; false ends that.
func (n *Node) SetStalled(id GroupID, stalled bool) {
	if g := n.group(id); g != nil {
		g.stalled.Store(stalled)
	}
}

// SetPeer says where to dial a node from now on.
func (n *Node) SetPeer(id NodeID, addr string) {
	if id == n.cfg.Node || id <= 0 || addr == "" {
		return
	}
	n.mu.Lock()
	if n.isClosed() {
		n.mu.Unlock()
		return
	}
	p := n.peers[id]
	if p == nil {
		p = newPeer(n, id, addr)
		n.peers[id] = p
		if n.started {
			n.startPeer(p)
		}
	}
	n.mu.Unlock()
	p.move(addr)
}

// Peers returns the other nodes and where they are dialled.
func (n *Node) Peers() map[NodeID]string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	out := make(map[NodeID]string, len(n.peers))
	for id, p := range n.peers {
		p.mu.Lock()
		out[id] = p.addr
		p.mu.Unlock()
	}
	return out
}

func (n *Node) peer(id NodeID) *peer {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.peers[id]
}

func (n *Node) allPeers() []*peer {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return slices.Collect(maps.Values(n.peers))
}

// LinkError says why a peer is not connected, nil if it is or was never tried.
func (n *Node) LinkError(id NodeID) error {
	p := n.peer(id)
	if p == nil {
		return ErrUnknownPeer
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link != nil {
		return nil
	}
	return p.refusal
}
