package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/engine/log"
)

func newQueue(term uint64) *queue {
	q := new(queue)
	q.init()
	q.lead(term)
	q.serve(term)
	return q
}

// asRaft is what raft hands to StoreLogs for a proposal.
func asRaft(p *Proposal, index, term uint64) *raft.Log {
	l := p.payload()
	l.Index, l.Term = index, term
	return &l
}

func TestProposalIsStoredInItsOwnTermOrAsVoid(t *testing.T) {
	q := newQueue(5)
	kept, late := newPending(batch(1, "kept"), 5), newPending(batch(1, "late"), 5)
	if _, _, err := q.enter([]*Proposal{kept.p, late.p}, time.Now()); err != nil {
		t.Fatal(err)
	}
	// kept is stored in term 5. late waits in raft's channel while the term
	// ends, and comes out when this replica leads term 7.
	first := asRaft(kept.p, 10, 5)
	own, lost := q.claim([]*raft.Log{first}, nil)
	if len(own) != 1 || len(lost) != 0 || len(first.Extensions) != 0 || kept.p.Index() != 10 {
		t.Fatalf("own %d lost %d extensions %x index %d; want 1, 0, none, 10", len(own), len(lost), first.Extensions, kept.p.Index())
	}
	never, unknown := q.sweep(9)
	if len(never) != 1 || never[0] != late.p || len(unknown) != 1 || unknown[0] != kept.p {
		t.Fatalf("the end of the term gave up %d queued and %d stored proposals, want late and kept", len(never), len(unknown))
	}
	q.lead(7)
	again := asRaft(late.p, 12, 7)
	own, lost = q.claim([]*raft.Log{again}, nil)
	if len(own) != 0 || len(lost) != 0 {
		t.Fatalf("a proposal of term 5 was taken in term 7")
	}
	if again.Data != nil || len(again.Extensions) != 1 || again.Extensions[0] != extVoid {
		t.Errorf("it is stored as %q with extensions %x, want a void entry", again.Data, again.Extensions)
	}
}

func TestProposalCheckedInAnOlderTermIsRefusedAtOnce(t *testing.T) {
	q := newQueue(6)
	old, now := newPending(batch(1, "x"), 5), newPending(batch(1, "y"), 6)
	stale, _, err := q.enter([]*Proposal{old.p, now.p}, time.Now())
	if err != nil || len(stale) != 1 || stale[0] != old.p {
		t.Fatalf("stale %v, err %v; want the proposal of term 5", stale, err)
	}
}

func TestCommittedProposalsSurviveTheEndOfTheTerm(t *testing.T) {
	q := newQueue(3)
	var ps []*Proposal
	var logs []*raft.Log
	for range 4 {
		ps = append(ps, newPending(batch(1, "x"), 3).p)
	}
	if _, _, err := q.enter(ps, time.Now()); err != nil {
		t.Fatal(err)
	}
	for i, p := range ps {
		logs = append(logs, asRaft(p, uint64(20+i), 3))
	}
	q.claim(logs, nil)
	if _, unknown := q.sweep(21); len(unknown) != 2 || unknown[0] != ps[2] {
		t.Fatalf("gave up %d proposals above the commit index, want 2", len(unknown))
	}
	if done := q.applied(21, nil); len(done) != 2 || done[1] != ps[1] {
		t.Errorf("%d proposals complete, want the two at or below the commit index", len(done))
	}
}

func TestControlEntryCanAskForANewSegment(t *testing.T) {
	q := newQueue(1)
	p := &Proposal{Ctrl: []byte("trim"), Roll: true, Term: 1}
	if _, _, err := q.enter([]*Proposal{p}, time.Now()); err != nil {
		t.Fatal(err)
	}
	l := asRaft(p, 2, 1)
	q.claim([]*raft.Log{l}, nil)
	if len(l.Extensions) != 1 || l.Extensions[0]&log.RollFlag == 0 || l.Extensions[0]&kindMask != extCtrl {
		t.Errorf("extensions are %x, want a control entry with the roll flag", l.Extensions)
	}
}

func TestFailedAppendGivesProposalsBack(t *testing.T) {
	q := newQueue(1)
	a, b := newPending(batch(1, "a"), 1), newPending(batch(1, "b"), 1)
	q.enter([]*Proposal{a.p, b.p}, time.Now())
	q.claim([]*raft.Log{asRaft(a.p, 5, 1)}, nil)
	own, _ := q.claim([]*raft.Log{asRaft(b.p, 6, 1)}, nil)
	if failed := q.unclaim(own); len(failed) != 1 || failed[0] != b.p {
		t.Fatalf("unclaim gave %d proposals, want b", len(failed))
	}
	if done := q.applied(9, nil); len(done) != 1 || done[0] != a.p {
		t.Errorf("%d proposals complete, want only a", len(done))
	}
}

func TestClosedQueueRefuses(t *testing.T) {
	q := newQueue(1)
	q.hold()
	q.close(ErrClosed)
	if _, _, err := q.enter(nil, time.Now()); !errors.Is(err, ErrClosed) {
		t.Errorf("enter says %v, want ErrClosed", err)
	}
}

// counted is pooled memory that only counts.
type counted struct{ holds int }

func (c *counted) Hold()    { c.holds++ }
func (c *counted) Drop()    { c.holds-- }
func (c *counted) Cap() int { return 0 }

// A group that is closed gives its proposals up while the log may still be writing them: their memory is held until the
// write has returned.
func TestAProposalsMemoryIsHeldWhileItIsStored(t *testing.T) {
	q := newQueue(3)
	owner := &counted{holds: 1}
	p := &Proposal{Data: batch(1, "x"), Owner: owner, Term: 3, Done: func(int64, error) { owner.Drop() }}
	if stale, wait, err := q.enter([]*Proposal{p}, time.Now()); len(stale) > 0 || wait != nil || err != nil {
		t.Fatal(stale, wait, err)
	}
	l := p.payload()
	l.Index, l.Term = 1, 3
	own, _ := q.claim([]*raft.Log{&l}, nil)
	_, unknown := q.close(ErrClosed)
	finish(unknown, ErrLost)
	if len(own) != 1 || owner.holds != 1 {
		t.Fatalf("%d claimed, %d holds while the log writes", len(own), owner.holds)
	}
	dropOwners(own)
	if owner.holds != 0 {
		t.Fatalf("%d holds in the end", owner.holds)
	}
}
