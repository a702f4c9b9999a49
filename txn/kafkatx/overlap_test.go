package kafkatx

import (
	"strings"
	"testing"
	"time"
)

// ended is a machine whose producer 100:0 has committed on the partitions: it was given epoch 1, and the markers are on their way.
func ended(t *testing.T, commit bool, names ...int32) *rig {
	r := begun(t, Version2)
	r.do(r.add(2, 100, 0, Version2, names...))
	r.settle()
	r.do(r.end(3, 100, 0, commit, Version2))
	r.do(Durable{})
	return r
}

func TestATransactionBeginsWhileTheMarkersOfTheOneBeforeAreWritten(t *testing.T) {
	r := ended(t, true, 1, 2)
	r.expect(Marked{Partition{"t", 2}, 100, 1}, "")
	r.expect(r.add(4, 100, 1, Version2, 5), "append Ongoing 100:1 v2 [t-5] owed commit [t-1]")
	r.expect(Durable{}, "answer 4 CONCURRENT_TRANSACTIONS") // whoever asks comes again when nothing is owed
	if !r.state.Ending() {
		t.Fatal(r.state)
	}
	r.expect(r.add(4, 100, 1, Version2, 5), "answer 4 CONCURRENT_TRANSACTIONS")
	r.expect(Verify{5, 100, 1, parts(5)}, "answer 5 CONCURRENT_TRANSACTIONS")
	r.expect(Timer{TimerResend}, "commit 100:1 on t-1 by 1 v2")
	if got := r.do(Marked{Partition{"t", 1}, 100, 1}); got != "clear resend; set transaction timeout 1m0s" { // and no record says so
		t.Fatal(got)
	}
	if r.state.Ending() {
		t.Fatal(r.state)
	}
	r.expect(r.add(4, 100, 1, Version2, 5), "answer 4 ok")
	r.expect(r.add(6, 100, 1, Version2, 6), "append Ongoing 100:1 v2 [t-5 t-6]")
	r.expect(Durable{}, "answer 6 ok")
	r.expect(r.end(7, 100, 1, false, Version2), "append PrepareAbort 100:2 last 1 v2 [t-5 t-6]")
}

func TestMarkersThatComeFirstLetTheNextTransactionInWithItsRecord(t *testing.T) {
	r := ended(t, false, 1)
	r.expect(r.add(4, 100, 1, Version2, 1), "append Ongoing 100:1 v2 [t-1] owed abort [t-1]")
	r.expect(r.add(5, 100, 1, Version2, 2), "append Ongoing 100:1 v2 [t-1 t-2] owed abort [t-1]")
	r.expect(Marked{Partition{"t", 1}, 100, 1}, "")
	r.expect(r.add(6, 100, 1, Version2, 1), "") // answered when it is durable
	r.expect(Durable{}, "answer 4 CONCURRENT_TRANSACTIONS")
	r.expect(Durable{}, "answer 5 CONCURRENT_TRANSACTIONS; answer 6 ok")
}

func TestWhatIsOwedIsPaidByTheNextCoordinator(t *testing.T) {
	r := ended(t, true, 1, 2)
	r.do(r.add(4, 100, 1, Version2, 2))
	if got := plain(r.reload()); got != "commit 100:1 on t-1 by 2 v2; commit 100:1 on t-2 by 2 v2" { // the record is not durable
		t.Fatal(got)
	}
	r.do(Marked{Partition{"t", 1}, 100, 1})
	r.do(r.add(4, 100, 1, Version2, 2))
	r.do(Durable{})
	r.now = r.now.Add(20 * time.Second)
	if got := r.reload(); got != "commit 100:1 on t-2 by 3 v2; set resend 200ms" {
		t.Fatal(got)
	}
	r.expect(r.add(4, 100, 1, Version2, 2), "answer 4 CONCURRENT_TRANSACTIONS")
	if got := r.do(Marked{Partition{"t", 2}, 100, 1}); got != "clear resend; set transaction timeout 40s" {
		t.Fatal(got)
	}
	r.expect(r.add(4, 100, 1, Version2, 2), "answer 4 ok")
	if got := plain(r.reload()); got != "commit 100:1 on t-2 by 4 v2" { // nothing says that it was paid: it is told again
		t.Fatal(got)
	}
}

func TestWhatWouldEndATransactionWaitsForWhatIsOwed(t *testing.T) {
	r := ended(t, true, 1)
	r.do(r.add(4, 100, 1, Version2, 2))
	r.do(Durable{})
	for _, e := range []Event{r.end(5, 100, 1, true, Version2), r.end(5, 100, 1, false, Version2), r.end(5, 100, 1, true, Version0), r.init(5), r.resume(5, 100, 1)} {
		r.expect(e, "answer 5 CONCURRENT_TRANSACTIONS")
	}
	r.expect(Timer{TimerTransaction}, "")
	r.expect(Timer{TimerExpiry}, "")
	r.expect(r.end(6, 100, 0, true, Version2), "answer 6 PRODUCER_FENCED if still leading") // a repeat: the client has gone on
	r.expect(r.resume(6, 100, 0), "answer 6 PRODUCER_FENCED if still leading")
	r.now = r.now.Add(time.Hour)
	if got := r.do(Marked{Partition{"t", 1}, 100, 1}); got != "clear resend; set transaction timeout 0s" {
		t.Fatal(got)
	}
	r.expect(Timer{TimerTransaction}, "append PrepareAbort 100:2 last 1 v2 [t-2]")
}

func TestNobodyElseBeginsBesideWhatIsEnding(t *testing.T) {
	for name, c := range map[string]struct {
		meta  *Meta
		id    int64
		epoch int16
		v     Version
	}{
		"a client of version 0":                       {meta(PrepareCommit, 5, Version2, 1), 7, 5, Version0},
		"after a transaction of version 0":            {meta(PrepareCommit, 5, Version0, 1), 7, 5, Version2},
		"an epoch that fences and was not handed out": {fencing(), 7, 5, Version2},
		"out of the last epoch":                       {rotating(), 100, 0, Version2},
		"in the epoch that is kept for fencing":       {last(), 7, lastEpoch + 1, Version2},
	} {
		r := from(t, c.meta)
		if got := plain(r.do(r.add(1, c.id, c.epoch, c.v, 1))); !strings.HasPrefix(got, "answer 1 ") || strings.HasSuffix(got, " ok") {
			t.Errorf("%s: %s", name, got)
		}
	}
	r := begun(t, Version2)
	r.do(r.end(3, 100, 0, true, Version2))
	r.expect(r.add(4, 100, 1, Version2, 1), "") // the decision is not durable
}

func fencing() *Meta {
	m := meta(PrepareAbort, 5, Version2, 1)
	m.LastEpoch = None
	return m
}

func last() *Meta { return meta(PrepareAbort, lastEpoch+1, Version2, 1) }

func rotating() *Meta {
	m := meta(PrepareCommit, lastEpoch+1, Version2, 1)
	m.Next = 100
	return m
}

func TestWhoeverWaitsBesideWhatIsOwedIsSentToTheNextCoordinator(t *testing.T) {
	r := ended(t, true, 1)
	r.do(r.add(4, 100, 1, Version2, 2))
	r.expect(Lost{}, "answer 4 NOT_COORDINATOR")
	for _, e := range []Event{Durable{}, Timer{TimerResend}, Marked{Partition{"t", 1}, 100, 1}} {
		r.expect(e, "")
	}
}

func TestAdministratorsSeeTheTransactionThatIsEnding(t *testing.T) {
	r := ended(t, true, 1, 2)
	start := r.state.Meta.Start
	r.now = r.now.Add(time.Second)
	r.do(Marked{Partition{"t", 1}, 100, 1})
	r.do(r.add(4, 100, 1, Version2, 5))
	if m := r.state.Shown(); m.Status != PrepareCommit || m.Start != start || m.Owed != nil || !strings.Contains(m.String(), "[t-2]") {
		t.Fatal(m)
	}
	r.do(Marked{Partition{"t", 2}, 100, 1})
	if m := r.state.Shown(); m != r.state.Meta || m.Status != Ongoing || m.Start == start {
		t.Fatal(m)
	}
}
