package replica

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

const (
	// transferHold is how long a leadership transfer may keep proposals waiting.
	transferHold = 500 * time.Millisecond
	// transferPoll is how often a transfer looks at match index and term.
	transferPoll = time.Millisecond
	// changeTimeout bounds a membership change whose context has no deadline.
	changeTimeout = 10 * time.Second
)

// transferTo moves leadership: proposals wait, the target catches up, it is
// told to campaign. The library's own transfer can hang and leave the replica
// refusing writes for ever, so it is not used.
func (c *core) transferTo(ctx context.Context, target rpc.ServerID) error {
	if target == c.self {
		return fmt.Errorf("transfer leadership of %v: %s is the leader itself", c.id, target)
	}
	held := c.hold()
	if held == nil {
		return ErrNotLeader
	}
	defer c.resume(held)
	term, _ := c.leading()
	ctx, cancel := context.WithTimeout(ctx, transferHold)
	defer cancel()
	if err := c.poll(ctx, func() bool { return c.caughtUpFor(target) }); err != nil {
		return fmt.Errorf("transfer leadership of %v: %s is behind: %w", c.id, target, err)
	}
	if err := c.node.TimeoutNow(c.id, target); err != nil {
		return fmt.Errorf("transfer leadership of %v: %w", c.id, err)
	}
	over := func() bool { t, _ := c.leading(); return t != term }
	if err := c.poll(ctx, over); err != nil {
		return fmt.Errorf("transfer leadership of %v: %s did not win: %w", c.id, target, err)
	}
	return nil
}

// caughtUpFor reports that nothing is under way and target has it all.
func (c *core) caughtUpFor(target rpc.ServerID) bool {
	c.queue.mu.Lock()
	queued := len(c.queued)
	c.queue.mu.Unlock()
	if queued > 0 {
		return false
	}
	match, _ := c.node.Match(c.id, target)
	return match >= c.lastIndex()
}

func (c *core) poll(ctx context.Context, ok func() bool) error {
	t := time.NewTicker(transferPoll)
	defer t.Stop()
	for !ok() {
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.quit:
			return ErrClosed
		}
	}
	return nil
}

// change asks raft for a membership change and waits until it is committed.
func (c *core) change(ctx context.Context, what string, begin func(r *raft.Raft, timeout time.Duration) raft.IndexFuture) error {
	r := c.raft()
	if r == nil {
		return ErrClosed
	}
	timeout := changeTimeout
	if d, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(d), time.Millisecond)
	}
	done := make(chan error, 1)
	go func() { done <- begin(r, timeout).Error() }()
	select {
	case err := <-done:
		return changeError(what, err)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	case <-c.quit:
		return ErrClosed
	}
}

func changeError(what string, err error) error {
	switch err {
	case nil:
		return nil
	case raft.ErrNotLeader:
		return ErrNotLeader
	case raft.ErrLeadershipLost:
		return ErrLost
	case raft.ErrRaftShutdown:
		return ErrClosed
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (c *core) addNonvoter(ctx context.Context, id rpc.ServerID) error {
	return c.change(ctx, "add non-voter "+string(id), func(r *raft.Raft, d time.Duration) raft.IndexFuture {
		return r.AddNonvoter(id.Raft(), id.Address(), 0, d)
	})
}

func (c *core) addVoter(ctx context.Context, id rpc.ServerID) error {
	return c.change(ctx, "add voter "+string(id), func(r *raft.Raft, d time.Duration) raft.IndexFuture {
		return r.AddVoter(id.Raft(), id.Address(), 0, d)
	})
}

func (c *core) removeServer(ctx context.Context, id rpc.ServerID) error {
	return c.change(ctx, "remove server "+string(id), func(r *raft.Raft, d time.Duration) raft.IndexFuture {
		return r.RemoveServer(id.Raft(), 0, d)
	})
}

// syncTracker remembers where the leader's log ended in the last seconds.
type syncTracker struct {
	mu      sync.Mutex
	samples []sample // oldest first
}

type sample struct {
	at  time.Time
	end uint64
}

// begin forgets samples of an earlier term.
func (s *syncTracker) begin(now time.Time, end uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = append(s.samples[:0], sample{now, end})
}

// sample notes the log end; it keeps the newest sample that is older than the
// window and all younger ones.
func (s *syncTracker) sample(now time.Time, end uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n+1 < len(s.samples) && now.Sub(s.samples[n+1].at) >= inSyncWindow {
		n++
	}
	s.samples = append(s.samples[:copy(s.samples, s.samples[n:])], sample{now, end})
}

// required is what a replica must have now to have been at the log end within
// the window: the end of the oldest sample in it.
func (s *syncTracker) required(now time.Time) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.samples {
		if now.Sub(x.at) <= inSyncWindow {
			return x.end
		}
	}
	if n := len(s.samples); n > 0 {
		return s.samples[n-1].end
	}
	return 0
}

// inSync returns the voters that are reachable and were at the log end within
// the last ten seconds, this replica included. Only the leader knows; others
// get nil.
func (c *core) inSync(now time.Time) []rpc.ServerID {
	if term, _ := c.leading(); term == 0 {
		return nil
	}
	need := c.sync.required(now)
	var out []rpc.ServerID
	for _, id := range c.voters() {
		if id == c.self {
			out = append(out, id)
			continue
		}
		if match, _ := c.node.Match(c.id, id); match >= need && c.node.Alive(id.Node()) {
			out = append(out, id)
		}
	}
	return out
}
