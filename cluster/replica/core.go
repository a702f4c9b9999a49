package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
	"gopherlog/engine/failpoint"
)

// core is what a partition's group and the control group have in common: one
// raft instance, the fate of own proposals, leadership and membership.
//
// Goroutines: raft's main goroutine calls store and, through the observer,
// changed; raft's FSM goroutine calls complete; loop is the core's own. The
// locks are leaves: nothing is called while one is held.
type core struct {
	host
	queue

	id     rpc.GroupID
	self   rpc.ServerID
	node   *rpc.Node
	logger *slog.Logger
	now    func() time.Time
	points *failpoint.Set

	// settle makes raft's term durable before anything is stored in it.
	settle func() error

	appliedIndex atomic.Uint64 // last index that the FSM consumed
	lastIndex    func() uint64
	suspect      atomic.Bool
	stall        stallWatch

	own, done []*Proposal // scratch of raft's main and FSM goroutine
	refused   bool        // the last append failed; raft's main goroutine's

	wake chan struct{} // loop looks at the state
	quit chan struct{}
	wg   sync.WaitGroup // loop, awaitServing, housekeeping

	watchMu    sync.Mutex
	watchers   []func(Status)
	newWatcher atomic.Bool
	shown      Status // last published; loop's

	sync syncTracker
	obs  Observer
}

func (c *core) init() {
	c.queue.init()
	c.wake, c.quit = make(chan struct{}, 1), make(chan struct{})
	c.ended = make(chan struct{})
	c.host.changed, c.host.stirred = c.changed, c.stir
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	if c.now == nil {
		c.now = time.Now
	}
	c.stall.init(c.onStall)
	c.host.ceased = c.giveUp
}

// isLeader is raft's state, which is a leader's before anything is appended or
// sent in its term.
func (c *core) isLeader() bool {
	r := c.raft()
	return r != nil && r.State() == raft.Leader
}

// mayCampaign answers a request to campaign at once: only a follower may.
func (c *core) mayCampaign() bool {
	r := c.raft()
	return r != nil && r.State() == raft.Follower && c.mayAsk() == nil
}

// stepDown makes the library find out that this term is over. It has no call
// for that, but asks its peers when told to verify, and one refusal suffices:
// the transport refuses in their name. Its answer is not waited for, and it is
// told once per term, so the call does not block. Who votes alone needs nobody.
func (c *core) stepDown() {
	term, _ := c.leading()
	i := c.cur.Load()
	if term == 0 || i == nil || len(c.voters()) < 2 || !i.trans.resign(term) {
		return
	}
	c.unseat(i, term, unseatTries)
}

// How often, and how far apart, the library is told to verify a leadership that was given up.
const (
	unseatTries = 10
	unseatEvery = 20 * time.Millisecond
)

// unseat tells the library to verify until it has found out: the answer to a
// heartbeat from before may still count as a peer's consent.
func (c *core) unseat(i *instance, term uint64, tries int) {
	i.raft.VerifyLeader()
	if tries == 1 {
		return
	}
	time.AfterFunc(unseatEvery, func() {
		if now, _ := c.leading(); now == term && c.cur.Load() == i {
			c.unseat(i, term, tries-1)
		}
	})
}

// stir wakes the loop.
func (c *core) stir() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// changed follows raft's state. A term ends here, on raft's main goroutine,
// before that can store anybody else's entry.
func (c *core) changed(r *raft.Raft, s raft.RaftState) {
	if s != raft.Leader {
		never, unknown := c.sweep(r.CommitIndex())
		finish(never, ErrNotLeader)
		finish(unknown, ErrLost)
	}
	c.stir()
}

// finish tells proposers about the end of their proposals. With an error there is no offset to tell; it may be just being noted, for a
// shutdown is observed on the goroutine that asked for it.
func finish(ps []*Proposal, err error) {
	for _, p := range ps {
		base := int64(-1)
		if err == nil {
			base = p.base
		}
		if p.Done != nil {
			p.Done(base, err)
		}
	}
}

// store is the frame of StoreLogs: recognise own proposals, write, tell them.
func (c *core) store(logs []*raft.Log, write func() error, end func() int64) error {
	c.wait()
	if c.sealed.Load() {
		return errSealed
	}
	if err := c.failure(); err != nil {
		return err
	}
	c.stall.begin()
	own, lost := c.claim(logs, c.own[:0])
	c.own = own
	defer dropOwners(own)
	finish(lost, ErrNotLeader)
	leads := c.beginTerm(logs)
	err := c.settle()
	if err == nil {
		err = c.points.Hit(failStore)
	}
	if err == nil {
		err = write()
	}
	c.stall.end()
	c.tellAppend(err)
	if err != nil {
		finish(c.unclaim(own), fmt.Errorf("%w: append failed: %w", ErrNotLeader, err))
		return err
	}
	if i := c.cur.Load(); i != nil {
		i.trans.Appended()
	}
	_ = c.points.Hit(failStored) // stop, sleep or kill: an error would be a lie
	c.appended(own, end())
	for _, p := range own {
		if p.Appended != nil {
			p.Appended(p.base)
		}
	}
	if leads {
		c.wg.Add(1)
		go c.awaitServing(logs[0].Term, logs[0].Index)
	}
	return nil
}

// tellAppend logs when appends begin to fail and when they work again: the leader tries until they do.
func (c *core) tellAppend(err error) {
	switch {
	case err != nil && !c.refused:
		c.logger.Warn("append failed and is tried again", "group", c.id, "error", err)
	case err == nil && c.refused:
		c.logger.Info("appends work again", "group", c.id)
	}
	c.refused = err != nil
}

// beginTerm opens the queue when the entry is the no-op with which this replica
// begins to lead.
func (c *core) beginTerm(logs []*raft.Log) bool {
	if logs[0].Type != raft.LogNoop || !c.isLeader() {
		return false
	}
	c.lead(logs[0].Term)
	c.sync.begin(c.now(), logs[0].Index)
	return true
}

// How often a new leader looks whether it may serve: first and longest pause.
const (
	serveFirst = 100 * time.Microsecond
	serveLast  = 5 * time.Millisecond
)

// awaitServing lets proposals in once everything before the term's first entry
// is applied. Raft's own barrier would be one more entry, that is two synced
// writes one after the other in every group that a dead node led.
func (c *core) awaitServing(term, first uint64) {
	defer c.wg.Done()
	r := c.raft()
	before := c.lastVisible(first)
	pause := time.NewTimer(serveFirst)
	defer pause.Stop()
	for d := serveFirst; ; d = min(2*d, serveLast) {
		if t, _ := c.leading(); t != term {
			return
		}
		// Raft counts an entry as applied when it was handed to the state
		// machine, which sees commands and configurations only.
		if r.AppliedIndex() >= first && c.appliedIndex.Load() >= before {
			if c.serve(term) {
				c.stir()
			}
			return
		}
		pause.Reset(d)
		select {
		case <-pause.C:
		case <-c.quit:
			return
		}
	}
}

// lastVisible returns the last index below first whose entry the state machine
// sees, 0 if there is none behind the log's base.
func (c *core) lastVisible(first uint64) uint64 {
	for i := first - 1; i > 0; i-- {
		var l raft.Log
		if err := c.logs.GetLog(i, &l); err != nil {
			return 0
		}
		if l.Type == raft.LogCommand || l.Type == raft.LogConfiguration {
			return i
		}
	}
	return 0
}

func (c *core) proposeBatch(ps []*Proposal) error {
	for {
		if err := c.refusal(); err != nil {
			return err
		}
		stale, wait, err := c.enter(ps, c.now())
		if err != nil {
			return err
		}
		if wait != nil {
			<-wait // closed when the transfer ends, succeeds or the group closes
			continue
		}
		r := c.raft()
		for _, p := range ps {
			if !isStale(stale, p) {
				r.ApplyLog(p.payload(), 0)
			}
		}
		finish(stale, ErrNotLeader)
		return nil
	}
}

func isStale(stale []*Proposal, p *Proposal) bool {
	for _, s := range stale {
		if s == p {
			return true
		}
	}
	return false
}

func (c *core) refusal() error {
	if err := c.failure(); err != nil {
		return err
	}
	if c.stall.stalled.Load() {
		return ErrStalled
	}
	return nil
}

// complete ends own proposals up to an applied index.
func (c *core) complete(index uint64) {
	c.done = c.applied(index, c.done[:0])
	if c.obs != nil && len(c.done) > 0 {
		now := c.now()
		for _, p := range c.done {
			c.obs.Committed(now.Sub(p.begun))
		}
	}
	c.appliedIndex.Store(index)
	finish(c.done, nil)
	clear(c.done)
}

// onStall is told when a log write takes too long, and when it has returned
// after all: meanwhile the group is silent, so that the others elect a leader
// whose disk answers.
func (c *core) onStall(stalled bool) {
	c.node.SetStalled(c.id, stalled)
	c.stir()
}

// giveUp ends all proposals after a storage failure has stopped raft.
func (c *core) giveUp(why error) {
	never, unknown := c.queue.close(why)
	finish(never, fmt.Errorf("%w: %w", ErrNotLeader, why))
	finish(unknown, fmt.Errorf("%w: %w", ErrLost, why))
}

// members returns the latest known membership, committed or not.
func (c *core) members() []Member {
	r := c.raft()
	if r == nil {
		return nil
	}
	servers := r.GetConfiguration().Configuration().Servers
	out := make([]Member, len(servers))
	for i, s := range servers {
		out[i] = Member{ID: rpc.ServerID(s.ID), Voter: s.Suffrage == raft.Voter}
	}
	return out
}

func (c *core) voters() []rpc.ServerID {
	var out []rpc.ServerID
	for _, m := range c.members() {
		if m.Voter {
			out = append(out, m.ID)
		}
	}
	return out
}

// shut ends raft and all goroutines; proposals under way are given up.
func (c *core) shut(ctx context.Context) error {
	stopped := make(chan error, 1)
	go func() { stopped <- c.stop() }()
	var err error
	select {
	case err = <-stopped:
	case <-ctx.Done():
		err = fmt.Errorf("stop raft: %w", ctx.Err())
	}
	never, unknown := c.queue.close(ErrClosed)
	finish(never, ErrClosed)
	finish(unknown, fmt.Errorf("%w: %w", ErrLost, ErrClosed))
	if c.failure() != nil {
		select {
		case <-c.ended:
		case <-ctx.Done():
		}
	}
	close(c.quit)
	c.wg.Wait()
	if errors.Is(err, raft.ErrRaftShutdown) {
		err = nil
	}
	return err
}
