package coordinator

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"gopherlog/cluster/partition"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/record"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/twopc"
)

func TestACommitIsAnsweredWhenAllVotedYesAndTheDecisionIsDurable(t *testing.T) {
	r := newVotedRig(t)
	who := r.begin(0, 1)
	r.voters[1].change(func() { r.voters[1].silent = true })
	out := r.end(who, true, kafkatx.Version0)
	r.voters[1].await("PREPARE t256.1/1:0")
	r.unanswered(out)
	r.part.change(func(p *fakeShard) { p.hold = true })
	r.v.Report(votedOne, twopc.Vote{Txn: r.open(), From: "t-1", Yes: true})
	r.unanswered(out)
	if slices.Contains(r.voters[0].words(), "COMMIT t256.1/1:0") {
		t.Fatal("the outcome was told before the decision was durable")
	}
	r.voters[1].change(func() { r.voters[1].silent = false })
	r.part.release()
	if a := r.must(out, kafkatx.OK); a.ProducerID != kafkatx.None {
		t.Fatalf("version 0 clients keep their epoch: %+v", a)
	}
	for _, p := range r.voters[:2] {
		p.await("COMMIT t256.1/1:0")
	}
	eventuallyTrue(t, func() bool { return r.ledger().Finished })
	var words []string
	for _, f := range r.v.cfg.Facts.Dump().Facts {
		words = append(words, f.What)
	}
	if want := []string{"raised", "committed", "finished"}; !slices.Equal(words, want) {
		t.Fatalf("facts %v, want %v", words, want)
	}
}

// open is the transaction that the machine has in hand.
func (r *votedRig) open() twopc.Txn {
	c := make(chan twopc.Txn, 1)
	t, _ := r.v.shards.find(votedOne)
	t.post(func() { c <- t.machines.(*votedTerm).live(votedOne).state.Txn })
	return wait(r.t, c)
}

func eventuallyTrue(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never")
		}
	}
}

func TestANoAbortsAndTheClientGoesOnByAborting(t *testing.T) {
	r := newVotedRig(t)
	who := r.begin(0, 1)
	r.voters[1].change(func() { r.voters[1].no = true })
	r.must(r.end(who, true, kafkatx.Version0), UnknownProducerID)
	for _, p := range r.voters[:2] {
		p.await("ABORT t256.1/1:0")
	}
	r.must(r.end(who, false, kafkatx.Version0), kafkatx.OK)
	r.must(r.add(who, 0), kafkatx.OK)
	r.voters[1].change(func() { r.voters[1].no = false })
	r.must(r.end(who, true, kafkatx.Version0), kafkatx.OK)
}

func TestMissingVotesAbortAfterTheirTime(t *testing.T) {
	machine := twopc.Defaults()
	machine.VoteTimeout = 20 * time.Millisecond
	r := newVotedRig(t, func(c *VotedConfig) { c.Machine = &machine })
	who := r.begin(0)
	r.voters[0].change(func() { r.voters[0].silent = true })
	r.must(r.end(who, true, kafkatx.Version0), UnknownProducerID)
	r.voters[0].await("ABORT t256.1/1:0")
}

func TestVersion2EndsWithAnotherEpoch(t *testing.T) {
	r := newVotedRig(t)
	who := r.must(r.init(kafkatx.None, kafkatx.None), kafkatx.OK)
	for range 3 {
		q := partition.Question{TransactionalID: votedOne, ProducerID: who.ProducerID, Epoch: who.Epoch, Topic: "t", Number: 2, Add: true}
		said := make(chan error, 1)
		r.v.Verify(q, func(v partition.Verified, err error) {
			if err == nil && (!v.Ongoing || v.Txn.Owner.Epoch != who.Epoch || v.Timeout != time.Minute) {
				err = fmt.Errorf("%+v", v)
			}
			said <- err
		})
		if err := wait(t, said); err != nil {
			t.Fatal(err)
		}
		next := r.must(r.end(who, true, kafkatx.Version2), kafkatx.OK)
		if next.ProducerID != who.ProducerID || next.Epoch != who.Epoch+1 {
			t.Fatalf("%+v after %+v", next, who)
		}
		if again := r.must(r.end(who, true, kafkatx.Version2), kafkatx.OK); again.Epoch != next.Epoch {
			t.Fatalf("a repeat got %+v", again)
		}
		who = next
	}
}

func TestADecisionIsToldAgainByTheNextCoordinator(t *testing.T) {
	r := newVotedRig(t)
	who := r.begin(0, 1)
	r.voters[1].change(func() { r.voters[1].silent = true })
	out := r.end(who, true, kafkatx.Version0)
	r.voters[1].await("PREPARE t256.1/1:0")
	r.v.Report(votedOne, twopc.Vote{Txn: r.open(), From: "t-1", Yes: true})
	r.must(out, kafkatx.OK)
	r.lose()
	r.voters[1].change(func() { r.voters[1].silent, r.voters[1].heard = false, nil })
	r.lead(2)
	r.voters[1].await("COMMIT t256.1/1:0")
	eventuallyTrue(t, func() bool { return r.ledger().Finished })
	r.must(r.end(who, true, kafkatx.Version0), kafkatx.OK) // a repeat
}

// What a term says while it loads is answered at once by who is on the same node, and nothing is said twice here.
func TestATermHearsTheAnswersToWhatItSaysWhileItLoads(t *testing.T) {
	r := newVotedRig(t)
	who := r.begin(0, 1)
	for epoch := int32(2); epoch < 300; epoch++ {
		r.voters[1].change(func() { r.voters[1].deaf = true })
		who = r.must(r.end(who, true, kafkatx.Version2), kafkatx.OK)
		r.lose()
		r.voters[1].change(func() { r.voters[1].deaf = false })
		r.lead(epoch)
		eventuallyTrue(t, func() bool { return r.ledger().Finished })
		who = r.must(r.init(who.ProducerID, who.Epoch), kafkatx.OK)
		r.must(r.add(who, 0, 1), kafkatx.OK)
	}
}

func TestWhatWasNotDecidedAbortsInTheNextTerm(t *testing.T) {
	r := newVotedRig(t)
	who := r.begin(0, 1)
	r.voters[1].change(func() { r.voters[1].silent = true })
	out := r.end(who, true, kafkatx.Version0)
	r.voters[1].await("PREPARE t256.1/1:0")
	x := r.open()
	r.lose()
	r.must(out, kafkatx.NotCoordinator)
	r.lead(2)
	r.must(r.end(who, true, kafkatx.Version0), UnknownProducerID)
	r.v.Report(votedOne, twopc.Query{Txn: x, From: "t-1"})
	r.voters[1].await("ABORT t256.1/1:0")
	r.must(r.end(who, false, kafkatx.Version0), kafkatx.OK)
	r.must(r.add(who, 0), UnknownProducerID) // the term fence
	again := r.must(r.init(who.ProducerID, who.Epoch), kafkatx.OK)
	if again.ProducerID != who.ProducerID || again.Epoch != who.Epoch+1 {
		t.Fatalf("%+v after %+v", again, who)
	}
	r.must(r.add(again, 0), kafkatx.OK)
}

func TestARequestThatMeetsAnEndingTransactionIsHeldUntilItHasEnded(t *testing.T) {
	r := newVotedRig(t)
	who := r.begin(0)
	r.voters[0].change(func() { r.voters[0].silent = true })
	out := r.end(who, true, kafkatx.Version0)
	r.voters[0].await("PREPARE t256.1/1:0")
	x := r.open()
	r.v.Report(votedOne, twopc.Vote{Txn: x, From: "t-0", Yes: true})
	r.must(out, kafkatx.OK)
	next, other := r.add(who, 1), r.init(kafkatx.None, kafkatx.None)
	r.unanswered(next)
	r.unanswered(other)
	r.v.Report(votedOne, twopc.Ended{Txn: x, From: "t-0"})
	r.must(next, kafkatx.OK)
	if a := r.must(other, kafkatx.OK); a.Epoch != who.Epoch+1 {
		t.Fatalf("%+v", a)
	}
}

func TestWhatIsHeldTooLongIsAnsweredConcurrentTransactions(t *testing.T) {
	r := newVotedRig(t, func(c *VotedConfig) { c.Hold = 20 * time.Millisecond })
	who := r.begin(0)
	r.voters[0].change(func() { r.voters[0].silent = true })
	r.end(who, true, kafkatx.Version0)
	r.must(r.end(who, true, kafkatx.Version0), kafkatx.ConcurrentTransactions)
	r.must(r.add(who, 1), kafkatx.ConcurrentTransactions)
}

func TestAMachineThatCouldNotAppendBeginsAnewInATermOfItsOwn(t *testing.T) {
	r := newVotedRig(t)
	who := r.begin(0)
	r.part.change(func(p *fakeShard) { p.refuse = partition.ErrStorage })
	r.must(r.end(who, true, kafkatx.Version0), kafkatx.NotCoordinator)
	r.must(r.end(who, true, kafkatx.Version0), UnknownProducerID) // its participants are forgotten
	who = r.must(r.init(who.ProducerID, who.Epoch), kafkatx.OK)
	r.must(r.add(who, 0), kafkatx.OK)
	if x := r.open(); x.Term != 1<<bootBits+1 || x.Number != 1 {
		t.Fatalf("transaction %s may have the name of another", x)
	}
}

// A deposed coordinator whose decision was not committed by itself does not know what became of it: its successor may have it.
func TestADecisionThatWasNotAppendedIsNotCalledAborted(t *testing.T) {
	r := newVotedRig(t)
	who := r.begin(0, 1)
	r.part.change(func(p *fakeShard) { p.hold = true })
	out := r.end(who, true, kafkatx.Version0)
	eventuallyTrue(t, func() (there bool) { r.part.change(func(p *fakeShard) { there = len(p.held) > 0 }); return there })
	r.part.change(func(p *fakeShard) { p.deposed = true }) // and it does not know it yet
	lost := r.part.abandon()
	r.must(out, kafkatx.NotCoordinator)
	again := r.end(who, true, kafkatx.Version0)
	r.unanswered(again)
	r.settled()
	r.unanswered(again)
	r.lose()
	r.must(again, kafkatx.NotCoordinator)
	for _, w := range lost { // the successor committed it
		r.part.kept.Apply(w.batch)
	}
	r.part.change(func(p *fakeShard) { p.deposed = false })
	r.lead(2)
	r.must(r.end(who, true, kafkatx.Version0), kafkatx.OK)
	for _, p := range r.voters[:2] {
		p.await("COMMIT t256.1/1:0")
	}
}

func TestADeletedParticipantHoldsUpNoCommit(t *testing.T) {
	r := newVotedRig(t, func(c *VotedConfig) {
		m := *c.Machine
		m.ResendAfter = time.Millisecond
		c.Machine = &m
	})
	who := r.begin(0)
	r.voters[0].change(func() { r.voters[0].silent = true })
	out := r.end(who, true, kafkatx.Version0)
	r.voters[0].await("PREPARE t256.1/1:0")
	r.v.Report(votedOne, twopc.Vote{Txn: r.open(), From: "t-0", Yes: true})
	r.must(out, kafkatx.OK)
	r.meta.set("t", 0)
	eventuallyTrue(t, func() bool { return r.ledger().Finished })
}

func TestADeletedParticipantVotesNo(t *testing.T) {
	r := newVotedRig(t)
	who := r.begin(0)
	r.meta.set("t", 0)
	r.must(r.end(who, true, kafkatx.Version0), UnknownProducerID)
	r.must(r.end(who, false, kafkatx.Version0), kafkatx.OK)
}

func TestUnusedTransactionalIdsAreForgotten(t *testing.T) {
	now := atomic.Int64{}
	now.Store(time.Now().UnixNano())
	r := newVotedRig(t, func(c *VotedConfig) {
		c.Now = func() time.Time { return time.Unix(0, now.Load()) }
		c.SweepEvery = time.Millisecond
	})
	who := r.begin(0)
	r.must(r.end(who, true, kafkatx.Version0), kafkatx.OK)
	eventuallyTrue(t, func() bool {
		now.Add(int64(patience))
		return r.ledger().Finished
	})
	now.Add(int64(8 * 24 * time.Hour))
	r.settled()
	eventuallyTrue(t, func() bool { r.settled(); return r.ledger().Owner == twopc.Nobody })
	r.must(r.end(who, true, kafkatx.Version0), kafkatx.InvalidProducerIDMapping)
	if again := r.begin(1); again.ProducerID == who.ProducerID {
		t.Fatalf("producer id %d a second time", again.ProducerID)
	}
	if x := r.open(); x.Term == 1<<bootBits {
		t.Fatalf("transaction %s may have the name of another", x)
	}
}

func TestWaitingRequestsGoElsewhereWhenLeadershipIsLost(t *testing.T) {
	r := newVotedRig(t)
	who := r.begin(0)
	r.part.change(func(p *fakeShard) { p.hold = true })
	voting := r.end(who, true, kafkatx.Version0)
	eventuallyTrue(t, func() (there bool) { r.part.change(func(p *fakeShard) { there = len(p.held) > 0 }); return there })
	held := r.init(kafkatx.None, kafkatx.None)
	r.unanswered(voting)
	r.unanswered(held)
	r.lose()
	r.must(voting, kafkatx.NotCoordinator)
	r.must(held, kafkatx.NotCoordinator)
	r.must(r.add(who, 0), kafkatx.NotCoordinator)
	r.part.release() // the decision is durable after all
	r.lead(2)
	r.must(r.end(who, true, kafkatx.Version0), kafkatx.OK)
}

func TestFatalAnswersWaitUntilLeadershipIsCertain(t *testing.T) {
	r := newVotedRig(t)
	who := r.must(r.init(kafkatx.None, kafkatx.None), kafkatx.OK)
	r.must(r.end(who, true, kafkatx.Version0), kafkatx.InvalidTxnState)
	r.part.change(func(p *fakeShard) { p.deposed = true })
	r.must(r.end(who, true, kafkatx.Version0), kafkatx.NotCoordinator)
}

func TestMessagesAndQuestionsReachACoordinatorOnAnotherNode(t *testing.T) {
	r := newVotedRig(t)
	far := newVotedRig(t, func(c *VotedConfig) { c.Self = 2 })
	far.lose()
	far.calls.to, r.calls.to = r.calls, far.calls
	who := r.begin(0)
	q := partition.Question{TransactionalID: votedOne, ProducerID: who.ProducerID, Epoch: who.Epoch, Topic: "t", Number: 0, Deadline: time.Now().Add(time.Minute)}
	ask := func() (partition.Verified, error) {
		type answer struct {
			v   partition.Verified
			err error
		}
		c := make(chan answer, 1)
		far.v.Verify(q, func(v partition.Verified, err error) { c <- answer{v, err} })
		a := wait(t, c)
		return a.v, a.err
	}
	if v, err := ask(); err != nil || v.Txn != r.open() || v.Timeout != time.Minute {
		t.Fatalf("%+v, %v", v, err)
	}
	q.Number = 3
	if _, err := ask(); !errors.Is(err, partition.ErrInvalidTxnState) {
		t.Fatal(err)
	}
	r.voters[0].change(func() { r.voters[0].silent = true })
	out := r.end(who, true, kafkatx.Version0)
	r.voters[0].await("PREPARE t256.1/1:0")
	far.v.Report(votedOne, twopc.Vote{Txn: r.open(), From: "t-0", Yes: true})
	r.must(out, kafkatx.OK)
	if _, err := readLetters([]byte{voteVersion + 1}); err == nil {
		t.Fatal("an unknown version was taken")
	}
}

func TestATestCanStopACoordinatorAtEachStep(t *testing.T) {
	for _, c := range []struct {
		point   failpoint.Name
		asked   kafkatx.Code // EndTxn
		decided bool
	}{{pointPrepare, kafkatx.NotCoordinator, false}, {pointDecision, kafkatx.NotCoordinator, true}, {pointOutcomes, kafkatx.OK, true}} {
		r := newVotedRig(t)
		if err := r.points.Arm(c.point, failpoint.Action{Kind: failpoint.Error, Err: errors.New("stopped"), Nth: 1}); err != nil {
			t.Fatal(err)
		}
		who := r.begin(0, 1)
		r.must(r.end(who, true, kafkatx.Version0), c.asked)
		eventuallyTrue(t, func() bool { return r.points.Hits(c.point) > 0 }) // the client may be answered before the outcomes go
		if c.decided == r.ledger().Last.Txn.None() {
			t.Fatalf("%s: %+v", c.point, r.ledger())
		}
		r.lose()
		r.lead(2)
		if c.decided {
			eventuallyTrue(t, func() bool { return r.ledger().Finished })
		}
	}
}

func TestThePlantedHasteAsksNobody(t *testing.T) {
	r := newVotedRig(t)
	if err := r.points.SetSabotage(failpoint.CommitBeforeVotes, true, 2); err != nil {
		t.Fatal(err)
	}
	who := r.must(r.init(kafkatx.None, kafkatx.None), kafkatx.OK)
	for i := range 4 {
		r.must(r.add(who, 0), kafkatx.OK)
		x := r.open()
		r.must(r.end(who, true, kafkatx.Version0), kafkatx.OK)
		if asked := slices.Contains(r.voters[0].words(), "PREPARE "+x.String()); asked == (i%2 == 1) {
			t.Errorf("transaction %d: asked to vote: %v", i, asked)
		}
	}
}

func TestATableOfVotedTransactionsSurvivesItsSnapshot(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 3))
	table := newVotedTable()
	for i := range 300 {
		x := twopc.Txn{Term: 1, Number: rnd.Uint32N(9) + 1, Owner: twopc.Identity{Producer: 7}}
		recs := []twopc.Record{
			twopc.Raised{Term: 1, Owner: x.Owner, Prev: twopc.Nobody, Timeout: time.Second}, twopc.Begun{Txn: x}, twopc.Finished{Txn: x},
			twopc.Committed{Txn: x, Next: x.Owner, Members: []twopc.Member{"t-0", "t-1"}},
		}
		var b record.Batch
		if k := rnd.IntN(5); k < 4 {
			b = votedBatch(fmt.Sprintf("2pc.%d", rnd.IntN(20)), twopc.Encode(recs[k]), int64(i))
		} else {
			b = votedBatch(fmt.Sprintf("2pc.%d", rnd.IntN(20)), nil, int64(i))
		}
		table.Apply(b)
	}
	again := newVotedTable()
	state := table.Snapshot(nil)
	if err := again.Restore(state); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Snapshot(nil), state) || again.size() != table.size() || len(state) < 100 {
		t.Fatalf("%d bytes, size %d, want %d", len(state), again.size(), table.size())
	}
	for n := range len(state) {
		if err := again.Restore(state[:n]); err == nil && n > 0 {
			t.Fatalf("cut to %d bytes it was taken", n)
		}
	}
	state[0]++
	if err := again.Restore(state); err == nil || errors.Is(err, errTable) {
		t.Fatalf("an unknown version: %v", err)
	}
}

func TestALoneCoordinatorSyncsWhatItDecides(t *testing.T) {
	r := newVotedRig(t, func(c *VotedConfig) { c.Replicas = 1 })
	r.meta.set(VotedTopic, 0)
	if _, _, err := r.v.Find(t.Context(), votedOne); err != nil {
		t.Fatal(err)
	}
	if s := r.meta.spec; s.ReplicationFactor != 1 || s.Configs["flush.messages"] != "1" || !s.Internal {
		t.Fatalf("%+v", s)
	}
}
