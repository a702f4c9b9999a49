package replica

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"gopherlog/engine/vfs"
)

func TestBurstThatFillsTheInflightLimitDoesNotWaitForTheCommitTimer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3, func(o *rigOptions) { o.timers = Timers{Commit: 10 * time.Minute} })
		l := r.lead(r.nodes[0])
		l.produce(4096, 1, "burst")
		if got := l.fsm.batches; got != 4096 {
			t.Errorf("%d batches applied, want 4096", got)
		}
	})
}

func TestProposalsStuckInRaftsChannelAreFailedWhenTheTermEnds(t *testing.T) {
	t.Parallel()
	var f faults
	r := newRig(t, 3, steady, func(o *rigOptions) { o.wrapFS = f.wrap })
	l := r.lead(r.nodes[0])
	l.produce(3, 1, "a")
	term := l.g.Status().Term
	hang, entered := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.set(l.id, func(c vfs.Call) error {
		if c.Op == vfs.OpWrite && isSegment(c) {
			once.Do(func() { close(entered) })
			<-hang
		}
		return nil
	})
	// The first blocks in the write; the next wait in raft's channel.
	first := l.send(batch(1, "first"))
	<-entered
	var queued []*pending
	for i := range 10 {
		o := newPending(batch(1, fmt.Sprint("queued", i)), term)
		r.must(l.g.Propose(o.p))
		queued = append(queued, o)
	}
	next := r.lead(r.nodes[1])
	next.produce(2, 1, "b")
	f.set(l.id, nil)
	close(hang)
	if out := first.wait(t); out.err == nil {
		t.Error("the written batch was acknowledged by a deposed leader")
	}
	// The deposed leader comes back at once: whatever is still in its channel
	// must not be appended in the later term.
	r.lead(l).produce(2, 1, "c")
	r.converge()
	for i, o := range queued {
		// Raft may have stored some before it learnt of the newer term.
		if out := o.wait(t); !errors.Is(out.err, ErrNotLeader) && !errors.Is(out.err, ErrLost) {
			t.Errorf("queued proposal %d says %v, want ErrNotLeader or ErrLost", i, out.err)
		}
		select {
		case x := <-o.done:
			t.Errorf("queued proposal %d was answered twice: %v", i, x)
		default:
		}
	}
	if end := l.log.EndOffset(); end != 7 {
		t.Errorf("log ends at %d, want the 7 batches that were acknowledged", end)
	}
	r.check()
}

func TestRetriesByTheNextLeaderNeitherDuplicateNorSkip(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		// Each value is proposed until acknowledged, one at a time, with the log as
		// the judge of duplicates, as a producer with sequence numbers does it.
		seen := func(l *rigNode, value string) bool {
			return countValue(l, value) > 0
		}
		leader := r.leader()
		for i := range 60 {
			value := fmt.Sprintf("value-%03d", i)
			if i%10 == 5 {
				go leader.g.node.TimeoutNow(r.id, r.servers[(i/10)%3]) // the bubble ends after it
			}
			for attempt := 0; ; attempt++ {
				if attempt > 0 && seen(leader, value) {
					break // the ambiguous first attempt was committed
				}
				out := leader.send(batch(1, value)).wait(t)
				if out.err == nil {
					break
				}
				leader = r.leader() // serves: everything before its term is applied
			}
		}
		r.converge()
		for i := range 60 {
			value := fmt.Sprintf("value-%03d", i)
			if n := countValue(leader, value); n != 1 {
				t.Errorf("%s is in the log %d times", value, n)
			}
		}
		r.check()
	})
}

func TestSlowStateMachineStopsProposersWithoutDeadlock(t *testing.T) {
	t.Parallel() // in real time: a bubble does not see that a mutex is waited for
	r := newRig(t, 3, steady)
	l := r.lead(r.nodes[0])
	l.fsm.mu.Lock() // applies nothing
	// More than raft's FSM channel and apply channel hold together.
	const n = 20000
	sent := make(chan []*pending)
	go func() {
		var all []*pending
		term := l.g.Status().Term
		for range n {
			o := newPending(batch(1, "x"), term)
			if err := l.g.Propose(o.p); err != nil {
				break // not the leader any more
			}
			all = append(all, o)
		}
		sent <- all
	}()
	r.eventually("batches are appended", func() bool { return l.log.EndOffset() > 1000 })
	l.fsm.mu.Unlock()
	for i, o := range <-sent {
		// A machine that is slow enough may lose leadership meanwhile.
		if out := o.wait(t); out.err != nil && !errors.Is(out.err, ErrLost) && !errors.Is(out.err, ErrNotLeader) {
			t.Fatalf("proposal %d: %v", i, out.err)
		}
	}
	r.leader().produce(1, 1, "after")
	r.converge()
	r.check()
}

func TestAppendHookComesBeforeTheCommit(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		l := r.lead(r.nodes[0])
		for _, x := range r.nodes[1:] {
			r.net.isolate(x.id)
		}
		o := l.send(batch(1, "alone"))
		select {
		case base := <-o.appended:
			if base != 0 {
				t.Errorf("appended at %d, want 0", base)
			}
		case <-time.After(patience):
			t.Fatal("the append hook was not called")
		}
		select {
		case out := <-o.done:
			t.Errorf("a batch without a majority was answered: %+v", out)
		case <-time.After(20 * time.Millisecond):
		}
		r.net.heal()
		if out := o.wait(t); out.err != nil && !errors.Is(out.err, ErrLost) {
			t.Errorf("afterwards it says %v, want nil or ErrLost", out.err)
		}
	})
}

func TestWaitersAboveTheMajorityWaitForThatManyReplicas(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		l := r.lead(r.nodes[0])
		l.produce(1, 1, "a")
		r.converge()
		r.eventually("all voters are in sync", func() bool { return len(l.g.InSync(time.Now())) == 3 })
		away := r.nodes[2]
		r.net.isolate(away.id)
		o := l.send(batch(1, "b"))
		if out := o.wait(t); out.err != nil {
			t.Fatal(out.err)
		}
		all := make(chan error, 1)
		cancel := l.g.WaitCommittedOn(3, o.p.Index(), func(err error) { all <- err })
		defer cancel()
		two := make(chan error, 1)
		l.g.WaitCommittedOn(2, o.p.Index(), func(err error) { two <- err })
		if err := <-two; err != nil {
			t.Errorf("two replicas hold it, yet: %v", err)
		}
		select {
		case err := <-all:
			t.Fatalf("answered for three replicas with %v while one is cut off", err)
		case <-time.After(50 * time.Millisecond):
		}
		r.eventually("the cut replica is not in sync", func() bool { return len(l.g.InSync(time.Now())) == 2 })
		r.net.heal()
		select {
		case err := <-all:
			if err != nil {
				t.Errorf("with three replicas: %v", err)
			}
		case <-time.After(patience):
			t.Fatal("never answered")
		}
		// Loss of leadership ends waiting.
		lost := make(chan error, 1)
		l.g.WaitCommittedOn(4, o.p.Index(), func(err error) { lost <- err })
		r.lead(r.nodes[1])
		select {
		case err := <-lost:
			if !errors.Is(err, ErrLost) {
				t.Errorf("after the loss of leadership: %v, want ErrLost", err)
			}
		case <-time.After(patience):
			t.Fatal("a waiter outlived leadership")
		}
	})
}
