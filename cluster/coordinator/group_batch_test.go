package coordinator

import (
	"testing"

	"gopherlog/txn/group"
)

// busy lets as many batches be under way as may be, and returns the answers to what they hold.
func busy(r *rig) (answers []chan group.Code) {
	r.part.change(func(p *fakeShard) { p.hold = true })
	for range gatherFlights {
		c := r.commit("early", "", -1, at(0, 1))
		none(r, c)
		answers = append(answers, c)
	}
	return answers
}

func TestCommitsThatComeWhileOthersAreUnderWayShareABatch(t *testing.T) {
	r := newRig(t)
	answers := busy(r)
	for i := range int32(4) {
		answers = append(answers, r.commit("g", "", -1, at(i, 7)), r.commit("h", "", -1, at(i, 8)))
	}
	none(r, answers[len(answers)-1])
	r.part.change(func(p *fakeShard) {
		if len(p.epochs) != gatherFlights {
			t.Errorf("%d batches are under way, want %d", len(p.epochs), gatherFlights)
		}
	})
	r.part.release()
	for _, c := range answers {
		if code := wait(t, c); code != group.OK {
			t.Fatalf("commit: %s", code)
		}
	}
	r.part.change(func(p *fakeShard) {
		if len(p.epochs) != gatherFlights+1 {
			t.Errorf("%d batches in all, want %d", len(p.epochs), gatherFlights+1)
		}
	})
	if r.committed("g", 3) != 7 || r.committed("h", 3) != 8 {
		t.Errorf("offsets %d and %d", r.committed("g", 3), r.committed("h", 3))
	}
}

func TestWhatWasGatheredWhenTheShardGoesElsewhereIsSentThere(t *testing.T) {
	r := newRig(t)
	answers := busy(r)
	answers = append(answers, r.commit("g", "", -1, at(0, 7)))
	none(r, answers[len(answers)-1])
	r.lose()
	r.part.abandon()
	for _, c := range answers {
		if code := wait(t, c); code != group.NotCoordinator {
			t.Fatalf("commit: %s", code)
		}
	}
	r.lead(2)
	if got := r.committed("g", 0); got != -1 {
		t.Fatalf("offset %d, which was never appended", got)
	}
}

// A group that is deleted and commits again keeps what it committed afterwards.
func TestRecordsOfABatchKeepTheirOrder(t *testing.T) {
	r := newRig(t)
	wait(t, r.commit("g", "", -1, at(0, 1)))
	answers := busy(r)
	deleted := make(chan group.Code, 1)
	r.g.Delete("g", func(code group.Code) { deleted <- code })
	answers = append(answers, deleted, r.commit("g", "", -1, at(1, 2)))
	none(r, answers[len(answers)-1])
	r.part.release()
	for _, c := range answers {
		if code := wait(t, c); code != group.OK {
			t.Fatal(code)
		}
	}
	if a, b := r.committed("g", 0), r.committed("g", 1); a != -1 || b != 2 {
		t.Fatalf("offsets %d and %d, want -1 and 2", a, b)
	}
}
