// Package rpctest is a network in memory for tests of whatever runs on rpc.
//
// It knows nodes, directed links and the faults of links: cut, reset, delay.
// It refuses to know what flows over them. Nothing in it touches a socket, so
// it works in a synctest bubble.
package rpctest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"gopherlog/cluster/rpc"
)

// backlog is how many connections wait for a listener to accept them.
const backlog = 128

// Network joins nodes in memory. A directed link that is cut holds bytes back
// until it heals, as TCP retransmits them, and a dial over it hangs.
type Network struct {
	mu        sync.Mutex
	listeners map[rpc.NodeID]*listener
	cut       map[linkID]bool
	delay     map[linkID]time.Duration
	pipes     map[*pipe]struct{}
	changed   chan struct{} // closed and replaced when a link changes
}

type linkID struct{ from, to rpc.NodeID }

// New returns a network without nodes.
func New() *Network {
	return &Network{
		listeners: make(map[rpc.NodeID]*listener), cut: make(map[linkID]bool),
		delay: make(map[linkID]time.Duration), pipes: make(map[*pipe]struct{}),
		changed: make(chan struct{}),
	}
}

// Addr is the address of a node in this network.
func (n *Network) Addr(id rpc.NodeID) string { return fmt.Sprintf("node-%d", id) }

// Peers maps ids to their addresses, for rpc.Config.
func (n *Network) Peers(ids ...rpc.NodeID) map[rpc.NodeID]string {
	m := make(map[rpc.NodeID]string, len(ids))
	for _, id := range ids {
		m[id] = n.Addr(id)
	}
	return m
}

// Listen returns the listener of a node. A second one takes the place of the
// first, as after a restart.
func (n *Network) Listen(id rpc.NodeID) net.Listener {
	l := &listener{net: n, id: id, conns: make(chan net.Conn, backlog), closed: make(chan struct{})}
	n.mu.Lock()
	n.listeners[id] = l
	n.mu.Unlock()
	return l
}

// Dial returns what node from puts into rpc.Config.Dial. The address is
// ignored: the id says where to go.
func (n *Network) Dial(from rpc.NodeID) func(ctx context.Context, to rpc.NodeID, addr string) (net.Conn, error) {
	return func(ctx context.Context, to rpc.NodeID, _ string) (net.Conn, error) {
		there, back := linkID{from, to}, linkID{to, from}
		for {
			n.mu.Lock()
			l, blocked, changed := n.listeners[to], n.cut[there] || n.cut[back], n.changed
			if !blocked && l != nil && !l.isClosed() {
				c, s := n.connLocked(from, to)
				n.mu.Unlock()
				select {
				case l.conns <- s:
					return c, nil
				default:
					c.Close()
					s.Close()
					return nil, refused(to)
				}
			}
			n.mu.Unlock()
			if !blocked {
				return nil, refused(to)
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

func refused(to rpc.NodeID) error {
	return &net.OpError{Op: "dial", Net: "memory", Addr: address(to), Err: syscall.ECONNREFUSED}
}

// connLocked makes both ends of a connection.
func (n *Network) connLocked(from, to rpc.NodeID) (client, server *conn) {
	there := newPipe(n, linkID{from, to})
	back := newPipe(n, linkID{to, from})
	n.pipes[there], n.pipes[back] = struct{}{}, struct{}{}
	return &conn{in: back, out: there, local: address(from), remote: address(to)},
		&conn{in: there, out: back, local: address(to), remote: address(from)}
}

// Cut holds back everything from one node to another.
func (n *Network) Cut(from, to rpc.NodeID) { n.set(func() { n.cut[linkID{from, to}] = true }) }

// CutBoth cuts a pair in both directions; others still see both.
func (n *Network) CutBoth(a, b rpc.NodeID) {
	n.set(func() { n.cut[linkID{a, b}], n.cut[linkID{b, a}] = true, true })
}

// Isolate cuts a node from all that ever listened.
func (n *Network) Isolate(id rpc.NodeID) {
	n.set(func() {
		for other := range n.listeners {
			if other != id {
				n.cut[linkID{id, other}], n.cut[linkID{other, id}] = true, true
			}
		}
	})
}

// Heal mends every link; what was held back arrives.
func (n *Network) Heal() { n.set(func() { clear(n.cut) }) }

// Delay makes bytes from one node to another arrive later by d.
func (n *Network) Delay(from, to rpc.NodeID, d time.Duration) {
	n.set(func() { n.delay[linkID{from, to}] = d })
}

// Reset breaks every connection of a node, as when its process is killed.
func (n *Network) Reset(id rpc.NodeID) {
	n.mu.Lock()
	var hit []*pipe
	for p := range n.pipes {
		if p.link.from == id || p.link.to == id {
			hit = append(hit, p)
		}
	}
	n.mu.Unlock()
	for _, p := range hit {
		p.fail(syscall.ECONNRESET)
	}
}

// Kill resets a node's connections and refuses new ones until it listens again.
func (n *Network) Kill(id rpc.NodeID) {
	n.mu.Lock()
	l := n.listeners[id]
	n.mu.Unlock()
	if l != nil {
		l.Close()
	}
	n.Reset(id)
}

// set changes links and wakes whoever waits on one.
func (n *Network) set(change func()) {
	n.mu.Lock()
	change()
	close(n.changed)
	n.changed = make(chan struct{})
	pipes := make([]*pipe, 0, len(n.pipes))
	for p := range n.pipes {
		pipes = append(pipes, p)
	}
	n.mu.Unlock()
	for _, p := range pipes {
		p.wake()
	}
}

func (n *Network) state(l linkID) (cut bool, delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut[l], n.delay[l]
}

func (n *Network) forget(p *pipe) {
	n.mu.Lock()
	delete(n.pipes, p)
	n.mu.Unlock()
}

// listener hands out the server ends of dialled connections.
type listener struct {
	net    *Network
	id     rpc.NodeID
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		for {
			select {
			case c := <-l.conns:
				c.Close()
				continue
			default:
			}
			return
		}
	})
	return nil
}

func (l *listener) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

func (l *listener) Addr() net.Addr { return address(l.id) }

type address rpc.NodeID

func (a address) Network() string { return "memory" }
func (a address) String() string  { return fmt.Sprintf("node-%d", rpc.NodeID(a)) }
