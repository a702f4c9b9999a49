package coordinator

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/cluster/partition"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/producer"
)

// ending is a transaction of version 2 over partitions 0 and 1 that committed, and whose marker partition 0 does not write.
func (r *txnRig) ending(id string) (next kafkatx.Answer) {
	r.t.Helper()
	a := r.open(id, 0, 1)
	r.parts[0].change(func(p *fakeParticipant) { p.hold = true })
	next = r.took(r.end(id, a, true, kafkatx.Version2))
	r.eventually("the other partition has its marker", func() bool { return len(r.parts[1].markers()) == 1 })
	r.described(id) // behind which the coordinator knows of it
	return next
}

func (r *txnRig) logged(id string) *kafkatx.Meta {
	return r.part.kept.(*late).kept.(*txnTable).meta(id)
}

func TestTheNextTransactionIsWrittenWhileMarkersOfTheOneBeforeAreOnTheirWay(t *testing.T) {
	r := newTxnRig(t, frozen)
	next := r.ending("x")
	before := r.part.entries()
	c := r.verify("x", next, 2, true)
	r.eventually("the next transaction is in the log", func() bool { return r.logged("x").Status == kafkatx.Ongoing })
	silent(r, c)
	if o := r.logged("x").Owed; o == nil || !o.Commit || fmt.Sprint(o.Partitions) != "[t-0]" {
		t.Fatalf("%v", r.logged("x"))
	}
	if d := r.described("x"); d.Status != kafkatx.PrepareCommit || fmt.Sprint(d.Partitions) != "[t-0]" {
		t.Fatalf("described as %v", &d.Meta)
	}
	if n := r.parts[0].release(nil); n != 1 {
		t.Fatalf("%d calls for one marker", n)
	}
	if v := wait(t, c); v.err != nil || !v.v.Ongoing {
		t.Fatalf("%+v", v)
	}
	if d := r.described("x"); d.Status != kafkatx.Ongoing || fmt.Sprint(d.Partitions) != "[t-2]" {
		t.Fatalf("described as %v", &d.Meta)
	}
	if n := r.part.entries() - before; n != 1 {
		t.Errorf("%d entries, want one for the end of a transaction and the next one's beginning", n)
	}
	r.took(r.end("x", next, true, kafkatx.Version2))
	if m := r.logged("x"); m.Status != kafkatx.PrepareCommit && m.Status != kafkatx.CompleteCommit || m.Owed != nil {
		t.Errorf("%v", m)
	}
}

func TestWhatEndsTheNextTransactionWaitsForMarkersOfTheOneBefore(t *testing.T) {
	r := newTxnRig(t)
	next := r.ending("x")
	add := r.verify("x", next, 2, true)
	r.eventually("the next transaction is in the log", func() bool { return r.logged("x").Status == kafkatx.Ongoing })
	end, owner := r.end("x", next, false, kafkatx.Version2), r.init("x")
	silent(r, add)
	silent(r, end)
	silent(r, owner)
	r.parts[0].release(nil)
	if v := wait(t, add); v.err != nil || !v.v.Ongoing {
		t.Fatalf("%+v", v)
	}
	if a := r.took(end); a.Epoch != next.Epoch+1 {
		t.Fatalf("%+v", a)
	}
	r.took(owner)
	for n, commits := range map[int32]string{0: "[true]", 1: "[true]", 2: "[false]"} {
		var got []bool
		for _, m := range r.parts[n].markers() {
			got = append(got, m.Commit)
		}
		if fmt.Sprint(got) != commits {
			t.Errorf("partition %d was told %v, want %s", n, got, commits)
		}
	}
}

func TestTheNextCoordinatorWritesTheMarkersThatAreOwedFirst(t *testing.T) {
	r := newTxnRig(t)
	next := r.ending("x")
	r.verify("x", next, 2, true)
	r.eventually("the next transaction is in the log", func() bool { return r.logged("x").Status == kafkatx.Ongoing })
	log := r.part.kept.Snapshot(nil)
	r.lose()
	s := newTxnRig(t)
	s.took(s.init("other")) // it has loaded, so the term that it loses has nothing to do with the log
	s.lose()
	if err := s.part.kept.Restore(log); err != nil {
		t.Fatal(err)
	}
	s.parts[0].change(func(p *fakeParticipant) { p.hold = true })
	s.lead(2)
	c := s.verify("x", next, 2, true)
	silent(s, c)
	if d := s.described("x"); d.Status != kafkatx.PrepareCommit {
		t.Fatalf("described as %v", &d.Meta)
	}
	s.parts[0].release(nil)
	if v := wait(t, c); v.err != nil || !v.v.Ongoing || v.v.Term != 2 {
		t.Fatalf("%+v", v)
	}
	want := producer.Marker{ProducerID: next.ProducerID, Epoch: next.Epoch, CoordinatorEpoch: 2, Commit: true, Version: producer.Version2}
	if got := s.parts[0].markers(); len(got) != 1 || got[0] != want {
		t.Errorf("partition 0 was told %+v, want %+v", got, want)
	}
	if got := s.parts[1].markers(); len(got) > 0 {
		t.Errorf("partition 1, which has its marker, was told %+v", got)
	}
}

func TestAnIDThatOwesMarkersIsCountedAsAdministratorsSeeIt(t *testing.T) {
	r := newTxnRig(t)
	counted := func(want kafkatx.Status) {
		t.Helper()
		r.described("x") // behind which the coordinator has counted
		for s := range r.x.stats.states {
			n := int64(0)
			if kafkatx.Status(s) == want {
				n = 1
			}
			if got := r.x.stats.states[s].Load(); got != n {
				t.Errorf("%d ids are counted as %s, want %d", got, kafkatx.Status(s), n)
			}
		}
	}
	next := r.ending("x")
	counted(kafkatx.PrepareCommit)
	c := r.verify("x", next, 2, true)
	r.eventually("the next transaction is in the log", func() bool { return r.logged("x").Status == kafkatx.Ongoing })
	counted(kafkatx.PrepareCommit)
	r.parts[0].release(nil)
	if v := wait(t, c); v.err != nil {
		t.Fatal(v.err)
	}
	counted(kafkatx.Ongoing)
	r.lose()
	r.eventually("nobody is counted any more", func() bool { return r.x.stats.states[kafkatx.Ongoing].Load() == 0 })
}

func TestWaitingForMarkersThatAreOwedHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTxnRig(t)
		a := r.open("x", 0)
		r.parts[0].change(func(p *fakeParticipant) { p.hold = true })
		next := r.took(r.end("x", a, true, kafkatx.Version2))
		start := time.Now()
		if v := <-r.verify("x", next, 1, true); !errors.Is(v.err, partition.ErrConcurrentTransactions) || time.Since(start) != defaultHold {
			t.Fatalf("%+v after %v", v, time.Since(start))
		}
		time.Sleep(2 * time.Minute) // longer than the transaction may take: its end waits for the markers as well
		if m := r.logged("x"); m.Status != kafkatx.Ongoing {
			t.Fatalf("%v", m)
		}
		r.parts[0].release(nil)
		time.Sleep(time.Second)
		if m := r.logged("x"); m.Status != kafkatx.CompleteAbort {
			t.Fatalf("%v", m)
		}
		r.x.Close()
	})
}

func TestADeletedTopicIsOwedNoMarker(t *testing.T) {
	r := newTxnRig(t)
	next := r.ending("x")
	c := r.verify("x", next, 2, true)
	silent(r, c)
	r.meta.set("t", 0)
	r.parts[0].release(partition.ErrNotLeader)
	if v := wait(t, c); v.err != nil || !v.v.Ongoing {
		t.Fatalf("%+v", v)
	}
}

func TestANextTransactionThatIsNotAppendedLeavesTheOneBeforeToEnd(t *testing.T) {
	r := newTxnRig(t)
	next := r.ending("x")
	r.part.change(func(p *fakeShard) { p.refuse = partition.ErrNotEnoughReplicas })
	c := r.verify("x", next, 2, true)
	r.eventually("the shard refuses a record", func() bool {
		r.part.mu.Lock()
		defer r.part.mu.Unlock()
		return r.part.refuse == nil
	})
	r.parts[0].release(nil)
	v := wait(t, c)
	for errors.Is(v.err, partition.ErrNotCoordinator) { // partitions ask again
		v = wait(t, r.verify("x", next, 2, true))
	}
	if v.err != nil || !v.v.Ongoing {
		t.Fatalf("%+v", v)
	}
	if m := r.parts[0].markers(); len(m) == 0 || !m[0].Commit {
		t.Fatalf("markers %+v", m)
	}
}

// steady has committed two transactions over partitions 0 to 2, and a third whose marker partition 0 does not write.
func (r *txnRig) steady(id string) (next kafkatx.Answer) {
	r.t.Helper()
	next = r.open(id, 0, 1, 2)
	for n := range 3 {
		if n > 0 {
			for p := range int32(3) {
				if v := wait(r.t, r.verify(id, next, p, true)); v.err != nil || !v.v.Ongoing {
					r.t.Fatalf("transaction %d, partition %d: %+v", n, p, v)
				}
			}
		}
		if n == 2 {
			r.parts[0].change(func(p *fakeParticipant) { p.hold = true })
		}
		next = r.took(r.end(id, next, true, kafkatx.Version2))
	}
	r.eventually("the other partitions have their markers", func() bool { return len(r.parts[1].markers()) == 3 && len(r.parts[2].markers()) == 3 })
	r.described(id) // behind which the coordinator knows of it
	return next
}

func TestPartitionsThatJoinWhileMarkersAreMissingShareAnEntry(t *testing.T) {
	r := newTxnRig(t, frozen)
	next := r.steady("x")
	before := r.part.entries()
	var all []chan verdict
	for p := range int32(3) {
		if n := r.part.entries() - before; n != 0 {
			t.Fatalf("%d entries before the last partition has joined", n)
		}
		all = append(all, r.verify("x", next, p, true))
		r.described("x")
	}
	r.eventually("the next transaction is in the log", func() bool {
		m := r.logged("x")
		return m.Status == kafkatx.Ongoing && len(m.Partitions) == 3 && m.Owed != nil
	})
	if n := r.part.entries() - before; n != 1 {
		t.Errorf("%d entries, want one for three partitions", n)
	}
	for _, c := range all {
		silent(r, c)
	}
	r.parts[0].release(nil)
	for p, c := range all {
		if v := wait(t, c); v.err != nil || !v.v.Ongoing {
			t.Errorf("partition %d: %+v", p, v)
		}
	}
}

func TestATransactionOverFewerPartitionsWaitsForTheMarkersOnly(t *testing.T) {
	r := newTxnRig(t, frozen)
	next := r.steady("x")
	before := r.part.entries()
	c := r.verify("x", next, 2, true)
	silent(r, c)
	r.described("x")
	if n := r.part.entries() - before; n != 0 {
		t.Fatalf("%d entries while other partitions may join", n)
	}
	r.parts[0].release(nil)
	if v := wait(t, c); v.err != nil || !v.v.Ongoing {
		t.Fatalf("%+v", v)
	}
	if m := r.logged("x"); m.Status != kafkatx.Ongoing || len(m.Partitions) != 1 || r.part.entries()-before != 1 {
		t.Errorf("%v in %d entries", m, r.part.entries()-before)
	}
	r.took(r.end("x", next, true, kafkatx.Version2))
}
