package coordinator

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/engine/record"
	"gopherlog/txn/kafkatx"
)

// frozen is a clock that stands still: nothing that waits for time happens.
func frozen(c *TxnConfig) {
	now := time.Now()
	c.Now = func() time.Time { return now }
}

func frozenVoted(c *VotedConfig) {
	now := time.Now()
	c.Now = func() time.Time { return now }
}

func (p *fakeShard) entries() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.epochs)
}

func (r *txnRig) committed(id string) kafkatx.Status {
	if m := r.part.kept.(*late).kept.(*txnTable).meta(id); m != nil {
		return m.Status
	}
	return kafkatx.Empty
}

func TestTheEndOfATransactionSharesAnEntryWithTheNextOne(t *testing.T) {
	r := newTxnRig(t, frozen)
	a := r.open("x", 0, 1, 2)
	before := r.part.entries()
	for range 10 {
		r.took(r.end("x", a, true, kafkatx.Version0))
		r.took(r.add("x", a, 0, 1, 2))
	}
	if n := r.part.entries() - before; n != 20 {
		t.Errorf("10 transactions took %d entries, want 20: a decision each, and an end with the next beginning", n)
	}
	if got := r.committed("x"); got != kafkatx.Ongoing {
		t.Errorf("the log says %v", got)
	}
}

func TestTheEndOfAVotedTransactionSharesAnEntryWithTheNextOne(t *testing.T) {
	for version, want := range map[kafkatx.Version]int{kafkatx.Version0: 2, kafkatx.Version2: 1} {
		r := newVotedRig(t, frozenVoted)
		who := r.must(r.init(kafkatx.None, kafkatx.None), kafkatx.OK)
		transact := func() {
			r.must(r.add(who, 0, 1), kafkatx.OK)
			if a := r.must(r.end(who, true, version), kafkatx.OK); version >= kafkatx.Version2 {
				who = a
			}
		}
		transact() // the first one of an epoch has another record
		before := r.part.entries()
		for range 10 {
			transact()
		}
		if n := r.part.entries() - before; n != 10*want {
			t.Errorf("version %d: 10 transactions took %d entries, want %d", version, n, 10*want)
		}
	}
}

func TestTheEndOfATransactionDoesNotWaitForEverForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTxnRig(t)
		a := r.open("x", 0)
		for range 3 { // the timer that was early is set again
			r.took(r.end("x", a, true, kafkatx.Version0))
			time.Sleep(patience / 2)
			r.took(r.add("x", a, 0))
		}
		r.took(r.end("x", a, true, kafkatx.Version0))
		synctest.Wait()
		if got := r.committed("x"); got != kafkatx.PrepareCommit {
			t.Fatalf("the log says %v at once", got)
		}
		time.Sleep(patience)
		synctest.Wait()
		if got := r.committed("x"); got != kafkatx.CompleteCommit {
			t.Errorf("the log says %v after %v", got, patience)
		}
		r.x.Close()
	})
}

func TestWhoNeedsTheEndOfATransactionMakesItGo(t *testing.T) {
	r := newTxnRig(t, frozen)
	a := r.open("x", 0)
	r.took(r.end("x", a, true, kafkatx.Version0))
	r.eventually("the transaction ends", func() bool { return r.described("x").Status == kafkatx.CompleteCommit })
	r.took(r.end("x", a, true, kafkatx.Version0)) // repeated: answered when what it says is durable
	if got := r.committed("x"); got != kafkatx.CompleteCommit {
		t.Errorf("the log says %v", got)
	}
}

func TestASuccessorWritesTheEndThatItsPredecessorStillHad(t *testing.T) {
	r := newTxnRig(t, frozen)
	a := r.open("x", 0, 1)
	r.took(r.end("x", a, true, kafkatx.Version0))
	r.eventually("the transaction ends", func() bool { return r.described("x").Status == kafkatx.CompleteCommit })
	if got := r.committed("x"); got != kafkatx.PrepareCommit {
		t.Fatalf("the log says %v", got)
	}
	r.lose()
	r.lead(2)
	r.took(r.add("x", a, 2)) // held until the markers were told again
	for n := range int32(2) {
		got := r.parts[n].markers()
		if len(got) != 2 || got[0].CoordinatorEpoch != 1 || got[1].CoordinatorEpoch != 2 || !got[1].Commit {
			t.Errorf("partition %d has %+v", n, got)
		}
	}
	if got := r.part.kept.(*late).kept.(*txnTable).meta("x"); got.Status != kafkatx.Ongoing || len(got.Partitions) != 1 {
		t.Errorf("the log says %v", got)
	}
}

func TestASuccessorFinishesTheVotedTransactionThatItsPredecessorHadNotWritten(t *testing.T) {
	r := newVotedRig(t, frozenVoted)
	who := r.begin(0)
	r.must(r.end(who, true, kafkatx.Version0), kafkatx.OK)
	eventuallyTrue(t, func() bool { // everybody has ended it
		r.settled()
		return len(r.voters[0].words()) == 2
	})
	if r.ledger().Finished {
		t.Fatal("the end is in the log already")
	}
	r.lose()
	r.lead(2)
	eventuallyTrue(t, func() bool { return len(r.voters[0].words()) == 3 }) // told again
	who = r.must(r.init(kafkatx.None, kafkatx.None), kafkatx.OK)
	if l := r.ledger(); !l.Finished || l.Owner.Epoch != who.Epoch {
		t.Errorf("the log says %+v", l)
	}
}

func TestWhatATurnAppendsIsOneEntryInOrder(t *testing.T) {
	r := newTxnRig(t, frozen)
	ids := make([]string, 40)
	owners := make([]kafkatx.Answer, len(ids))
	for i := range ids {
		ids[i] = fmt.Sprint("x", i)
		owners[i] = r.took(r.init(ids[i]))
	}
	turn, _ := r.x.term("x0")
	goOn := make(chan bool)
	turn.post(func() { <-goOn })
	before := r.part.entries()
	out := make([]chan kafkatx.Answer, len(ids))
	for i, id := range ids {
		out[i] = r.add(id, owners[i], 0)
	}
	close(goOn)
	for i := range ids {
		r.took(out[i])
	}
	if n := r.part.entries() - before; n != 1 && n != 2 { // the turn that waited may have begun before the first request came
		t.Errorf("%d requests took %d entries", len(ids), n)
	}
}

func TestRecordsThatShareAnEntryShareItsFate(t *testing.T) {
	r := newTxnRig(t, frozen)
	a, b := r.took(r.init("x")), r.took(r.init("y"))
	turn, _ := r.x.term("x")
	goOn, stuck := make(chan bool), make(chan bool)
	turn.post(func() { close(stuck); <-goOn })
	<-stuck
	first, second := r.add("x", a, 0), r.add("y", b, 0)
	r.part.change(func(p *fakeShard) { p.refuse = errTest })
	close(goOn)
	for _, c := range []chan kafkatx.Answer{first, second} {
		if got := wait(t, c); got.Code != kafkatx.NotCoordinator {
			t.Errorf("%v", got)
		}
	}
	r.took(r.add("x", a, 0))
	r.took(r.add("y", b, 0))
}

func TestABundleThatIsFullGoesAtOnceAndInOrder(t *testing.T) {
	r := newTxnRig(t, frozen)
	turn, _ := r.x.term("x")
	var got []int
	done := make(chan []int, 1)
	before := r.part.entries()
	turn.post(func() {
		for i := range 5 {
			turn.bundle.add(record.Record{Key: []byte{byte(i)}, Value: make([]byte, bundleBytes*2/5)}, true, func(err error) {
				if got = append(got, i); i == 4 || err != nil {
					done <- got
				}
			})
		}
		turn.bundle.hurry()
	})
	if got := wait(t, done); !slices.Equal(got, []int{0, 1, 2, 3, 4}) {
		t.Errorf("%v", got)
	}
	if n := r.part.entries() - before; n != 3 {
		t.Errorf("%d entries", n)
	}
}

func TestTimersThatAreTakenBackTakeNoRoom(t *testing.T) {
	ts, start := newTimers(), time.Unix(1000, 0)
	k := timerKey{id: "x", kind: 1}
	for i := range 10000 {
		ts.start(k, start.Add(time.Minute+time.Duration(i)))
		ts.stop(k)
	}
	if n := len(ts.heap); n != 1 {
		t.Errorf("%d places for one timer", n)
	}
	if k, due := ts.pop(start.Add(time.Hour)); due || len(ts.heap) > 0 || len(ts.set) > 0 {
		t.Errorf("%v fired, which was taken back; %d places left, %d timers", k, len(ts.heap), len(ts.set))
	}
	ts.start(k, start.Add(time.Minute))
	ts.stop(k)
	ts.start(k, start.Add(time.Second)) // earlier than its place
	if got, due := ts.pop(start.Add(time.Second)); !due || got != k {
		t.Error("a timer that was set again did not fire")
	}
	if _, due := ts.pop(start.Add(time.Hour)); due {
		t.Error("it fired twice")
	}
}

func BenchmarkTimerOfATransaction(b *testing.B) {
	b.ReportAllocs()
	ts, now := newTimers(), time.Unix(1000, 0)
	for i := range b.N {
		k := timerKey{id: "x", kind: 1}
		now = now.Add(time.Millisecond)
		ts.start(k, now.Add(time.Minute))
		ts.stop(k)
		if _, due := ts.pop(now); due {
			b.Fatal(i)
		}
	}
}
