package replica

import (
	"errors"
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
		if d := time.Since(cut); d > calm.Lease+2*time.Second {
			t.Errorf("it took %v, the lease is %v", d, calm.Lease)
		}
		r.eventually("another serves", func() bool {
			return r.nodes[1].g.Status().Ready || r.nodes[2].g.Status().Ready
		})
		r.net.heal()
		r.converge()
		r.check()
	})
}

// The link is silent or broken: heartbeats and entries wait for answers, or for a link.
func TestALeaderThatCannotReachAMajorityStepsDownWhenToldTo(t *testing.T) {
	for name, cut := range map[string]func(r *rig, l *rigNode){
		"silent":  func(r *rig, l *rigNode) { r.net.isolate(l.id); time.Sleep(300 * time.Millisecond) },
		"long":    func(r *rig, l *rigNode) { r.net.isolate(l.id); time.Sleep(1700 * time.Millisecond) },
		"healthy": func(*rig, *rigNode) {},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, r *rig) {
				l := r.lead(r.nodes[0])
				l.produce(3, 1, "a")
				cut(r, l)
				term := l.g.Status().Term
				var waiting *pending
				if name != "healthy" {
					waiting = l.send(batch(1, "b"))
					time.Sleep(time.Millisecond)
				}
				told := time.Now()
				for range 100 { // as often as anybody likes
					l.g.StepDown()
				}
				if waiting != nil {
					if out := waiting.wait(t); !errors.Is(out.err, ErrLost) && !errors.Is(out.err, ErrNotLeader) {
						t.Errorf("a proposal under way ended with %v", out.err)
					}
				}
				r.eventually("it follows", func() bool { return l.g.Status().Role == Follower })
				if d := time.Since(told); d > 50*time.Millisecond {
					t.Errorf("it took %v", d)
				}
				if s := l.g.Status(); s.Term != term || s.Ready || s.Leader != "" {
					t.Errorf("after it stepped down in term %d: %+v", term, s)
				}
				r.net.heal()
				time.Sleep(time.Second) // connected anew
				r.lead(l).produce(3, 1, "c")
				r.converge()
				r.check()
			})
		})
	}
}

func TestALeaderThatVotesAloneDoesNotStepDown(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		l := r.leader()
		l.g.StepDown()
		time.Sleep(time.Second)
		l.produce(3, 1, "a")
		r.check()
	})
}

func TestReplicasThatCampaignTogetherDoNotWaitForTheElectionTimeout(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		net := r.net.(memory)
		l := r.lead(r.nodes[0])
		l.produce(3, 1, "a")
		r.converge()
		a, b := r.nodes[1], r.nodes[2]
		net.Delay(a.id, b.id, 5*time.Millisecond)
		net.Delay(b.id, a.id, 5*time.Millisecond)
		r.net.isolate(l.id)
		begin := time.Now()
		if err := errors.Join(a.g.Campaign(), b.g.Campaign()); err != nil {
			t.Fatal(err)
		}
		// As the partitions do: again after half a second, one after the other.
		for range 20 {
			time.Sleep(500 * time.Millisecond)
			if a.g.Status().Ready || b.g.Status().Ready {
				break
			}
			_ = a.g.Campaign()
			time.Sleep(150 * time.Millisecond)
			if a.g.Status().Leader == "" {
				_ = b.g.Campaign()
			}
		}
		r.eventually("one of them serves", func() bool { return a.g.Status().Ready || b.g.Status().Ready })
		if d := time.Since(begin); d > 2*time.Second {
			t.Errorf("no leader for %v after both campaigned", d)
		}
	})
}
