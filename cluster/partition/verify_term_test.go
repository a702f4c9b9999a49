package partition

import (
	"testing"
	"time"
)

// A coordinator that was deposed still takes a transaction for ongoing that its successor has ended. Its yes comes from an older term than
// the marker here, so it is not believed, and somebody else is asked.
func TestADeposedCoordinatorsYesOpensNothing(t *testing.T) {
	c := &coordinators{}
	h := open(t, with(c))
	first := h.sendPart(part(7, 0, 0, 1), time.Time{})
	c.question(t).done(Verified{Ongoing: true, Term: 5}, nil)
	if r := wait(t, first); r.Err != nil {
		t.Fatal(r.Err)
	}
	end := abortOf(7, 0)
	end.CoordinatorEpoch = 7 // of the successor
	h.mustMark(t, end)
	late := h.sendPart(part(7, 0, 1, 1), time.Now().Add(time.Minute))
	c.question(t).done(Verified{Ongoing: true, Term: 5}, nil)
	if n := h.OpenTransactions(); n != 0 {
		t.Fatalf("%d transactions are open", n)
	}
	q := c.question(t)
	if q.MinTerm != 7 {
		t.Errorf("asked for the word of term %d or later, want the successor's", q.MinTerm)
	}
	q.done(Verified{Ongoing: true, Term: 7}, nil) // the next transaction of the epoch
	if r := wait(t, late); r.Err != nil {
		t.Fatal(r.Err)
	}
	if n := h.OpenTransactions(); n != 1 {
		t.Fatalf("%d transactions are open", n)
	}
}
