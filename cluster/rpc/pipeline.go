package rpc

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	pipelineDepth = 4  // requests of one pipeline without an answer
	pipelineRoom  = 16 // answers that may wait for the library beside them
	freshPing     = time.Second
)

// pipeline keeps several AppendEntries to one peer under way.
type pipeline struct {
	group *group
	peer  *peer
	to    ServerID

	slots  chan struct{}          // one token per request under way
	done   chan raft.AppendFuture // has room for all of them: completing never blocks
	closed chan struct{}
	once   sync.Once

	rest *time.Timer // of the one sender; nil until the group first rests
}

// AppendEntriesPipeline refuses a peer that is still behind: without a
// pipeline the library sends one request after the other until the peer has
// everything, with one it would wait for a poke before each.
func (g *group) AppendEntriesPipeline(_ raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	to := ServerID(target)
	p := g.node.peer(to.Node())
	if p == nil {
		return nil, &remoteError{ErrUnknownPeer, "rpc: no address for " + string(to)}
	}
	if g.isBehind(to) {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	if cr, _ := p.carrier(g.opts.Bulk); cr == nil {
		return nil, raft.ErrPipelineReplicationNotSupported // the next request parks
	}
	return &pipeline{
		group: g, peer: p, to: to,
		slots:  make(chan struct{}, pipelineDepth),
		done:   make(chan raft.AppendFuture, pipelineDepth+pipelineRoom),
		closed: make(chan struct{}),
	}, nil
}

// AppendEntries queues one request, waiting while pipelineDepth are under way.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	g := p.group
	if c := p.suppressed(args, resp); c != nil {
		return c, nil
	}
	if err := p.take(args.Term); err != nil {
		return nil, err
	}
	behind, loan := g.shapeFor(p.to, args)
	defer loan.Release()
	if behind {
		p.give()
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	if err := g.mayLead(args.Term); err != nil {
		p.give()
		return nil, err
	}
	c := &call{group: g, peer: p.to, args: args, resp: resp, loan: loan, start: time.Now(), pipe: p}
	c.done.Add(1)
	cr, _ := p.peer.carrier(g.opts.Bulk)
	if cr == nil {
		p.give()
		return nil, ErrDown
	}
	if err := cr.post(c); err != nil {
		p.give()
		return nil, err
	}
	return c, nil
}

// suppressed answers an empty request here if the peer is alive and has
// answered all that it says. Most requests of a thousand idle groups end here,
// and none of them at once: the next would come a moment later. So the answer
// rests until the log has grown, or for GroupOptions.Rest.
func (p *pipeline) suppressed(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) *call {
	g := p.group
	if !p.silent(args) {
		return nil
	}
	if g.opts.Rest > 0 {
		p.idle(args)
		if g.mayLead(args.Term) != nil || !p.peer.fresh(freshPing) {
			return nil
		}
		g.contacted(p.to, args.Term)
	}
	g.node.counts.suppressed.Add(1)
	*resp = raft.AppendEntriesResponse{Term: args.Term, LastLog: args.PrevLogEntry, Success: true}
	c := &call{group: g, peer: p.to, args: args, resp: resp, start: time.Now()}
	p.done <- c // the only sender while no slot is taken
	return c
}

// idle lets an answer rest.
func (p *pipeline) idle(args *raft.AppendEntriesRequest) {
	g := p.group
	d := g.node.restUntil(g.opts.Rest)
	if p.rest == nil {
		p.rest = time.NewTimer(d)
	} else {
		p.rest.Reset(d)
	}
	defer p.rest.Stop()
	g.idle(p.rest.C, args.Term, p.closed, func() bool { return g.lastIndex() > args.PrevLogEntry })
}

// silent says whether a request may be answered here.
func (p *pipeline) silent(args *raft.AppendEntriesRequest) bool {
	g := p.group
	switch {
	case !g.opts.Suppress || len(args.Entries) > 0 || g.lastIndex() > args.PrevLogEntry,
		len(p.slots) > 0 || len(p.done) >= pipelineRoom, // keep the order, and never block
		g.mayLead(args.Term) != nil || !p.peer.fresh(freshPing) || !g.saysNothingNew(p.to, args):
		return false
	}
	return true
}

// take waits for a slot and for the library to have read earlier answers.
func (p *pipeline) take(term uint64) error {
	newer, err := p.group.outdated(term)
	if err != nil {
		return err
	}
	select {
	case p.slots <- struct{}{}:
	case <-newer:
		return ErrStaleTerm
	case <-p.closed:
		return ErrClosed
	case <-p.group.aborted:
		return ErrAborted
	case <-p.group.node.closing:
		return ErrClosed
	}
	for len(p.done) >= pipelineRoom {
		if err := p.group.pause(time.Millisecond, term); err != nil {
			p.give()
			return err
		}
		select {
		case <-p.closed:
			p.give()
			return ErrClosed
		default:
		}
	}
	return nil
}

func (p *pipeline) give() { <-p.slots }

// finished hands a completed call to the library.
func (p *pipeline) finished(c *call) {
	p.done <- c
	p.give()
}

func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.done }

// Close unblocks every sender. Answers that are still under way are dropped.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}
