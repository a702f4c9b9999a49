package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/engine/log"
	"gopherlog/engine/record"
	"gopherlog/txn/producer"
)

// asked is a question that a fake coordinator has not answered yet.
type askedQuestion struct {
	Question
	done func(Verified, error)
}

// coordinators answer when the test says so, or at once with auto.
type coordinators struct {
	mu      sync.Mutex
	auto    bool
	pending []askedQuestion
	count   int
}

func (c *coordinators) Verify(q Question, done func(Verified, error)) {
	c.mu.Lock()
	c.count++
	auto := c.auto
	if !auto {
		c.pending = append(c.pending, askedQuestion{q, done})
	}
	c.mu.Unlock()
	if auto {
		done(Verified{Ongoing: true}, nil)
	}
}

func (c *coordinators) asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// question waits for the next one.
func (c *coordinators) question(t testing.TB) (q askedQuestion) {
	t.Helper()
	eventually(t, "a coordinator is asked", func() (ok bool) {
		q, ok = c.next()
		return ok
	})
	return q
}

// next returns the oldest question without an answer, if there is one.
func (c *coordinators) next() (q askedQuestion, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 {
		return q, false
	}
	q, c.pending = c.pending[0], c.pending[1:]
	return q, true
}

func (q askedQuestion) yes()          { q.done(Verified{Ongoing: true}, nil) }
func (q askedQuestion) no()           { q.done(Verified{}, nil) }
func (q askedQuestion) err(err error) { q.done(Verified{}, err) }

func with(c *coordinators) option { return func(h *harness) { h.coordinators = c } }

// confirming is a coordinator that knows every transaction.
func confirming(h *harness) { h.coordinators = &coordinators{auto: true} }

// part is a batch of a transaction.
func part(id int64, epoch int16, first int32, count int) record.Batch {
	b := record.Builder{Producer: &record.Producer{ID: id, Epoch: epoch, Sequence: first}, Transactional: true, BaseTimestamp: 1000}
	for i := range count {
		b.Append(record.Record{Value: fmt.Appendf(nil, "%10d", i)})
	}
	return b.Finish()
}

func (h *harness) sendPart(b record.Batch, deadline time.Time) chan AppendResult {
	return h.sendPartOf(b, deadline, producer.Version0)
}

func (h *harness) sendPartOf(b record.Batch, deadline time.Time, v producer.TransactionVersion) chan AppendResult {
	out := make(chan AppendResult, 2)
	h.Append(&AppendRequest{
		Batch: b, Acks: AcksAll, Deadline: deadline, TransactionalID: "tx", Version: v, Done: func(r AppendResult) { out <- r },
	})
	return out
}

func (h *harness) mustPart(t testing.TB, b record.Batch) int64 {
	t.Helper()
	r := wait(t, h.sendPart(b, time.Time{}))
	if r.Err != nil {
		t.Fatalf("append %v: %v", b, r.Err)
	}
	return r.BaseOffset
}

func commitOf(id int64, epoch int16) producer.Marker {
	return producer.Marker{ProducerID: id, Epoch: epoch, Commit: true}
}

func abortOf(id int64, epoch int16) producer.Marker {
	return producer.Marker{ProducerID: id, Epoch: epoch}
}

func (h *harness) mark(m producer.Marker) chan error {
	done := make(chan error, 2)
	h.WriteMarker(m, time.Time{}, func(err error) { done <- err })
	return done
}

func outcome(t testing.TB, c chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(time.Minute):
		t.Fatal("no answer to a marker")
		return nil
	}
}

func (h *harness) mustMark(t testing.TB, m producer.Marker) {
	t.Helper()
	if err := outcome(t, h.mark(m)); err != nil {
		t.Fatalf("marker %+v: %v", m, err)
	}
}

// settled returns when the proposer has worked off what was given to it before.
func (h *harness) settled(t testing.TB) {
	t.Helper()
	done := make(chan error, 1)
	h.lead.Load().do(func(*round) { done <- nil }, func(err error) { done <- err })
	if err := outcome(t, done); err != nil {
		t.Fatal(err)
	}
}

func TestTheFirstBatchOfATransactionWaitsForItsCoordinator(t *testing.T) {
	c := &coordinators{}
	h := open(t, with(c))
	deadline := time.Now().Add(time.Hour)
	first, second := h.sendPart(part(7, 3, 0, 2), deadline), h.sendPart(part(7, 3, 2, 1), deadline)
	q := c.question(t)
	want := Question{TransactionalID: "tx", ProducerID: 7, Epoch: 3, Topic: "t", Number: 0, Deadline: deadline}
	if q.Question != want {
		t.Fatalf("asked %+v, want %+v", q.Question, want)
	}
	other := h.send(plain(1), AcksAll) // others do not wait
	if r := wait(t, other); r.BaseOffset != 0 {
		t.Fatalf("%+v", r)
	}
	h.settled(t)
	silent(t, first, "first batch before its coordinator's answer")
	silent(t, second, "second batch, which would overtake the first")
	q.yes()
	if a, b := wait(t, first), wait(t, second); a.BaseOffset != 1 || b.BaseOffset != 3 {
		t.Fatalf("%+v %+v", a, b)
	}
	if base := h.mustPart(t, part(7, 3, 3, 1)); base != 4 || c.asked() != 1 {
		t.Fatalf("third batch at %d after %d questions, want 4 and 1", base, c.asked())
	}
}

func TestAClientOfVersion2LetsThePartitionJoinItsTransaction(t *testing.T) {
	c := &coordinators{}
	h := open(t, with(c))
	out := h.sendPartOf(part(7, 3, 0, 1), time.Time{}, producer.Version2)
	q := c.question(t)
	if !q.Add || q.Deadline.IsZero() {
		t.Fatalf("%+v", q.Question)
	}
	q.yes()
	if r := wait(t, out); r.Err != nil {
		t.Fatal(r.Err)
	}
	out = h.sendPartOf(part(8, 0, 4, 1), time.Time{}, producer.Version2)
	c.question(t).yes()
	if r := wait(t, out); !errors.Is(r.Err, ErrOutOfOrderSequence) {
		t.Fatalf("%+v: a version 2 client begins each epoch with sequence 0: something is missing", r)
	}
}

func TestABatchIsRefusedWhenItsTransactionIsNotOngoing(t *testing.T) {
	for _, want := range []error{ErrInvalidTxnState, ErrInvalidProducerEpoch, ErrProducerFenced, ErrInvalidProducerIDMapping} {
		c := &coordinators{}
		h := open(t, with(c))
		first, second := h.sendPart(part(7, 0, 0, 1), time.Time{}), h.sendPart(part(7, 0, 1, 1), time.Time{})
		h.settled(t)
		if q := c.question(t); want == ErrInvalidTxnState {
			q.no()
		} else {
			q.err(want)
		}
		for _, out := range []chan AppendResult{first, second} {
			if r := wait(t, out); !errors.Is(r.Err, want) {
				t.Fatalf("%+v, want %v", r, want)
			}
		}
		if h.EndOffset() != 0 || c.asked() != 1 {
			t.Fatalf("log end %d after %d questions", h.EndOffset(), c.asked())
		}
		again := h.sendPart(part(7, 0, 0, 1), time.Time{})
		c.question(t).yes()
		if r := wait(t, again); r.Err != nil {
			t.Fatalf("asked again: %+v", r)
		}
	}
}

func TestWithoutCoordinatorsOrTransactionalIDNothingOpensATransaction(t *testing.T) {
	h := open(t)
	if r := wait(t, h.sendPart(part(7, 0, 0, 1), time.Time{})); !errors.Is(r.Err, ErrInvalidTxnState) {
		t.Fatalf("%+v", r)
	}
	h = open(t, confirming)
	if r := wait(t, h.send(part(7, 0, 0, 1), AcksAll)); !errors.Is(r.Err, ErrInvalidTxnState) {
		t.Fatalf("%+v", r)
	}
}

func TestACoordinatorThatCannotBeAskedIsAskedAgainUntilTheDeadline(t *testing.T) {
	errTooLate := errors.New("too late")
	for _, last := range []error{ErrNotCoordinator, nil, errTooLate} {
		c := &coordinators{}
		now := time.Now()
		var mu sync.Mutex
		h := open(t, with(c), func(h *harness) { h.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now } })
		deadline := now.Add(time.Minute)
		out := h.sendPart(part(7, 0, 0, 1), deadline)
		for i := range 4 {
			c.question(t).err([]error{ErrNotCoordinator, ErrConcurrentTransactions}[i%2])
			silent(t, out, "a batch whose coordinator is unknown")
			mu.Lock()
			now = now.Add(time.Second)
			mu.Unlock()
			h.lead.Load().nudge()
		}
		q := c.question(t)
		if last == nil {
			q.yes()
			if r := wait(t, out); r.Err != nil {
				t.Fatalf("%+v", r)
			}
			continue
		}
		mu.Lock()
		now = deadline
		mu.Unlock()
		if last == errTooLate {
			q.yes() // before anybody has looked at the clock
		}
		h.lead.Load().nudge()
		if r := wait(t, out); !errors.Is(r.Err, ErrNotEnoughReplicas) {
			t.Fatalf("%+v", r)
		}
		if last != errTooLate {
			q.yes()
		}
		h.settled(t)
		if h.EndOffset() != 0 {
			t.Fatal("appended after its deadline")
		}
	}
}

func TestWhatComesBehindABatchThatTimedOutIsRefusedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &coordinators{}
		h := open(t, with(c))
		first := h.sendPart(part(7, 0, 0, 1), time.Now().Add(20*time.Millisecond))
		second := h.sendPart(part(7, 0, 1, 1), time.Now().Add(time.Hour))
		q := c.question(t)
		for _, out := range []chan AppendResult{first, second} {
			if r := wait(t, out); !errors.Is(r.Err, ErrNotEnoughReplicas) {
				t.Fatalf("%+v", r)
			}
		}
		q.yes()
		h.settled(t)
		if h.EndOffset() != 0 {
			t.Fatal("the second batch was appended without the first")
		}
		if base := h.mustPart(t, part(7, 0, 0, 1)); base != 0 || c.asked() != 1 {
			t.Fatalf("at %d after %d questions: the answer still holds", base, c.asked())
		}
	})
}

func TestEachTransactionIsVerifiedAnew(t *testing.T) {
	c := &coordinators{auto: true}
	h := open(t, with(c))
	h.mustPart(t, part(7, 0, 0, 1))
	h.mustMark(t, commitOf(7, 0))
	h.mustPart(t, part(7, 0, 1, 1))
	h.mustPart(t, part(7, 0, 2, 1))
	if c.asked() != 2 {
		t.Fatalf("%d questions for two transactions", c.asked())
	}
}

func TestWhatWasVerifiedDiesWithTheTerm(t *testing.T) {
	c := &coordinators{}
	h := open(t, with(c))
	out := h.sendPart(part(7, 0, 0, 1), time.Time{})
	old := c.question(t)
	h.g.depose(2, "2.0000000000000001", true)
	if r := wait(t, out); !errors.Is(r.Err, ErrNotLeader) {
		t.Fatalf("%+v", r)
	}
	h.g.lead(3)
	old.yes()
	out = h.sendPart(part(7, 0, 0, 1), time.Time{})
	q := c.question(t)
	silent(t, out, "a batch that was verified in an older term")
	q.yes()
	if r := wait(t, out); r.Err != nil {
		t.Fatal(r.Err)
	}
}

// The transaction ends while its late batch is being verified: what the coordinator said before is void.
func TestAMarkerVoidsAnAnswerThatIsUnderWay(t *testing.T) {
	c := &coordinators{}
	h := open(t, with(c))
	out := h.sendPart(part(7, 0, 0, 1), time.Time{})
	q := c.question(t)
	h.mustMark(t, abortOf(7, 0))
	q.yes()
	q = c.question(t)
	silent(t, out, "a batch whose transaction was ended")
	q.no()
	if r := wait(t, out); !errors.Is(r.Err, ErrInvalidTxnState) {
		t.Fatalf("%+v", r)
	}
	if h.OpenTransactions() != 0 {
		t.Fatal("a transaction is open that nobody ends")
	}
}

func TestARepeatNeedsNoCoordinator(t *testing.T) {
	c := &coordinators{auto: true}
	h := open(t, with(c))
	base := h.mustPart(t, part(7, 0, 0, 2))
	if got := h.mustPart(t, part(7, 0, 0, 2)); got != base || c.asked() != 1 {
		t.Fatalf("repeat at %d after %d questions", got, c.asked())
	}
}

// A client whose batch went unanswered gives it up with its transaction, and may give the sequence to a record of the next one. Taken for a
// repeat, that record would be answered and lost.
func TestASequenceOfAnAbortedTransactionThatComesAgainIsNotAnsweredAsARepeat(t *testing.T) {
	h := open(t, with(&coordinators{auto: true}))
	h.mustPart(t, part(7, 0, 0, 1))
	h.mustPart(t, part(7, 0, 1, 1))
	h.mustMark(t, abortOf(7, 0))
	if r := wait(t, h.sendPart(part(7, 0, 1, 1), time.Time{})); !errors.Is(r.Err, ErrOutOfOrderSequence) {
		t.Fatalf("%+v", r)
	}
	if base := h.mustPart(t, part(7, 0, 2, 1)); base != 3 {
		t.Fatalf("the next sequence went to %d", base)
	}
}

func TestARepeatThatStandsBehindARefusedBatchKeepsItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, with(&coordinators{auto: true}))
		h.mustPart(t, part(7, 0, 0, 1))
		next := h.sendPart(part(7, 1, 0, 1), time.Now().Add(20*time.Millisecond))
		repeat := h.sendPart(part(7, 0, 0, 1), time.Time{})
		if a, b := wait(t, next), wait(t, repeat); !errors.Is(a.Err, ErrConcurrentTransactions) || b.Err != nil || b.BaseOffset != 0 {
			t.Fatalf("batch of the next epoch %+v, repeat of one that is appended %+v", a, b)
		}
	})
}

// A proposal of this term was lost: what waits is lost with it, or it could be appended ahead of what is sent again.
func TestAFailedProposalEndsTheWaiting(t *testing.T) {
	c := &coordinators{}
	h := open(t, with(c))
	out := h.sendPart(part(7, 0, 0, 1), time.Time{})
	q := c.question(t)
	ready := func(is bool) { h.g.mu.Lock(); h.g.ready = is; h.g.mu.Unlock() }
	ready(false) // and nobody has told the partition
	if r := wait(t, h.send(plain(1), AcksAll)); !errors.Is(r.Err, ErrNotLeader) {
		t.Fatalf("%+v", r)
	}
	h.lead.Load().nudge()
	if r := wait(t, out); !errors.Is(r.Err, ErrNotLeader) {
		t.Fatalf("%+v", r)
	}
	ready(true)
	q.yes()
	h.settled(t)
	if h.EndOffset() != 0 {
		t.Fatalf("log end %d", h.EndOffset())
	}
	out = h.sendPart(part(7, 0, 0, 1), time.Time{})
	c.question(t).yes()
	if r := wait(t, out); r.Err != nil || r.BaseOffset != 0 {
		t.Fatalf("%+v", r)
	}
}

// No pause and no answer: the batch goes in right behind the marker that it waited for.
func TestABatchThatMeetsTheTransactionBeforeIsHeldUntilItHasEnded(t *testing.T) {
	c := &coordinators{auto: true}
	h := open(t, with(c))
	h.mustPart(t, part(7, 0, 0, 1))
	next, after := h.sendPart(part(7, 1, 0, 1), time.Time{}), h.sendPart(part(7, 1, 1, 1), time.Time{})
	h.settled(t)
	silent(t, next, "a batch of the next epoch while a transaction is open")
	silent(t, after, "the one behind it")
	if c.asked() != 1 {
		t.Fatalf("%d questions", c.asked())
	}
	h.mustMark(t, producer.Marker{ProducerID: 7, Epoch: 1, Commit: true, Version: producer.Version2})
	if a, b := wait(t, next), wait(t, after); a.BaseOffset != 2 || b.BaseOffset != 3 {
		t.Fatalf("%+v %+v", a, b)
	}
}

func TestABatchIsHeldNoLongerThanItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, confirming)
		h.mustPart(t, part(7, 0, 0, 1))
		out := h.sendPart(part(7, 1, 0, 1), time.Now().Add(20*time.Millisecond))
		if r := wait(t, out); !errors.Is(r.Err, ErrConcurrentTransactions) {
			t.Fatalf("%+v", r)
		}
		h.mustMark(t, abortOf(7, 1))
		h.settled(t)
		if h.EndOffset() != 2 {
			t.Fatalf("log end %d: the batch was appended after its deadline", h.EndOffset())
		}
	})
}

func TestBatchesThatWaitLeaveRoomForOthers(t *testing.T) {
	c := &coordinators{}
	h := open(t, with(c))
	var outs []chan AppendResult
	for i := range int32(maxParked/minCharge + 3) {
		outs = append(outs, h.sendPart(part(7, 0, i, 1), time.Time{}))
	}
	h.settled(t)
	for _, out := range outs[maxParked/minCharge:] {
		if r := wait(t, out); !errors.Is(r.Err, ErrNotEnoughReplicas) {
			t.Fatalf("%+v", r)
		}
	}
	h.must(t, plain(1))
	c.question(t).yes()
	for i, out := range outs[:maxParked/minCharge] {
		if r := wait(t, out); r.BaseOffset != int64(i)+1 {
			t.Fatalf("batch %d: %+v", i, r)
		}
	}
	if l := h.lead.Load(); l.parkedBytes != 0 {
		t.Fatalf("%d bytes are still counted as waiting", l.parkedBytes)
	}
}

func TestAPlainBatchDoesNotEnterAnOpenTransaction(t *testing.T) {
	h := open(t, confirming)
	h.mustPart(t, part(7, 0, 0, 1))
	if r := wait(t, h.send(sequence(7, 0, 1, 1), AcksAll)); !errors.Is(r.Err, ErrNotTransactional) {
		t.Fatalf("%+v", r)
	}
}

func TestAMarkerIsDoneWhenItIsCommittedAndApplied(t *testing.T) {
	h := open(t, confirming, manual)
	out := h.sendPart(part(7, 0, 0, 2), time.Time{})
	h.proposed(t, 1)
	h.g.commit(1)
	wait(t, out)
	done := h.mark(commitOf(7, 0))
	h.proposed(t, 1)
	select {
	case err := <-done:
		t.Fatalf("done before the commit: %v", err)
	default:
	}
	if h.LastStable() != 0 || h.HighWatermark() != 2 {
		t.Fatalf("last stable offset %d, high watermark %d", h.LastStable(), h.HighWatermark())
	}
	h.g.commit(1)
	if err := outcome(t, done); err != nil || h.LastStable() != 3 || h.HighWatermark() != 3 {
		t.Fatalf("%v, last stable offset %d, high watermark %d", err, h.LastStable(), h.HighWatermark())
	}
}

// Whatever a deposed leader remembers, it confirms no marker: not a new one, not a repeat in flight, not one that it takes for done, and
// it does not call one too old either.
func TestADeposedLeaderConfirmsNoMarker(t *testing.T) {
	for name, m := range map[string]producer.Marker{
		"new":     commitOf(7, 1),
		"repeat":  {ProducerID: 8, Epoch: 1, Commit: true, Version: producer.Version2},
		"done":    {ProducerID: 9, Epoch: 1, Commit: true, Version: producer.Version2},
		"too old": commitOf(9, 0),
		"fenced":  {ProducerID: 9, Epoch: 1, CoordinatorEpoch: -1},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, confirming)
			for id := int64(7); id <= 9; id++ {
				h.mustPart(t, part(id, 0, 0, 1))
			}
			h.mustMark(t, producer.Marker{ProducerID: 9, Epoch: 1, Commit: true, Version: producer.Version2})
			h.g.mu.Lock()
			h.g.auto = false
			h.g.mu.Unlock()
			flying := h.mark(producer.Marker{ProducerID: 8, Epoch: 1, Commit: true, Version: producer.Version2})
			h.proposed(t, 1)
			done := h.mark(m)
			h.settled(t)
			h.g.depose(2, "2.0000000000000001", true)
			if err := outcome(t, done); !errors.Is(err, ErrNotLeader) {
				t.Fatalf("answered %v", err)
			}
			if err := outcome(t, flying); !errors.Is(err, ErrNotLeader) {
				t.Fatalf("in flight: %v", err)
			}
		})
	}
}

func TestAMarkerThatIsSentAgainIsAcknowledgedOnce(t *testing.T) {
	h := open(t, confirming, manual)
	out := h.sendPart(part(7, 0, 0, 1), time.Time{})
	h.proposed(t, 1)
	h.g.commit(1)
	wait(t, out)
	m := producer.Marker{ProducerID: 7, Epoch: 1, Commit: true, Version: producer.Version2}
	first, again := h.mark(m), h.mark(m)
	h.settled(t)
	h.proposed(t, 1)
	h.g.commit(-1)
	if a, b := outcome(t, first), outcome(t, again); a != nil || b != nil {
		t.Fatalf("%v %v", a, b)
	}
	end := h.EndOffset()
	h.g.mu.Lock()
	h.g.auto = true
	h.g.mu.Unlock()
	h.mustMark(t, m)
	// The coordinator was elected anew, and so was the partition's leader: their memory is the log.
	h.reload(t)
	m.CoordinatorEpoch = 5
	h.mustMark(t, m)
	if h.EndOffset() != end {
		t.Fatalf("log end %d, want %d: the marker was written again", h.EndOffset(), end)
	}
}

// reload makes the replica restore its own snapshot, and leads again.
func (h *harness) reload(t testing.TB) {
	t.Helper()
	h.g.depose(h.Status().Term+1, "2.0000000000000001", false)
	state := machine{h.Partition}.Snapshot()
	base, stable := log.Base{Index: h.applied.Load(), NextOffset: h.HighWatermark(), LogStart: 0, State: state}, h.LastStable()
	if err := (machine{h.Partition}).Restore(state, base); err != nil || h.LastStable() != stable {
		t.Fatalf("restored: %v, last stable offset %d, was %d", err, h.LastStable(), stable)
	}
	h.g.lead(h.Status().Term + 1)
	eventually(t, "it leads again", func() bool { _, _, ready := h.Leader(); return ready })
}

func TestAMarkerOfAnOlderCoordinatorIsRefused(t *testing.T) {
	h := open(t, confirming)
	h.mustPart(t, part(7, 0, 0, 1))
	h.mustMark(t, producer.Marker{ProducerID: 7, CoordinatorEpoch: 4, Commit: true})
	h.mustPart(t, part(7, 0, 1, 1))
	if err := outcome(t, h.mark(producer.Marker{ProducerID: 7, CoordinatorEpoch: 3})); !errors.Is(err, ErrCoordinatorFenced) {
		t.Fatalf("%v", err)
	}
	h.reload(t)
	if err := outcome(t, h.mark(producer.Marker{ProducerID: 7, CoordinatorEpoch: 3})); !errors.Is(err, ErrCoordinatorFenced) {
		t.Fatalf("after a reload: %v", err)
	}
	if h.OpenTransactions() != 1 {
		t.Fatal("it ended the transaction")
	}
}

func TestALateMarkerDoesNotEndTheNextTransaction(t *testing.T) {
	h := open(t, confirming)
	h.mustPart(t, part(7, 0, 0, 1))
	m := producer.Marker{ProducerID: 7, Epoch: 1, Commit: true, Version: producer.Version2}
	h.mustMark(t, m)
	h.mustPart(t, part(7, 1, 0, 1))
	if err := outcome(t, h.mark(m)); !errors.Is(err, ErrInvalidProducerEpoch) {
		t.Fatalf("%v", err)
	}
	if err := outcome(t, h.mark(commitOf(7, 0))); !errors.Is(err, ErrInvalidProducerEpoch) {
		t.Fatalf("%v", err)
	}
	if h.OpenTransactions() != 1 || h.LastStable() != 2 {
		t.Fatalf("%d open, last stable offset %d", h.OpenTransactions(), h.LastStable())
	}
}

func TestAMarkerWhoseDeadlinePassedIsNeverProposed(t *testing.T) {
	h := open(t, confirming)
	h.mustPart(t, part(7, 0, 0, 1))
	done := make(chan error, 1)
	h.WriteMarker(commitOf(7, 0), time.Now().Add(-time.Millisecond), func(err error) { done <- err })
	if err := outcome(t, done); !errors.Is(err, ErrTimeout) || h.EndOffset() != 1 {
		t.Fatalf("%v, log end %d", err, h.EndOffset())
	}
}

func TestAMarkerThatDoesNotCommitInTimeIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, confirming, manual)
		done := make(chan error, 1)
		h.WriteMarker(commitOf(7, 0), time.Now().Add(20*time.Millisecond), func(err error) { done <- err })
		if err := outcome(t, done); !errors.Is(err, ErrTimeout) {
			t.Fatalf("%v", err)
		}
		h.g.commit(-1)
	})
}

func TestAFollowerTakesNoMarker(t *testing.T) {
	h := open(t, confirming)
	h.g.depose(2, "2.0000000000000001", true)
	if err := outcome(t, h.mark(commitOf(7, 0))); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("%v", err)
	}
}

// committedView is what a read_committed consumer sees: the base offsets of the batches that it does not skip.
func committedView(t testing.TB, h *harness, from int64) []int64 {
	t.Helper()
	seen, err := tryCommittedView(t, h.Partition, from)
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

func tryCommittedView(t testing.TB, p *Partition, from int64) (seen []int64, err error) {
	t.Helper()
	for {
		res, err := p.Read(ReadRequest{Offset: from, MaxBytes: 200, MinOne: true, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, Isolation: ReadCommitted})
		if err != nil {
			return nil, err
		}
		if res.Slice == nil {
			if from < res.LastStable {
				t.Fatalf("nothing at %d below the last stable offset %d", from, res.LastStable)
			}
			return seen, nil
		}
		bases, next := visible(t, res, from)
		seen, from = append(seen, bases...), next
	}
}

// visible filters one answer as clients do.
func visible(t testing.TB, res ReadResult, from int64) (seen []int64, next int64) {
	t.Helper()
	data, err := res.Slice.ReadAll(nil)
	res.Slice.Release()
	if err != nil {
		t.Fatal(err)
	}
	skip := map[int64]bool{}
	todo := slices.Clone(res.Aborted)
	slices.SortFunc(todo, func(a, b producer.Aborted) int { return int(a.First - b.First) })
	for len(data) > 0 {
		b, rest, err := record.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		data, next = rest, b.NextOffset()
		for len(todo) > 0 && todo[0].First <= b.LastOffset() {
			skip[todo[0].ProducerID] = true
			todo = todo[1:]
		}
		switch {
		case b.IsControl():
			if kind, _, err := record.ParseControl(b); err == nil && kind == record.Abort {
				delete(skip, b.ProducerID())
			}
		case b.IsTransactional() && skip[b.ProducerID()]:
		case b.LastOffset() >= from:
			seen = append(seen, b.BaseOffset())
		}
	}
	return seen, next
}

func TestReadersOfCommittedSeeCommittedTransactionsOnly(t *testing.T) {
	h := open(t, confirming)
	h.must(t, plain(1))             // 0
	h.mustPart(t, part(7, 0, 0, 2)) // 1, aborted
	h.mustPart(t, part(8, 0, 0, 1)) // 3, committed
	h.mustPart(t, part(7, 0, 2, 1)) // 4, aborted
	h.mustMark(t, abortOf(7, 0))    // 5
	h.mustPart(t, part(7, 0, 3, 1)) // 6, committed
	h.mustMark(t, commitOf(8, 0))   // 7
	h.mustMark(t, commitOf(7, 0))   // 8
	h.mustPart(t, part(9, 0, 0, 1)) // 9, open
	h.must(t, plain(1))             // 10
	if h.LastStable() != 9 || h.HighWatermark() != 11 {
		t.Fatalf("last stable offset %d, high watermark %d", h.LastStable(), h.HighWatermark())
	}
	if got, want := committedView(t, h, 0), []int64{0, 3, 6}; !slices.Equal(got, want) {
		t.Fatalf("seen %v, want %v", got, want)
	}
	if got, want := committedView(t, h, 4), []int64{6}; !slices.Equal(got, want) {
		t.Fatalf("from the middle of an aborted transaction: seen %v, want %v", got, want)
	}
	res, err := h.Read(ReadRequest{Offset: 0, MaxBytes: 1 << 20, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch})
	if err != nil || res.Slice.Next != 11 || res.Aborted != nil {
		t.Fatalf("read_uncommitted: %+v %v: it gets everything and no list", res, err)
	}
	res.Slice.Release()
	h.reload(t)
	if got, want := committedView(t, h, 0), []int64{0, 3, 6}; !slices.Equal(got, want) || h.LastStable() != 9 {
		t.Fatalf("after a reload: seen %v, want %v, last stable offset %d", got, want, h.LastStable())
	}
}

func woken(t testing.TB, w *Waiter) {
	t.Helper()
	select {
	case <-w.C:
	case <-time.After(time.Minute):
		t.Fatal("not woken")
	}
}

func TestAMarkerWakesReadersOfCommitted(t *testing.T) {
	h := open(t, confirming)
	h.mustPart(t, part(7, 0, 0, 1))
	res, err := h.Read(ReadRequest{Offset: 0, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, Isolation: ReadCommitted})
	if err != nil || res.Slice != nil {
		t.Fatalf("%+v %v", res, err)
	}
	w, all := NewWaiter(), NewWaiter()
	if h.Park(w, res.LastStable+1, res.LeaderEpoch, ReadCommitted) {
		t.Fatal("parked though the last stable offset is another")
	}
	if !h.Park(w, res.LastStable, res.LeaderEpoch, ReadCommitted) || !h.Park(all, res.HighWatermark, res.LeaderEpoch, ReadUncommitted) {
		t.Fatal("not parked")
	}
	h.mustPart(t, part(7, 0, 1, 1))
	woken(t, all)
	select {
	case <-w.C:
		t.Fatal("woken by a record that it may not see")
	default:
	}
	h.mustMark(t, commitOf(7, 0))
	woken(t, w)
	if h.LastStable() != 3 {
		t.Fatalf("woken at last stable offset %d", h.LastStable())
	}
}

func TestTheEndOfALeadershipWakesReadersOfCommitted(t *testing.T) {
	h := open(t, confirming)
	h.mustPart(t, part(7, 0, 0, 1))
	w := NewWaiter()
	if !h.Park(w, 0, 1, ReadCommitted) {
		t.Fatal("not parked")
	}
	h.g.depose(2, "2.0000000000000001", true)
	woken(t, w)
}

// A fetch never waits for a coordinator: while one is being asked, readers of either kind get what there is.
func TestAReaderDoesNotWaitForACoordinator(t *testing.T) {
	c := &coordinators{}
	h := open(t, with(c))
	h.must(t, plain(2))
	out := h.sendPart(part(7, 0, 0, 1), time.Time{})
	q := c.question(t)
	for _, isolation := range []int8{ReadUncommitted, ReadCommitted} {
		res, err := h.Read(ReadRequest{Offset: 0, MaxBytes: 1 << 20, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, Isolation: isolation})
		if err != nil || res.Slice == nil || res.Slice.Next != 2 {
			t.Fatalf("isolation %d: %+v %v", isolation, res, err)
		}
		res.Slice.Release()
	}
	q.yes()
	wait(t, out)
}

func TestEndsAndTimestampsRespectTheIsolation(t *testing.T) {
	h := open(t, confirming)
	h.must(t, plain(1))
	h.mustPart(t, part(7, 0, 0, 1))
	later := record.Builder{BaseTimestamp: 2000}
	later.Append(record.Record{Value: []byte("x")})
	h.must(t, later.Finish())
	for _, tc := range []struct {
		isolation int8
		max       int64
		found     bool
	}{{ReadUncommitted, 2, true}, {ReadCommitted, 0, false}} {
		if offset, _, err := h.MaxTimestamp(tc.isolation); offset != tc.max || err != nil {
			t.Errorf("isolation %d: largest timestamp at %d (%v), want %d", tc.isolation, offset, err, tc.max)
		}
		if _, _, _, ok, err := h.OffsetForTimestamp(1500, tc.isolation); ok != tc.found || err != nil {
			t.Errorf("isolation %d: found %v (%v), want %v", tc.isolation, ok, err, tc.found)
		}
	}
}

func TestRetentionStopsAtTheLastStableOffset(t *testing.T) {
	s := defaults()
	s.RetentionTime = time.Minute
	h := open(t, confirming, settings(s))
	h.must(t, batchOf(nil, 1, 10_000))
	h.mustPart(t, part(7, 0, 0, 1))
	for range 4 {
		h.must(t, batchOf(nil, 1, 10_000))
	}
	all := func(*Partition) bool { return true }
	later := time.Now().Add(time.Hour)
	if err := h.retain(context.Background(), later, all); err != nil {
		t.Fatal(err)
	}
	if h.LogStart() > h.LastStable() || h.LastStable() != 1 {
		t.Fatalf("log start %d, last stable offset %d", h.LogStart(), h.LastStable())
	}
	h.mustMark(t, abortOf(7, 0))
	if err := h.retain(context.Background(), later, all); err != nil {
		t.Fatal(err)
	}
	if h.LogStart() != h.EndOffset() {
		t.Fatalf("log start %d, log end %d", h.LogStart(), h.EndOffset())
	}
	h.stateMu.Lock()
	left := h.producers.AbortedEndingIn(0, 1<<40)
	h.stateMu.Unlock()
	if len(left) != 0 {
		t.Fatalf("still known below the log start: %v", left)
	}
}

func TestRecordsOfAnOpenTransactionMayBeDeleted(t *testing.T) {
	h := open(t, confirming)
	h.mustPart(t, part(7, 0, 0, 3))
	h.must(t, plain(2))
	if low, err := h.DeleteRecords(context.Background(), 4); low != 4 || err != nil {
		t.Fatalf("%d %v", low, err)
	}
	if h.LastStable() != 4 {
		t.Fatalf("last stable offset %d below the log start", h.LastStable())
	}
	if got := committedView(t, h, 4); len(got) != 0 {
		t.Fatalf("seen %v behind an open transaction", got)
	}
	h.mustMark(t, commitOf(7, 0))
	if got := committedView(t, h, 4); !slices.Equal(got, []int64{3}) {
		t.Fatalf("seen %v", got)
	}
}

// A reader that was under way when the log start moved must not get records whose abort is forgotten.
func TestAReadThatATrimOvertookIsOutOfRange(t *testing.T) {
	h := open(t, confirming)
	h.mustPart(t, part(7, 0, 0, 3))
	h.mustMark(t, abortOf(7, 0))
	h.stateMu.Lock()
	h.producers.Trim(4)
	h.trimmedTo = 4 // applied, and not yet seen by readers
	h.stateMu.Unlock()
	if res, err := h.Read(ReadRequest{Offset: 0, MaxBytes: 100, MinOne: true, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, Isolation: ReadCommitted}); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Fatalf("%+v %v", res, err)
	}
}

func TestExpirySparesOpenTransactions(t *testing.T) {
	h := open(t, confirming)
	h.mustPart(t, part(7, 0, 0, 1))
	h.must(t, sequence(8, 0, 0, 1))
	h.must(t, plain(1))
	if err := h.control(context.Background(), commandExpire, 3, false); err != nil {
		t.Fatal(err)
	}
	if got := h.Producers(); len(got) != 1 || got[0].ID != 7 || got[0].Transaction != 0 {
		t.Fatalf("%+v", got)
	}
	h.mustMark(t, commitOf(7, 0))
	if h.LastStable() != h.EndOffset() {
		t.Fatal("the marker did not find its transaction")
	}
}
