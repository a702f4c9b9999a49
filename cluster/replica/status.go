package replica

import (
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

// loop calls step after every event and at least once per interval, because
// events may come before somebody listens to them. The interval grows while
// nothing happens: a thousand idle groups should not cost what busy ones do.
func (c *core) loop(step func(tick bool)) {
	defer c.wg.Done()
	t := time.NewTimer(reconcileEvery)
	defer t.Stop()
	var calm int // ticks in a row that found the log as it was
	last := c.lastIndex()
	for {
		select {
		case <-c.wake:
			step(false)
			if pace(calm) > reconcileEvery {
				t.Reset(reconcileEvery)
			}
			calm = 0
			continue
		case <-t.C:
			step(true)
		case <-c.quit:
			return
		}
		if calm++; c.lastIndex() != last || c.suspect.Load() {
			calm, last = 0, c.lastIndex()
		}
		t.Reset(pace(calm))
	}
}

// pace is the time to the next look, after so many that found nothing new. By
// then the last entries are in a restart copy.
func pace(calm int) time.Duration {
	if calm*int(reconcileEvery) <= int(checkpointEvery) {
		return reconcileEvery
	}
	return reconcileIdle
}

// reconcile publishes the status if it changed. It also repairs the queue,
// should raft have left the term unnoticed.
func (c *core) reconcile(tick bool) {
	r := c.raft()
	if term, _ := c.leading(); tick && term != 0 && r != nil && r.State() != raft.Leader {
		c.changed(r, r.State())
	}
	if tick {
		c.sync.sample(c.now(), c.lastIndex())
	}
	s := c.status()
	if !s.differs(c.shown) && !c.newWatcher.Swap(false) {
		return
	}
	c.newWatcher.Store(false)
	if s.Stalled && !c.shown.Stalled {
		c.logger.Warn("log write does not return, group falls silent", "group", c.id, "after", stallAfter)
	}
	if c.obs != nil && s.Ready != c.shown.Ready {
		c.obs.Elected(s.Ready)
	}
	c.shown = s
	c.watchMu.Lock()
	fns := c.watchers
	c.watchMu.Unlock()
	for _, fn := range fns {
		fn(s)
	}
}

func (c *core) watch(fn func(Status)) {
	c.watchMu.Lock()
	c.watchers = append(c.watchers[:len(c.watchers):len(c.watchers)], fn)
	c.watchMu.Unlock()
	c.newWatcher.Store(true)
	c.stir()
}

// differs reports a change that watchers want to know of.
func (s Status) differs(o Status) bool {
	return s.Role != o.Role || s.Term != o.Term || s.Leader != o.Leader || s.Ready != o.Ready ||
		s.Suspect != o.Suspect || s.Stalled != o.Stalled || (s.Failed == nil) != (o.Failed == nil)
}

func (c *core) status() Status {
	s := Status{
		Role: Stopped, LastIndex: c.lastIndex(), AppliedIndex: c.appliedIndex.Load(),
		Suspect: c.suspect.Load(), Stalled: c.stall.stalled.Load(), Failed: c.failure(),
	}
	r := c.raft()
	if r == nil {
		return s
	}
	s.Term, s.CommitIndex = r.CurrentTerm(), r.CommitIndex()
	switch r.State() {
	case raft.Follower:
		s.Role = Follower
	case raft.Candidate:
		s.Role = Candidate
	case raft.Leader:
		s.Role = Leader
	}
	_, leader := r.LeaderWithID()
	if s.Leader = rpc.ServerID(leader); r.CurrentTerm() != s.Term {
		s.Leader = "" // of another term: nobody may take it for this one's
	}
	if term, ready := c.leading(); term != 0 && s.Role == Leader {
		s.Term, s.Ready, s.Leader = term, ready, c.self
	}
	return s
}
