package group

import "testing"

// rejoined is two in its next rebalance, which both have joined: the record of generation 3 is on its way.
func rejoined(t *testing.T, a, b string) *rig {
	r := two(t, a, b)
	r.slow = true
	r.expect(join(8, a), "")
	r.expect(join(9, b), "append generation 3 consumer/range begins: a: b:")
	return r
}

func TestMembersAreToldOfAGenerationWhenItIsDurable(t *testing.T) {
	r := rejoined(t, "a", "b")
	r.expect(join(10, "b"), "") // a repeat is told no sooner
	r.expect(Durable{}, "join 8 ok: a in 3 consumer/range led by a a:31 b:31; join 9 ok: b in 3 consumer/range led by a; join 10 ok: b in 3 consumer/range led by a")
	r.expect(join(11, "b"), "join 11 ok: b in 3 consumer/range led by a")
}

func TestMembersThatWereToldOfAGenerationGoOnWithItUnderTheNextCoordinator(t *testing.T) {
	r := rejoined(t, "a", "b@i")
	r.do(Durable{})
	r.expect(sync(10, "b@i", 3), "")
	r.expect(Lost{}, "sync 10 NOT_COORDINATOR")
	if got := r.reload(); got != "set session of a 10s; set session of b 10s; set sync 1m0s" {
		t.Fatal(got)
	}
	r.expect(beat(11, "a", 3), "answer 11 ok")
	r.expect(sync(12, "b@i", 3), "")
	r.expect(sync(13, "a", 3, "a:x", "b:y"), "append generation 3 consumer/range a:78 b:79")
	r.expect(Durable{}, "sync 13 ok: 78; sync 12 ok: 79")
	r.reload()
	r.expect(sync(14, "a", 3), "sync 14 ok: 78")
}

func TestMembersThatWereNotToldOfAGenerationAreToldByTheNextCoordinator(t *testing.T) {
	r := rejoined(t, "a", "b")
	r.log, r.pending = append(r.log, r.pending...), nil // it became durable, and nobody heard of it
	r.expect(Lost{}, "join 8 NOT_COORDINATOR; join 9 NOT_COORDINATOR")
	r.reload()
	r.expect(commit(10, "b", 2, false), "answer 10 ok")
	r.expect(beat(11, "b", 2), "answer 11 REBALANCE_IN_PROGRESS")
	r.expect(join(12, "b"), "join 12 ok: b in 3 consumer/range led by a")
	r.expect(join(13, "a"), "join 13 ok: a in 3 consumer/range led by a a:31 b:31")
}

func TestNobodyWasToldOfAGenerationThatIsLost(t *testing.T) {
	r := rejoined(t, "a", "b")
	r.expect(Lost{}, "join 8 NOT_COORDINATOR; join 9 NOT_COORDINATOR")
	r.reload()
	r.expect(beat(10, "a", 2), "answer 10 ok")
	r.expect(commit(11, "b", 2, false), "answer 11 ok")
	r.expect(join(12, "a", "range:2"), "")
	r.expect(join(13, "b"), "append generation 3 consumer/range begins: a: b:")
}

func TestALeaderThatIsGoneLeavesNoGenerationWithoutAssignment(t *testing.T) {
	r := rejoined(t, "a", "b")
	r.do(Durable{})
	r.reload()
	r.expect(sync(10, "b", 3), "")
	r.expect(Timer{TimerSession, "a"}, "sync 10 REBALANCE_IN_PROGRESS")
	r.expect(join(11, "b"), "append generation 4 consumer/range begins: b:")

	r = rejoined(t, "a", "b")
	r.do(Durable{})
	r.reload()
	r.do(sync(10, "b", 3))
	r.expect(Timer{Kind: TimerSync}, "sync 10 REBALANCE_IN_PROGRESS")
}

func TestCommitsOfTheGenerationBeforeAreTakenUntilThereIsAnAssignment(t *testing.T) {
	r := rejoined(t, "a", "b")
	for i, transactional := range []bool{false, true} {
		r.expect(commit(10, "b", 2, transactional), "answer 10 ok")
		r.expect(commit(11, "b", 1, transactional), "answer 11 ILLEGAL_GENERATION")
		r.expect(commit(12, "z", 2, transactional), "answer 12 UNKNOWN_MEMBER_ID")
		if i == 0 {
			r.do(Durable{}) // it has been told: its commit may have been on its way
		}
	}
	r.do(sync(13, "a", 3, "a:x", "b:y")) // who gets its partition may be told any moment
	r.expect(commit(14, "b", 2, false), "answer 14 ILLEGAL_GENERATION")
	r.do(Durable{})
	r.expect(commit(15, "b", 2, false), "answer 15 ILLEGAL_GENERATION")
}

func TestCommitsAreTakenOverGenerationsThatNobodyHadAnAssignmentOf(t *testing.T) {
	r := rejoined(t, "a", "b")
	r.do(enter(10, "c")) // generation 3 ends before it is durable
	r.expect(commit(11, "b", 2, false), "answer 11 ok")
	r.do(Durable{})
	r.do(join(12, "a"))
	r.expect(join(13, "b"), "append generation 4 consumer/range begins: a: b: c:")
	r.expect(commit(14, "a", 2, false), "answer 14 ok")
	r.expect(commit(15, "a", 3, false), "answer 15 ok")
	r.do(Durable{})
	r.do(sync(16, "a", 4, "a:x", "b:y", "c:z"))
	r.expect(commit(17, "a", 3, false), "answer 17 ILLEGAL_GENERATION")
}

func TestAMemberThatWaitsToBeToldOfAGenerationIsNotSilent(t *testing.T) {
	r := rejoined(t, "a", "b")
	if got := r.do(Timer{TimerSession, "b"}); got != "set session of b 10s" {
		t.Fatal(got)
	}
	r.do(Durable{})
	r.expect(Timer{TimerSession, "b"}, "")
	if r.state.Member("b") != nil {
		t.Fatal(r.state)
	}
}

// A client takes an assignment of no bytes for damage, so a member that was assigned partitions gets them, or no answer, wherever a
// coordinator ended.
func TestAMemberThatWasAssignedIsNeverGivenAnEmptyAssignment(t *testing.T) {
	assigned := func(r *rig, e Sync) (got bool) {
		for _, f := range r.step(e) {
			if s, ok := f.(Synced); ok && s.Code == OK {
				if got = true; len(s.Assignment) == 0 {
					t.Fatalf("%+v was given nothing in %s", e, r.state)
				}
			}
		}
		return got
	}
	r := two(t, "a", "b@i")
	for range 2 {
		if !assigned(r, sync(10, "a", 2)) || !assigned(r, sync(11, "b@i", 2)) {
			t.Fatal(r.state)
		}
		r.reload()
	}
	r = rejoined(t, "a", "b@i")
	steps := []func(){
		func() { r.do(Durable{}) },
		func() { r.reload() },
		func() { r.do(sync(12, "a", 3, "a:x", "b:y")) },
		func() { r.do(Durable{}) },
		func() { r.reload() },
	}
	for i, step := range steps {
		step()
		if got := assigned(r, sync(Request(20+i), "b@i", 3)); got != (i >= 3) {
			t.Fatalf("step %d: an answer: %v, in %s", i, got, r.state)
		}
	}
	r.do(enter(30, "n@i")) // in b's place
	r.do(Durable{})
	if !assigned(r, sync(31, "n@i", 3)) {
		t.Fatal(r.state)
	}
}
