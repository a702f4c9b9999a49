package partition

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/cluster/rpc"
)

const second rpc.ServerID = "2.0000000000000001"

func (w *Waiter) told() bool {
	select {
	case <-w.C:
		return true
	default:
		return false
	}
}

// A leader that steps down hears of its successor a moment later, and a replica that is elected serves a moment later. Who waits for that is
// told of each step, and not of records.
func TestWhoWaitsForALeaderIsToldOfEveryStep(t *testing.T) {
	h := open(t)
	h.must(t, plain(1))
	w, reads := NewWaiter(), NewWaiter()
	if h.Unsettled(1) || h.AwaitLeader(w, 1) {
		t.Fatal("waits for a leader that serves")
	}
	h.g.depose(2, "", false)
	if !h.Unsettled(1) || !h.AwaitLeader(w, 1) {
		t.Fatal("nobody is known to lead, and nobody waits")
	}
	h.g.depose(2, second, false)
	if !w.told() || h.Unsettled(1) || h.Unsettled(2) || h.AwaitLeader(w, 2) {
		t.Fatal("the leader is known, and somebody waits")
	}
	if !h.AwaitLeader(w, 3) {
		t.Fatal("a newer term is known to the client, and it does not wait")
	}
	h.g.depose(3, self, false) // elected, and does not serve yet
	if !w.told() || !h.AwaitLeader(w, 3) {
		t.Fatal("the elected leader does not serve, and nobody waits")
	}
	if node, epoch, ready := h.Leader(); node != self.Node() || epoch != 3 || ready {
		t.Fatalf("leader %d epoch %d ready %v", node, epoch, ready)
	}
	h.g.lead(3)
	if !w.told() || h.Unsettled(3) || h.AwaitLeader(w, 3) {
		t.Fatal("the leader serves, and somebody waits")
	}
	if _, err := h.CheckEpoch(3); err != nil {
		t.Fatal(err)
	}

	if !h.Unsettled(4) || !h.AwaitLeader(w, 4) || !h.Park(reads, h.HighWatermark(), 3, ReadUncommitted) {
		t.Fatal("a newer term is known to the client, and it does not wait")
	}
	if _, err := h.CheckEpoch(4); !errors.Is(err, ErrUnknownEpoch) {
		t.Fatal(err)
	}
	h.must(t, plain(1))
	<-reads.C
	if w.told() {
		t.Error("records came: who waits for a leader was told")
	}
	if !h.Park(reads, h.HighWatermark(), 3, ReadUncommitted) {
		t.Fatal("not parked")
	}
	h.g.announce() // as of a follower that came to be in sync
	if reads.told() || !w.told() {
		t.Error("who waits for records is told of a status, or who waits for a leader is not")
	}
	h.Unpark(reads)
	if n := h.parked.Load(); n != 0 {
		t.Errorf("%d wait", n)
	}
}

// A replica that failed will not lead; who asks it is sent away at once.
func TestNobodyWaitsAtAReplicaThatFailed(t *testing.T) {
	h := open(t)
	h.g.depose(2, "", false)
	h.g.mu.Lock()
	h.g.failed = errors.New("disk")
	h.g.mu.Unlock()
	if h.Unsettled(1) || h.AwaitLeader(NewWaiter(), 1) {
		t.Error("somebody waits")
	}
}

// settling is a replica that is between leaders until it is told.
type settling struct {
	w       *Waiter
	settled bool
}

func (s *settling) AwaitLeader(w *Waiter, _ int32) bool {
	if !s.settled {
		s.w = w
	}
	return !s.settled
}

func (s *settling) Unpark(*Waiter) { s.w = nil }

func (s *settling) settle() {
	s.settled = true
	s.w.C <- struct{}{}
}

// Each goes on when it is settled, those that never are at the limit or when nobody waits any more, and nobody is left registered.
func TestEachReplicaGoesOnWhenItIsSettledAndAllAtTheLimit(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			all := []*settling{{}, {settled: true}, {}, {}}
			var order []int
			stop, over := make(chan struct{}), make(chan struct{})
			start := time.Now()
			go func() {
				WhenSettled(all, time.Second, stop, func(i int) { order = append(order, i) })
				close(over)
			}()
			synctest.Wait()
			if !slices.Equal(order, []int{1}) {
				t.Fatalf("%v", order)
			}
			all[2].settle()
			synctest.Wait()
			if !slices.Equal(order, []int{1, 2}) {
				t.Fatalf("%v", order)
			}
			want := time.Second
			if stopped {
				close(stop)
				want = 0
			}
			<-over
			if took := time.Since(start); took != want || !slices.Equal(order, []int{1, 2, 0, 3}) || all[0].w != nil || all[3].w != nil {
				t.Errorf("%v after %v, want it after %v", order, took, want)
			}
		})
	}
}
