package kafkatx

import (
	"strings"
	"testing"
	"time"
)

// begun is a machine whose producer 100:0 has a transaction on partition 1.
func begun(t *testing.T, v Version) *rig {
	r := newRig(t)
	r.do(r.init(1))
	r.expect(Durable{}, "answer 1 ok 100:0")
	r.do(r.add(2, 100, 0, v, 1))
	r.expect(Durable{}, "answer 2 ok")
	return r
}

func TestNothingIsSaidBeforeItsRecordIsDurable(t *testing.T) {
	r := newRig(t)
	r.expect(r.init(1), "took 100; append Empty 100:0")
	r.expect(r.add(2, 100, 0, Version2, 1), "append Ongoing 100:0 v2 [t-1]")
	r.expect(r.add(3, 100, 0, Version2, 1), "") // known already, but not durably
	r.expect(r.end(4, 100, 0, true, Version2), "append PrepareCommit 100:1 last 0 v2 [t-1]")
	r.expect(r.end(5, 100, 0, true, Version2), "") // a repeat
	r.expect(r.add(6, 100, 1, Version2, 1), "")    // the next transaction: too early
	r.expect(Durable{}, "answer 1 ok 100:0")
	r.expect(Durable{}, "answer 2 ok; answer 3 ok")
	r.expect(Durable{}, "answer 4 ok 100:1; answer 5 ok 100:1; answer 6 CONCURRENT_TRANSACTIONS; commit 100:1 on t-1 by 1 v2")
}

func TestMarkersAreSentUntilEveryPartitionHasThem(t *testing.T) {
	r := begun(t, Version2)
	r.do(r.add(3, 100, 0, Version2, 2))
	r.do(Durable{})
	r.do(r.end(4, 100, 0, true, Version2))
	r.expect(Durable{}, "answer 4 ok 100:1; commit 100:1 on t-1 by 1 v2; commit 100:1 on t-2 by 1 v2")
	r.expect(Marked{Partition{"t", 2}, 100, 1}, "")
	if got := r.do(Timer{TimerResend}); got != "commit 100:1 on t-1 by 1 v2; set resend 400ms" {
		t.Fatal(got)
	}
	if got := r.do(Timer{TimerResend}); got != "commit 100:1 on t-1 by 1 v2; set resend 800ms" {
		t.Fatal(got)
	}
	r.expect(Marked{Partition{"t", 1}, 100, 0}, "") // of an earlier transaction
	r.expect(Marked{Partition{"t", 1}, 100, 1}, "append CompleteCommit 100:1 last 0 v2")
	if !strings.Contains(r.state.String(), "pending CompleteCommit") || r.state.Ending() {
		t.Fatal(r.state)
	}
	r.expect(Marked{Partition{"t", 1}, 100, 1}, "")
	r.expect(r.add(5, 100, 1, Version2, 1), "append Ongoing 100:1 v2 [t-1]")
}

func TestPausesBetweenMarkersAreBounded(t *testing.T) {
	r := from(t, meta(PrepareAbort, 5, Version0, 1))
	got := ""
	for range 300 {
		got = r.do(Timer{TimerResend})
	}
	if want := "set resend 1.6s"; !strings.HasSuffix(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestADecisionIsCarriedOutByTheNextCoordinator(t *testing.T) {
	r := begun(t, Version2)
	r.do(r.end(3, 100, 0, true, Version2))
	r.do(Durable{})
	if got := plain(r.reload()); got != "commit 100:1 on t-1 by 2 v2" {
		t.Fatal(got)
	}
	r.expect(r.end(3, 100, 0, true, Version2), "answer 3 ok 100:1")
	r.expect(r.end(4, 100, 0, false, Version2), "answer 4 INVALID_TXN_STATE if still leading")
	r.settle()
	if m := r.newest(); m.Status != CompleteCommit {
		t.Fatal(m)
	}
}

func TestAnUndecidedTransactionGoesOnUnderTheNextCoordinator(t *testing.T) {
	r := begun(t, Version2)
	r.now = r.now.Add(20 * time.Second)
	if got := r.reload(); got != "set transaction timeout 40s" {
		t.Fatal(got)
	}
	r.now = r.now.Add(time.Hour)
	if got := r.reload(); got != "set transaction timeout 0s" {
		t.Fatal(got)
	}
	r.expect(r.end(3, 100, 0, true, Version2), "append PrepareCommit 100:1 last 0 v2 [t-1]")
}

func TestACoordinatorThatLostItsTermFallsSilent(t *testing.T) {
	r := begun(t, Version2)
	r.do(r.end(3, 100, 0, true, Version2))
	r.expect(Lost{}, "answer 3 NOT_COORDINATOR")
	for _, e := range []Event{Durable{}, Timer{TimerResend}, Timer{TimerTransaction}, Marked{Partition{"t", 1}, 100, 1}, Lost{}} {
		r.expect(e, "")
	}
	r.expect(r.end(4, 100, 0, true, Version2), "answer 4 NOT_COORDINATOR")
	r.expect(r.add(5, 100, 0, Version2, 1), "answer 5 NOT_COORDINATOR")
	r.expect(Verify{6, 100, 0, parts(1)}, "answer 6 NOT_COORDINATOR")
	r.expect(r.init(7), "answer 7 NOT_COORDINATOR")
}

func TestARepeatedEndIsAnsweredLikeTheFirst(t *testing.T) {
	for _, v := range []Version{Version0, Version2} {
		r := begun(t, v)
		r.do(r.end(3, 100, 0, true, v))
		first := plain(r.do(Durable{}))
		want := strings.Split(first, "; ")[0]
		if v == Version0 {
			want += " if still leading" // it may be about a later transaction of the epoch
		}
		r.expect(r.end(3, 100, 0, true, v), want)
		r.settle()
		r.expect(r.end(3, 100, 0, true, v), want)
		r.reload()
		r.expect(r.end(3, 100, 0, true, v), want)
		r.expect(r.end(4, 100, 0, false, v), "answer 4 INVALID_TXN_STATE if still leading")
	}
}

// Version 0 cannot tell a late EndTxn from one about the transaction that is open now; version 2 can.
func TestALateEndDecidesTheNextTransactionOnlyBeforeVersion2(t *testing.T) {
	old := begun(t, Version0)
	late := old.end(9, 100, 0, true, Version0)
	old.do(old.end(3, 100, 0, false, Version0))
	old.settle()
	old.do(old.add(4, 100, 0, Version0, 1))
	old.settle()
	old.expect(late, "append PrepareCommit 100:0 [t-1]")

	r := begun(t, Version2)
	late = r.end(9, 100, 0, true, Version2)
	r.do(r.end(3, 100, 0, false, Version2))
	r.settle()
	r.do(r.add(4, 100, 1, Version2, 1))
	r.settle()
	r.expect(late, "answer 9 PRODUCER_FENCED if still leading")
}

func TestANewOwnerWaitsForTheAbortAndFencesTheOldOne(t *testing.T) {
	r := begun(t, Version0)
	r.expect(r.init(5), "append PrepareAbort 100:1 v2 [t-1]")
	r.expect(r.end(6, 100, 0, true, Version0), "") // answered when the fence is durable
	r.expect(Durable{}, "answer 5 CONCURRENT_TRANSACTIONS; answer 6 PRODUCER_FENCED if still leading; abort 100:1 on t-1 by 1 v2")
	r.expect(r.init(7), "answer 7 CONCURRENT_TRANSACTIONS")
	r.settle()
	r.do(r.init(5))
	r.expect(Durable{}, "answer 5 ok 100:2")
	for epoch := range int16(2) {
		r.expect(r.add(8, 100, epoch, Version0, 1), "answer 8 PRODUCER_FENCED if still leading")
		r.expect(r.resume(9, 100, epoch), "answer 9 PRODUCER_FENCED if still leading")
	}
}

func TestAProducerThatTimedOutMayGoOn(t *testing.T) {
	r := begun(t, Version2)
	r.expect(Timer{TimerTransaction}, "append PrepareAbort 100:1 last 0 v2 [t-1]")
	r.expect(Durable{}, "abort 100:1 on t-1 by 1 v2")
	r.expect(r.end(3, 100, 0, true, Version2), "answer 3 INVALID_TXN_STATE if still leading")
	r.expect(r.end(4, 100, 0, false, Version2), "answer 4 ok 100:1")
	r.expect(r.resume(5, 100, 0), "answer 5 CONCURRENT_TRANSACTIONS")
	r.settle()
	r.reload()
	r.do(r.resume(5, 100, 0))
	r.expect(Durable{}, "answer 5 ok 100:1")
}

func TestARepeatedInitGetsTheSameEpoch(t *testing.T) {
	r := newRig(t)
	r.do(r.init(1))
	r.settle()
	r.do(r.resume(2, 100, 0))
	r.expect(Durable{}, "answer 2 ok 100:1")
	for range 2 {
		r.expect(r.resume(2, 100, 0), "answer 2 ok 100:1 if still leading")
		r.reload()
	}
	// Once the client has shown that it has the epoch, the one before is fenced.
	r.do(r.add(3, 100, 1, Version0, 1))
	r.settle()
	r.expect(r.resume(4, 100, 0), "answer 4 PRODUCER_FENCED if still leading")
}

// A client that lost its answer asks again as it did; one that asks for another timeout is answered when that is durable.
func TestARepeatedInitWithAnotherTimeoutIsGivenIt(t *testing.T) {
	r := newRig(t)
	r.do(r.init(1))
	r.settle()
	r.do(r.resume(2, 100, 0))
	r.settle()
	again := r.resume(3, 100, 0)
	again.Timeout *= 2
	r.expect(again, "append Empty 100:1 last 0")
	if r.state.Meta.Timeout != again.Timeout {
		t.Fatal(r.state.Meta.Timeout)
	}
	r.expect(Durable{}, "answer 3 ok 100:1")
}

// The owner's own init finds its transaction open and has it aborted; who asks again in the same words is still the owner, and a stranger
// is not.
func TestAnOwnerWhoseInitFindsItsTransactionOpenMayAskAgain(t *testing.T) {
	r := begun(t, Version2)
	r.expect(r.resume(2, 100, 0), "append PrepareAbort 100:1 last 0 v2 [t-1]")
	r.settle()
	r.reload()
	r.do(r.resume(3, 100, 0))
	r.expect(Durable{}, "answer 3 ok 100:1")
	r = begun(t, Version2)
	r.do(r.init(2))
	r.settle()
	r.expect(r.resume(3, 100, 0), "answer 3 PRODUCER_FENCED if still leading")
}

func TestUsedUpEpochsLeadToANewProducerID(t *testing.T) {
	r := from(t, meta(Empty, lastEpoch, Version0))
	without := r.init(1)
	without.Fresh = None
	r.expect(without, "need id for 1")
	r.do(r.init(1))
	r.expect(Durable{}, "answer 1 ok 100:0")
	r.expect(r.resume(2, 7, lastEpoch), "answer 2 PRODUCER_FENCED if still leading") // another owner took it

	r = from(t, meta(Empty, lastEpoch, Version0))
	r.do(r.resume(1, 7, lastEpoch))
	r.expect(Durable{}, "answer 1 ok 100:0")
	r.reload()
	r.expect(r.resume(1, 7, lastEpoch), "answer 1 ok 100:0 if still leading") // the owner itself, its answer lost
}

func TestAnEndInTheLastEpochNamesTheNextProducerID(t *testing.T) {
	r := from(t, meta(Ongoing, lastEpoch, Version2, 1))
	without := r.end(1, 7, lastEpoch, true, Version2)
	without.Fresh = None
	r.expect(without, "need id for 1")
	r.do(r.end(1, 7, lastEpoch, true, Version2))
	r.expect(Durable{}, "answer 1 ok 100:0; commit 7:32767 on t-1 by 1 v2")
	r.expect(r.add(2, 100, 0, Version2, 1), "answer 2 CONCURRENT_TRANSACTIONS")
	r.reload()
	r.expect(r.end(1, 7, lastEpoch, true, Version2), "answer 1 ok 100:0")
	r.settle()
	r.reload()
	r.expect(r.end(1, 7, lastEpoch, true, Version2), "answer 1 ok 100:0")
	r.expect(r.end(3, 7, lastEpoch, false, Version2), "answer 3 INVALID_TXN_STATE if still leading")
	r.expect(r.add(2, 100, 0, Version2, 1), "append Ongoing 100:0 v2 [t-1]")
}

func TestTheEpochThatIsKeptForFencingIsNeverUsed(t *testing.T) {
	r := from(t, meta(Ongoing, lastEpoch, Version2, 1))
	r.do(Timer{TimerTransaction})
	r.settle()
	r.expect(r.add(1, 7, lastEpoch+1, Version2, 1), "answer 1 PRODUCER_FENCED if still leading")
	r.expect(r.end(2, 7, lastEpoch+1, false, Version2), "answer 2 PRODUCER_FENCED if still leading")
	r.do(r.resume(3, 7, lastEpoch))
	r.expect(Durable{}, "answer 3 ok 100:0")
}

func TestAnEmptyTransactionMayBeAbortedAtVersion2(t *testing.T) {
	r := newRig(t)
	r.do(r.init(1))
	r.settle()
	r.expect(r.end(2, 100, 0, true, Version2), "answer 2 INVALID_TXN_STATE if still leading")
	r.do(r.end(3, 100, 0, false, Version2))
	r.expect(Durable{}, "answer 3 ok 100:1; append CompleteAbort 100:1 last 0 v2") // no marker to wait for
	r.expect(r.end(3, 100, 0, false, Version2), "")
	r.expect(Durable{}, "answer 3 ok 100:1")
}

// A client that gives its next transaction up before the last one has ended is no stranger: nobody else knows the epoch. Kafka fences it.
func TestGivingUpTheNextTransactionWaitsForTheOneBefore(t *testing.T) {
	r := begun(t, Version2)
	r.do(r.end(3, 100, 0, true, Version2))
	r.do(Durable{})
	r.expect(r.end(4, 100, 1, false, Version2), "answer 4 CONCURRENT_TRANSACTIONS")
	r.expect(r.end(5, 100, 1, true, Version2), "answer 5 CONCURRENT_TRANSACTIONS")
	r.settle()
	r.expect(r.end(4, 100, 1, false, Version2), "append PrepareAbort 100:2 last 1 v2")
	r.expect(Durable{}, "answer 4 ok 100:2; append CompleteAbort 100:2 last 1 v2")
}

func TestADeletedPartitionDoesNotHoldUpCompletion(t *testing.T) {
	r := begun(t, Version0)
	r.do(r.end(3, 100, 0, true, Version0))
	r.do(Durable{})
	r.expect(Marked{Partition{"t", 1}, 100, 0}, "append CompleteCommit 100:0") // the driver says so for a topic that is gone
}

func TestAVerificationNamesWhatIsMissing(t *testing.T) {
	r := begun(t, Version2)
	r.expect(Verify{1, 100, 0, parts(1)}, "answer 1 ok")
	r.expect(Verify{1, 100, 0, parts(1, 4, 5)}, "answer 1 TRANSACTION_ABORTABLE missing [t-4 t-5] if still leading")
	r.do(r.end(3, 100, 0, true, Version2))
	r.expect(Verify{4, 100, 0, parts(1)}, "")
	r.expect(Durable{}, "answer 3 ok 100:1; answer 4 PRODUCER_FENCED if still leading; commit 100:1 on t-1 by 1 v2")
	r.expect(Verify{5, 100, 1, parts(1)}, "answer 5 CONCURRENT_TRANSACTIONS")
}

func TestAnUnusedTransactionalIDIsForgotten(t *testing.T) {
	r := newRig(t)
	r.do(r.init(1))
	if got := r.do(Durable{}); got != "answer 1 ok 100:0; set expiry 168h0m0s" {
		t.Fatal(got)
	}
	r.now = r.now.Add(100 * time.Hour)
	if got := r.reload(); got != "set expiry 68h0m0s" {
		t.Fatal(got)
	}
	r.expect(Timer{TimerExpiry}, "append unknown")
	r.expect(Durable{}, "forget")
	if v := r.newest().EncodeValue(); v != nil {
		t.Fatalf("%x", v)
	}

	r = newRig(t)
	r.do(r.init(1))
	r.settle()
	r.do(Timer{TimerExpiry})
	r.expect(r.init(2), "took 101; append Empty 101:0") // used again in the last moment
	r.expect(Durable{}, "")
	r.expect(Durable{}, "answer 2 ok 101:0")
}

func TestTimeoutsOfClientsAreBounded(t *testing.T) {
	r := newRig(t)
	for _, d := range []time.Duration{-1, 0, 15*time.Minute + 1} {
		e := r.init(1)
		e.Timeout = d
		r.expect(e, "answer 1 INVALID_TRANSACTION_TIMEOUT")
	}
	e := r.init(1)
	e.Timeout = 15 * time.Minute
	r.expect(e, "took 100; append Empty 100:0")
}

func TestOldClientsGetCodesThatTheyKnow(t *testing.T) {
	for _, c := range []struct {
		code    Code
		api     API
		version int16
		want    Code
	}{
		{ProducerFenced, APIInitProducerID, 3, InvalidProducerEpoch},
		{ProducerFenced, APIInitProducerID, 4, ProducerFenced},
		{ProducerFenced, APIAddPartitions, 1, InvalidProducerEpoch},
		{ProducerFenced, APIAddPartitions, 2, ProducerFenced},
		{ProducerFenced, APIAddOffsets, 1, InvalidProducerEpoch},
		{ProducerFenced, APIEndTxn, 1, InvalidProducerEpoch},
		{ProducerFenced, APIEndTxn, 2, ProducerFenced},
		{ProducerFenced, APIProduce, 13, InvalidProducerEpoch},
		{ProducerFenced, APITxnOffsetCommit, 5, InvalidProducerEpoch},
		{TransactionAbortable, APIProduce, 10, InvalidTxnState},
		{TransactionAbortable, APIProduce, 11, TransactionAbortable},
		{TransactionAbortable, APIEndTxn, 3, InvalidTxnState},
		{TransactionAbortable, APIEndTxn, 4, TransactionAbortable},
		{TransactionAbortable, APITxnOffsetCommit, 3, InvalidTxnState},
		{TransactionAbortable, APITxnOffsetCommit, 4, TransactionAbortable},
		{TransactionAbortable, APIInitProducerID, 4, InvalidTxnState},
		{TransactionAbortable, APIInitProducerID, 5, TransactionAbortable},
		{ConcurrentTransactions, APIProduce, 11, NotEnoughReplicas},
		{ConcurrentTransactions, APIProduce, 12, ConcurrentTransactions},
		{ConcurrentTransactions, APIEndTxn, 0, ConcurrentTransactions},
		{NotCoordinator, APIProduce, 13, NotEnoughReplicas},
		{InvalidTxnState, APIEndTxn, 0, InvalidTxnState},
		{OK, APIProduce, 3, OK},
	} {
		if got := c.code.For(c.api, c.version); got != c.want {
			t.Errorf("%v for key %d version %d: got %v, want %v", c.code, c.api, c.version, got, c.want)
		}
	}
}
