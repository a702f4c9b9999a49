package rpc

import (
	"time"

	"github.com/hashicorp/raft"
)

// progress is what one peer's answers prove about its log, within one term of
// ours as leader.
type progress struct {
	term    uint64
	index   uint64 // the peer's log equals ours up to here
	commit  uint64 // the commit index that it took over
	agreed  bool   // it accepted our last request, so it continues our log
	behind  bool   // the last request could not carry all that the log held
	contact time.Time
}

// of returns the peer's progress in term, fresh if the term is new. g.mu is held.
func (g *group) of(peer ServerID, term uint64) *progress {
	p := g.progress[peer]
	if p == nil {
		p = &progress{}
		g.progress[peer] = p
	}
	if term > p.term {
		*p = progress{term: term, contact: p.contact}
	}
	return p
}

// missedAfter is for how long a peer that does not answer has log bytes kept in memory for it: later it is sent what
// the file holds. A peer that left the group never answers again.
const missedAfter = 2 * time.Second

// acked takes over a successful answer to args.
func (g *group) acked(peer ServerID, args *raft.AppendEntriesRequest) {
	reached := args.PrevLogEntry + uint64(len(args.Entries))
	g.mu.Lock()
	now := g.node.cfg.Now()
	p := g.of(peer, args.Term)
	p.contact = now
	advanced := p.term == args.Term && reached > p.index
	if advanced {
		p.index = reached
	}
	if p.term == args.Term {
		p.agreed = true
		p.commit = max(p.commit, min(args.LeaderCommitIndex, reached))
	}
	everywhere := reached
	for _, other := range g.progress {
		if other.term == args.Term && now.Sub(other.contact) < missedAfter {
			everywhere = min(everywhere, other.index)
		}
	}
	g.mu.Unlock()
	if !advanced {
		return
	}
	if g.opts.Matched != nil {
		g.opts.Matched(peer, reached)
	}
	if g.opts.Everywhere != nil {
		g.opts.Everywhere(everywhere)
	}
}

// heard notes an answer. g.mu is held.
func (g *group) heard(peer ServerID, term uint64) *progress {
	p := g.of(peer, term)
	p.contact = g.node.cfg.Now()
	return p
}

// beatAnswered notes the answer to a heartbeat. A replica that opened anew has
// forgotten the commit index that it was told.
func (g *group) beatAnswered(peer ServerID, term uint64, fresh bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.heard(peer, term); fresh {
		p.commit = 0
	}
}

// refused notes that peer did not accept a request: its log differs from ours.
func (g *group) refused(peer ServerID, term uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard(peer, term).agreed = false
}

// continues says whether peer's log is known to continue ours in term.
func (g *group) continues(peer ServerID, term uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.progress[peer]
	return p != nil && p.term == term && p.agreed
}

func (g *group) setBehind(peer ServerID, term uint64, behind bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.of(peer, term).behind = behind
}

func (g *group) isBehind(peer ServerID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.progress[peer]
	return p != nil && p.behind
}

// contacted notes that peer, whose pings are fresh, would have answered.
func (g *group) contacted(peer ServerID, term uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.progress[peer]; p != nil && p.term == term {
		p.contact = g.node.cfg.Now()
	}
}

// saysNothingNew is true when the peer has already answered all that the empty
// request args could tell it; that counts as contact.
func (g *group) saysNothingNew(peer ServerID, args *raft.AppendEntriesRequest) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.progress[peer]
	if p == nil || p.term != args.Term || p.index != args.PrevLogEntry ||
		p.commit < min(args.LeaderCommitIndex, args.PrevLogEntry) {
		return false
	}
	p.contact = g.node.cfg.Now()
	return true
}

// Match returns the index up to which peer's log is known to equal ours in our
// newest term as leader of g, and when it last answered. Zero when unknown.
func (n *Node) Match(g GroupID, peer ServerID) (index uint64, lastContact time.Time) {
	gr := n.group(g)
	if gr == nil {
		return 0, time.Time{}
	}
	gr.mu.Lock()
	defer gr.mu.Unlock()
	if p := gr.progress[peer]; p != nil {
		return p.index, p.contact
	}
	return 0, time.Time{}
}
