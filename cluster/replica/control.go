package replica

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/kv"
	"gopherlog/engine/vfs"
)

const (
	controlSnapshotThreshold = 8192
	controlTrailingLogs      = 10240
	controlSnapshotInterval  = 30 * time.Second
	// controlApplyTimeout bounds Apply without a deadline.
	controlApplyTimeout = 10 * time.Second
)

// ControlFSM is the state of the control group. Calls never overlap.
type ControlFSM interface {
	// Apply takes the committed commands in order; its result goes to the
	// caller of Control.Apply on the node that proposed the command.
	Apply(index uint64, cmd []byte) any
	// Snapshot returns the state in bytes that the caller owns.
	Snapshot() []byte
	// Restore replaces the state, at start and when the leader sent one.
	Restore(state []byte) error
}

// ControlConfig describes this node's replica of the control group.
type ControlConfig struct {
	Self rpc.ServerID
	// Bootstrap is the founding membership, written once on an empty replica;
	// empty means: wait to be added.
	Bootstrap []rpc.ServerID
	FSM       ControlFSM
	KV        *kv.DB // log and stable values, synced
	Node      *rpc.Node
	FS        vfs.FS // snapshots
	Dir       string // snapshots; made if missing

	Timers     Timers // zero fields: 1 s, 1 s, 1 s, 50 ms
	Logger     *slog.Logger
	Sampler    *Sampler
	Failpoints *failpoint.Set
	Now        func() time.Time
	// OnLeader is told when the known leader or this node's part changed:
	// self means that it leads and serves. It must not block.
	OnLeader func(leader rpc.ServerID, self bool)
	// OnFailed is told once when storage has failed under this replica: it takes part no more until it is opened again. nil: it is
	// logged.
	OnFailed func(error)
}

// Control is this node's replica of the control group: a small replicated
// state machine with the log in the key-value store and the library's own
// snapshots.
type Control struct {
	core
	cfg  ControlConfig
	log  *controlLog
	snap *fileSnapshots

	fsmMu sync.Mutex // around calls of the FSM

	told bool // OnFailed was called; loop's

	closing sync.Once
	closed  error
}

// OpenControl starts the replica and returns at once; it may take an election
// before anything can be applied.
func OpenControl(cfg ControlConfig) (*Control, error) {
	c := &Control{cfg: cfg}
	c.id, c.self, c.node = rpc.ControlGroup, cfg.Self, cfg.Node
	c.logger, c.now, c.points = cfg.Logger, cfg.Now, cfg.Failpoints
	c.core.init()
	var err error
	if c.log, err = openControlLog(cfg.KV, &c.core); err != nil {
		return nil, err
	}
	if c.snap, err = openFileSnapshots(cfg.FS, cfg.Dir); err != nil {
		return nil, err
	}
	stable := newStableStore(cfg.KV, kv.ControlStableKey, c.mayVote, c.failAndExit)
	stable.points, c.settle = cfg.Failpoints, stable.settle
	c.lastIndex = c.log.last
	c.host.logs, c.host.stable, c.host.snaps, c.host.fsm = c.log, stable, c.snap, &controlFSM{c}
	c.host.config, c.host.attach = c.raftConfig, c.attachNode
	c.host.founders, c.host.mayAsk = cfg.Bootstrap, c.mayVote
	if err := c.start(); err != nil {
		return nil, err
	}
	if cfg.OnLeader != nil {
		c.watch(func(s Status) { cfg.OnLeader(s.Leader, s.Ready) })
	}
	c.wg.Add(1)
	go c.loop(c.step)
	return c, nil
}

func (c *Control) mayVote() error {
	if c.sealed.Load() {
		return errSealed
	}
	return nil
}

func (c *Control) raftConfig() *raft.Config {
	t := c.cfg.Timers.or(Timers{time.Second, time.Second, time.Second, 50 * time.Millisecond})
	conf := baseConfig(c.self, t, newRaftLogger(c.logger, c.id, c.cfg.Sampler, c.now))
	conf.TrailingLogs, conf.SnapshotThreshold = controlTrailingLogs, controlSnapshotThreshold
	conf.SnapshotInterval = controlSnapshotInterval
	return conf
}

func (c *Control) attachNode() rpc.GroupTransport {
	return c.node.Group(c.id, c.self, controlView{c.log, c.snap}, rpc.GroupOptions{
		MayCampaign: c.mayCampaign,
		Suspect:     c.sealed.Load,
	})
}

// step is the loop's: replace an instance that installed a snapshot, publish.
func (c *Control) step(tick bool) {
	if c.sealed.Load() && c.failure() == nil {
		if err := c.reopen(); err != nil {
			c.fail(err)
		}
	}
	if err := c.failure(); err != nil && !c.told {
		c.told = true
		if c.cfg.OnFailed == nil {
			c.logger.Error("the control group's replica is out of service", "error", err)
		} else {
			c.cfg.OnFailed(fmt.Errorf("the control group's replica cannot go on: %w", err))
		}
	}
	c.reconcile(tick)
}

// Apply replicates a command and returns what the FSM answered here. nil error
// means committed and applied. ErrNotLeader: not replicated; ErrLost, or the
// context's error: unknown.
func (c *Control) Apply(ctx context.Context, cmd []byte) (any, error) {
	return c.apply(ctx, cmd, false)
}

// Barrier returns when everything committed before the call is applied here.
// Only the leader can tell; others get ErrNotLeader.
func (c *Control) Barrier(ctx context.Context) error {
	_, err := c.apply(ctx, nil, true)
	return err
}

func (c *Control) apply(ctx context.Context, cmd []byte, barrier bool) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, controlApplyTimeout)
	defer cancel()
	if err := c.refusal(); err != nil {
		return nil, err
	}
	term, ready := c.leading()
	if !ready {
		return nil, ErrNotLeader
	}
	done := make(chan error, 1)
	p := &Proposal{Ctrl: cmd, Term: term, barrier: barrier, Done: func(_ int64, err error) { done <- err }}
	stale, wait, err := c.enter([]*Proposal{p}, c.now())
	if err != nil || len(stale) > 0 || wait != nil {
		if err == nil {
			err = ErrNotLeader
		}
		return nil, err
	}
	go c.raft().ApplyLog(p.payload(), controlApplyTimeout)
	select {
	case err := <-done:
		if err != nil {
			return nil, err
		}
		return p.User, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrLost, ctx.Err())
	}
}

// Leader returns the known leader, "" if none.
func (c *Control) Leader() rpc.ServerID { return c.status().Leader }

// IsLeader reports that this replica leads and serves.
func (c *Control) IsLeader() bool { return c.status().Ready }

// Status describes the replica.
func (c *Control) Status() Status { return c.status() }

// Members returns the latest known membership.
func (c *Control) Members() []Member { return c.members() }

// AddNonvoter adds a server that receives the log but has no vote. It returns
// when the change is committed.
func (c *Control) AddNonvoter(ctx context.Context, id rpc.ServerID) error {
	return c.addNonvoter(ctx, id)
}

// AddVoter adds a voter, or promotes a non-voter.
func (c *Control) AddVoter(ctx context.Context, id rpc.ServerID) error { return c.addVoter(ctx, id) }

// RemoveServer removes a server; the leader may remove itself and steps down.
func (c *Control) RemoveServer(ctx context.Context, id rpc.ServerID) error {
	return c.removeServer(ctx, id)
}

// CaughtUp reports on the leader that id holds everything committed so far.
func (c *Control) CaughtUp(id rpc.ServerID) bool {
	s := c.status()
	if !s.Ready {
		return false
	}
	if id == c.self {
		return true
	}
	match, _ := c.node.Match(c.id, id)
	return match >= s.CommitIndex
}

// TransferTo moves leadership to target and returns when this replica no
// longer leads.
func (c *Control) TransferTo(ctx context.Context, target rpc.ServerID) error {
	return c.transferTo(ctx, target)
}

// Campaign makes this replica ask for leadership at once.
func (c *Control) Campaign() error { return c.node.TimeoutNow(c.id, c.self) }

// InSync returns the voters that are up to date; nil if this is not the leader.
func (c *Control) InSync(now time.Time) []rpc.ServerID { return c.inSync(now) }

// Close ends the replica. Commands under way get ErrClosed or ErrLost.
func (c *Control) Close(ctx context.Context) error {
	c.closing.Do(func() { c.closed = c.shut(ctx) })
	return c.closed
}

// controlFSM is the library's view of a ControlFSM.
type controlFSM struct{ c *Control }

// ApplyBatch applies commands and completes those that were proposed here.
func (f *controlFSM) ApplyBatch(logs []*raft.Log) []any {
	f.c.fsmMu.Lock()
	defer f.c.fsmMu.Unlock()
	results := make([]any, len(logs))
	for i, l := range logs {
		if l.Type == raft.LogCommand && len(l.Extensions) > 0 && l.Extensions[0] == extCtrl {
			results[i] = f.c.cfg.FSM.Apply(l.Index, l.Data)
			f.c.answer(l.Index, results[i])
		}
		f.c.complete(l.Index)
	}
	return results
}

// answer leaves the FSM's result with the proposal stored at index.
func (q *queue) answer(index uint64, result any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.stored) > 0 && q.stored[0].index == index {
		q.stored[0].User = result
	}
}

// Apply is ApplyBatch of one.
func (f *controlFSM) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// Snapshot captures the state for the library to write.
func (f *controlFSM) Snapshot() (raft.FSMSnapshot, error) {
	f.c.fsmMu.Lock()
	defer f.c.fsmMu.Unlock()
	return stateSnapshot(f.c.cfg.FSM.Snapshot()), nil
}

// Restore replaces the state. While raft runs, the snapshot came from the
// leader: the log that it replaces is wiped and the instance sealed, because
// the library goes on to believe in the old log's end.
func (f *controlFSM) Restore(r io.ReadCloser) error {
	state, err := readLimited(r, maxSnapshotBytes)
	if err != nil {
		return err
	}
	if !f.c.booting.Load() {
		f.c.seal()
		defer f.c.stir()
		if err := f.c.log.wipe(); err != nil {
			f.c.fail(err)
			return err
		}
	}
	f.c.fsmMu.Lock()
	defer f.c.fsmMu.Unlock()
	if err := f.c.cfg.FSM.Restore(state); err != nil {
		return fmt.Errorf("restore control state: %w", err)
	}
	return nil
}

// stateSnapshot is state that was captured whole.
type stateSnapshot []byte

// Persist writes the state.
func (s stateSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s); err != nil {
		return fmt.Errorf("persist snapshot: %w", err)
	}
	return sink.Close()
}

// Release does nothing: the state is garbage-collected.
func (s stateSnapshot) Release() {}
