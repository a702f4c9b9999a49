package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gopherlog/cluster/rpc"
)

// bootRule decides whether a replica may have forgotten entries that it
// acknowledged. Batches wait in the page cache, so when the machine restarted
// without a clean stop, the log may end early, while the votes, which are
// synced, are still counted. Such a replica neither votes nor campaigns until
// its log reaches the end that a leader had when it first heard of one: that
// leader has everything that was ever acknowledged with this replica's help.
type bootRule struct {
	mu   sync.Mutex
	last run    // as stored; changed by changeRun
	term uint64 // of the leader first heard of; 0: none yet
	end  uint64 // its last index then

	saving chan struct{} // token: who changes the record

	reached atomic.Bool // the end, so the suspicion may end

	seeking bool        // asks the other voters
	longest bool        // all voters are suspect and this log is the longest
	told    atomic.Bool // longest, to be looked at without mu

	// deference, until when (Unix nanoseconds), keeps a replica that was told
	// of a longer log from campaigning before that one has.
	deference atomic.Int64
}

// deferFor is how long the suspects give the one with the longest log.
const deferFor = 10 * time.Second

// askTimeout bounds one question to another voter.
const askTimeout = time.Second

// openBoot applies the rule and records that this run has begun.
func (g *Group) openBoot() error {
	last, found, err := loadRun(g.cfg.KV, g.id)
	if err != nil {
		return err
	}
	suspect := found && last.flags&runSuspect != 0 ||
		found && last.bootID != g.cfg.BootID && last.flags&runClean == 0 && last.flags&runVolatile != 0
	next := run{bootID: g.cfg.BootID}
	if suspect {
		next.flags |= runSuspect
	}
	if !g.cfg.SyncEach {
		next.flags |= runVolatile
	}
	if !found || next != last {
		if err := saveRun(g.cfg.KV, g.id, next); err != nil {
			return err
		}
	}
	g.boot.last, g.boot.saving = next, make(chan struct{}, 1)
	g.boot.saving <- struct{}{}
	g.suspect.Store(suspect)
	if suspect {
		g.logger.Warn("log may have lost its tail in a power loss: not voting until it has caught up with a leader", "group", g.id)
		g.node.Handle(g.askMethod(), g.onAsk)
	}
	return nil
}

// endRun records a clean stop.
func (g *Group) endRun() error {
	if err := g.log.Sync(); err != nil {
		return fmt.Errorf("sync log at a clean stop: %w", err)
	}
	return g.changeRun(func(r *run) { r.flags |= runClean })
}

func (g *Group) closeBoot() {
	if g.suspect.Load() {
		g.node.Handle(g.askMethod(), nil)
	}
}

// mayVote returns why this replica must not vote or campaign.
func (g *Group) mayVote() error {
	if g.suspect.Load() {
		return ErrSuspect
	}
	if g.sealed.Load() {
		return errSealed
	}
	return g.failure()
}

func (g *Group) mute() bool { return g.mayVote() != nil }

var errDefers = errors.New("replica: leaves the election to a longer log")

// mayAsk returns why this replica must not ask for votes.
func (g *Group) mayAsk() error {
	if err := g.mayVote(); err != nil {
		return err
	}
	if g.now().UnixNano() < g.boot.deference.Load() {
		return errDefers
	}
	return nil
}

// onLeaderEnd is told where the leader's log ends.
func (g *Group) onLeaderEnd(_ rpc.ServerID, term, last uint64) {
	g.boot.deference.Store(0)
	if !g.suspect.Load() {
		return
	}
	if r := g.raft(); r == nil || term < r.CurrentTerm() {
		return // deposed: may lack what was acknowledged since
	}
	b := &g.boot
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.term == 0 {
		b.term, b.end = term, last
	}
}

// onAccepted is told that a leader's request was accepted: the log is the
// leader's up to index.
func (g *Group) onAccepted(term, index uint64) {
	if g.suspect.Load() {
		g.confirm(term, index)
	}
}

// onStored learns the same from entries that a leader sent.
func (g *Group) onStored(index uint64) {
	if g.suspect.Load() {
		g.confirm(g.raft().CurrentTerm(), index)
	}
}

func (g *Group) confirm(term, index uint64) {
	b := &g.boot
	b.mu.Lock()
	reached := b.term != 0 && term >= b.term && index >= b.end
	b.mu.Unlock()
	if reached && b.reached.CompareAndSwap(false, true) {
		g.stir() // the loop writes the record: raft's main goroutine is here
	}
}

// trust ends the suspicion, durably.
func (g *Group) trust(why string) error {
	changed := false
	err := g.changeRun(func(r *run) {
		changed = r.flags&runSuspect != 0
		r.flags &^= runSuspect
	})
	if err != nil {
		g.fail(err)
		return err
	}
	if !changed {
		return nil
	}
	g.suspect.Store(false)
	g.node.Handle(g.askMethod(), nil)
	g.logger.Info("replica votes again", "group", g.id, "because", why)
	g.stir()
	return nil
}

// exemptSingleVoter lifts the suspicion from a replica that nobody else can
// vouch for or be betrayed by.
func (g *Group) exemptSingleVoter() {
	if !g.suspect.Load() {
		return
	}
	if v := g.voters(); len(v) == 1 && v[0] == g.self {
		_ = g.trust("it is the only voter") // an error has failed the group
	}
}

// Recover ends the suspicion by the operator's decision: what the machine
// forgot is accepted as lost.
func (g *Group) Recover() error { return g.trust("of an operator's decision") }

// The question that suspects ask each other, and the answer.
//
//	request:  | op u8 | term u64 | index u64 | server id asked, the rest |
//	response: | suspect u8 | last term u64 | last index u64 |
const (
	askState = 1 // how long is your log?
	askTrust = 2 // all voters are suspect and this is the longest log: vote again
)

func (g *Group) askMethod() string { return "replica/suspect/" + g.id.String() }

// place is a position by which logs are compared in an election.
type place struct{ term, index uint64 }

func (p place) less(o place) bool { return p.term < o.term || p.term == o.term && p.index < o.index }

func (g *Group) place() place { return place{g.log.LastTerm(), g.log.LastIndex()} }

// onAsk answers another suspect.
func (g *Group) onAsk(_ context.Context, _ rpc.NodeID, req []byte) ([]byte, error) {
	if len(req) < 17 || rpc.ServerID(req[17:]) != g.self {
		return nil, fmt.Errorf("replica %s of %v is not the one asked", g.self, g.id)
	}
	mine := g.place()
	longest := place{be.Uint64(req[1:]), be.Uint64(req[9:])}
	if req[0] == askTrust && g.suspect.Load() && !longest.less(mine) {
		g.boot.deference.Store(g.now().Add(deferFor).UnixNano())
		if err := g.trust("all voters lost power and elect the longest log"); err != nil {
			return nil, err
		}
	}
	resp := []byte{0}
	if g.suspect.Load() {
		resp[0] = 1
	}
	resp = be.AppendUint64(resp, mine.term)
	return be.AppendUint64(resp, mine.index), nil
}

// ask puts a question to another voter.
func (g *Group) ask(to rpc.ServerID, op byte, p place) (suspect bool, theirs place, err error) {
	req := be.AppendUint64([]byte{op}, p.term)
	req = append(be.AppendUint64(req, p.index), to...)
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	resp, err := g.node.Call(ctx, to.Node(), g.askMethod(), req)
	if err == nil && len(resp) != 17 {
		err = fmt.Errorf("answer of %d bytes, want 17", len(resp))
	}
	if err != nil {
		return false, place{}, fmt.Errorf("ask %s: %w", to, err)
	}
	return resp[0] == 1, place{be.Uint64(resp[1:]), be.Uint64(resp[9:])}, nil
}

// seekLongest, called once a second while suspect without a leader, looks
// whether all voters are suspect. Then nobody can vouch for anybody, and the
// one with the longest log declares the suspicion over, and goes on telling so
// until there is a leader.
func (g *Group) seekLongest() {
	b := &g.boot
	if !g.suspect.Load() && !b.told.Load() {
		return // as nearly always, a thousand times a second on some nodes
	}
	leader := g.status().Leader
	b.mu.Lock()
	defer b.mu.Unlock()
	if leader != "" {
		b.told.Store(false)
		b.longest = false
	}
	if leader != "" || b.seeking || !g.suspect.Load() && !b.longest {
		return
	}
	b.seeking = true
	longest := b.longest
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		if err := g.electLongest(longest); err != nil {
			g.logger.Debug("suspect replica waits", "group", g.id, "because", err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.seeking = false
	}()
}

var errNotLongest = errors.New("another suspect has a longer log")

func (g *Group) electLongest(known bool) error {
	mine := g.place()
	if !known {
		if err := g.checkLongest(mine); err != nil {
			return err
		}
		g.boot.mu.Lock()
		g.boot.longest = true
		g.boot.mu.Unlock()
		g.boot.told.Store(true)
		if err := g.trust("all voters lost power and this log is the longest"); err != nil {
			return err
		}
	}
	for _, id := range g.voters() {
		if id != g.self {
			// One that fails is told again; one that trusts itself already does
			// not answer.
			_, _, _ = g.ask(id, askTrust, mine)
		}
	}
	return g.Campaign()
}

// checkLongest asks all other voters; nil means that all are suspect and none
// has a longer log.
func (g *Group) checkLongest(mine place) error {
	for _, id := range g.voters() {
		if id == g.self {
			continue
		}
		suspect, theirs, err := g.ask(id, askState, mine)
		switch {
		case err != nil:
			return err
		case !suspect:
			return fmt.Errorf("%s is not suspect, a leader will come", id)
		case mine.less(theirs), mine == theirs && id < g.self:
			return errNotLongest
		}
	}
	return nil
}
