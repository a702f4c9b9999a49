package rpc

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

const (
	consumerDepth = 128               // requests that wait for a group
	beatDepth     = consumerDepth / 2 // above which heartbeats are dropped
	deliverWait   = time.Second       // how long a data request waits for a place
	raftProtocol  = 3

	defaultInflightBytes = 16 << 20
)

// group is one group's handle: what arrives for it, what it knows of its
// peers' progress, and the calls it has under way.
type group struct {
	node *Node
	id   GroupID
	self ServerID
	log  GroupLog
	opts GroupOptions

	selfBytes []byte // self, shared by every request header; never written
	consumer  chan raft.RPC
	answers   chan raft.RPCResponse
	aborted   chan struct{}
	abortOnce sync.Once
	detached  chan struct{}
	closeOnce sync.Once
	stalled   atomic.Bool
	// leaderTerm is the highest term of a leader whose request was handed to
	// the group. A request of ours with a lower term must not leave: since
	// that hand-over our log may have been cut and refilled.
	leaderTerm atomic.Uint64

	rests rests // requests that wait for the log to grow

	mu       sync.Mutex
	closed   bool
	waiting  []answerer // in the order in which the group will answer
	space    chan struct{}
	observed observation
	newTerm  chan struct{} // closed and replaced when a higher term shows
	progress map[ServerID]*progress
	lastFrom internedID
	offer    offer
}

// observation is the leader that this replica last followed, by what has left
// the node. It is raised before any vote request or answer leaves, so a
// heartbeat of exactly this leader can be answered without asking the group.
type observation struct {
	term   uint64
	leader ServerID
}

// internedID saves an allocation for the id that every request carries.
type internedID struct {
	id    ServerID
	bytes []byte
}

// answerer receives the group's answer to one request, on the group's
// answering goroutine; it must not block for long.
type answerer interface{ answer(raft.RPCResponse) }

type answerFunc func(raft.RPCResponse)

func (f answerFunc) answer(r raft.RPCResponse) { f(r) }

func newGroup(n *Node, id GroupID, self ServerID, log GroupLog, opts GroupOptions) *group {
	if opts.InflightBytes <= 0 {
		opts.InflightBytes = defaultInflightBytes
	}
	return &group{
		node: n, id: id, self: self, log: log, opts: opts,
		selfBytes: []byte(self),
		consumer:  make(chan raft.RPC, consumerDepth),
		answers:   make(chan raft.RPCResponse, 16),
		aborted:   make(chan struct{}),
		detached:  make(chan struct{}),
		progress:  make(map[ServerID]*progress),
		newTerm:   make(chan struct{}),
	}
}

// Consumer, LocalAddr, EncodePeer, DecodePeer and SetHeartbeatHandler are
// raft.Transport's.
func (g *group) Consumer() <-chan raft.RPC                               { return g.consumer }
func (g *group) LocalAddr() raft.ServerAddress                           { return g.self.Address() }
func (g *group) EncodePeer(_ raft.ServerID, a raft.ServerAddress) []byte { return []byte(a) }

func (g *group) DecodePeer(b []byte) raft.ServerAddress {
	g.mu.Lock()
	known := g.lastFrom
	g.mu.Unlock()
	if string(known.bytes) == string(b) {
		return known.id.Address()
	}
	return raft.ServerAddress(b)
}

// SetHeartbeatHandler ignores the fast path: it would change term and state
// while the group's own goroutine appends (hashicorp/raft #695).
func (g *group) SetHeartbeatHandler(func(raft.RPC)) {}

// Abort fails every call under way and yet to come.
func (g *group) Abort() { g.abortOnce.Do(func() { close(g.aborted) }) }

// Resign makes the term outdated: no request of it is waited for any more.
func (g *group) Resign(term uint64) { g.raise(term + 1) }

// Close detaches the group; requests for it are refused from now on. It may
// be called more than once.
func (g *group) Close() error {
	g.Abort()
	g.closeOnce.Do(func() {
		g.node.detach(g)
		g.mu.Lock()
		g.closed = true
		g.mu.Unlock()
		close(g.detached)
	})
	return nil
}

// intern returns the id that b spells and a shared slice with the same bytes.
func (g *group) intern(b []byte) (ServerID, []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if string(g.lastFrom.bytes) != string(b) {
		g.lastFrom = internedID{id: ServerID(b), bytes: append([]byte(nil), b...)}
	}
	return g.lastFrom.id, g.lastFrom.bytes
}

// deliver hands a request to the group's main goroutine. Requests are answered
// in the order of delivery. It never blocks; ErrBusy when more than limit wait.
func (g *group) deliver(cmd any, body io.Reader, limit int, a answerer) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrUnknownGroup
	}
	if len(g.consumer) >= limit {
		return ErrBusy
	}
	select {
	case g.consumer <- raft.RPC{Command: cmd, Reader: body, RespChan: g.answers}:
		g.waiting = append(g.waiting, a)
		return nil
	default:
		return ErrBusy
	}
}

// deliverWaiting is deliver, but waits for a place until stop or deliverWait.
func (g *group) deliverWaiting(cmd any, a answerer, stop <-chan struct{}) error {
	var timer *time.Timer
	for {
		err := g.deliver(cmd, nil, consumerDepth, a)
		if err != ErrBusy { //nolint:errorlint // deliver returns the sentinel itself
			if timer != nil {
				timer.Stop()
			}
			return err
		}
		g.mu.Lock()
		if g.space == nil {
			g.space = make(chan struct{})
		}
		space := g.space
		full := len(g.consumer) >= consumerDepth
		g.mu.Unlock()
		if !full {
			continue
		}
		if timer == nil {
			timer = time.NewTimer(deliverWait)
		}
		select {
		case <-space:
		case <-g.detached:
		case <-stop:
			timer.Stop()
			return ErrClosed
		case <-timer.C:
			return ErrBusy
		}
	}
}

// run passes the group's answers to whoever asked, in order.
func (g *group) run() {
	for {
		select {
		case r := <-g.answers:
			g.pop().answer(r)
		case <-g.detached:
			g.drain()
			return
		}
	}
}

func (g *group) pop() answerer {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		panic("rpc: group " + g.id.String() + " answered a request that nobody sent")
	}
	a := g.waiting[0]
	g.waiting[0] = nil
	g.waiting = g.waiting[1:]
	if g.space != nil {
		close(g.space)
		g.space = nil
	}
	return a
}

// drain fails what the group will not answer any more. At most one request can
// be in the hands of its main goroutine then, and its answer fits the channel.
func (g *group) drain() {
	g.mu.Lock()
	for {
		select {
		case <-g.consumer:
			continue
		default:
		}
		break
	}
	left := g.waiting
	g.waiting = nil
	g.mu.Unlock()
	for {
		select {
		case r := <-g.answers:
			if len(left) > 0 {
				left[0].answer(r)
				left = left[1:]
			}
			continue
		default:
		}
		break
	}
	for _, a := range left {
		a.answer(raft.RPCResponse{Error: ErrUnknownGroup})
	}
}

func (g *group) suspect() bool { return g.opts.Suspect != nil && g.opts.Suspect() }

// observe notes that this replica follows leader in term.
func (g *group) observe(term uint64, leader ServerID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if term >= g.observed.term {
		g.setObservedLocked(observation{term: term, leader: leader})
	}
}

// raise notes that something of term leaves or left this replica.
func (g *group) raise(term uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if term > g.observed.term {
		g.setObservedLocked(observation{term: term})
	}
}

func (g *group) setObservedLocked(o observation) {
	if o.term > g.observed.term {
		close(g.newTerm)
		g.newTerm = make(chan struct{})
	}
	g.observed = o
}

// outdated returns ErrStaleTerm if a term above term has shown, and a channel
// that is closed when one may have.
func (g *group) outdated(term uint64) (<-chan struct{}, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.observed.term > term || g.leaderTerm.Load() > term {
		return nil, ErrStaleTerm
	}
	return g.newTerm, nil
}

func (g *group) observation() observation {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.observed
}

// followed raises the term of leaders whose requests reach the group.
func (g *group) followed(term uint64) {
	for {
		old := g.leaderTerm.Load()
		if term <= old || g.leaderTerm.CompareAndSwap(old, term) {
			return
		}
	}
}

// mayLead says whether a request of ours in term may leave.
func (g *group) mayLead(term uint64) error {
	switch {
	case g.stalled.Load():
		return ErrStalled
	case g.leaderTerm.Load() > term:
		return ErrStaleTerm
	}
	return nil
}
