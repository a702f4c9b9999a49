package replica

import (
	"errors"
	"testing"
	"time"

	"gopherlog/engine/failpoint"
)

func TestRefusedStoreDeposesTheLeaderAndNothingIsLost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		points := failpoint.New()
		r := newRig(t, 3, func(o *rigOptions) { o.points = points })
		l := r.leader()
		l.produce(3, 1, "a")
		r.converge()
		if err := points.Arm(failStore, failpoint.Action{Kind: failpoint.Error, Err: errors.New("refused"), Nth: 1}); err != nil {
			t.Fatal(err)
		}
		term := l.g.Status().Term
		o := l.send(batch(1, "b"))
		if out := o.wait(t); !errors.Is(out.err, ErrNotLeader) {
			t.Errorf("the refused batch says %v, want ErrNotLeader", out.err)
		}
		points.DisarmAll()
		r.eventually("the leader is deposed", func() bool { // the batch is answered first
			s := l.g.Status()
			return !s.Ready || s.Term != term
		})
		r.leader().produce(3, 1, "c")
		r.converge()
		if got := r.nodes[0].log.EndOffset(); got != 6 {
			t.Errorf("log ends at %d, want 6", got)
		}
		r.check()
	})
}

func TestFailureWhileASnapshotIsAdoptedTakesTheReplicaOut(t *testing.T) {
	points := failpoint.New()
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3, smallSegments, func(o *rigOptions) { o.points = points })
		l := r.lead(r.nodes[0])
		l.produce(40, 1, filler)
		r.converge()
		x := r.nodes[2]
		r.net.isolate(x.id)
		time.Sleep(5 * time.Second) // what is under way is given up
		l.produce(60, 1, filler)
		l.trimAll()
		r.nodes[1].trimAll()
		if err := points.Arm(failAdopt, failpoint.Action{Kind: failpoint.Error, Err: errors.New("refused")}); err != nil {
			t.Fatal(err)
		}
		// It holds everything up to the trimmed part's end or less; only in the
		// latter case does the leader send a snapshot.
		if x.log.LastIndex() >= l.log.FirstIndex() {
			t.Fatalf("node 3 ends at %d, the leader begins at %d: no snapshot is needed", x.log.LastIndex(), l.log.FirstIndex())
		}
		r.net.heal()
		r.eventually("the replica leaves service", func() bool { return x.g.Status().Failed != nil })
		points.DisarmAll()
		// Reopened, it is refilled.
		x.closeGroup()
		x.openGroup()
		r.converge()
		r.check()
	})
}
