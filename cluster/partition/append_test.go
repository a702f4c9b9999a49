package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/cluster/replica"
	"gopherlog/engine/record"
	"gopherlog/engine/wire"
	"gopherlog/txn/producer"
)

func TestFirstOffsetIsZeroAndOffsetsStayDenseAcrossLeaders(t *testing.T) {
	h := open(t)
	next := int64(0)
	for term := uint64(2); term < 6; term++ {
		for _, n := range []int{1, 3, 2} {
			if base := h.must(t, plain(n)); base != next {
				t.Fatalf("term %d: base offset %d, want %d", term, base, next)
			}
			next += int64(n)
		}
		h.g.depose(term*10, "2.0000000000000001", true)
		h.g.lead(term*10 + 1)
	}
	if h.HighWatermark() != next || h.EndOffset() != next {
		t.Fatalf("high watermark %d, end %d, want %d", h.HighWatermark(), h.EndOffset(), next)
	}
}

func TestEachAcksIsAnsweredAtItsMoment(t *testing.T) {
	h := open(t, manual)
	none, leader, all := h.send(plain(2), AcksNone), h.send(plain(3), AcksLeader), h.send(plain(1), AcksAll)
	if r := wait(t, none); r.Err != nil {
		t.Fatalf("acks=0: %+v", r)
	}
	if r := wait(t, leader); r.Err != nil || r.BaseOffset != 2 {
		t.Fatalf("acks=1: %+v", r)
	}
	h.proposed(t, 3)
	silent(t, all, "acks=all before the commit")
	h.g.commit(-1)
	if r := wait(t, all); r.Err != nil || r.BaseOffset != 5 {
		t.Fatalf("acks=all: %+v", r)
	}
}

func TestARepeatIsAnsweredOnlyWhenItsOriginalIsCommitted(t *testing.T) {
	h := open(t, manual)
	first := h.send(sequence(7, 0, 0, 2), AcksAll)
	second := h.send(sequence(7, 0, 2, 2), AcksAll)
	h.proposed(t, 2)
	repeat := h.send(sequence(7, 0, 0, 2), AcksAll)
	eventually(t, "repeat seen", func() bool { return h.stats.duplicates.Load() == 1 })
	silent(t, repeat, "repeat of an uncommitted batch")
	h.g.commit(1)
	if a, b := wait(t, first), wait(t, repeat); a.BaseOffset != 0 || b.BaseOffset != 0 || b.Err != nil {
		t.Fatalf("original %+v, repeat %+v", a, b)
	}
	silent(t, second, "second batch")
	h.g.commit(1)
	wait(t, second)
	if r := wait(t, h.send(sequence(7, 0, 2, 2), AcksAll)); r.BaseOffset != 2 || r.Err != nil {
		t.Fatalf("repeat of a committed batch: %+v", r)
	}
	if h.EndOffset() != 4 {
		t.Fatalf("log end %d, want 4: a repeat was appended", h.EndOffset())
	}
}

func TestARepeatFailsWithItsOriginal(t *testing.T) {
	h := open(t, manual)
	first := h.send(sequence(7, 0, 0, 1), AcksAll)
	h.proposed(t, 1)
	repeat := h.send(sequence(7, 0, 0, 1), AcksAll)
	eventually(t, "repeat seen", func() bool { return h.stats.duplicates.Load() == 1 })
	h.g.depose(2, "2.0000000000000001", true)
	for _, c := range []chan AppendResult{first, repeat} {
		if r := wait(t, c); !errors.Is(r.Err, ErrNotLeader) || r.BaseOffset != -1 {
			t.Fatalf("%+v, want not leader", r)
		}
	}
}

// A producer lost its leader in flight and sends again to the next one: whether the batch survived or not, it is in the
// log once.
func TestLostLeadershipNeitherDuplicatesNorLeavesAGap(t *testing.T) {
	for _, cut := range []bool{true, false} {
		t.Run(fmt.Sprintf("cut=%v", cut), func(t *testing.T) {
			h := open(t, manual)
			var sent []chan AppendResult
			for i := range int32(5) {
				sent = append(sent, h.send(sequence(7, 0, i, 1), AcksAll))
			}
			h.proposed(t, 5)
			h.g.depose(2, "2.0000000000000001", cut)
			for _, c := range sent {
				if r := wait(t, c); !errors.Is(r.Err, ErrNotLeader) {
					t.Fatalf("%+v", r)
				}
			}
			h.g.lead(3)
			h.g.auto = true
			for i := range int32(5) {
				if base := h.must(t, sequence(7, 0, i, 1)); base != int64(i) {
					t.Fatalf("batch %d is at %d", i, base)
				}
			}
			if h.EndOffset() != 5 {
				t.Fatalf("log end %d, want 5", h.EndOffset())
			}
		})
	}
}

func TestABatchCheckedInOneTermIsNeverStoredInAnother(t *testing.T) {
	h := open(t, manual)
	h.g.enter, h.g.gate = make(chan struct{}), make(chan struct{})
	late := h.send(sequence(7, 0, 0, 1), AcksAll)
	<-h.g.enter // checked in term 1, about to be proposed
	h.g.depose(2, "2.0000000000000001", true)
	h.g.lead(3)
	close(h.g.gate)
	if r := wait(t, late); !errors.Is(r.Err, ErrNotLeader) {
		t.Fatalf("%+v", r)
	}
	if end := h.EndOffset(); end != 0 {
		t.Fatalf("log end %d: the batch of term 1 was stored in term 3", end)
	}
	go func() { <-h.g.enter }()
	h.g.mu.Lock()
	h.g.auto = true
	h.g.mu.Unlock()
	if base := h.must(t, sequence(7, 0, 0, 1)); base != 0 {
		t.Fatalf("base offset %d", base)
	}
}

// The deadlock of proposer, raft and state machine: the state machine and the append hook must return although the proposer
// is blocked in its proposal.
func TestTheStateMachineNeverWaitsForTheProposer(t *testing.T) {
	h := open(t, manual)
	first := h.send(plain(1), AcksAll)
	h.proposed(t, 1)
	h.g.enter, h.g.gate = make(chan struct{}), make(chan struct{})
	blocked := h.send(plain(1), AcksAll)
	<-h.g.enter // the proposer hangs in ProposeBatch
	h.g.commit(1)
	if r := wait(t, first); r.Err != nil {
		t.Fatalf("%+v", r)
	}
	h.g.depose(2, "2.0000000000000001", false)
	close(h.g.gate)
	wait(t, blocked)
}

func TestWaitersAreAnsweredInOrder(t *testing.T) {
	h := open(t)
	const n = 500
	var mu sync.Mutex
	var got []int64
	var wg sync.WaitGroup
	wg.Add(n)
	for i := range n {
		h.Append(&AppendRequest{Batch: plain(1 + i%3), Acks: AcksAll, Done: func(r AppendResult) {
			mu.Lock()
			got = append(got, r.BaseOffset)
			mu.Unlock()
			wg.Done()
		}})
	}
	wg.Wait()
	for i := 1; i < n; i++ {
		if got[i] <= got[i-1] {
			t.Fatalf("answer %d has offset %d after %d", i, got[i], got[i-1])
		}
	}
}

func TestAQueueIsAppendedInOneWrite(t *testing.T) {
	h := open(t, manual)
	h.g.enter, h.g.gate = make(chan struct{}), make(chan struct{}, 1)
	h.send(plain(1), AcksNone)
	<-h.g.enter
	for range 50 {
		h.send(plain(1), AcksNone)
	}
	h.g.gate <- struct{}{}
	<-h.g.enter
	h.g.gate <- struct{}{}
	h.proposed(t, 51)
	h.g.mu.Lock()
	defer h.g.mu.Unlock()
	if h.g.calls != 2 {
		t.Fatalf("%d proposals calls for 51 batches, want 2", h.g.calls)
	}
}

func TestGapsAndOldEpochsAreRejected(t *testing.T) {
	h := open(t)
	h.must(t, sequence(7, 1, 0, 2))
	if r := wait(t, h.send(sequence(7, 1, 3, 1), AcksAll)); !errors.Is(r.Err, ErrOutOfOrderSequence) {
		t.Fatalf("gap: %+v", r)
	}
	if r := wait(t, h.send(sequence(7, 0, 2, 1), AcksAll)); !errors.Is(r.Err, ErrInvalidProducerEpoch) {
		t.Fatalf("old epoch: %+v", r)
	}
	if r := wait(t, h.send(sequence(7, 0, 2, 1), AcksNone)); !errors.Is(r.Err, ErrInvalidProducerEpoch) {
		t.Fatalf("old epoch with acks=0 must fail, so that the connection is closed: %+v", r)
	}
	if base := h.must(t, sequence(7, 1, 2, 1)); base != 2 {
		t.Fatalf("base offset %d", base)
	}
}

func TestTheWindowOfFiveSurvivesALeaderChangeAndARestart(t *testing.T) {
	h := open(t)
	for i := range int32(5) {
		h.must(t, sequence(7, 0, i*2, 2))
	}
	h.g.depose(2, "2.0000000000000001", false)
	state := machine{h.Partition}.Snapshot()
	h.stateMu.Lock()
	h.producers = producer.New()
	h.stateMu.Unlock()
	if err := (machine{h.Partition}).Restore(state, baseAt(10)); err != nil {
		t.Fatal(err)
	}
	h.g.lead(3)
	for i := range int32(5) {
		if base := h.must(t, sequence(7, 0, i*2, 2)); base != int64(i)*2 {
			t.Fatalf("repeat of batch %d answered with %d", i, base)
		}
	}
	if base := h.must(t, sequence(7, 0, 10, 1)); base != 10 {
		t.Fatalf("next batch at %d", base)
	}
}

func TestTooFewInSyncIsRefusedBeforeTheAppend(t *testing.T) {
	s := defaults()
	s.MinInsyncReplicas = 2
	h := open(t, replicas(3), settings(s))
	h.g.setInSync(1)
	if r := wait(t, h.send(plain(1), AcksAll)); !errors.Is(r.Err, ErrNotEnoughReplicas) {
		t.Fatalf("%+v", r)
	}
	if r := wait(t, h.send(plain(1), AcksLeader)); r.Err != nil {
		t.Fatalf("acks=1 does not ask for replicas: %+v", r)
	}
	h.g.setInSync(2)
	if base := h.must(t, plain(1)); base != 1 {
		t.Fatalf("base offset %d: the refused batch was appended", base)
	}
}

func TestMinInsyncAboveTheMajorityDelaysTheAnswer(t *testing.T) {
	s := defaults()
	s.MinInsyncReplicas = 3
	h := open(t, replicas(3), settings(s))
	answer := h.send(sequence(7, 0, 0, 1), AcksAll)
	eventually(t, "committed", func() bool { return h.HighWatermark() == 1 })
	eventually(t, "waiting for the third replica", func() bool { return h.waitingWide() == 1 })
	silent(t, answer, "batch on two of three required replicas")
	repeat := h.send(sequence(7, 0, 0, 1), AcksAll)
	eventually(t, "repeat waits too", func() bool { return h.waitingWide() == 2 })
	silent(t, repeat, "repeat of it")
	h.g.reachAll(nil)
	for _, c := range []chan AppendResult{answer, repeat} {
		if r := wait(t, c); r.Err != nil || r.BaseOffset != 0 {
			t.Fatalf("%+v", r)
		}
	}
}

func TestMinInsyncNotReachedInTimeSaysAfterAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := defaults()
		s.MinInsyncReplicas = 2
		h := open(t, replicas(2), settings(s)) // two voters: the majority is two
		if base := h.must(t, plain(1)); base != 0 {
			t.Fatal(base)
		}
		s.MinInsyncReplicas = 3
		h = open(t, replicas(3), settings(s))
		r := wait(t, h.sendUntil(plain(1), AcksAll, time.Now().Add(20*time.Millisecond)))
		if !errors.Is(r.Err, ErrNotEnoughReplicasAfterAppend) {
			t.Fatalf("%+v", r)
		}
		if h.HighWatermark() != 1 {
			t.Fatal("the batch is appended all the same")
		}
		h.g.reachAll(nil)
	})
}

func (h *harness) waitingWide() int {
	h.g.mu.Lock()
	defer h.g.mu.Unlock()
	return len(h.g.wide)
}

// reachAll ends every wait for more replicas.
func (g *fakeGroup) reachAll(err error) {
	g.mu.Lock()
	fns := g.wide
	g.wide = nil
	g.mu.Unlock()
	for _, fn := range fns {
		fn(err)
	}
}

func TestADeadlineAnswersAndTheBatchGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, manual)
		r := wait(t, h.sendUntil(sequence(7, 0, 0, 1), AcksAll, time.Now().Add(20*time.Millisecond)))
		if !errors.Is(r.Err, ErrTimeout) {
			t.Fatalf("%+v", r)
		}
		h.proposed(t, 1)
		h.g.commit(1)
		if r := wait(t, h.send(sequence(7, 0, 0, 1), AcksAll)); r.Err != nil || r.BaseOffset != 0 {
			t.Fatalf("repeat after the timeout: %+v", r)
		}
	})
}

func TestAppendWaitsForBudgetAndGivesUpAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, manual, func(h *harness) { h.own = NewBudget(3 * minCharge) })
		for range 3 {
			h.send(plain(1), AcksAll)
		}
		h.proposed(t, 3)
		r := wait(t, h.sendUntil(plain(1), AcksAll, time.Now().Add(20*time.Millisecond)))
		if !errors.Is(r.Err, ErrTimeout) {
			t.Fatalf("%+v", r)
		}
		fourth := make(chan AppendResult, 1)
		returned := make(chan struct{})
		go func() {
			h.Append(&AppendRequest{Batch: plain(1), Acks: AcksAll, Done: func(r AppendResult) { fourth <- r }})
			close(returned)
		}()
		h.g.commit(1)
		<-returned
		h.proposed(t, 3)
		h.g.commit(-1)
		if r := wait(t, fourth); r.Err != nil || r.BaseOffset != 3 {
			t.Fatalf("%+v", r)
		}
	})
}

func TestABatchAboveTheBudgetIsAdmittedAlone(t *testing.T) {
	h := open(t, func(h *harness) { h.own = NewBudget(minCharge); h.budget = NewBudget(minCharge) })
	h.must(t, batchOf(nil, 10, 20_000))
	h.must(t, plain(1))
}

func TestLosingLeadershipEndsTheWaitForBudget(t *testing.T) {
	h := open(t, manual, func(h *harness) { h.own = NewBudget(minCharge) })
	h.send(plain(1), AcksAll)
	h.proposed(t, 1)
	blocked := make(chan AppendResult, 1)
	go h.Append(&AppendRequest{Batch: plain(1), Acks: AcksAll, Done: func(r AppendResult) { blocked <- r }})
	l := h.lead.Load()
	eventually(t, "blocked", func() bool { h.own.mu.Lock(); defer h.own.mu.Unlock(); return h.own.freed != nil })
	l.end()
	h.lead.Store(nil)
	if r := wait(t, blocked); !errors.Is(r.Err, ErrNotLeader) {
		t.Fatalf("%+v", r)
	}
	h.g.commit(-1)
}

func TestTooLargeIsRefused(t *testing.T) {
	s := defaults()
	s.MaxMessageBytes = 200
	h := open(t, settings(s))
	if r := wait(t, h.send(batchOf(nil, 1, 500), AcksAll)); !errors.Is(r.Err, ErrTooLarge) {
		t.Fatalf("%+v", r)
	}
}

// The store that all replicas share must be able to write when the segments no longer may.
func TestProduceStopsBeforeTheDiskIsFull(t *testing.T) {
	h := open(t)
	h.must(t, plain(1))
	h.fs.SetSpace(10_000)
	h.disk.look(h.fs, "t-0")
	if h.disk.full.Load() || h.disk.low.Load() {
		t.Fatal("full with nine tenths free")
	}
	for h.disk.look(h.fs, "t-0"); !h.disk.full.Load(); h.disk.look(h.fs, "t-0") {
		h.must(t, plain(1))
	}
	if r := wait(t, h.send(plain(1), AcksAll)); !errors.Is(r.Err, ErrStorage) {
		t.Fatalf("%+v", r)
	}
	h.fs.SetSpace(1_000_000)
	h.disk.look(h.fs, "t-0")
	h.must(t, plain(1))
}

// Small batches leave their buffer at once; large ones keep it until the outcome, and whoever needs them longer holds it.
func TestBatchesNeverLieInABufferThatIsUsedAgain(t *testing.T) {
	for _, size := range []int{10, 100_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			h := open(t)
			pool := wire.NewPool()
			pool.Poison = true
			raw := batchOf(nil, 1, size)
			want := append(record.Batch(nil), raw...)
			buf := pool.Get(len(raw) + 100)
			batch := record.Batch(buf.Bytes()[50 : 50+copy(buf.Bytes()[50:], raw)])
			done := make(chan AppendResult, 1)
			h.Append(&AppendRequest{Batch: batch, Buf: buf, Acks: AcksAll, Done: func(r AppendResult) { done <- r }})
			buf.Release()
			if r := wait(t, done); r.Err != nil {
				t.Fatal(r.Err)
			}
			other := pool.Get(len(raw) + 100)
			clear(other.Bytes())
			e, err := h.log.Entry(h.log.LastIndex())
			if err != nil {
				t.Fatal(err)
			}
			if got := record.Batch(e.Data); got.CRC() != want.CRC() || got.CheckCRC() != nil {
				t.Fatal("the stored batch changed")
			}
		})
	}
}

func TestARejectedBatchGivesItsBufferBackToThePool(t *testing.T) {
	h := open(t)
	h.must(t, batchOf(&record.Producer{ID: 3}, 1, 100_000))
	pool := wire.NewPool()
	raw := batchOf(&record.Producer{ID: 3, Sequence: 9}, 1, 100_000)
	buf := pool.Get(len(raw))
	copy(buf.Bytes(), raw)
	done := make(chan AppendResult, 1)
	h.Append(&AppendRequest{Batch: record.Batch(buf.Bytes()), Buf: buf, Acks: AcksAll, Done: func(r AppendResult) { done <- r }})
	if r := wait(t, done); !errors.Is(r.Err, ErrOutOfOrderSequence) {
		t.Fatalf("%+v", r)
	}
	buf.Release() // panics if the partition took more than its own reference
}

func TestFailedStorageIsSaid(t *testing.T) {
	h := open(t)
	h.g.depose(2, "", true)
	h.g.mu.Lock()
	h.g.failed = replica.ErrFailed
	h.g.mu.Unlock()
	if r := wait(t, h.send(plain(1), AcksAll)); !errors.Is(r.Err, ErrStorage) {
		t.Fatalf("%+v", r)
	}
	if _, err := h.Read(read(0)); !errors.Is(err, ErrStorage) {
		t.Fatalf("read: %v", err)
	}
}

// Many producers, leaders that come and go: every acknowledged batch is in the log exactly once, in order per producer.
func TestNothingAcknowledgedIsLostOrTwiceUnderLeaderChanges(t *testing.T) {
	h := open(t)
	const producers, each = 4, 200
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for id := range int64(producers) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for seq := int32(0); seq < each; {
				if r := wait(t, h.send(sequence(id, 0, seq, 1), AcksAll)); r.Err == nil {
					seq++
				} else if !errors.Is(r.Err, ErrNotLeader) {
					t.Errorf("producer %d sequence %d: %v", id, seq, r.Err)
					return
				} else {
					time.Sleep(100 * time.Microsecond)
				}
			}
		}()
	}
	var changes sync.WaitGroup
	changes.Go(func() {
		for term := uint64(10); ; term += 2 {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			h.g.depose(term, "2.0000000000000001", term%4 == 0)
			h.g.lead(term + 1)
		}
	})
	wg.Wait()
	close(stop)
	changes.Wait()
	next := map[int64]int32{}
	for _, b := range h.batches(t) {
		if b.BaseSequence() != next[b.ProducerID()] {
			t.Fatalf("offset %d: producer %d sequence %d, want %d", b.BaseOffset(), b.ProducerID(), b.BaseSequence(), next[b.ProducerID()])
		}
		next[b.ProducerID()]++
	}
	for id := range int64(producers) {
		if next[id] < each {
			t.Fatalf("producer %d: %d batches in the log, %d acknowledged", id, next[id], each)
		}
	}
}

func TestCloseAnswersEverything(t *testing.T) {
	h := open(t, manual)
	var all []chan AppendResult
	for range 20 {
		all = append(all, h.send(plain(1), AcksAll))
	}
	if err := h.close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if r := wait(t, c); !errors.Is(r.Err, ErrNotLeader) {
			t.Fatalf("%+v", r)
		}
	}
	if r := wait(t, h.send(plain(1), AcksAll)); !errors.Is(r.Err, ErrNotLeader) {
		t.Fatalf("%+v", r)
	}
}

// BenchmarkAppend is the partition's own share of a batch: queue, check, overlay, proposal, answer, over a group that
// appends to memory and commits at once.
func BenchmarkAppend(b *testing.B) {
	h := open(b)
	template := sequence(7, 0, 0, 1)
	b.ReportAllocs()
	inflight := make(chan struct{}, 64)
	seq := int32(0)
	for b.Loop() {
		inflight <- struct{}{}
		batch := append(record.Batch(nil), template...)
		setSequence(batch, seq)
		seq++
		h.Append(&AppendRequest{Batch: batch, Acks: AcksAll, Done: func(AppendResult) { <-inflight }})
	}
	for range cap(inflight) {
		inflight <- struct{}{}
	}
}
