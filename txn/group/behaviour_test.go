package group

import (
	"strings"
	"testing"
	"time"
)

func TestAGenerationBeginsWhenEveryMemberHasJoined(t *testing.T) {
	r := newRig(t)
	r.expect(enter(1, "a"), "join 1 ok: a in 1 consumer/range led by a a:31")
	r.expect(enter(2, "b", "range:2"), "")
	r.expect(beat(3, "a", 1), "answer 3 REBALANCE_IN_PROGRESS")
	r.expect(join(4, "a"), "join 4 ok: a in 2 consumer/range led by a a:31 b:32; join 2 ok: b in 2 consumer/range led by a")
	r.expect(sync(5, "b", 2), "")
	r.expect(sync(6, "a", 2, "a:x", "b:y"), "append generation 2 consumer/range a:78 b:79")
	r.expect(beat(7, "b", 2), "answer 7 ok")
	r.expect(Durable{}, "sync 6 ok: 78; sync 5 ok: 79")
	r.expect(sync(8, "b", 2), "sync 8 ok: 79")
	r.expect(beat(9, "a", 2), "answer 9 ok")
}

func TestNoAssignmentIsGivenOutBeforeItsRecordIsDurable(t *testing.T) {
	r := two(t, "a", "b")
	r.do(join(10, "a"))
	r.do(join(11, "b"))
	r.expect(sync(12, "b", 3), "")
	r.expect(sync(13, "a", 3, "a:x", "b:y"), "append generation 3 consumer/range a:78 b:79")
	r.expect(sync(14, "a", 3, "a:z"), "sync 13 REBALANCE_IN_PROGRESS") // a repeat: the first assignment stands
	r.expect(enter(15, "c"), "sync 14 REBALANCE_IN_PROGRESS; sync 12 REBALANCE_IN_PROGRESS")
	r.expect(Durable{}, "") // of a generation that is over
	if r.state.Status != PreparingRebalance {
		t.Fatal(r.state)
	}
}

func TestAFirstJoinIsAskedToComeBackWithItsID(t *testing.T) {
	r := newRig(t)
	first := enter(1, "c-1")
	first.RequireID = true
	r.expect(first, "join 1 MEMBER_ID_REQUIRED c-1")
	if r.state.Blank() || r.cfg.Expired(r.state, Offset{Expires: -1}, r.now.Add(1000*time.Hour)) {
		t.Fatal("a promised id does not count")
	}
	r.expect(join(2, "c-2"), "join 2 UNKNOWN_MEMBER_ID")
	r.expect(join(3, "c-1"), "join 3 ok: c-1 in 1 consumer/range led by c-1 c-1:31")
	// Static members keep their name and need no detour.
	static := enter(4, "i-1@i")
	static.RequireID = true
	r.expect(static, "")
	if r.state.Member("i-1") == nil {
		t.Fatal(r.state)
	}
}

func TestARebalanceWaitsForPromisedMembersUntilTheirSessionEnds(t *testing.T) {
	r := two(t, "a", "b")
	first := enter(6, "c")
	first.RequireID = true
	r.do(first)
	r.do(join(7, "a"))
	r.expect(join(8, "b"), "")
	r.expect(Timer{TimerSession, "c"}, "join 7 ok: a in 3 consumer/range led by a a:31 b:31; join 8 ok: b in 3 consumer/range led by a")
}

func TestAPromisedMemberThatLeavesDisturbsNobody(t *testing.T) {
	r := two(t, "a", "b")
	first := enter(6, "c")
	first.RequireID = true
	r.do(first)
	r.expect(leave(7, "c"), "leave 7 [ok]")
	if r.state.Status != Stable {
		t.Fatal(r.state)
	}
}

func TestAnEmptyGroupWaitsForCompanyBeforeItsFirstGeneration(t *testing.T) {
	r := newRig(t)
	r.cfg.InitialDelay = 3 * time.Second
	slow := enter(1, "a")
	slow.Rebalance = 7 * time.Second
	if got := r.do(slow); got != "set session of a 5m0s; clear sync; set rebalance 3s" {
		t.Fatal(got)
	}
	for i, want := range []string{"set rebalance 3s", "set rebalance 1s"} { // patience: 7 s in all
		r.do(enter(Request(2+i), string(rune('b'+i))))
		if got := r.do(Timer{Kind: TimerRebalance}); got != want {
			t.Fatalf("%d: got %s", i, got)
		}
	}
	r.do(enter(9, "d"))
	r.expect(Timer{Kind: TimerRebalance}, "join 1 ok: a in 1 consumer/range led by a a:31 b:31 c:31 d:31; join 2 ok: b in 1 consumer/range led by a; "+
		"join 3 ok: c in 1 consumer/range led by a; join 9 ok: d in 1 consumer/range led by a")

	alone := newRig(t)
	alone.cfg.InitialDelay = 3 * time.Second
	alone.do(enter(1, "a"))
	alone.expect(Timer{Kind: TimerRebalance}, "join 1 ok: a in 1 consumer/range led by a a:31") // nobody came
}

func TestWhoDoesNotRejoinInTimeIsLeftBehind(t *testing.T) {
	r := two(t, "a", "b")
	r.do(join(6, "b", "range:2"))
	r.expect(Timer{Kind: TimerRebalance}, "join 6 ok: b in 3 consumer/range led by b b:32")
	r.expect(beat(7, "a", 2), "answer 7 UNKNOWN_MEMBER_ID")
	r.expect(commit(8, "a", 2, false), "answer 8 UNKNOWN_MEMBER_ID")
}

func TestWhoNeverAsksForItsAssignmentIsLeftBehind(t *testing.T) {
	r := two(t, "a", "b")
	r.do(join(6, "a"))
	r.do(join(7, "b"))
	r.do(sync(8, "a", 3, "a:x", "b:y"))
	r.do(Durable{})
	r.expect(Timer{Kind: TimerSync}, "")
	if r.state.Member("b") != nil || r.state.Status != PreparingRebalance {
		t.Fatal(r.state)
	}
}

func TestASilentMemberLosesItsPlace(t *testing.T) {
	r := two(t, "a", "b")
	r.do(Timer{TimerSession, "a"})
	r.expect(beat(6, "b", 2), "answer 6 REBALANCE_IN_PROGRESS")
	r.expect(join(7, "b"), "join 7 ok: b in 3 consumer/range led by b b:31")
}

func TestAMemberThatWaitsForOthersIsNotSilent(t *testing.T) {
	r := two(t, "a", "b")
	r.do(join(6, "a"))
	r.expect(Timer{TimerSession, "a"}, "")
	r.expect(join(7, "b"), "join 6 ok: a in 3 consumer/range led by a a:31 b:31; join 7 ok: b in 3 consumer/range led by a")
	r.do(sync(8, "b", 3))
	r.expect(Timer{TimerSession, "b"}, "")
	if r.state.Member("b") == nil {
		t.Fatal(r.state)
	}
	// But one that never was in a generation may be a connection that is gone.
	r.do(enter(9, "c"))
	r.expect(Timer{TimerSession, "c"}, "join 9 UNKNOWN_MEMBER_ID")
}

func TestALeaderAsksForARebalanceByJoiningAFollowerDoesNot(t *testing.T) {
	r := two(t, "a", "b")
	r.expect(join(6, "b"), "join 6 ok: b in 2 consumer/range led by a")
	r.expect(join(7, "a"), "")
	if r.state.Status != PreparingRebalance {
		t.Fatal(r.state)
	}
}

func TestAStaticMemberStartedAnewTakesItsPlaceWithoutARebalance(t *testing.T) {
	r := two(t, "a", "b@i")
	r.expect(enter(6, "n@i"), "append generation 2 consumer/range a:61 n:62")
	r.expect(beat(7, "b@i", 2), "answer 7 FENCED_INSTANCE_ID")
	r.expect(commit(8, "b@i", 2, false), "answer 8 FENCED_INSTANCE_ID")
	r.expect(beat(9, "b", 2), "answer 9 UNKNOWN_MEMBER_ID")
	r.expect(Durable{}, "join 6 ok: n in 2 consumer/range led by a")
	r.expect(sync(10, "n@i", 2), "sync 10 ok: 62")
	r.expect(beat(11, "a", 2), "answer 11 ok")
}

func TestAStaticLeaderStartedAnewDoesNotAssign(t *testing.T) {
	r := two(t, "a@i", "b")
	r.do(enter(6, "n@i"))
	r.expect(Durable{}, "join 6 ok: n in 2 consumer/range led by a") // an old client believes that another one leads
	next := enter(7, "m@i")
	next.MayBeExempted = true
	r.do(next)
	r.expect(Durable{}, "join 7 ok: m in 2 consumer/range led by m m:31 b:31 exempted")
}

func TestAStaticMemberStartedAnewInARebalanceFencesTheOldOne(t *testing.T) {
	r := two(t, "a", "b@i")
	r.do(join(6, "b@i", "range:2"))
	r.expect(enter(7, "n@i"), "join 6 FENCED_INSTANCE_ID")
	r.expect(join(8, "a"), "join 8 ok: a in 3 consumer/range led by a a:31 n:31; join 7 ok: n in 3 consumer/range led by a")
	r.expect(enter(9, "o@i"), "") // the leader may have assigned to n: once more
	if r.state.Status != PreparingRebalance {
		t.Fatal(r.state)
	}
}

func TestAStaticMemberKeepsItsPlaceOverARebalanceThatItMisses(t *testing.T) {
	r := two(t, "a", "b@i")
	r.do(join(6, "a"))
	r.do(Timer{Kind: TimerRebalance})
	r.do(sync(7, "a", 3, "a:x", "b:y"))
	r.do(Durable{})
	r.do(Timer{Kind: TimerSync})
	if r.state.Status != Stable || r.state.Member("b") == nil {
		t.Fatal(r.state)
	}
	r.expect(join(8, "b@i"), "join 8 ok: b in 3 consumer/range led by a")
	r.expect(sync(9, "b@i", 3), "sync 9 ok: 79")
}

func TestAGroupOfSilentStaticMembersWaitsForTheirSessions(t *testing.T) {
	r := two(t, "a@i", "b@j")
	r.do(join(6, "a@i", "range:2"))
	r.do(leave(7, "a@i"))
	if got := r.do(Timer{Kind: TimerRebalance}); got != "set rebalance 1m0s" {
		t.Fatal(got)
	}
	r.expect(Timer{TimerSession, "b"}, "append generation 3 consumer/")
	if r.state.Status != Empty {
		t.Fatal(r.state)
	}
}

func TestTheProtocolOfMostMembersIsChosen(t *testing.T) {
	r := newRig(t)
	r.do(enter(1, "a", "range:1", "sticky:1", "old:1"))
	r.do(enter(2, "b", "sticky:2", "range:2"))
	r.do(enter(3, "c", "sticky:3", "range:3"))
	r.expect(enter(4, "d", "old:4"), "join 4 INCONSISTENT_GROUP_PROTOCOL")
	r.expect(join(5, "a", "range:1", "sticky:1", "old:1"), "join 5 ok: a in 2 consumer/sticky led by a a:31 b:32 c:33; "+
		"join 2 ok: b in 2 consumer/sticky led by a; join 3 ok: c in 2 consumer/sticky led by a")
	other := enter(6, "e", "sticky:1")
	other.ProtocolType = "connect"
	r.expect(other, "join 6 INCONSISTENT_GROUP_PROTOCOL")
}

func TestAGroupHasAnEnd(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		r.do(enter(Request(i+1), string(rune('a'+i))))
	}
	r.expect(enter(9, "z"), "join 9 GROUP_MAX_SIZE_REACHED")
}

func TestTheLastMemberThatLeavesLeavesAnEmptyGroup(t *testing.T) {
	r := two(t, "a", "b@i")
	r.expect(leave(6, "x", "y@i", "a"), "leave 6 [UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID ok]")
	r.expect(leave(7, "@i"), "leave 7 [ok]; append generation 3 consumer/")
	r.expect(Durable{}, "")
	r.reload()
	if r.state.Status != Empty || r.state.Generation != 3 {
		t.Fatal(r.state)
	}
	r.expect(enter(8, "c"), "join 8 ok: c in 4 consumer/range led by c c:31")
}

func TestMembersGoOnUnderTheNextCoordinator(t *testing.T) {
	r := two(t, "a", "b@i")
	if got := r.reload(); got != "set session of a 10s; set session of b 10s" {
		t.Fatal(got)
	}
	r.expect(beat(6, "b@i", 2), "answer 6 ok")
	r.expect(sync(7, "a", 2), "sync 7 ok: 61")
	r.expect(commit(8, "a", 2, false), "answer 8 ok")
	r.expect(Timer{TimerSession, "b"}, "")
	r.expect(join(9, "a"), "join 9 ok: a in 3 consumer/range led by a a:31")
}

func TestACoordinatorThatLostItsTermSaysWhereToAsk(t *testing.T) {
	r := two(t, "a", "b@i")
	r.do(enter(6, "n@i"))
	r.do(join(7, "a"))
	r.expect(Lost{}, "join 7 NOT_COORDINATOR; join 6 NOT_COORDINATOR")
	for _, e := range []Event{Durable{}, Timer{TimerSession, "a"}, Timer{Kind: TimerRebalance}, Lost{}} {
		r.expect(e, "")
	}
}

func TestOffsetsAreCommittedByMembersOfTheGenerationOnly(t *testing.T) {
	r := newRig(t)
	r.expect(commit(1, "", -1, false), "answer 1 ok") // no group: a consumer that assigns itself
	r.expect(commit(2, "a", 1, false), "answer 2 GROUP_ID_NOT_FOUND")
	r = two(t, "a", "b@i")
	r.expect(commit(1, "a", 2, false), "answer 1 ok")
	r.expect(commit(2, "a", 1, false), "answer 2 ILLEGAL_GENERATION")
	r.expect(commit(3, "z", 2, false), "answer 3 UNKNOWN_MEMBER_ID")
	r.expect(commit(4, "", -1, false), "answer 4 UNKNOWN_MEMBER_ID") // would overwrite what members did
	r.expect(commit(5, "", -1, true), "answer 5 ok")                 // TxnOffsetCommit before version 3
	r.expect(commit(6, "a", 1, true), "answer 6 ILLEGAL_GENERATION") // a zombie's transaction (KIP-447)
	r.do(enter(7, "c"))
	r.expect(commit(8, "a", 2, false), "answer 8 ok") // what it has done is still its own
	r.do(join(9, "a"))
	r.do(join(10, "b@i"))
	r.expect(commit(11, "a", 3, false), "answer 11 REBALANCE_IN_PROGRESS")
	r.expect(commit(12, "a", 3, true), "answer 12 ok")
}

func TestACommitKeepsASessionAlive(t *testing.T) {
	r := two(t, "a", "b")
	if got := r.do(commit(6, "a", 2, false)); got != "set session of a 10s; answer 6 ok" {
		t.Fatal(got)
	}
}

func TestOffsetsOfALiveOrRebalancingGroupNeverExpire(t *testing.T) {
	old := Offset{Committed: clock.UnixMilli(), Expires: -1}
	late := clock.Add(365 * 24 * time.Hour)
	r := two(t, "a", "b")
	if r.cfg.Expired(r.state, old, late) {
		t.Fatal("expired in a stable group")
	}
	r.do(join(6, "a"))
	if r.cfg.Expired(r.state, old, late) {
		t.Fatal("expired in a rebalance")
	}
	r.now = r.now.Add(time.Hour)
	r.do(leave(7, "a", "b"))
	if r.cfg.Expired(r.state, old, late) {
		t.Fatal("expired before the group is durably empty")
	}
	r.do(Durable{})
	left := r.now
	for _, c := range []struct {
		o    Offset
		at   time.Time
		want bool
	}{
		{old, left.Add(r.cfg.Retention - 1), false}, // counted from when the last member left
		{old, left.Add(r.cfg.Retention), true},
		{Offset{Committed: left.Add(time.Hour).UnixMilli(), Expires: -1}, left.Add(r.cfg.Retention), false},
		{Offset{Committed: left.Add(time.Hour).UnixMilli(), Expires: left.Add(2 * time.Hour).UnixMilli()}, left.Add(2 * time.Hour), true},
	} {
		if got := r.cfg.Expired(r.state, c.o, c.at); got != c.want {
			t.Errorf("%+v at %v: %v", c.o, c.at, got)
		}
	}
	alone := newRig(t)
	if alone.cfg.Expired(alone.state, old, clock.Add(r.cfg.Retention-1)) || !alone.cfg.Expired(alone.state, old, clock.Add(r.cfg.Retention)) {
		t.Error("offsets without a group count from their commit")
	}
}

func TestOnlyAGroupWithoutMembersIsDeleted(t *testing.T) {
	r := two(t, "a", "b")
	r.expect(Remove{6}, "answer 6 NON_EMPTY_GROUP")
	if any, code := r.state.MayDeleteOffsets(); any || code != OK {
		t.Fatal(any, code)
	}
	r.do(leave(7, "a", "b"))
	if any, code := r.state.MayDeleteOffsets(); !any || code != OK {
		t.Fatal(any, code)
	}
	r.expect(Remove{8}, "append tombstone")
	r.expect(Durable{}, "") // that it is empty
	r.expect(Durable{}, "answer 8 ok; forget")
	if !r.state.Blank() || r.log[len(r.log)-1].Encode() != nil {
		t.Fatal(r.state)
	}
	r = newRig(t)
	other := enter(1, "a")
	other.ProtocolType = "connect"
	r.do(other)
	if _, code := r.state.MayDeleteOffsets(); code != NonEmptyGroup {
		t.Fatal(code)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	r := newRig(t)
	for _, d := range []time.Duration{0, r.cfg.MinSession - 1, r.cfg.MaxSession + 1} {
		e := enter(1, "a")
		e.Session = d
		r.expect(e, "join 1 INVALID_SESSION_TIMEOUT")
	}
}

func TestSubscriptionsAndAssignmentsAreOpaque(t *testing.T) {
	r := newRig(t)
	odd := string([]byte{0, 0xff, 0})
	r.do(enter(1, "a", "cooperative-sticky:"+odd))
	r.do(sync(2, "a", 1, "a:"+odd))
	if got := r.do(Durable{}); !strings.HasPrefix(got, "sync 2 ok: 00ff00") {
		t.Fatal(got)
	}
}
