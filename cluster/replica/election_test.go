package replica

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

// silentTransport stands for an attached transport in tests that start no raft.
type silentTransport struct {
	rpc.GroupTransport
	handler func(raft.RPC)
}

func (s *silentTransport) SetHeartbeatHandler(h func(raft.RPC)) { s.handler = h }

func TestHeartbeatsNeverTakeTheLibrarysFastPath(t *testing.T) {
	inner := new(silentTransport)
	g := &guarded{GroupTransport: inner, host: new(host)}
	g.SetHeartbeatHandler(func(raft.RPC) {})
	if inner.handler != nil {
		t.Error("the heartbeat handler reached the transport: a heartbeat would change the term beside an append")
	}
}

func TestSettingsThatBreakTheLibraryStayOff(t *testing.T) {
	c := partitionConfig("1.a", Timers{}, nil)
	if c.RestoreCommittedLogs || c.PreVoteDisabled || c.NotifyCh != nil {
		t.Errorf("RestoreCommittedLogs %v, PreVoteDisabled %v, NotifyCh %v; all must stay off", c.RestoreCommittedLogs, c.PreVoteDisabled, c.NotifyCh)
	}
	if c.SnapshotThreshold != never || c.TrailingLogs != never {
		t.Error("the library may snapshot or compact a partition's log")
	}
	if c.MaxAppendEntries > 128 {
		t.Errorf("MaxAppendEntries is %d: each request and each commit allocates so many", c.MaxAppendEntries)
	}
	if c.LeaderLeaseTimeout < time.Second {
		t.Errorf("lease is %v: saturated machines would depose their leaders", c.LeaderLeaseTimeout)
	}
	if err := raft.ValidateConfig(c); err != nil {
		t.Error(err)
	}
	// Between two contacts of an idle group lies a rest and the library's own pause.
	for name, pause := range map[string]time.Duration{"heartbeats": c.HeartbeatTimeout / 5, "empty requests": 2 * c.CommitTimeout} {
		if longest := calm.rest() + pause; c.LeaderLeaseTimeout < longest+time.Second || c.HeartbeatTimeout < longest+time.Second {
			t.Errorf("%s of an idle group come every %v: a busy machine would depose its leader", name, longest)
		}
	}
}

func TestFirstProducedOffsetIsZeroAndStaysDenseAcrossElections(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		l := r.leader()
		o := l.send(batch(2, "first"))
		if out := o.wait(t); out.err != nil || out.base != 0 {
			t.Fatalf("first batch is at %d, %v; want offset 0", out.base, out.err)
		}
		next := int64(2)
		for round := range 4 {
			l = r.lead(r.nodes[round%3])
			out := l.send(batch(3, "x")).wait(t)
			if out.err != nil || out.base != next {
				t.Fatalf("round %d: batch is at %d, %v; want %d", round, out.base, out.err, next)
			}
			next += 3
		}
		r.converge()
		r.check()
	})
}

func TestEveryTermsFirstEntryRecordsItsEpoch(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		r.lead(r.nodes[0]).produce(2, 1, "a")
		var silent []uint64 // terms in which nothing was produced
		for _, x := range []*rigNode{r.nodes[1], r.nodes[2], r.nodes[0]} {
			r.lead(x)
			silent = append(silent, x.g.Status().Term)
		}
		r.nodes[0].produce(1, 1, "b")
		r.converge()
		for _, term := range silent {
			for _, x := range r.nodes {
				want := int64(2)
				if term == silent[2] {
					want = 3
				}
				if e, end := x.log.EpochEnd(int32(term)); e != int32(term) || end != want {
					t.Errorf("node %d: epoch %d ends as (%d, %d), want (%d, %d)", x.id, term, e, end, term, want)
				}
			}
		}
	})
}

func TestOnlyFoundersBootstrap(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newBareRig(t, 2)
		t.Cleanup(r.close)
		for _, x := range r.nodes {
			x.openNode()
		}
		// Node 2 is not among the founders: it must wait to be added.
		r.must(r.nodes[0].tryOpenGroup(r.servers[:1]))
		r.must(r.nodes[1].tryOpenGroup(r.servers[:1]))
		if n := len(r.nodes[1].g.Members()); n != 0 {
			t.Fatalf("a stranger began with %d members", n)
		}
		l := r.lead(r.nodes[0])
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		l.produce(5, 1, "a")
		r.must(l.g.AddNonvoter(ctx, r.servers[1]))
		r.eventually("the new server catches up", func() bool {
			m, _ := l.g.Match(r.servers[1])
			return m == l.log.LastIndex()
		})
		r.must(l.g.AddVoter(ctx, r.servers[1]))
		l.produce(5, 1, "b")
		r.converge()
		if v := r.nodes[1].g.Voters(); len(v) != 2 {
			t.Errorf("voters are %v, want both", v)
		}
	})
}

func TestRestartFromACopyKeepsTheMembership(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		l := r.leader()
		l.produce(20, 1, "a")
		r.converge()
		for _, x := range r.nodes {
			r.must(x.g.Checkpoint())
		}
		for _, x := range r.nodes {
			x.close()
		}
		for _, x := range r.nodes {
			x.open()
			if v := x.g.Voters(); len(v) != 3 {
				t.Fatalf("node %d restarts with voters %v", x.id, v)
			}
			if x.fsm.batches != 0 && x.fsm.batches >= 20 {
				t.Errorf("node %d replayed %d batches although a copy exists", x.id, x.fsm.batches)
			}
		}
		l = r.leader()
		out := l.send(batch(1, "after")).wait(t)
		if out.err != nil || out.base != 20 {
			t.Fatalf("after the restart a batch is at %d, %v; want 20", out.base, out.err)
		}
		r.converge()
		r.check()
	})
}

func TestLeaderServesOnlyAfterEverythingBeforeItsTermIsApplied(t *testing.T) {
	t.Parallel() // in real time: a bubble does not see that a mutex is waited for
	r := newRig(t, 3, steady)
	l := r.lead(r.nodes[0])
	l.produce(5, 1, "a")
	r.converge()
	next := r.nodes[1]
	// The next leader's state machine is stuck behind the first entries.
	next.fsm.mu.Lock()
	l.produce(10, 1, "b")
	r.eventually("node 2 leads in raft", func() bool {
		_ = next.g.Campaign()
		time.Sleep(100 * time.Millisecond)
		return next.g.Status().Role == Leader
	})
	if next.g.Status().Ready {
		t.Error("a leader serves before it has applied what was committed before")
	}
	if err := next.g.Propose(newPending(batch(1, "early"), next.g.Status().Term).p); !errors.Is(err, ErrNotLeader) {
		t.Errorf("an early proposal says %v, want ErrNotLeader", err)
	}
	next.fsm.mu.Unlock()
	r.lead(next)
	if next.fsm.next != 15 {
		t.Errorf("it serves at offset %d, want 15", next.fsm.next)
	}
}

func TestWatchersSeeLeadershipComeAndGo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		events := make(chan Status, 100)
		r.nodes[0].g.Watch(func(s Status) {
			select {
			case events <- s:
			default:
			}
		})
		see := func(ready bool) {
			t.Helper()
			deadline := time.After(patience)
			for {
				select {
				case s := <-events:
					if s.Ready == ready {
						return
					}
				case <-deadline:
					t.Fatalf("no event with ready %v", ready)
				}
			}
		}
		see(false)
		r.lead(r.nodes[0])
		see(true)
		r.lead(r.nodes[1])
		see(false)
	})
}

func TestTransferMovesLeadershipAndLosesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		l := r.lead(r.nodes[0])
		var all []*pending
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
					all = append(all, l.send(batch(1, "x")))
					time.Sleep(time.Millisecond)
				}
			}
		}()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r.must(l.g.TransferTo(ctx, r.servers[2]))
		close(stop)
		<-done
		r.eventually("the target serves", func() bool { return r.nodes[2].g.Status().Ready })
		r.converge()
		acked := int64(0)
		for _, o := range all {
			out := o.wait(t)
			switch {
			case out.err == nil:
				acked++
			case !errors.Is(out.err, ErrNotLeader):
				t.Errorf("a proposal during an orderly transfer says %v, want nil or ErrNotLeader", out.err)
			}
		}
		if got := r.nodes[2].log.EndOffset(); got != acked {
			t.Errorf("%d batches were acknowledged, the log holds %d", acked, got)
		}
	})
}

func TestFailedTransferLeavesAWorkingLeader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		l := r.lead(r.nodes[0])
		l.produce(1, 1, "a")
		r.net.isolate(r.nodes[2].id)
		l.produce(1, 1, "b") // the target lacks this
		if err := l.g.TransferTo(context.Background(), r.servers[2]); err == nil {
			t.Fatal("a transfer to a replica that is cut off succeeded")
		}
		l = r.leader()
		l.produce(3, 1, "c")
		r.net.heal()
		r.converge()
	})
}
