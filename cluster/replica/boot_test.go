package replica

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// cut leaves a node with what a power loss leaves of its disk and another
// kernel; the process starts again.
func (x *rigNode) losePower(seed uint64) {
	x.kill(true, seed)
	x.open()
}

func TestReplicaThatLostPowerDoesNotVoteUntilItHasCaughtUp(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		l := r.lead(r.nodes[0])
		l.produce(50, 1, "a")
		r.converge()
		x := r.nodes[1]
		r.net.isolate(r.nodes[2].id) // only node 1 can vouch for it
		l.produce(20, 1, "b")
		x.kill(true, 1)
		// Everybody else is away: the replica is alone with its hole.
		r.net.isolate(r.nodes[0].id)
		r.net.isolate(r.nodes[2].id)
		x.open()
		if !x.g.Status().Suspect {
			t.Fatal("a replica whose machine restarted without a clean stop is not suspect")
		}
		if err := x.g.Campaign(); !errors.Is(err, ErrSuspect) {
			t.Errorf("it campaigns: %v, want ErrSuspect", err)
		}
		if err := x.g.stable.SetUint64([]byte(nameLastVoteTerm), 99); !errors.Is(err, ErrSuspect) {
			t.Errorf("it votes: %v, want ErrSuspect", err)
		}
		r.net.heal()
		r.leader()
		r.eventually("it has caught up and votes", func() bool { return !x.g.Status().Suspect })
		if x.log.EndOffset() < 70 {
			t.Errorf("it votes with a log that ends at %d, 70 batches were acknowledged", x.log.EndOffset())
		}
		r.lead(x).produce(1, 1, "c")
		r.converge()
		r.check()
	})
}

func TestSuspicionSurvivesARestartOfTheProcess(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		l := r.lead(r.nodes[0])
		l.produce(10, 1, "a")
		r.converge()
		x := r.nodes[1]
		x.kill(true, 2)
		r.net.isolate(r.nodes[0].id)
		r.net.isolate(r.nodes[2].id)
		x.open()
		x.close() // cleanly, still suspect
		x.open()
		if !x.g.Status().Suspect {
			t.Error("a clean stop made a suspect trustworthy")
		}
		r.net.heal()
		r.eventually("it has caught up and votes", func() bool { return !x.g.Status().Suspect })
		x.close()
		x.open()
		if x.g.Status().Suspect {
			t.Error("a replica that has caught up is suspect after a restart")
		}
	})
}

func TestIdleLeaderIsEnoughToEndSuspicion(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		l := r.lead(r.nodes[0])
		l.produce(10, 1, "a")
		r.converge()
		r.nodes[1].losePower(3)
		r.eventually("the suspicion ends without new batches", func() bool { return !r.nodes[1].g.Status().Suspect })
		r.converge()
	})
}

func TestProcessKillAloneMakesNobodySuspect(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		r.lead(r.nodes[0]).produce(10, 1, "a")
		r.converge()
		r.nodes[1].kill(false, 0)
		r.nodes[1].open()
		if r.nodes[1].g.Status().Suspect {
			t.Error("a replica is suspect although its kernel did not restart")
		}
		r.converge()
	})
}

func TestSyncedReplicaIsNeverSuspect(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3, func(o *rigOptions) { o.syncEach = true })
		r.lead(r.nodes[0]).produce(10, 1, "a")
		r.converge()
		r.nodes[1].losePower(4)
		if r.nodes[1].g.Status().Suspect {
			t.Error("a replica that syncs every append is suspect")
		}
		r.converge()
	})
}

func TestSingleVoterServesAfterAPowerLoss(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.leader().produce(10, 1, "a")
		r.nodes[0].losePower(5)
		r.leader().produce(1, 1, "b")
		r.check()
	})
}

func TestAllVotersLostPowerAndElectTheLongestLog(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		for seed := range uint64(3) {
			r := newRig(t, 3)
			l := r.lead(r.nodes[0])
			l.produce(40, 1, "a")
			r.converge()
			for _, x := range r.nodes {
				x.kill(true, seed*10+uint64(x.id))
			}
			for _, x := range r.nodes {
				x.openNode()
			}
			// Two of three are not enough: the third may have the longest log.
			longest := int64(0)
			for _, x := range r.nodes[:2] {
				r.must(x.tryOpenGroup(r.servers))
				longest = max(longest, x.log.EndOffset())
			}
			time.Sleep(1500 * time.Millisecond) // longer than a round of questions
			for _, x := range r.nodes[:2] {
				if s := x.g.Status(); !s.Suspect || s.Role == Leader {
					t.Errorf("seed %d: node %d trusts itself while a voter is away: %+v", seed, x.id, s)
				}
			}
			r.must(r.nodes[2].tryOpenGroup(r.servers))
			longest = max(longest, r.nodes[2].log.EndOffset())
			l = r.leader()
			if got := l.log.EndOffset(); got < longest {
				t.Errorf("seed %d: node %d leads with a log up to %d, the longest was %d", seed, l.id, got, longest)
			}
			l.produce(1, 1, "after")
			r.eventually("nobody is suspect", func() bool {
				for _, x := range r.nodes {
					if x.g.Status().Suspect {
						return false
					}
				}
				return true
			})
			r.converge()
			r.check()
			r.close()
		}
	})
}

func TestOperatorCanEndSuspicion(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		r.lead(r.nodes[0]).produce(10, 1, "a")
		r.converge()
		for _, x := range r.nodes {
			x.kill(true, uint64(x.id))
		}
		for _, x := range r.nodes[:2] { // the third never comes back
			x.open()
		}
		for _, x := range r.nodes[:2] {
			r.must(x.g.Recover())
		}
		r.leader().produce(1, 1, "b")
	})
}

func TestReplicaIsSuspectAfterAPowerLossExactlyWhenItDidNotSync(t *testing.T) {
	for _, synced := range []bool{true, false} {
		t.Run(fmt.Sprintf("synced %t", synced), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				r := newRig(t, 3, func(o *rigOptions) { o.syncEach = !synced })
				l := r.lead(r.nodes[0])
				l.produce(20, 1, "a")
				r.converge()
				x := r.nodes[1]
				if err := x.g.Tune(0, synced); err != nil {
					t.Fatal(err)
				}
				l.produce(20, 1, "b")
				r.converge()
				end := x.log.EndOffset()
				r.net.isolate(r.nodes[0].id)
				r.net.isolate(r.nodes[2].id)
				x.losePower(6)
				if got := x.g.Status().Suspect; got == synced {
					t.Errorf("synced %t: suspect %t", synced, got)
				}
				if got := x.log.EndOffset(); synced && got != end {
					t.Errorf("synced: the log ends at %d, it ended at %d", got, end)
				}
				r.net.heal()
				r.converge()
				r.check()
			})
		})
	}
}
