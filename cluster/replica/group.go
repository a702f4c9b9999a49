package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
	"gopherlog/engine/kv"
	"gopherlog/engine/log"
	"gopherlog/engine/record"
)

// Group is one replica of one partition. All methods may be called from any
// goroutine, except that only one goroutine at a time proposes.
type Group struct {
	core
	cfg    Config
	log    *log.Log
	stable *stableStore

	state   fsmState
	inst    installs
	waiters waiters
	boot    bootRule

	busy    atomic.Bool // housekeeping runs
	alone   atomic.Bool // there were no peers a moment ago: nobody will ask for what is appended
	unsaved bool        // its last run failed; who made busy true owns it
	ticks   int         // since the last checkpoint; loop's
	closing sync.Once
	closed  error
}

// Open starts a replica on its log. It restores the FSM from the newest usable
// snapshot and returns; committed entries behind it are applied once a leader
// is known.
func Open(cfg Config) (*Group, error) {
	g := &Group{cfg: cfg, log: cfg.Log}
	g.id, g.self, g.node, g.obs = cfg.ID, cfg.Self, cfg.Node, cfg.Observer
	g.logger, g.now, g.points = cfg.Logger, cfg.Now, cfg.Failpoints
	if g.cfg.InflightBytes <= 0 {
		g.cfg.InflightBytes = DefaultInflightBytes
	}
	g.core.init()
	g.lastIndex = g.log.LastIndex
	if err := g.openBoot(); err != nil {
		return nil, err
	}
	key := groupKey(cfg.ID)
	g.stable = newStableStore(cfg.KV, func(name string) []byte { return kv.StableKey(key, name) }, g.mayVote, g.failAndExit)
	g.stable.points, g.settle = cfg.Failpoints, g.stable.settle
	g.host.logs, g.host.stable, g.host.snaps, g.host.fsm = &groupLog{g: g}, g.stable, &groupSnapshots{g}, &groupFSM{g}
	g.host.config, g.host.attach, g.host.founders = g.raftConfig, g.attachNode, cfg.Bootstrap
	g.host.mayAsk = g.mayAsk
	if err := g.start(); err != nil {
		return nil, fmt.Errorf("open replica %s of %v: %w", cfg.Self, cfg.ID, err)
	}
	g.exemptSingleVoter()
	g.wg.Add(1)
	go g.loop(g.step)
	return g, nil
}

// start restores what the FSM had and begins to take part.
func (g *Group) start() error {
	g.state.begin()
	return g.host.start()
}

func (g *Group) raftConfig() *raft.Config {
	return partitionConfig(g.self, g.cfg.Timers, newRaftLogger(g.logger, g.id, g.cfg.Sampler, g.now))
}

func (g *Group) attachNode() rpc.GroupTransport {
	return g.node.Group(g.id, g.self, groupView{g}, rpc.GroupOptions{
		Bulk:          true,
		Suppress:      true,
		Rest:          g.cfg.Timers.or(calm).rest(),
		InflightBytes: g.cfg.InflightBytes,
		Suspect:       g.mute,
		MayCampaign:   g.mayCampaign,
		LeaderEnd:     g.onLeaderEnd,
		Accepted:      g.onAccepted,
		Matched:       g.onMatched,
		Everywhere:    g.log.Replicated,
		Partial:       partial,
		Verify:        leaveToLog,
		Recycle:       true,
		Leader:        g.leader,
	})
}

// leaveToLog is the transport's check of received batches: the log verifies
// the checksum of every batch that comes stamped, once is enough.
func leaveToLog([]byte) error { return nil }

// partial reports that the library read the header of a batch only.
func partial(l *raft.Log) bool {
	return l.Type == raft.LogCommand && len(l.Extensions) == 0 && len(l.Data) < record.Batch(l.Data).Length()
}

// leader answers peers that ask who leads.
func (g *Group) leader() (rpc.ServerID, uint64) {
	s := g.status()
	return s.Leader, s.Term
}

// step is the loop's.
func (g *Group) step(tick bool) {
	if g.failure() == nil && g.sealed.Load() {
		if err := g.replace(); err != nil {
			g.fail(err)
		}
	}
	if g.suspect.Load() && g.boot.reached.Load() {
		_ = g.trust("the log has caught up with a leader") // an error has failed the group
	}
	if tick {
		g.ticks++
		g.alone.Store(len(g.members()) == 1)
		g.seekLongest()
	}
	if g.state.due.Load() || g.checkpointDue() {
		g.housekeep()
	}
	if term, _ := g.leading(); term == 0 {
		g.waiters.fail(ErrLost)
	}
	g.reconcile(tick)
}

// replace reopens raft after it installed a snapshot.
func (g *Group) replace() error {
	if err := g.points.Hit(failReopen); err != nil {
		return err
	}
	if err := g.stop(); err != nil {
		return fmt.Errorf("stop raft after an installed snapshot: %w", err)
	}
	return g.start()
}

// Propose hands one proposal to raft; see ProposeBatch.
func (g *Group) Propose(p *Proposal) error { return g.ProposeBatch([]*Proposal{p}) }

// ProposeBatch hands proposals to raft, which appends those that wait together
// in one write. One goroutine at a time calls it. It blocks while raft's
// channel is full and during a leadership transfer (at most half a second).
//
// On an error none was taken and no Done is called. On nil each Done is called
// exactly once, possibly before ProposeBatch returns: ErrNotLeader at once for a
// proposal of another term.
func (g *Group) ProposeBatch(ps []*Proposal) error {
	if g.cfg.NeedData {
		for _, p := range ps {
			if p.Owner != nil { // the FSM gets what the library keeps
				p.Data, p.Owner = append([]byte(nil), p.Data...), nil
			}
		}
	}
	return g.proposeBatch(ps)
}

// Status describes the replica now.
func (g *Group) Status() Status { return g.status() }

// Watch calls fn after every change of role, term, leader, readiness or
// failure, with the state at that time: changes in quick succession are merged.
// fn must not block; its calls do not overlap. The first comes soon after Watch.
func (g *Group) Watch(fn func(Status)) { g.watch(fn) }

// Match returns how much of the log a peer is known to hold, and when it last
// answered; leader only.
func (g *Group) Match(peer rpc.ServerID) (uint64, time.Time) { return g.node.Match(g.id, peer) }

// InSync returns the voters that are reachable and had the log end within ten
// seconds, this replica included; nil if it does not lead.
func (g *Group) InSync(now time.Time) []rpc.ServerID { return g.inSync(now) }

// Voters returns the latest known voters.
func (g *Group) Voters() []rpc.ServerID { return g.voters() }

// Members returns the latest known membership.
func (g *Group) Members() []Member { return g.members() }

// Campaign makes this replica ask for leadership at once, although it may know
// a leader. Only a follower that may vote does so.
func (g *Group) Campaign() error {
	if err := g.mayAsk(); err != nil {
		return err
	}
	return g.node.TimeoutNow(g.id, g.self)
}

// StepDown makes this replica a follower at once, if it leads: for a leader that
// cannot reach a majority, which would else go on until its lease ends. What is
// not committed gets ErrNotLeader or ErrLost. It does not wait; nothing keeps the
// replica from being elected again.
func (g *Group) StepDown() { g.stepDown() }

// TransferTo moves leadership to target. Proposals wait meanwhile, at most half
// a second; on an error this replica still leads, or lost to a third.
func (g *Group) TransferTo(ctx context.Context, target rpc.ServerID) error {
	return g.transferTo(ctx, target)
}

// AddNonvoter adds a server that receives the log but has no vote; committed on
// return. The leader only, as for the next two.
func (g *Group) AddNonvoter(ctx context.Context, id rpc.ServerID) error {
	return g.addNonvoter(ctx, id)
}

// AddVoter adds a voter or promotes a non-voter, which should hold the log
// already: it counts from the first moment.
func (g *Group) AddVoter(ctx context.Context, id rpc.ServerID) error { return g.addVoter(ctx, id) }

// RemoveServer removes a server. A leader that removes itself steps down.
func (g *Group) RemoveServer(ctx context.Context, id rpc.ServerID) error {
	return g.removeServer(ctx, id)
}

// Close stops the replica, syncs the log and writes a restart copy, so that the
// next start is short and not suspect. Proposals under way get ErrClosed or
// ErrLost. The log stays open: it is the caller's.
func (g *Group) Close(ctx context.Context) error {
	g.closing.Do(func() {
		g.closed = g.shut(ctx)
		g.waiters.fail(ErrClosed)
		g.closeBoot()
		if g.failure() == nil && ctx.Err() == nil {
			g.closed = errors.Join(g.closed, g.Checkpoint(), g.endRun())
		}
	})
	return g.closed
}

// groupView is what the transport sees of the log.
type groupView struct{ g *Group }

// Entries returns entries of [lo, hi), at least one if lo is held.
func (v groupView) Entries(lo, hi uint64, maxBytes int) ([]*raftLog, error) {
	es, err := v.read(v.g.log.Entries, lo, hi, maxBytes)
	return pointers(es), err
}

// Lend is Entries without a copy of what lies in pooled memory.
func (v groupView) Lend(lo, hi uint64, maxBytes int) ([]*raftLog, *rpc.Loan, error) {
	es, err := v.read(v.g.log.Lend, lo, hi, maxBytes)
	lent := false
	for i := range es {
		lent = lent || es[i].Owner != nil
	}
	if !lent {
		return pointers(es), nil, err
	}
	return pointers(es), rpc.NewLoan(func() {
		for i := range es {
			if es[i].Owner != nil {
				es[i].Owner.Drop()
			}
		}
	}), nil
}

func (v groupView) read(from func(lo, hi uint64, maxBytes int) ([]log.Entry, error), lo, hi uint64, maxBytes int) ([]log.Entry, error) {
	if lo < v.g.log.FirstIndex() {
		return nil, raft.ErrLogNotFound
	}
	es, err := from(lo, hi, maxBytes)
	switch {
	case err == nil, errors.Is(err, log.ErrNotFound), errors.Is(err, log.ErrTruncated), errors.Is(err, log.ErrClosed):
	default: // damage: as if the library had read it
		v.g.fail(fmt.Errorf("read entries from %d: %w", lo, err))
	}
	return es, err
}

func pointers(es []log.Entry) []*raftLog {
	logs, out := make([]raftLog, len(es)), make([]*raftLog, len(es))
	for i := range es {
		toRaft(&es[i], &logs[i])
		out[i] = &logs[i]
	}
	return out
}

// Term answers for held entries and the base.
func (v groupView) Term(index uint64) (uint64, error) { return v.g.log.Term(index) }

// LastIndex returns the log's last index.
func (v groupView) LastIndex() uint64 { return v.g.log.LastIndex() }

// EndOffset returns the offset that the next batch takes.
func (v groupView) EndOffset() int64 { return v.g.log.EndOffset() }

// Contains reports that exactly this entry is held, or is the base.
func (v groupView) Contains(index, term uint64) bool {
	t, err := v.g.log.Term(index)
	return err == nil && t == term
}
