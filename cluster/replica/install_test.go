package replica

import (
	"bytes"
	"context"
	"testing"

	"gopherlog/engine/log"
	"gopherlog/engine/vfs"
)

// trimAll cuts everything below the newest boundary that has a snapshot, on one
// node, as retention does when it is applied.
func (x *rigNode) trimAll() {
	x.rig.t.Helper()
	x.rig.eventually("snapshots are written", func() bool { return x.applied() && !x.g.state.due.Load() })
	segs := x.log.Segments()
	for i := len(segs) - 1; i > 0; i-- {
		if segs[i].HasSnap {
			_, err := x.log.TrimTo(segs[i].BaseOffset, x.g.Status().AppliedIndex)
			x.rig.must(err)
			return
		}
	}
	x.rig.t.Fatalf("no segment of %d has a snapshot at its start", len(segs))
}

// applied reports that the state machine has all that the log holds.
func (x *rigNode) applied() bool {
	x.fsm.mu.Lock()
	defer x.fsm.mu.Unlock()
	return x.fsm.next == x.log.EndOffset()
}

func smallSegments(o *rigOptions) { o.segmentBytes = 4 << 10 }

// filler makes a batch of about 400 bytes.
var filler = string(bytes.Repeat([]byte("f"), 300))

func TestFollowerWithAStaleTailBeyondTheLogStartCatchesUpAfterOneSnapshot(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3, smallSegments)
		old := r.lead(r.nodes[0])
		old.produce(5, 1, filler)
		r.converge()
		// The old leader is cut off and writes a long tail that nobody else has.
		r.net.isolate(old.id)
		term := old.g.Status().Term
		var lost []*pending
		for range 200 {
			o := newPending(batch(1, filler), term)
			if old.g.Propose(o.p) == nil {
				lost = append(lost, o)
			}
		}
		r.eventually("the tail is written", func() bool { return old.log.EndOffset() >= 150 })
		l := r.lead(r.nodes[1])
		l.produce(100, 1, filler)
		r.eventually("node 3 has it all", func() bool { return r.nodes[2].log.EndOffset() == l.log.EndOffset() })
		for _, x := range r.nodes[1:] {
			x.trimAll()
			if x.log.FirstIndex() < 10 {
				t.Fatalf("node %d still begins at index %d", x.id, x.log.FirstIndex())
			}
		}
		if old.log.LastIndex() < l.log.LastIndex() {
			t.Fatalf("the stale tail ends at %d, the leader's log at %d", old.log.LastIndex(), l.log.LastIndex())
		}
		r.net.heal()
		r.converge()
		// Once by the leader, once when the replica was reopened on its new base.
		if n := old.fsm.restored; n != 2 {
			t.Errorf("the state was restored %d times, want 2", n)
		}
		for _, o := range lost {
			if out := o.wait(t); out.err == nil && out.base >= 5 {
				t.Error("a batch that only a deposed leader held was acknowledged")
			}
		}
		if got, want := old.bytesOf(), l.bytesOf(); !bytes.Equal(got, want) {
			t.Errorf("the refilled replica holds %d bytes, the leader %d, or they differ", len(got), len(want))
		}
		// It votes by its real log now: it can lead and everybody agrees.
		r.lead(old).produce(3, 1, "after")
		r.converge()
		r.check()
	})
}

func TestWipedReplicaRefillsFromTheLogStartByteForByte(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3, smallSegments)
		l := r.lead(r.nodes[0])
		l.produce(60, 2, filler)
		r.converge()
		l.trimAll()
		start := l.log.Segments()[0].BaseOffset
		if start == 0 {
			t.Fatal("nothing was trimmed")
		}
		// Node 3 loses its disk and comes back under another incarnation.
		wiped := r.nodes[2]
		wiped.close()
		wiped.disk = vfs.NewCrashable()
		was := wiped.self
		wiped.self += "f"
		wiped.openNode()
		r.must(wiped.tryOpenGroup(r.servers))
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r.must(l.g.RemoveServer(ctx, was))
		r.must(l.g.AddNonvoter(ctx, wiped.self))
		r.eventually("the new replica catches up", func() bool {
			m, _ := l.g.Match(wiped.self)
			return m >= l.log.LastIndex()
		})
		r.must(l.g.AddVoter(ctx, wiped.self))
		r.converge()
		if got := wiped.log.Segments()[0].BaseOffset; got != start {
			t.Errorf("the refilled log begins at offset %d, want the leader's %d: a newer snapshot costs it history", got, start)
		}
		if got, want := wiped.bytesOf(), l.bytesOf(); !bytes.Equal(got, want) {
			t.Errorf("the refilled replica holds %d bytes, the leader %d, or they differ", len(got), len(want))
		}
		r.lead(wiped).produce(1, 1, "x")
		r.check()
	})
}

func TestRetentionDuringALaggardsCatchUp(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3, smallSegments)
		l := r.lead(r.nodes[0])
		l.produce(10, 1, filler)
		r.converge()
		lag := r.nodes[2]
		r.net.isolate(lag.id)
		l = r.leader()
		l.produce(100, 1, filler)
		r.net.heal()
		// The head goes while the laggard reads it, again and again.
		for range 5 {
			l = r.leader()
			l.produce(20, 1, filler)
			for _, x := range r.nodes {
				if x != lag {
					r.eventually("it has what the leader has", func() bool { return x.log.EndOffset() == l.log.EndOffset() })
					x.trimAll()
				}
			}
		}
		r.converge()
		want := l.bytesOf()
		if got := lag.bytesOf(); !bytes.HasSuffix(got, want) && !bytes.HasSuffix(want, got) {
			t.Error("the laggard's batches differ from the leader's")
		}
		r.check()
	})
}

func TestRestartCopyAheadOfTheLogIsNotUsed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 1)
		x := r.leader()
		x.produce(10, 1, "a")
		r.must(x.g.Checkpoint())
		b, err := x.g.restartCopy()
		r.must(err)
		for name, change := range map[string]func(*log.Base){
			"beyond the end":  func(b *log.Base) { b.Index += 1000 },
			"of another term": func(b *log.Base) { b.Term++ },
		} {
			c := b
			change(&c)
			r.must(x.db.Set(x.g.restartKey(), encodeBase(c), true))
			if _, err := x.g.restartCopy(); err == nil {
				t.Errorf("a restart copy %s counts", name)
			}
		}
	})
}

func TestSegmentSnapshotHoldsTheStateExactlyAtTheSegmentsEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 1, smallSegments)
		x := r.leader()
		for range 50 {
			x.produce(1, 1, filler)
		}
		r.eventually("snapshots are written", func() bool { return !x.g.state.due.Load() })
		segs := x.log.Segments()
		if len(segs) < 4 {
			t.Fatalf("%d segments, want several", len(segs))
		}
		with := 0
		for _, s := range segs[1:] {
			if s.HasSnap {
				with++
			}
		}
		if with != len(segs)-1 {
			t.Errorf("%d of %d later segments have a snapshot", with, len(segs)-1)
		}
		b, err := x.log.NewestSnap()
		r.must(err)
		last := segs[len(segs)-1]
		st, err := decodeState(b.State)
		r.must(err)
		f := newTestFSM()
		r.must(f.Restore(st.fsm, b))
		if b.Index != last.FirstIndex-1 || b.NextOffset != last.BaseOffset || f.next != last.BaseOffset {
			t.Errorf("snapshot is at index %d offset %d, its state at %d; the segment begins at %d, %d", b.Index, b.NextOffset, f.next, last.FirstIndex, last.BaseOffset)
		}
	})
}

func TestIdlePartitionRollsAndSnapshotsBehindATrim(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3)
		l := r.lead(r.nodes[0])
		l.produce(10, 1, filler)
		o := newPending(nil, l.g.Status().Term)
		o.p.Ctrl, o.p.Roll = []byte("trim"), true
		r.must(l.g.Propose(o.p))
		if out := o.wait(t); out.err != nil || out.base != 10 {
			t.Fatalf("control entry says %d, %v; want the log end 10", out.base, out.err)
		}
		r.converge()
		for _, x := range r.nodes {
			x.trimAll() // nothing follows the trim, yet the boundary has a snapshot
			if got := x.log.StartOffset(); got != 10 {
				t.Errorf("node %d begins at offset %d, want 10", x.id, got)
			}
		}
		l.produce(1, 1, "after")
		r.converge()
		r.check()
	})
}
