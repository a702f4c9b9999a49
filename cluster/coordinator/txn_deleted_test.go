package coordinator

import (
	"slices"
	"testing"

	"gopherlog/engine/record"
	"gopherlog/txn/group"
	"gopherlog/txn/kafkatx"
)

// hold commits offsets of a group in an open transaction.
func (r *rig) hold(id string, producer int64, offsets ...Offset) {
	r.t.Helper()
	c := make(chan kafkatx.Code, 1)
	by := Transaction{ID: "x", ProducerID: producer}
	r.g.CommitTxn(id, group.Commit{Generation: -1}, by, offsets, func(code kafkatx.Code) { c <- code })
	if code := wait(r.t, c); code != kafkatx.OK {
		r.t.Fatalf("offsets in a transaction: %s", code)
	}
}

// end is the marker of a transaction.
func (r *rig) end(producer int64, how record.ControlType) {
	b := record.BuildControl(how, producer, 0, 1, 0)
	r.part.change(func(p *fakeShard) {
		b.SetBaseOffset(p.next)
		p.next = b.NextOffset()
	})
	r.part.kept.Apply(b)
}

func (r *rig) listed() (ids []string) {
	r.t.Helper()
	c := make(chan []Described, 1)
	r.g.List(func(all []Described, _ group.Code) { c <- all })
	for _, d := range wait(r.t, c) {
		ids = append(ids, d.ID+" "+d.State)
	}
	slices.Sort(ids)
	return ids
}

func (r *rig) removeOffsets(id string, offsets ...Offset) []group.Code {
	r.t.Helper()
	c := make(chan []group.Code, 1)
	r.g.DeleteOffsets(id, offsets, func(code group.Code, codes []group.Code) { c <- append([]group.Code{code}, codes...) })
	return wait(r.t, c)
}

// A group that has nothing but what an open transaction holds for it is there, and empty, until the transaction is aborted.
func TestAGroupThatOnlyATransactionKnowsIsEmptyAndNotDead(t *testing.T) {
	r := newRig(t)
	r.hold("g", 7, at(0, 5))
	for epoch := range int32(2) {
		if d := wait(t, r.describe("g")); d.State != "Empty" || !slices.Equal(r.listed(), []string{"g Empty"}) {
			t.Fatalf("described as %s, listed %v", d.State, r.listed())
		}
		if code := wait(t, r.commit("g", "m", 3, at(0, 6))); code != group.UnknownMemberID {
			t.Fatalf("a commit of a member that it never had: %s", code)
		}
		r.lose()
		r.lead(epoch + 2)
	}
	r.end(7, record.Abort)
	if d := wait(t, r.describe("g")); d.State != Dead || len(r.listed()) > 0 {
		t.Fatalf("behind the abort described as %s, listed %v", d.State, r.listed())
	}
	if code := r.remove("g"); code != group.GroupIDNotFound {
		t.Fatalf("deletion behind the abort: %s", code)
	}
}

// What a transaction held for a group when that was deleted does not come back with the commit, under whichever leader; what it takes up
// later does.
func TestADeletedGroupTakesAlongWhatATransactionHoldsForIt(t *testing.T) {
	r := newRig(t)
	r.hold("g", 7, at(0, 5), at(1, 5))
	r.hold("g", 8, at(1, 6))
	r.hold("other", 7, at(0, 9))
	if code := r.remove("g"); code != group.OK {
		t.Fatalf("deletion: %s", code)
	}
	if d := wait(t, r.describe("g")); d.State != Dead || !slices.Equal(r.listed(), []string{"other Empty"}) {
		t.Fatalf("described as %s, listed %v", d.State, r.listed())
	}
	if found, _ := r.fetch("g", Wanted{Topic: "t"}); found[0].Unstable {
		t.Fatal("who asks for stable offsets waits for the transaction of a group that is gone")
	}
	if code := r.remove("g"); code != group.GroupIDNotFound {
		t.Fatalf("deletion once more: %s", code)
	}
	r.lose()
	r.lead(2)
	r.hold("g", 8, at(2, 7))
	r.end(7, record.Commit)
	r.end(8, record.Commit)
	for number, want := range []int64{-1, -1, 7} {
		if got := r.committed("g", int32(number)); got != want {
			t.Errorf("partition %d: offset %d, want %d", number, got, want)
		}
	}
	if got := r.committed("other", 0); got != 9 {
		t.Errorf("offset %d of another group in the same transaction", got)
	}
}

func TestADeletedOffsetDoesNotComeBackWithATransaction(t *testing.T) {
	r := newRig(t)
	wait(t, r.commit("g", "", -1, at(1, 4)))
	r.hold("g", 7, at(0, 5), at(1, 5), at(2, 5))
	r.hold("only", 7, at(0, 5))
	if codes := r.removeOffsets("g", at(0, 0), at(1, 0)); !slices.Equal(codes, []group.Code{group.OK, group.OK, group.OK}) {
		t.Fatalf("codes %v", codes)
	}
	if codes := r.removeOffsets("only", at(0, 0)); !slices.Equal(codes, []group.Code{group.OK, group.OK}) {
		t.Fatalf("codes %v of a group that only the transaction knows", codes)
	}
	if d := wait(t, r.describe("only")); d.State != Dead {
		t.Fatalf("a group that has lost its last offset is %s", d.State)
	}
	r.lose()
	r.lead(2)
	r.end(7, record.Commit)
	for number, want := range []int64{-1, -1, 5} {
		if got := r.committed("g", int32(number)); got != want {
			t.Errorf("partition %d: offset %d, want %d", number, got, want)
		}
	}
	if got := r.committed("only", 0); got != -1 {
		t.Errorf("offset %d of a group that has lost its last one", got)
	}
}
