package replica

import (
	"testing"
	"time"
)

func TestAGroupThatIsStillIsLookedAtLessOften(t *testing.T) {
	for calm, want := range map[int]time.Duration{0: reconcileEvery, 1: reconcileEvery, 30: reconcileEvery, 31: reconcileIdle, 1000: reconcileIdle} {
		if got := pace(calm); got != want {
			t.Errorf("after %d looks that found nothing new: %v, want %v", calm, got, want)
		}
	}
	if time.Duration(31)*reconcileEvery < checkpointEvery {
		t.Error("it calms down before its last entries are in a restart copy")
	}
}

// What is appended after a long silence is in a restart copy as soon as in a busy group, or one long interval later.
func TestAGroupThatWasStillIsCheckpointedAgain(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		l := r.lead(r.nodes[0])
		l.produce(1, 1, "a")
		time.Sleep(10 * time.Minute)
		l.produce(1, 1, "b")
		index := l.g.Status().AppliedIndex
		time.Sleep(checkpointEvery + 2*reconcileIdle)
		for _, n := range r.nodes {
			if copied := n.g.state.copied.Load(); copied < index {
				t.Errorf("node %d: the restart copy is at %d, want %d", n.id, copied, index)
			}
		}
		r.check()
	})
}

// A node that never lives for checkpointEvery, because it is killed again and again, must not replay more and more.
func TestManySmallEntriesMakeARestartCopyDueBeforeItsTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		l := r.leader()
		for range checkpointEntries / 64 {
			l.produce(64, 1, "x")
		}
		r.converge()
		time.Sleep(3 * reconcileEvery)
		for _, n := range r.nodes {
			if copied := n.g.state.copied.Load(); copied == 0 {
				t.Errorf("node %d has no restart copy after %d entries", n.id, checkpointEntries)
			}
		}
	})
}
