package rpc

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// call is one AppendEntries under way. It completes exactly once: by whoever
// takes it out of its carrier's table.
type call struct {
	group *group
	peer  ServerID
	args  *raft.AppendEntriesRequest
	resp  *raft.AppendEntriesResponse
	start time.Time

	id   uint64        // on its carrier
	pipe *pipeline     // nil outside of a pipeline
	loan *Loan         // of the bytes of args; who posts the call holds it meanwhile
	wake chan struct{} // outside of a pipeline: one signal

	err  error
	done sync.WaitGroup // for Error
}

// carrier moves AppendEntries to one peer: a plain stream or the gRPC link.
type carrier interface {
	// post registers c and sends it. An error means that c was not registered;
	// whatever goes wrong later completes it.
	post(c *call) error
	// forget takes c out; false when it is being completed already.
	forget(c *call) bool
}

// Error, Start, Request and Response are raft.AppendFuture's.
func (c *call) Error() error                          { c.done.Wait(); return c.err }
func (c *call) Start() time.Time                      { return c.start }
func (c *call) Request() *raft.AppendEntriesRequest   { return c.args }
func (c *call) Response() *raft.AppendEntriesResponse { return c.resp }

// succeed completes the call with the peer's answer.
func (c *call) succeed(r reply) {
	if r.code != 0 {
		c.fail(fromCode(r.code, r.text))
		return
	}
	c.resp.Term, c.resp.LastLog = r.term, r.lastLog
	c.resp.Success, c.resp.NoRetryBackoff = r.success, r.noBackoff
	if r.success {
		c.group.acked(c.peer, c.args)
	} else {
		c.group.refused(c.peer, c.args.Term)
	}
	c.finish(nil)
}

// fail completes the call without an answer.
func (c *call) fail(err error) {
	c.resp.Success = false
	c.finish(err)
}

func (c *call) finish(err error) {
	c.err = err
	c.done.Done()
	if c.pipe != nil {
		c.pipe.finished(c)
		return
	}
	c.wake <- struct{}{}
}

// AppendEntries sends one request and waits for its answer. While the peer is
// down or does not hold the group it waits for that to change, because an
// error would send the library into a back-off that grows to ten seconds. It
// gives up when a newer term shows or the group is aborted.
func (g *group) AppendEntries(_ raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	to := ServerID(target)
	p := g.node.peer(to.Node())
	if p == nil {
		return &remoteError{ErrUnknownPeer, "rpc: no address for " + string(to)}
	}
	if isHeartbeat(args) {
		return g.heartbeat(p, to, args, resp)
	}
	shaped := false
	var loan *Loan
	defer func() { loan.Release() }()
	for pause := absentPause; ; pause = min(2*pause, absentPauseMax) {
		cr, err := g.await(p, args.Term)
		if err != nil {
			return err
		}
		if !shaped {
			_, loan = g.shapeFor(to, args)
			shaped = true
		}
		if err := g.mayLead(args.Term); err != nil {
			return err
		}
		c := &call{group: g, peer: to, args: args, resp: resp, loan: loan, start: time.Now(), wake: make(chan struct{}, 1)}
		c.done.Add(1)
		if err := cr.post(c); err == nil {
			if err := g.waitCall(cr, c); err != nil {
				return err
			}
			if !retryable(c.err) {
				return c.err
			}
		}
		if err := g.pause(pause, args.Term); err != nil {
			return err
		}
	}
}

// absentPause is the first time between two tries of a request that the peer
// could not place.
const (
	absentPause    = 20 * time.Millisecond
	absentPauseMax = 320 * time.Millisecond
)

func retryable(err error) bool {
	switch c, _ := toCodeOrZero(err); c {
	case codeUnknownGroup, codeClosed, codeBusy, codeDown:
		return true
	}
	return false
}

func toCodeOrZero(err error) (code, string) {
	if err == nil {
		return 0, ""
	}
	return toCode(err)
}

// await returns the carrier for this group to p, waiting while p is down and
// no term above term has shown.
func (g *group) await(p *peer, term uint64) (carrier, error) {
	for {
		cr, up := p.carrier(g.opts.Bulk)
		if cr != nil {
			return cr, nil
		}
		newer, err := g.outdated(term)
		if err != nil {
			return nil, err
		}
		select {
		case <-up:
		case <-newer:
		case <-g.aborted:
			return nil, ErrAborted
		case <-g.node.closing:
			return nil, ErrClosed
		}
	}
}

// waitCall waits until c is complete; an error means that it was given up.
func (g *group) waitCall(cr carrier, c *call) error {
	timer := time.NewTimer(g.node.cfg.AppendTimeout)
	defer timer.Stop()
	var err error
	select {
	case <-c.wake:
		return nil
	case <-timer.C:
		err = ErrTimeout
	case <-g.aborted:
		err = ErrAborted
	}
	if !cr.forget(c) {
		<-c.wake // it is being completed right now
		return nil
	}
	return err
}

func (g *group) pause(d time.Duration, term uint64) error {
	newer, err := g.outdated(term)
	if err != nil {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-newer:
		return nil // whoever tries again finds out
	case <-g.aborted:
		return ErrAborted
	case <-g.node.closing:
		return ErrClosed
	}
}

// shapeFor shapes args for a peer and notes whether it is still behind. The
// caller releases the loan.
func (g *group) shapeFor(to ServerID, args *raft.AppendEntriesRequest) (behind bool, loan *Loan) {
	budget := g.opts.InflightBytes
	if args.PrevLogEntry > 0 && !g.continues(to, args.Term) {
		budget = min(budget, probeBytes)
	}
	g.dropPartial(args)
	behind, loan = shape(args, g.log, budget)
	g.setBehind(to, args.Term, behind)
	return behind, loan
}

func isHeartbeat(a *raft.AppendEntriesRequest) bool {
	return len(a.Entries) == 0 && a.PrevLogEntry == 0 && a.PrevLogTerm == 0 && a.LeaderCommitIndex == 0
}

// dropPartial cuts args before the first entry without its data; shape reads
// it again.
func (g *group) dropPartial(args *raft.AppendEntriesRequest) {
	if g.opts.Partial == nil || g.log == nil {
		return
	}
	for i, l := range args.Entries {
		if g.opts.Partial(l) {
			args.Entries = args.Entries[:i]
			return
		}
	}
}
