package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/failpoint"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/producer"
)

func TestADecisionIsAnsweredWhenItIsCommittedAndMarkersFollow(t *testing.T) {
	r := newTxnRig(t)
	a := r.open("x", 0, 2)
	r.part.change(func(p *fakeShard) { p.hold = true })
	c := r.end("x", a, true, kafkatx.Version0)
	silent(r, c)
	if n := len(r.parts[0].markers()); n > 0 {
		t.Fatalf("%d markers before the decision is durable", n)
	}
	r.part.release()
	r.took(c)
	r.eventually("the transaction ends", func() bool { return r.described("x").Status == kafkatx.CompleteCommit })
	want := producer.Marker{ProducerID: a.ProducerID, Epoch: a.Epoch, CoordinatorEpoch: 1, Commit: true}
	for _, n := range []int32{0, 2} {
		if got := r.parts[n].markers(); len(got) != 1 || got[0] != want {
			t.Errorf("partition %d has %+v", n, got)
		}
	}
	if got := r.parts[1].markers(); len(got) > 0 {
		t.Errorf("partition 1, which is no part of it, has %+v", got)
	}
}

func TestARequestThatMeetsAnEndingTransactionWaitsForItsEnd(t *testing.T) {
	r := newTxnRig(t)
	a := r.open("x", 0)
	r.parts[0].change(func(p *fakeParticipant) { p.hold = true })
	r.took(r.end("x", a, true, kafkatx.Version0))
	next, question, fresh := r.add("x", a, 1), r.verify("x", a, 1, false), r.init("x")
	silent(r, next)
	silent(r, question)
	silent(r, fresh)
	if n := r.parts[0].release(nil); n != 1 {
		t.Fatalf("%d calls for one marker", n)
	}
	r.took(next)
	if v := wait(t, question); v.err != nil || !v.v.Ongoing {
		t.Fatalf("%+v", v)
	}
	if b := r.took(fresh); b.Epoch < a.Epoch+2 { // one to fence what next began, one for itself
		t.Fatalf("epoch %d after %d", b.Epoch, a.Epoch)
	}
}

func TestAllWhoWaitForTheEndOfATransactionAskTheNextCoordinatorWhenLeadershipIsLost(t *testing.T) {
	r := newTxnRig(t)
	r.parts[0].change(func(p *fakeParticipant) { p.hold = true })
	var waiting []chan verdict
	for i := range 16 {
		id := fmt.Sprint("x", i)
		a := r.open(id, 0)
		r.took(r.end(id, a, true, kafkatx.Version0))
		for n := range int32(3) {
			waiting = append(waiting, r.verify(id, a, n, false))
		}
	}
	for _, c := range waiting {
		silent(r, c)
	}
	r.lose()
	r.lead(2)
	for _, c := range waiting {
		silent(r, c)
	}
	r.parts[0].release(nil)
	for _, c := range waiting {
		if v := wait(t, c); v.v.Ongoing || errors.Is(v.err, partition.ErrNotCoordinator) || errors.Is(v.err, partition.ErrConcurrentTransactions) {
			t.Fatalf("%+v", v)
		}
	}
}

func TestWaitingForTheEndOfATransactionHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTxnRig(t)
		a := r.open("x", 0)
		r.parts[0].change(func(p *fakeParticipant) { p.hold = true })
		r.took(r.end("x", a, true, kafkatx.Version0))
		start := time.Now()
		next := r.add("x", a, 1)
		time.Sleep(time.Second)
		later := r.add("x", a, 1)
		if got := <-next; got.Code != kafkatx.ConcurrentTransactions || time.Since(start) != defaultHold {
			t.Fatalf("%v after %v", got, time.Since(start))
		}
		if got := <-later; got.Code != kafkatx.ConcurrentTransactions || time.Since(start) != time.Second+defaultHold {
			t.Fatalf("%v after %v", got, time.Since(start))
		}
		r.parts[0].release(nil)
		synctest.Wait()
		r.took(r.add("x", a, 1))
		r.x.Close()
	})
}

func TestANewOwnerFencesTheOldOneAndAbortsItsTransaction(t *testing.T) {
	r := newTxnRig(t)
	a := r.open("x", 0)
	b := r.took(r.init("x"))
	if b.ProducerID != a.ProducerID || b.Epoch <= a.Epoch {
		t.Fatalf("%v after %v", b, a)
	}
	if m := r.parts[0].markers(); len(m) != 1 || m[0].Commit {
		t.Fatalf("%+v", m)
	}
	for name, c := range map[string]chan kafkatx.Answer{"add": r.add("x", a, 0), "end": r.end("x", a, true, kafkatx.Version0)} {
		if got := wait(t, c); got.Code != kafkatx.ProducerFenced {
			t.Errorf("%s of the old owner: %v", name, got)
		}
	}
	if v := wait(t, r.verify("x", a, 0, false)); !errors.Is(v.err, partition.ErrProducerFenced) {
		t.Errorf("%+v", v)
	}
}

func TestATransactionThatTakesTooLongIsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTxnRig(t)
		a := r.open("x", 0)
		time.Sleep(time.Minute - time.Millisecond)
		if s := r.described("x").Status; s != kafkatx.Ongoing {
			t.Fatal(s)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if s := r.described("x").Status; s != kafkatx.CompleteAbort {
			t.Fatal(s)
		}
		if got := <-r.end("x", a, true, kafkatx.Version0); got.Code != kafkatx.ProducerFenced {
			t.Fatalf("%v", got)
		}
		if m := r.parts[0].markers(); len(m) != 1 || m[0].Commit {
			t.Fatalf("%+v", m)
		}
		r.x.Close()
	})
}

func TestTransactionalIdsThatNobodyUsesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTxnRig(t)
		r.took(r.init("x"))
		time.Sleep(8 * 24 * time.Hour)
		synctest.Wait()
		if m := r.part.kept.(*late).kept.(*txnTable).meta("x"); m != nil {
			t.Fatalf("%v is kept", m)
		}
		r.x.Close()
	})
}

func TestUnloadingWithWritesPendingSendsClientsToTheNextCoordinator(t *testing.T) {
	r := newTxnRig(t)
	a := r.open("x", 0)
	b := r.open("y", 1)
	r.parts[1].change(func(p *fakeParticipant) { p.hold = true })
	r.took(r.end("y", b, true, kafkatx.Version0))
	held := r.add("y", b, 1)
	r.part.change(func(p *fakeShard) { p.hold = true })
	end, fresh := r.end("x", a, true, kafkatx.Version0), r.init("z")
	silent(r, end)
	silent(r, fresh)
	r.lose()
	unknown := r.part.abandon()
	for name, c := range map[string]chan kafkatx.Answer{"held": held, "end": end, "init": fresh, "late": r.add("x", a, 1)} {
		if got := wait(t, c); got.Code != kafkatx.NotCoordinator {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, w := range unknown { // the next leader commits it all the same
		r.part.kept.Apply(w.batch)
	}
	r.lead(3)
	r.eventually("the next term finishes what was decided", func() bool { return r.described("x").Status == kafkatx.CompleteCommit })
	if m := r.parts[0].markers(); len(m) != 1 || m[0].CoordinatorEpoch != 3 || !m[0].Commit {
		t.Fatalf("%+v", m)
	}
	r.took(r.end("x", a, true, kafkatx.Version0)) // the client asks again
	r.parts[1].release(partition.ErrNotLeader)
}

func TestACoordinatorThatIsLoadingSaysSo(t *testing.T) {
	r := newTxnRig(t)
	r.lose()
	r.part.change(func(p *fakeShard) { p.elected = true })
	if got := wait(t, r.init("x")); got.Code != TxnLoadInProgress {
		t.Fatalf("%v", got)
	}
}

func TestADeposedCoordinatorRefusesNobodyForGood(t *testing.T) {
	r := newTxnRig(t, func(c *TxnConfig) { c.Hold = 100 * time.Millisecond }) // until which a successor is waited for
	a := r.open("x", 0)
	r.part.change(func(p *fakeShard) { p.deposed = true })
	stale := a
	stale.Epoch += 7
	if got := wait(t, r.add("x", stale, 1)); got.Code != kafkatx.NotCoordinator {
		t.Fatalf("%v", got)
	}
	if v := wait(t, r.verify("x", stale, 1, false)); !errors.Is(v.err, partition.ErrNotCoordinator) {
		t.Fatalf("%+v", v)
	}
}

func TestAMachineWhoseRecordWasLostIsMadeAnewFromTheLog(t *testing.T) {
	r := newTxnRig(t)
	a := r.open("x", 0)
	r.part.change(func(p *fakeShard) { p.refuse = partition.ErrNotEnoughReplicas })
	if got := wait(t, r.end("x", a, true, kafkatx.Version0)); got.Code != kafkatx.NotCoordinator {
		t.Fatalf("%v", got)
	}
	r.took(r.end("x", a, false, kafkatx.Version0))
	r.eventually("it is aborted", func() bool { return r.described("x").Status == kafkatx.CompleteAbort })
}

func TestProducerIdsThatCannotBeHadNowAreAskedForAgain(t *testing.T) {
	r := newTxnRig(t)
	r.meta.mu.Lock()
	r.meta.noIDs = errTest
	r.meta.mu.Unlock()
	if got := wait(t, r.init("x")); got.Code != TxnLoadInProgress {
		t.Fatalf("%v", got)
	}
	r.meta.mu.Lock()
	r.meta.noIDs = nil
	r.meta.mu.Unlock()
	seen := map[int64]bool{}
	for _, id := range []string{"x", "y", "z"} {
		a := r.took(r.init(id))
		if seen[a.ProducerID] {
			t.Fatalf("producer id %d was given out twice", a.ProducerID)
		}
		seen[a.ProducerID] = true
	}
}

func TestMarkersFollowTheLeaderOfTheirPartition(t *testing.T) {
	r := newTxnRig(t)
	other := &fakeParticipant{}
	x2, err := NewTransactions(TxnConfig{Meta: r.meta, Node: fakeTxnNode{2, r.nodes}, Self: 2, Local: func(string, int32) Participant { return other }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x2.Close)
	a := r.open("x", 0, 1)
	r.parts[0].change(func(p *fakeParticipant) { p.refuse = partition.ErrNotLeader })
	r.took(r.end("x", a, true, kafkatx.Version0))
	r.eventually("partition 1 has its marker", func() bool { return len(r.parts[1].markers()) == 1 })
	if s := r.described("x").Status; s != kafkatx.PrepareCommit {
		t.Fatalf("%v without the marker of partition 0", s)
	}
	r.meta.lead("t", 0, meta.NoLeader)
	r.meta.lead("t", 0, 2)
	r.eventually("it ends", func() bool { return r.described("x").Status == kafkatx.CompleteCommit })
	if m := other.markers(); len(m) != 1 || m[0].ProducerID != a.ProducerID || !m[0].Commit {
		t.Fatalf("%+v", m)
	}
}

func TestPartitionsOnOtherNodesAreVerifiedByTheirCoordinator(t *testing.T) {
	r := newTxnRig(t)
	x2, err := NewTransactions(TxnConfig{Meta: r.meta, Node: fakeTxnNode{2, r.nodes}, Self: 2, Local: func(string, int32) Participant { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x2.Close)
	a := r.open("x", 0)
	ask := func(number int32, add bool) verdict {
		c := make(chan verdict, 1)
		q := partition.Question{TransactionalID: "x", ProducerID: a.ProducerID, Epoch: a.Epoch, Topic: "t", Number: number, Add: add}
		x2.Verify(q, func(v partition.Verified, err error) { c <- verdict{v, err} })
		return wait(t, c)
	}
	if v := ask(0, false); v.err != nil || !v.v.Ongoing {
		t.Fatalf("%+v", v)
	}
	if v := ask(1, false); v.err != nil || v.v.Ongoing {
		t.Fatalf("a partition that is no part of the transaction: %+v", v)
	}
	if v := ask(1, true); v.err != nil || !v.v.Ongoing {
		t.Fatalf("a partition that joins: %+v", v)
	}
	if got := len(r.described("x").Partitions); got != 2 {
		t.Fatalf("%d partitions", got)
	}
}

func TestADeletedTopicDoesNotKeepATransactionFromEnding(t *testing.T) {
	r := newTxnRig(t)
	a := r.open("x", 0)
	r.meta.set("t", 0)
	r.took(r.end("x", a, true, kafkatx.Version0))
	r.eventually("it ends", func() bool { return r.described("x").Status == kafkatx.CompleteCommit })
}

// The image shows a dead node as the leader until another one leads: it is not looked at all the time meanwhile, and there is no pause left
// when somebody leads.
func TestMarkersRestWhileTheirLeaderIsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dead atomic.Bool
		var looks atomic.Int64
		r := newTxnRig(t, func(c *TxnConfig) {
			c.Alive = func(n rpc.NodeID) bool {
				if n == 2 {
					looks.Add(1)
					return !dead.Load()
				}
				return true
			}
		})
		dead.Store(true)
		r.meta.lead("t", 0, 2)
		r.took(r.end("x", r.open("x", 0), true, kafkatx.Version0))
		time.Sleep(10 * time.Second)
		if n := looks.Load(); n == 0 || n > 100 {
			t.Errorf("looked %d times in 10 s", n)
		}
		start := time.Now()
		r.meta.lead("t", 0, 1)
		synctest.Wait()
		if n, took := len(r.parts[0].markers()), time.Since(start); n != 1 || took > 0 {
			t.Errorf("%d markers after %v", n, took)
		}
		r.x.Close()
	})
}

// It leads again, in a later term: nobody waits until a pause is over.
func TestMarkersAreTriedAgainWhenTheSameNodeIsElectedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTxnRig(t)
		r.parts[0].change(func(p *fakeParticipant) { p.refuse = partition.ErrNotLeader })
		r.took(r.end("x", r.open("x", 0), true, kafkatx.Version0))
		time.Sleep(10 * time.Second)
		r.parts[0].change(func(p *fakeParticipant) { p.refuse = nil })
		start := time.Now()
		r.meta.elect("t", 0, 1, 7)
		synctest.Wait()
		if n, took := len(r.parts[0].markers()), time.Since(start); n != 1 || took > 0 {
			t.Errorf("%d markers after %v", n, took)
		}
		r.x.Close()
	})
}

func TestATopicThatOnlyTheImageDoesNotKnowKeepsItsMarker(t *testing.T) {
	r := newTxnRig(t)
	a := r.open("x", 0)
	r.meta.mu.Lock()
	r.meta.behind = r.meta.image
	r.meta.mu.Unlock()
	r.meta.set("t", 0)
	r.took(r.end("x", a, true, kafkatx.Version0))
	r.eventually("it ends", func() bool { return r.described("x").Status == kafkatx.CompleteCommit })
	if m := r.parts[0].markers(); len(m) != 1 {
		t.Fatalf("%d markers", len(m))
	}
}

func TestAPartitionThatKnowsANewerEpochNeedsNoMarker(t *testing.T) {
	r := newTxnRig(t)
	a := r.open("x", 0)
	r.parts[0].change(func(p *fakeParticipant) { p.refuse = partition.ErrInvalidProducerEpoch })
	r.took(r.end("x", a, true, kafkatx.Version0))
	r.eventually("it ends", func() bool { return r.described("x").Status == kafkatx.CompleteCommit })
}

func TestOneMarkerAtATimeIsOnItsWayToAPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTxnRig(t)
		a := r.open("x", 0)
		r.parts[0].change(func(p *fakeParticipant) { p.hold = true })
		r.took(r.end("x", a, true, kafkatx.Version0))
		time.Sleep(time.Minute) // the machine sends it again and again
		if n := r.parts[0].release(partition.ErrTimeout); n != 1 {
			t.Fatalf("%d calls", n)
		}
		time.Sleep(time.Second)
		if s := r.described("x").Status; s != kafkatx.CompleteCommit {
			t.Fatal(s)
		}
		r.x.Close()
	})
}

func TestACallThatItsSenderGaveUpIsRefused(t *testing.T) {
	var mine, theirs callFence
	first, floor := mine.begin()
	if !theirs.admit(1, 5, first, floor) {
		t.Fatal("the first call")
	}
	late, floor := mine.begin()
	mine.end(first)
	mine.end(late)
	next, floor2 := mine.begin()
	if !theirs.admit(1, 5, next, floor2) {
		t.Fatal("the next call")
	}
	if theirs.admit(1, 5, late, floor) {
		t.Fatal("a call below the floor was served")
	}
	if !theirs.admit(2, 5, late, floor) || !theirs.admit(1, 6, 1, 1) {
		t.Fatal("another node, and another run of the node, have numbers of their own")
	}
}

func TestMalformedCallsAreRefused(t *testing.T) {
	r := newTxnRig(t)
	for n := range 40 {
		for _, first := range []byte{markersVersion, 9} {
			b := make([]byte, n)
			if n > 0 {
				b[0] = first
			}
			if _, err := r.x.markers.serve(context.Background(), 2, b); err == nil && n != 29 {
				t.Errorf("%d bytes, version %d: markers taken", n, first)
			}
			if _, err := r.x.serveVerify(context.Background(), 2, b); err == nil && n != 24 {
				t.Errorf("%d bytes, version %d: question taken", n, first)
			}
		}
	}
}

// What is durable and what is not when the coordinator ends at a step decides what its successor does.
func TestTheNextCoordinatorGoesOnFromEveryStep(t *testing.T) {
	for _, c := range []struct {
		point failpoint.Name
		want  kafkatx.Status // after the timeout, with the client gone
	}{
		{beforeOngoing, kafkatx.Empty},
		{afterOngoing, kafkatx.CompleteAbort},
		{beforeDecision, kafkatx.CompleteAbort},
		{afterDecision, kafkatx.CompleteCommit},
		{beforeMarkers, kafkatx.CompleteCommit},
		{beforeMarker, kafkatx.CompleteCommit},
		{afterMarker, kafkatx.CompleteCommit},
		{beforeComplete, kafkatx.CompleteCommit},
		{afterComplete, kafkatx.CompleteCommit},
	} {
		t.Run(string(c.point), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTxnRig(t)
				a := r.took(r.init("x"))
				if err := r.points.Arm(c.point, failpoint.Action{Kind: failpoint.Block}); err != nil {
					t.Fatal(err)
				}
				r.add("x", a, 0, 1)
				synctest.Wait()
				r.end("x", a, true, kafkatx.Version0)
				synctest.Wait()
				// The node stops where it stands, and another one leads from what is in the log.
				log := r.part.kept.Snapshot(nil)
				r.part.change(func(p *fakeShard) { p.ready = false })
				r.x.Led(r.part)
				r.points.DisarmAll()
				synctest.Wait()
				s := newTxnRig(t)
				s.lose()
				if err := s.part.kept.Restore(log); err != nil {
					t.Fatal(err)
				}
				s.lead(2)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if got := s.described("x").Status; got != c.want {
					t.Errorf("%v, want %v", got, c.want)
				}
				if c.want == kafkatx.CompleteCommit {
					for _, n := range []int32{0, 1} {
						m := append(r.parts[n].markers(), s.parts[n].markers()...)
						if len(m) == 0 && c.point != beforeComplete && c.point != afterComplete {
							t.Errorf("partition %d has no marker", n)
						}
						for _, m := range m {
							if !m.Commit {
								t.Errorf("partition %d was told to abort", n)
							}
						}
					}
				}
				r.x.Close()
				s.x.Close()
			})
		})
	}
}

// A request that waited is handed in as soon as the end is appended; when that fails nobody knows what became of either, and the client asks
// again. Every record is the whole state, so what was appended behind the one that is missing stands for both.
func TestATransactionWhoseEndIsNotAppendedEndsAllTheSame(t *testing.T) {
	r := newTxnRig(t)
	a := r.open("x", 0)
	r.parts[0].change(func(p *fakeParticipant) { p.hold = true })
	r.took(r.end("x", a, true, kafkatx.Version0))
	next := r.add("x", a, 1)
	silent(r, next)
	r.part.change(func(p *fakeShard) { p.refuse = partition.ErrNotEnoughReplicas })
	r.parts[0].release(nil)
	if got := wait(t, next); got.Code != kafkatx.NotCoordinator {
		t.Fatalf("%v", got)
	}
	r.took(r.add("x", a, 1))
	if d := r.described("x"); d.Status != kafkatx.Ongoing || len(d.Partitions) != 1 || d.Partitions[0].Number != 1 {
		t.Fatalf("%+v", d)
	}
	if m := r.parts[0].markers(); len(m) == 0 || !m[0].Commit {
		t.Fatalf("markers %+v", m)
	}
}
