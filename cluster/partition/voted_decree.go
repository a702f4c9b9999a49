package partition

import (
	"cmp"
	"slices"
	"time"

	"gopherlog/txn/twopc"
)

// DecreeAfter is how long a promise waits for its coordinator before an operator may end it: an election takes less.
const DecreeAfter = 10 * time.Second

// InDoubt is a transaction that was promised here and whose outcome is not known.
type InDoubt struct {
	ID    string // transactional id
	Owner twopc.Identity
	Since int64 // when it was promised, in milliseconds since 1970; 0: not known
}

// Doubts lists what is in doubt here, by producer id. It rests on what is committed; nobody but the leader knows the newest.
func (p *Partition) Doubts() (out []InDoubt) {
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	for _, id := range p.standings.open {
		if st := p.standings.of[id]; st.Promised {
			out = append(out, InDoubt{id, st.Txn.Owner, st.At})
		}
	}
	slices.SortFunc(out, func(a, b InDoubt) int { return cmp.Compare(a.Owner.Producer, b.Owner.Producer) })
	return out
}

// Decree ends a promise as an operator decides, which is to be used only where the coordinator is lost: other participants may have been told
// otherwise. done is called once and must not block: with nil when the marker is committed. ErrInvalidTxnState: the owner has promised
// nothing here under the transactional id, or less than DecreeAfter ago. After ErrNotLeader the marker may still become durable.
func (p *Partition) Decree(transactionalID string, owner twopc.Identity, commit bool, done func(error)) {
	l := p.lead.Load()
	if l == nil || p.ballot == nil {
		done(ErrNotLeader)
		return
	}
	b := l.ballots
	l.do(func(r *round) { b.during(r, func() { b.decree(transactionalID, owner, commit, done) }) }, done)
}

func (b *ballots) decree(id string, owner twopc.Identity, commit bool, done func(error)) {
	t := b.of[id]
	switch {
	case b.silent:
		done(ErrNotLeader)
		return
	case t == nil || t.state.Stage != twopc.Prepared || t.state.Txn.Owner != owner || b.p.now().Sub(t.state.Since) < DecreeAfter:
		done(ErrInvalidTxnState)
		return
	}
	b.p.logger.Warn("an operator ends what is in doubt", "partition", b.p.label, "id", id, "producer", owner, "commit", commit)
	t.decreed = done
	b.happen(t, twopc.Decree{Owner: owner, Commit: commit})
	if t.decreed != nil { // a test stopped it
		t.decreed = nil
		done(ErrNotLeader)
	}
}
