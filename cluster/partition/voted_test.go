package partition

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/cluster/replica"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/log"
	"gopherlog/engine/record"
	"gopherlog/txn/producer"
	"gopherlog/txn/twopc"
)

// ballotBox is where participants put what they say.
type ballotBox struct {
	mu   sync.Mutex
	said []twopc.Message
	also func(twopc.Message) // told too
}

func (b *ballotBox) Owns(id string) bool { return strings.HasPrefix(id, "2pc.") }

func (b *ballotBox) Report(_ string, m twopc.Message) {
	b.mu.Lock()
	b.said = append(b.said, m)
	also := b.also
	b.mu.Unlock()
	if also != nil {
		also(m)
	}
}

// tellAlso has somebody told as well.
func (b *ballotBox) tellAlso(also func(twopc.Message)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.also = also
}

// all are the messages so far.
func (b *ballotBox) all() []twopc.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]twopc.Message(nil), b.said...)
}

// empty forgets them.
func (b *ballotBox) empty() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = nil
}

// await waits for a message that was not said before.
func (b *ballotBox) await(t testing.TB, want twopc.Message) {
	t.Helper()
	eventually(t, want.String(), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for i, m := range b.said {
			if m == want {
				b.said = append(b.said[:i:i], b.said[i+1:]...)
				return true
			}
		}
		return false
	})
}

// voter is a partition whose transactional id is voted on, of the producer 7.
type voter struct {
	*harness
	box *ballotBox
	c   *coordinators
}

const votedID = "2pc.tx"

// slow is a configuration in which nothing happens by itself.
func slow() twopc.Config {
	c := twopc.Defaults()
	c.AskAfter = time.Hour
	return c
}

func openVoter(t testing.TB, options ...option) voter {
	v := voter{box: &ballotBox{}, c: &coordinators{}}
	v.harness = open(t, append([]option{with(v.c), func(h *harness) {
		h.ballot, h.voted, h.facts, h.failpoints = v.box, slow(), NewFacts(time.Now()), failpoint.New()
	}}, options...)...)
	return v
}

func numbered(n uint32, epoch int16) twopc.Txn {
	return twopc.Txn{Term: 5 << 8, Number: n, Owner: twopc.Identity{Producer: 7, Epoch: epoch}}
}

func (v voter) offer(b record.Batch) chan AppendResult {
	out := make(chan AppendResult, 2)
	v.Append(&AppendRequest{Batch: b, Acks: AcksAll, TransactionalID: votedID, Done: func(r AppendResult) { out <- r }})
	return out
}

// begin opens a transaction with a first batch.
func (v voter) begin(t testing.TB, x twopc.Txn, first int32) {
	t.Helper()
	out := v.offer(part(7, x.Owner.Epoch, first, 1))
	word := Verified{Ongoing: true, Txn: x, Timeout: time.Hour}
	v.c.question(t).done(word, nil)
	eventually(t, "the batch", func() bool {
		select {
		case r := <-out:
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			return true
		default:
		}
		// A word that came before the participant knew of the end of its last transaction is asked for again.
		if q, asked := v.c.next(); asked {
			q.done(word, nil)
		}
		return false
	})
}

// prepare gets a promise.
func (v voter) prepare(t testing.TB, x twopc.Txn) {
	t.Helper()
	v.Hear(votedID, twopc.Prepare{Txn: x})
	v.box.await(t, twopc.Vote{Txn: x, From: "t-0", Yes: true})
}

func (v voter) end(t testing.TB, x twopc.Txn, commit bool) {
	t.Helper()
	v.Hear(votedID, twopc.Outcome{Txn: x, Commit: commit, Epoch: x.Owner.Epoch})
	v.box.await(t, twopc.Ended{Txn: x, From: "t-0"})
}

func (v voter) standing() twopc.Standing {
	v.stateMu.Lock()
	defer v.stateMu.Unlock()
	if st := v.standings.of[votedID]; st != nil {
		return st.Standing
	}
	return twopc.Standing{}
}

// marker returns the control batch at an offset.
func (v voter) marker(t testing.TB, at int64) (record.ControlType, record.Batch) {
	t.Helper()
	s, err := v.log.Slice(at, at+1, 1<<20, true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	b, err := s.ReadAll(nil)
	if err != nil {
		t.Fatal(err)
	}
	kind, _, err := record.ParseControl(b)
	if err != nil {
		t.Fatalf("no marker at %d: %v", at, err)
	}
	return kind, b
}

func TestAVotedTransactionIsOpenedPromisedAndMarked(t *testing.T) {
	v := openVoter(t)
	x := numbered(1, 0)
	v.begin(t, x, 0)
	if st := v.standing(); st.Txn != x || st.Promised || v.LastStable() != 0 {
		t.Fatalf("%+v, last stable offset %d", st, v.LastStable())
	}
	v.prepare(t, x)
	if n, _ := v.Doubt(); n != 1 || !v.standing().Promised {
		t.Fatalf("%d in doubt, %+v", n, v.standing())
	}
	v.end(t, x, true)
	if kind, b := v.marker(t, 1); kind != record.Commit || b.ProducerID() != 7 || b.ProducerEpoch() != 0 {
		t.Fatalf("%v of %d:%d", kind, b.ProducerID(), b.ProducerEpoch())
	}
	if n, _ := v.Doubt(); n != 0 || v.standing().Ended != x || v.LastStable() != 2 {
		t.Fatalf("%d in doubt, %+v, last stable offset %d", n, v.standing(), v.LastStable())
	}
	var words []string
	for _, f := range v.facts.Dump().Facts {
		words = append(words, f.What+" "+f.Txn)
	}
	if want := []string{"opened t1280.1/7:0", "promised t1280.1/7:0", "commit-marker t1280.1/7:0"}; !reflect.DeepEqual(words, want) {
		t.Fatalf("facts %v, want %v", words, want)
	}
}

func TestYesIsSaidOnlyWhenThePromiseIsDurable(t *testing.T) {
	v := openVoter(t)
	x := numbered(1, 0)
	v.begin(t, x, 0)
	v.g.mu.Lock()
	v.g.auto = false
	v.g.mu.Unlock()
	v.Hear(votedID, twopc.Prepare{Txn: x})
	v.proposed(t, 1)
	v.settled(t)
	if said := v.box.all(); len(said) > 0 {
		t.Fatalf("said %v before the promise was committed", said)
	}
	v.g.commit(-1)
	v.box.await(t, twopc.Vote{Txn: x, From: "t-0", Yes: true})
}

func TestAPromiseThatWasLostIsNeverSaid(t *testing.T) {
	v := openVoter(t)
	x := numbered(1, 0)
	v.begin(t, x, 0)
	v.g.mu.Lock()
	v.g.auto = false
	v.g.mu.Unlock()
	v.Hear(votedID, twopc.Prepare{Txn: x})
	v.proposed(t, 1)
	v.g.depose(2, servers(2)[1], true)
	v.g.lead(3)
	v.settled(t)
	for _, m := range v.box.all() {
		if _, vote := m.(twopc.Vote); vote || v.standing().Promised {
			t.Fatalf("said %v, %+v", m, v.standing())
		}
	}
	v.g.mu.Lock()
	v.g.auto = true
	v.g.mu.Unlock()
	v.prepare(t, x) // the next leader knows the open transaction from the log
}

func TestTheWordThatOpensATransactionStandsDirectlyBeforeItsFirstBatch(t *testing.T) {
	v := openVoter(t, manual)
	out := v.offer(part(7, 0, 0, 1))
	behind := v.offer(part(7, 0, 1, 1))
	v.c.question(t).done(Verified{Ongoing: true, Txn: numbered(1, 0), Timeout: time.Hour}, nil)
	v.proposed(t, 3)
	v.g.mu.Lock()
	pending, calls := v.g.pending, v.g.calls
	v.g.mu.Unlock()
	if calls != 1 || pending[0].entry.IsData() || !pending[1].entry.IsData() || !pending[2].entry.IsData() {
		t.Fatalf("%d calls: %+v", calls, pending)
	}
	id, rec, err := decodeVoted(pending[0].entry.Data)
	if want := (twopc.Opened{Txn: numbered(1, 0), Timeout: time.Hour}); err != nil || id != votedID || rec != want {
		t.Fatalf("%q %v %v", id, rec, err)
	}
	v.g.commit(-1)
	if a, b := wait(t, out), wait(t, behind); a.BaseOffset != 0 || b.BaseOffset != 1 {
		t.Fatalf("%+v %+v", a, b)
	}
}

func TestAPreparedParticipantNeverEndsTheTransactionAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := openVoter(t, func(h *harness) { h.voted.AskAfter = time.Millisecond })
		x := numbered(1, 0)
		out := v.offer(part(7, 0, 0, 1))
		v.c.question(t).done(Verified{Ongoing: true, Txn: x, Timeout: 500 * time.Millisecond}, nil)
		wait(t, out)
		v.prepare(t, x)
		for range 4 { // it asks, and asks again
			v.box.await(t, twopc.Query{Txn: x, From: "t-0"})
		}
		time.Sleep(600 * time.Millisecond) // the transaction's own time is over
		v.settled(t)
		if v.standing().Txn != x || v.EndOffset() != 1 {
			t.Fatalf("%+v, log end %d", v.standing(), v.EndOffset())
		}
		v.end(t, x, false)
		if kind, _ := v.marker(t, 1); kind != record.Abort {
			t.Fatal(kind)
		}
	})
}

func TestWhatIsOverdueAndNotPromisedIsAbortedOnTheSpot(t *testing.T) {
	v := openVoter(t)
	x := numbered(1, 0)
	out := v.offer(part(7, 0, 0, 1))
	v.c.question(t).done(Verified{Ongoing: true, Txn: x, Timeout: 5 * time.Millisecond}, nil)
	wait(t, out)
	eventually(t, "the marker", func() bool { return v.standing().Ended == x })
	if kind, _ := v.marker(t, 1); kind != record.Abort {
		t.Fatal(kind)
	}
	v.Hear(votedID, twopc.Prepare{Txn: x})
	v.box.await(t, twopc.Vote{Txn: x, From: "t-0"})
}

func TestANewLeaderAsksWhetherWhatItFoundOpenIsStillKnown(t *testing.T) {
	v := openVoter(t)
	x := numbered(1, 0)
	v.begin(t, x, 0)
	v.g.depose(2, servers(2)[1], false)
	v.g.lead(3)
	v.box.await(t, twopc.Query{Txn: x, From: "t-0"})
	v.AskAgain() // a coordinator has moved
	v.box.await(t, twopc.Query{Txn: x, From: "t-0"})
	v.end(t, x, false)
}

func TestANewLeaderKnowsWhatItsPredecessorPromisedAndAsks(t *testing.T) {
	v := openVoter(t)
	x := numbered(1, 0)
	v.begin(t, x, 0)
	v.prepare(t, x)
	v.g.depose(2, servers(2)[1], false)
	if n, _ := v.Doubt(); n != 0 {
		eventually(t, "a follower is in no doubt", func() bool { n, _ := v.Doubt(); return n == 0 })
	}
	v.g.lead(3)
	v.box.await(t, twopc.Query{Txn: x, From: "t-0"})
	eventually(t, "doubt", func() bool { n, age := v.Doubt(); return n == 1 && age >= 0 })
	v.AskAgain()
	v.box.await(t, twopc.Query{Txn: x, From: "t-0"})
	v.end(t, x, true)
}

// Nothing else happens in the partition: only the participant's own timers wake it.
func TestANewLeaderThatIsInDoubtAsksUntilItIsAnswered(t *testing.T) {
	v := openVoter(t, func(h *harness) { h.voted.AskAfter = time.Millisecond })
	x := numbered(1, 0)
	v.begin(t, x, 0)
	v.prepare(t, x)
	v.g.depose(2, servers(2)[1], false)
	eventually(t, "a follower is in no doubt", func() bool { n, _ := v.Doubt(); return n == 0 })
	v.box.empty()
	v.g.lead(3)
	for range 4 {
		v.box.await(t, twopc.Query{Txn: x, From: "t-0"})
	}
}

func TestANewLeaderAbortsAnOrphanWhenItsTimeIsOver(t *testing.T) {
	v := openVoter(t)
	x := numbered(1, 0)
	out := v.offer(part(7, 0, 0, 1))
	v.c.question(t).done(Verified{Ongoing: true, Txn: x, Timeout: 50 * time.Millisecond}, nil)
	wait(t, out)
	v.g.depose(2, servers(2)[1], false)
	v.g.lead(3)
	eventually(t, "the marker", func() bool { return v.standing().Ended == x })
}

// A coordinator on the same node answers at once, from within the question.
func TestANewLeaderHearsTheAnswerToItsFirstQuestion(t *testing.T) {
	v := openVoter(t)
	for n := range uint32(25) {
		x := numbered(n+1, 0)
		v.begin(t, x, int32(n))
		v.prepare(t, x)
		v.g.depose(uint64(2*n+2), servers(2)[1], false)
		v.box.tellAlso(func(m twopc.Message) {
			if q, is := m.(twopc.Query); is {
				v.Hear(votedID, twopc.Outcome{Txn: q.Txn, Commit: true})
			}
		})
		v.g.lead(uint64(2*n + 3))
		eventually(t, "the marker", func() bool { return v.standing().Ended == x })
		v.box.tellAlso(nil)
	}
}

func TestPromisesAreInTheSnapshot(t *testing.T) {
	v := openVoter(t)
	x := numbered(1, 0)
	v.begin(t, x, 0)
	v.prepare(t, x)
	state := machine{v.Partition}.Snapshot()
	if state[0] != snapshotVersionVoted {
		t.Fatalf("version %d", state[0])
	}
	w := openVoter(t)
	if err := (machine{w.Partition}).Restore(state, log.Base{Index: 9, Term: 1, NextOffset: 1}); err != nil {
		t.Fatal(err)
	}
	if st := w.standing(); st.Txn != x || !st.Promised {
		t.Fatalf("%+v", st)
	}
	if again := (machine{w.Partition}).Snapshot(); !bytes.Equal(again, state) {
		t.Fatal("another snapshot")
	}
	state[0] = 99
	if err := (machine{w.Partition}).Restore(state, log.Base{}); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Fatal(err)
	}
}

func TestBatchesBehindAnUndecidedTransactionWaitForItsEndInTheirOrder(t *testing.T) {
	v := openVoter(t)
	x, y := numbered(1, 0), numbered(2, 0)
	v.begin(t, x, 0)
	v.prepare(t, x)
	first, second := v.offer(part(7, 0, 1, 1)), v.offer(part(7, 0, 2, 1))
	v.settled(t)
	silent(t, first, "a batch behind a promise")
	silent(t, second, "the batch behind it")
	v.end(t, x, true)
	v.c.question(t).done(Verified{Ongoing: true, Txn: y, Timeout: time.Hour}, nil)
	if a, b := wait(t, first), wait(t, second); a.BaseOffset != 2 || b.BaseOffset != 3 {
		t.Fatalf("%+v %+v", a, b)
	}
	if v.standing().Txn != y {
		t.Fatalf("%+v", v.standing())
	}
}

func TestARepeatIsAnsweredWhileTheTransactionIsInDoubt(t *testing.T) {
	v := openVoter(t)
	x := numbered(1, 0)
	v.begin(t, x, 0)
	v.prepare(t, x)
	if r := wait(t, v.offer(part(7, 0, 0, 1))); r.Err != nil || r.BaseOffset != 0 {
		t.Fatalf("%+v", r)
	}
}

func TestANewerEpochAbortsAnOrphanBeforeItWrites(t *testing.T) {
	v := openVoter(t)
	x, y := numbered(1, 0), numbered(2, 1)
	v.begin(t, x, 0)
	out := v.offer(part(7, 1, 0, 1))
	asked := 0
	eventually(t, "it is written", func() bool { // what was said before the marker was durable counts no more: asked twice or three times
		if q, ok := v.c.next(); ok {
			asked++
			q.done(Verified{Ongoing: true, Txn: y, Timeout: time.Hour}, nil)
		}
		return len(out) > 0
	})
	if r := wait(t, out); r.Err != nil || r.BaseOffset != 2 || asked < 2 {
		t.Fatalf("%+v after %d questions", r, asked)
	}
	if kind, b := v.marker(t, 1); kind != record.Abort || b.ProducerEpoch() != 0 {
		t.Fatalf("%v of epoch %d", kind, b.ProducerEpoch())
	}
	if st := v.standing(); st.Txn != y || st.Ended != x {
		t.Fatalf("%+v", st)
	}
}

func TestNothingButAVoteEndsAVotedTransaction(t *testing.T) {
	v := openVoter(t)
	x := numbered(1, 0)
	v.begin(t, x, 0)
	v.prepare(t, x)
	if err := outcome(t, v.mark(producer.Marker{ProducerID: 7, Epoch: 0, Commit: true})); !errors.Is(err, ErrInvalidTxnState) {
		t.Fatal(err)
	}
	if v.EndOffset() != 1 {
		t.Fatal("a marker was appended")
	}
}

func TestACommitThatWasNeverPromisedIsNotObeyedUnlessPlanted(t *testing.T) {
	for _, planted := range []bool{false, true} {
		v := openVoter(t)
		if err := v.failpoints.SetSabotage(failpoint.CommitBeforeVotes, planted, 0); err != nil {
			t.Fatal(err)
		}
		x := numbered(1, 0)
		v.begin(t, x, 0)
		v.Hear(votedID, twopc.Outcome{Txn: x, Commit: true})
		v.settled(t)
		if planted {
			eventually(t, "the marker", func() bool { return v.standing().Ended == x })
		} else if v.standing().Txn != x || v.EndOffset() != 1 {
			t.Fatalf("%+v, log end %d", v.standing(), v.EndOffset())
		}
	}
}

func TestAPrepareOfWhatIsOverIsVotedNo(t *testing.T) {
	v := openVoter(t)
	x, y := numbered(1, 0), numbered(2, 0)
	v.begin(t, x, 0)
	v.prepare(t, x)
	v.end(t, x, false)
	v.Hear(votedID, twopc.Prepare{Txn: x})
	v.box.await(t, twopc.Vote{Txn: x, From: "t-0"})
	v.begin(t, y, 1)
	v.Hear(votedID, twopc.Prepare{Txn: x})
	v.box.await(t, twopc.Vote{Txn: x, From: "t-0"})
	if v.standing().Txn != y {
		t.Fatalf("%+v", v.standing())
	}
}

func TestOutcomesOfTransactionsThatNeverCameAreWrittenDown(t *testing.T) {
	v := openVoter(t)
	x := numbered(1, 0)
	v.end(t, x, false)
	if st := v.standing(); st.Ended != x || v.EndOffset() != 0 {
		t.Fatalf("%+v, log end %d", st, v.EndOffset())
	}
	out := v.offer(part(7, 0, 0, 1)) // it came late
	v.c.question(t).done(Verified{Ongoing: true, Txn: x, Timeout: time.Hour}, nil)
	if r := wait(t, out); !errors.Is(r.Err, ErrInvalidTxnState) {
		t.Fatalf("%+v", r)
	}
}

func TestStandingsAreForgottenWithTheirProducersUnlessOpen(t *testing.T) {
	v := openVoter(t)
	x, y := numbered(1, 0), numbered(2, 0)
	v.begin(t, x, 0)
	v.prepare(t, x)
	v.end(t, x, true)
	if !v.hasProducerBelow(3) || v.hasProducerBelow(1) {
		t.Fatal("nothing expires")
	}
	v.begin(t, y, 1)
	v.stateMu.Lock()
	v.standings.expire(100)
	left := len(v.standings.of)
	v.stateMu.Unlock()
	if left != 1 {
		t.Fatal("an open transaction was forgotten")
	}
	v.prepare(t, y)
	v.end(t, y, true)
	v.stateMu.Lock()
	v.standings.expire(100)
	left = len(v.standings.of)
	v.stateMu.Unlock()
	if left != 0 {
		t.Fatal("what ended long ago is remembered")
	}
}

func TestATestCanStopAParticipantAtEachStep(t *testing.T) {
	for _, c := range []struct {
		point    failpoint.Name
		promised bool
	}{{pointPromise, false}, {pointPromised, true}, {pointMarker, true}} {
		v := openVoter(t)
		if err := v.failpoints.Arm(c.point, failpoint.Action{Kind: failpoint.Error, Err: errors.New("stopped"), Nth: 1}); err != nil {
			t.Fatal(err)
		}
		x := numbered(1, 0)
		v.begin(t, x, 0)
		v.Hear(votedID, twopc.Prepare{Txn: x})
		if c.point == pointMarker {
			v.box.await(t, twopc.Vote{Txn: x, From: "t-0", Yes: true})
			v.Hear(votedID, twopc.Outcome{Txn: x, Commit: true})
		}
		eventually(t, "the point is passed", func() bool { return v.failpoints.Hits(c.point) > 0 })
		v.settled(t)
		if v.EndOffset() != 1 || v.standing().Promised != c.promised {
			t.Fatalf("%s: log end %d, %+v", c.point, v.EndOffset(), v.standing())
		}
		v.g.depose(2, servers(2)[1], false)
		v.g.lead(3)
		if c.promised {
			v.end(t, x, true)
		} else {
			v.prepare(t, x)
		}
	}
}

// What is in the snapshot and the log behind it makes the same standings as the whole log does, wherever it is cut.
func TestStandingsAreTheSameFromASnapshotAndFromTheLog(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for range 50 {
		var entries []replica.Committed
		for i := range 40 {
			x := twopc.Txn{Term: 1, Number: r.Uint32N(20), Owner: twopc.Identity{Producer: r.Int64N(3), Epoch: 1}}
			e := replica.Committed{Index: uint64(i + 1), Term: 1, Kind: replica.KindCtrl, BaseOffset: int64(i), NextOffset: int64(i)}
			if r.IntN(3) == 0 {
				e.Kind, e.Batch, e.NextOffset = replica.KindData, record.BuildControl(record.Commit, r.Int64N(3), 1, 1, 1), int64(i+1)
				e.Batch.SetBaseOffset(int64(i))
			} else {
				recs := []twopc.Record{twopc.Opened{Txn: x, Timeout: time.Second}, twopc.Promised{Txn: x}, twopc.Skipped{Txn: x}}
				e.Ctrl = encodeVoted(fmt.Sprintf("2pc.%d", x.Owner.Producer), recs[r.IntN(3)])
			}
			entries = append(entries, e)
		}
		apply := func(s *standings, some []replica.Committed) {
			for _, e := range some {
				if e.Kind == replica.KindData {
					s.marked(e.Batch.ProducerID(), true, 1, e.NextOffset)
				} else if id, rec, err := decodeVoted(e.Ctrl); err != nil {
					t.Fatal(err)
				} else {
					s.apply(id, rec, e.NextOffset)
				}
			}
		}
		whole, cut := newStandings(), newStandings()
		apply(whole, entries)
		at := r.IntN(len(entries))
		apply(cut, entries[:at])
		restored, rest, err := decodeStandings(append(cut.encode(nil), 1, 2, 3))
		if err != nil || !bytes.Equal(rest, []byte{1, 2, 3}) {
			t.Fatal(err, rest)
		}
		apply(restored, entries[at:])
		if !bytes.Equal(restored.encode(nil), whole.encode(nil)) || !reflect.DeepEqual(restored.open, whole.open) {
			t.Fatalf("cut at %d: %v, want %v", at, restored.open, whole.open)
		}
	}
}
