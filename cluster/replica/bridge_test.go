package replica

import (
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs a test in virtual time, on a network without sockets.
func inBubble(t *testing.T, n int, test func(*testing.T, *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, n, func(o *rigOptions) {
			o.fabric = newMemory()
			o.timers = Timers{} // as in production
		})
		test(t, r)
	})
}

func TestLeadershipIsStableAcrossABridge(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		net := r.net.(memory)
		l := r.lead(r.nodes[0])
		l.produce(1, 1, "a")
		r.converge()
		// 1 and 2 do not hear each other; both hear 3.
		net.CutBoth(r.nodes[0].id, r.nodes[1].id)
		term := l.g.Status().Term
		for start := time.Now(); time.Since(start) < 60*time.Second; time.Sleep(500 * time.Millisecond) {
			l.produce(1, 1, "x")
			if s := l.g.Status(); !s.Ready || s.Term != term {
				t.Fatalf("after %v leadership has moved: %+v, was term %d", time.Since(start), s, term)
			}
		}
		r.net.heal()
		r.converge()
		if s := l.g.Status(); s.Term != term {
			t.Errorf("the heal moved leadership: term %d, was %d", s.Term, term)
		}
		r.check()
	})
}

func TestIsolatedLeaderStepsDownAndItsSuccessorServes(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		l := r.lead(r.nodes[0])
		l.produce(3, 1, "a")
		r.net.isolate(l.id)
		cut := time.Now()
		r.eventually("the isolated leader steps down", func() bool { return l.g.Status().Role != Leader })
		if d := time.Since(cut); d > 5*time.Second {
			t.Errorf("it took %v", d)
		}
		r.eventually("another serves", func() bool {
			return r.nodes[1].g.Status().Ready || r.nodes[2].g.Status().Ready
		})
		r.net.heal()
		r.converge()
		r.check()
	})
}
