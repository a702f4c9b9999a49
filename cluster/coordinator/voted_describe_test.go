package coordinator

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"gopherlog/engine/failpoint"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/twopc"
)

func (r *votedRig) described() TxnDescribed {
	r.t.Helper()
	c := make(chan TxnDescribed, 1)
	r.v.Describe(votedOne, func(d TxnDescribed, _ kafkatx.Code) { c <- d })
	return wait(r.t, c)
}

// shown waits until the id is at a phase, and checks the rest.
func (r *votedRig) shown(phase twopc.Phase, as kafkatx.Status, began, inDoubt int64) {
	r.t.Helper()
	var d TxnDescribed
	eventuallyTrue(r.t, func() bool { d = r.described(); return d.Phase == phase.String() })
	if d.Status != as || d.Start != began || d.InDoubt != inDoubt {
		r.t.Fatalf("%s: shown as %s, begun at %d, in doubt since %d, want %s, %d, %d", phase, d.Status, d.Start, d.InDoubt, as, began, inDoubt)
	}
}

func TestAVoteIsShownWithItsPhaseAndSinceWhenItsParticipantsMayBeInDoubt(t *testing.T) {
	now := atomic.Int64{}
	now.Store(1_700_000_000_000)
	r := newVotedRig(t, func(c *VotedConfig) { c.Now = func() time.Time { return time.UnixMilli(now.Load()) } })
	who := r.begin(0, 1)
	began := now.Load()
	r.shown(twopc.Open, kafkatx.Ongoing, began, 0)

	now.Add(1000)
	asked := now.Load()
	r.voters[1].change(func() { r.voters[1].silent = true })
	out := r.end(who, true, kafkatx.Version0)
	r.shown(twopc.Voting, kafkatx.Ongoing, began, asked)

	now.Add(1000)
	r.part.change(func(p *fakeShard) { p.hold = true })
	x := r.open()
	r.v.Report(votedOne, twopc.Vote{Txn: x, From: "t-1", Yes: true})
	r.shown(twopc.Deciding, kafkatx.PrepareCommit, began, asked)
	decided := now.Load()
	now.Add(1000)
	r.part.release()
	r.must(out, kafkatx.OK)
	r.shown(twopc.Committing, kafkatx.PrepareCommit, began, asked)

	r.lose() // its successor knows what is written: when the decision was
	now.Add(1000)
	r.lead(2)
	r.shown(twopc.Committing, kafkatx.PrepareCommit, decided, decided)
	r.v.Report(votedOne, twopc.Ended{Txn: x, From: "t-1"})
	r.shown(twopc.Ready, kafkatx.CompleteCommit, kafkatx.None, 0)
}

func TestWhoWasNotAskedToVoteIsNotShownInDoubt(t *testing.T) {
	now := atomic.Int64{}
	now.Store(1_700_000_000_000)
	r := newVotedRig(t, func(c *VotedConfig) { c.Now = func() time.Time { return time.UnixMilli(now.Load()) } })
	who := r.begin(0)
	began := now.Load()
	now.Add(1000)
	r.voters[0].change(func() { r.voters[0].deaf = true })
	r.must(r.end(who, false, kafkatx.Version0), kafkatx.OK)
	r.shown(twopc.Aborting, kafkatx.PrepareAbort, began, 0)
	r.v.Report(votedOne, twopc.Ended{Txn: r.open(), From: "t-0"})
	r.shown(twopc.Ready, kafkatx.CompleteAbort, kafkatx.None, 0)

	r.must(r.add(who, 0), kafkatx.OK) // the next one has times of its own
	r.shown(twopc.Open, kafkatx.Ongoing, now.Load(), 0)
	now.Add(1000)
	r.voters[0].change(func() { r.voters[0].no = true })
	r.must(r.end(who, true, kafkatx.Version0), UnknownProducerID)
	r.shown(twopc.Aborting, kafkatx.PrepareAbort, now.Load()-1000, now.Load())
}

// An abort leaves no record, so what the log says last may be older.
func TestAnAbortIsNotShownAsTheCommitBeforeIt(t *testing.T) {
	for _, version := range []kafkatx.Version{kafkatx.Version0, kafkatx.Version2} {
		t.Run(fmt.Sprintf("version %d", version), func(t *testing.T) {
			r := newVotedRig(t)
			forgotten := kafkatx.Empty // all that the next coordinator knows at version 2 is that an epoch was given
			if version == kafkatx.Version0 {
				forgotten = kafkatx.CompleteAbort
			}
			next := func(who, a kafkatx.Answer) kafkatx.Answer {
				if version == kafkatx.Version0 {
					return who
				}
				return a
			}
			who := r.begin(0)
			r.shown(twopc.Open, kafkatx.Ongoing, r.described().Start, 0)
			who = next(who, r.must(r.end(who, true, version), kafkatx.OK))
			r.shown(twopc.Ready, kafkatx.CompleteCommit, kafkatx.None, 0)
			r.must(r.add(who, 0), kafkatx.OK)
			r.must(r.end(who, false, version), kafkatx.OK)
			r.shown(twopc.Ready, kafkatx.CompleteAbort, kafkatx.None, 0)
			r.lose()
			r.lead(2)
			r.shown(twopc.Ready, forgotten, kafkatx.None, 0)
			who = r.begin(0) // somebody takes the id over
			r.shown(twopc.Open, kafkatx.Ongoing, r.described().Start, 0)
			r.voters[0].change(func() { r.voters[0].no = true })
			r.must(r.end(who, true, version), UnknownProducerID)
			r.shown(twopc.Ready, kafkatx.CompleteAbort, kafkatx.None, 0)
			r.must(r.init(kafkatx.None, kafkatx.None), kafkatx.OK)
			r.shown(twopc.Ready, kafkatx.Empty, kafkatx.None, 0)
		})
	}
}

func TestACompleteVoteCanBeStoppedBeforeItsDecisionIsWritten(t *testing.T) {
	r := newVotedRig(t)
	if err := r.points.Arm(pointVoted, failpoint.Action{Kind: failpoint.Error, Err: errors.New("stopped"), Nth: 1}); err != nil {
		t.Fatal(err)
	}
	who := r.begin(0, 1)
	r.must(r.end(who, true, kafkatx.Version0), kafkatx.NotCoordinator)
	for _, p := range r.voters[:2] {
		p.await("PREPARE t256.1/1:0")
	}
	if r.points.Hits(pointVoted) != 1 || !r.ledger().Last.Txn.None() {
		t.Fatalf("%d hits, %+v", r.points.Hits(pointVoted), r.ledger())
	}
	r.must(r.end(who, true, kafkatx.Version0), UnknownProducerID) // nothing was decided
}
