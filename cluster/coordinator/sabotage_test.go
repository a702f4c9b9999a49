package coordinator

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/cluster/partition"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/record"
	"gopherlog/txn/group"
	"gopherlog/txn/kafkatx"
)

// The planted faults: each breaks what it is to break while it is on, and nothing while it is off.

func planted(t *testing.T, name failpoint.Name, arg int64, check func(t *testing.T, on bool, points *failpoint.Set)) {
	t.Helper()
	for _, on := range []bool{false, true} {
		t.Run(map[bool]string{false: "off", true: "on"}[on], func(t *testing.T) {
			points := failpoint.New()
			if err := points.SetSabotage(name, on, arg); err != nil {
				t.Fatal(err)
			}
			check(t, on, points)
		})
	}
}

func TestOnlyThePlantedFaultTakesWhatAFencedOwnerSays(t *testing.T) {
	planted(t, failpoint.SkipEpochCheck, 0, func(t *testing.T, on bool, points *failpoint.Set) {
		want := kafkatx.ProducerFenced
		if on {
			want = kafkatx.OK
		}
		r := newTxnRig(t, func(c *TxnConfig) { c.Failpoints = points })
		zombie := r.open("x", 0)
		next := r.took(r.init("x"))
		r.took(r.add("x", next, 1))
		if a := wait(t, r.add("x", zombie, 2)); a.Code != want {
			t.Errorf("a partition of the fenced owner: %s, want %s", a.Code, want)
		}
		if v := wait(t, r.verify("x", zombie, 1, false)); (v.err == nil) != on {
			t.Errorf("a batch of the fenced owner: %v", v.err)
		}
		if a := wait(t, r.end("x", zombie, false, kafkatx.Version0)); a.Code != kafkatx.ProducerFenced {
			t.Errorf("the fenced owner aborts: %s", a.Code)
		}
		if a := wait(t, r.end("x", zombie, true, kafkatx.Version0)); a.Code != want {
			t.Errorf("the fenced owner commits: %s, want %s", a.Code, want)
		}
		if on {
			r.eventually("the transaction ends", func() bool { return r.described("x").Status == kafkatx.CompleteCommit })
		}
		wrote := r.parts[2].markers()
		if landed := len(wrote) == 1 && wrote[0].Commit; landed != on {
			t.Errorf("markers of what the fenced owner sent: %+v", wrote)
		}
	})
}

func TestThePlantedFaultHoldsAFencedOwnerWhileADecisionIsCarriedOut(t *testing.T) {
	planted(t, failpoint.SkipEpochCheck, 0, func(t *testing.T, on bool, points *failpoint.Set) {
		r := newTxnRig(t, func(c *TxnConfig) { c.Failpoints = points })
		zombie := r.open("x", 0)
		next := r.took(r.init("x"))
		r.took(r.add("x", next, 1))
		r.parts[1].change(func(p *fakeParticipant) { p.hold = true })
		r.took(r.end("x", next, true, kafkatx.Version2))
		question := r.verify("x", zombie, 2, true)
		if on {
			silent(r, question)
		}
		r.eventually("a marker is on its way", func() (is bool) {
			r.parts[1].change(func(p *fakeParticipant) { is = len(p.waiting) == 1 })
			return is
		})
		r.parts[1].release(nil)
		if v := wait(t, question); (v.err == nil) != on {
			t.Errorf("a batch of the fenced owner: %v", v.err)
		}
	})
}

func TestOnlyThePlantedFaultLeavesMarkersOut(t *testing.T) {
	planted(t, failpoint.MarkerToOnePartition, 1, func(t *testing.T, on bool, points *failpoint.Set) {
		r := newTxnRig(t, func(c *TxnConfig) { c.Failpoints = points })
		for _, commit := range []bool{false, true} {
			a := r.open("x", 0, 1, 2)
			r.took(r.end("x", a, commit, kafkatx.Version0))
			done := map[bool]kafkatx.Status{false: kafkatx.CompleteAbort, true: kafkatx.CompleteCommit}[commit]
			r.eventually("the transaction ends", func() bool { return r.described("x").Status == done })
		}
		for n, want := range map[int32]int{0: 2, 1: 2, 2: 2} {
			if on && n > 0 {
				want = 1 // the abort's
			}
			if got := r.parts[n].markers(); len(got) != want {
				t.Errorf("partition %d has %d markers, want %d: %+v", n, len(got), want, got)
			}
		}
	})
}

func TestThePlantedFaultLeavesMarkersOutOfOneInSoManyTransactions(t *testing.T) {
	r := newTxnRig(t)
	if err := r.points.SetSabotage(failpoint.MarkerToOnePartition, true, 5); err != nil {
		t.Fatal(err)
	}
	torn := 0
	const transactions = 300
	a := r.took(r.init("x"))
	for range transactions {
		before := len(r.parts[1].markers())
		r.took(r.add("x", a, 0, 1))
		a = r.took(r.end("x", a, true, kafkatx.Version2))
		r.eventually("the transaction ends", func() bool { return r.described("x").Status == kafkatx.CompleteCommit })
		if len(r.parts[1].markers()) == before {
			torn++
		}
	}
	if torn != transactions/5 {
		t.Errorf("%d of %d transactions were torn, want a fifth", torn, transactions)
	}
}

func TestOnlyThePlantedFaultTakesCommitsOfAnOlderGeneration(t *testing.T) {
	planted(t, failpoint.ForgetGroupGeneration, 0, func(t *testing.T, on bool, points *failpoint.Set) {
		want := group.IllegalGeneration
		if on {
			want = group.OK
		}
		r := newRig(t, func(c *Config) { c.Failpoints = points })
		j := r.member("g")
		wait(t, r.commit("g", j.MemberID, j.Generation, at(0, 10)))
		next := wait(t, r.join("g", j.MemberID, func(e *group.Join) { e.Protocols[0].Metadata = []byte("more topics") }))
		wait(t, r.sync("g", next, map[string][]byte{next.MemberID: []byte("all")}))
		wait(t, r.commit("g", j.MemberID, next.Generation, at(0, 20)))
		if code := wait(t, r.commit("g", j.MemberID, j.Generation, at(0, 11))); code != want {
			t.Errorf("a commit of generation %d in generation %d: %s, want %s", j.Generation, next.Generation, code, want)
		}
		if code := r.beat("g", j.MemberID, "", j.Generation); code != want {
			t.Errorf("a heartbeat of generation %d in generation %d: %s, want %s", j.Generation, next.Generation, code, want)
		}
		if back := r.committed("g", 0) == 11; back != on {
			t.Errorf("the group stands at %d", r.committed("g", 0))
		}
	})
}

const behind = 2 * time.Second

func TestOnlyThePlantedFaultServesOffsetsBeforeEverythingCommittedIsApplied(t *testing.T) {
	planted(t, failpoint.NoBarrier, behind.Milliseconds(), func(t *testing.T, on bool, points *failpoint.Set) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Failpoints = points })
			wait(t, r.commit("g", "", -1, at(0, 5)))
			r.lose()
			r.part.kept.Apply(offsetsOf(t, "g", at(0, 9))) // of the next leader
			if restored := newTable(); restored.Restore(r.part.kept.Snapshot(nil)) != nil || restored.lookup("g", nil)[0].Offset != 9 {
				t.Error("a snapshot lacks what was heard")
			}
			r.part.kept.Apply(offsetsOf(t, "g", at(0, 10)))
			r.lead(2)
			synctest.Wait()
			stale := map[bool]int64{false: 10, true: 9}[on]
			if got := r.committed("g", 0); got != stale {
				t.Errorf("told %d, want %d", got, stale)
			}
			wait(t, r.commit("g", "", -1, at(1, 1)))
			time.Sleep(behind + time.Millisecond)
			synctest.Wait()
			if a, b := r.committed("g", 0), r.committed("g", 1); a != 10 || b != 1 {
				t.Errorf("told %d and %d in the end, want 10 and 1", a, b)
			}
			r.g.Close()
		})
	})
}

// offsetsOf is a batch of committed offsets as a leader writes it.
func offsetsOf(t *testing.T, id string, offsets ...Offset) record.Batch {
	t.Helper()
	b := record.Builder{}
	for _, o := range offsets {
		p := o.pair(id, 1)
		b.Append(record.Record{Key: p.key.Encode(), Value: p.value})
	}
	batch := b.Finish()
	batch.SetBaseOffset(100)
	return batch
}

func TestOnlyThePlantedFaultServesTransactionsBeforeTheirDecisionIsApplied(t *testing.T) {
	planted(t, failpoint.NoBarrier, 0, func(t *testing.T, on bool, points *failpoint.Set) {
		r := newTxnRig(t, func(c *TxnConfig) { c.Failpoints = points })
		a := r.open("x", 0)
		r.part.change(func(p *fakeShard) { p.hold = true })
		out := r.end("x", a, true, kafkatx.Version0)
		silent(r, out)
		r.eventually("the decision is on its way", func() bool { // behind the turn that answered silent
			r.part.mu.Lock()
			defer r.part.mu.Unlock()
			return len(r.part.held) == 1
		})
		r.lose()
		unknown := r.part.abandon()
		if got := wait(t, out); got.Code != kafkatx.NotCoordinator {
			t.Fatalf("%v", got)
		}
		for _, w := range unknown { // the next leader commits it all the same
			r.part.kept.Apply(w.batch)
		}
		r.lead(2)
		want := map[bool]kafkatx.Code{false: kafkatx.InvalidTxnState, true: kafkatx.OK}[on]
		if got := wait(t, r.end("x", a, false, kafkatx.Version0)); got.Code != want {
			t.Errorf("the abort of what is committed: %s, want %s", got.Code, want)
		}
	})
}

func TestOnlyThePlantedFaultCallsACommittedVoteAborted(t *testing.T) {
	planted(t, failpoint.NoBarrier, 0, func(t *testing.T, on bool, points *failpoint.Set) {
		r := newVotedRig(t, func(c *VotedConfig) { c.Failpoints = points })
		who := r.begin(0, 1)
		r.part.change(func(p *fakeShard) { p.hold = true })
		out := r.end(who, true, kafkatx.Version0)
		eventuallyTrue(t, func() (there bool) { r.part.change(func(p *fakeShard) { there = len(p.held) > 0 }); return there })
		r.lose()
		unknown := r.part.abandon()
		r.must(out, kafkatx.NotCoordinator)
		for _, w := range unknown {
			r.part.kept.Apply(w.batch)
		}
		r.lead(2)
		want := map[bool]kafkatx.Code{false: kafkatx.OK, true: UnknownProducerID}[on]
		r.must(r.end(who, true, kafkatx.Version0), want)
	})
}

func TestThePlantedFaultLeavesOtherProducerIDsAlone(t *testing.T) {
	planted(t, failpoint.SkipEpochCheck, 0, func(t *testing.T, on bool, points *failpoint.Set) {
		r := newTxnRig(t, func(c *TxnConfig) { c.Failpoints = points })
		a := r.open("x", 0)
		a.ProducerID++
		if v := wait(t, r.verify("x", a, 0, false)); !errors.Is(v.err, partition.ErrInvalidProducerIDMapping) {
			t.Errorf("another producer id: %v", v.err)
		}
	})
}
