package replica

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gopherlog/cluster/rpc"
	"gopherlog/engine/log"
	"gopherlog/engine/vfs"
)

// faults fails or blocks file operations of chosen nodes.
type faults struct {
	mu   sync.Mutex
	hook map[rpc.NodeID]func(vfs.Call) error
}

func (f *faults) wrap(id rpc.NodeID, fs vfs.FS) vfs.FS {
	return vfs.NewFault(fs, func(c vfs.Call) error {
		f.mu.Lock()
		h := f.hook[id]
		f.mu.Unlock()
		if h == nil {
			return nil
		}
		return h(c)
	})
}

func (f *faults) set(id rpc.NodeID, h func(vfs.Call) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hook == nil {
		f.hook = make(map[rpc.NodeID]func(vfs.Call) error)
	}
	f.hook[id] = h
}

func isSegment(c vfs.Call) bool { return strings.HasSuffix(c.Path, ".log") }

func TestLeaderWithAHungDiskIsReplaced(t *testing.T) {
	t.Parallel()
	var f faults
	r := newRig(t, 3, steady, func(o *rigOptions) { o.wrapFS = f.wrap })
	l := r.lead(r.nodes[0])
	l.produce(3, 1, "a")
	hang := make(chan struct{})
	f.set(l.id, func(c vfs.Call) error {
		if c.Op == vfs.OpWrite && isSegment(c) {
			<-hang
		}
		return nil
	})
	stuck := l.send(batch(1, "stuck"))
	r.eventually("another replica leads", func() bool {
		return r.nodes[1].g.Status().Ready || r.nodes[2].g.Status().Ready
	})
	if err := l.g.Propose(newPending(batch(1, "more"), 1).p); !errors.Is(err, ErrStalled) {
		t.Errorf("a proposal on the stalled replica says %v, want ErrStalled", err)
	}
	next := r.nodes[1]
	if !next.g.Status().Ready {
		next = r.nodes[2]
	}
	next.produce(3, 1, "b")
	f.set(l.id, nil)
	close(hang)
	if out := stuck.wait(t); out.err == nil {
		t.Error("the stuck batch was acknowledged by a deposed leader")
	}
	r.converge()
	r.check()
}

func TestFullDiskOnTheLeaderLeavesNoTrace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		var f faults
		r := newRig(t, 3, func(o *rigOptions) { o.wrapFS = f.wrap })
		l := r.lead(r.nodes[0])
		l.produce(3, 1, "a")
		f.set(l.id, func(c vfs.Call) error {
			if c.Op == vfs.OpWrite && isSegment(c) {
				return &vfs.ShortWrite{N: c.Len / 2, Err: vfs.ErrNoSpace}
			}
			return nil
		})
		if out := l.send(batch(1, "no")).wait(t); !errors.Is(out.err, ErrNotLeader) {
			t.Errorf("a batch that could not be written says %v, want ErrNotLeader", out.err)
		}
		f.set(l.id, nil)
		if got := l.log.EndOffset(); got != 3 {
			t.Errorf("log ends at %d after a failed write, want 3", got)
		}
		l = r.lead(r.nodes[0])
		if out := l.send(batch(1, "yes")).wait(t); out.err != nil || out.base != 3 {
			t.Errorf("next batch is at %d, %v; want 3", out.base, out.err)
		}
		r.converge()
		want := r.nodes[0].bytesOf()
		for _, x := range r.nodes[1:] {
			if !bytes.Equal(x.bytesOf(), want) {
				t.Errorf("node %d differs from node 1", x.id)
			}
		}
	})
}

func TestFollowerWithAFullDiskCatchesUpWhenThereIsSpace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		var f faults
		r := newRig(t, 3, func(o *rigOptions) { o.wrapFS = f.wrap })
		l := r.lead(r.nodes[0])
		x := r.nodes[1]
		f.set(x.id, func(c vfs.Call) error {
			if c.Op == vfs.OpWrite && isSegment(c) {
				return vfs.ErrNoSpace
			}
			return nil
		})
		l.produce(20, 1, "a")
		f.set(x.id, nil)
		l.produce(1, 1, "b")
		r.converge()
		r.check()
	})
}

func TestFailedSyncTakesTheReplicaOutForGood(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		var f faults
		r := newRig(t, 3, func(o *rigOptions) { o.wrapFS, o.syncEach = f.wrap, true })
		l := r.lead(r.nodes[0])
		l.produce(3, 1, "a")
		var once atomic.Bool
		f.set(l.id, func(c vfs.Call) error {
			if c.Op == vfs.OpSync && isSegment(c) && once.CompareAndSwap(false, true) {
				return errors.New("sync failed")
			}
			return nil
		})
		var all []*pending
		for range 50 { // whatever is under way is answered, also without a Close
			all = append(all, l.send(batch(1, "no")))
		}
		for _, o := range all {
			if out := o.wait(t); out.err == nil {
				t.Error("a batch whose sync failed was acknowledged")
			}
		}
		r.eventually("the replica reports its failure", func() bool { return l.g.Status().Failed != nil })
		if err := l.g.Propose(newPending(batch(1, "x"), 1).p); !errors.Is(err, ErrFailed) {
			t.Errorf("a proposal says %v, want ErrFailed", err)
		}
		r.eventually("another replica leads", func() bool {
			return r.nodes[1].g.Status().Ready || r.nodes[2].g.Status().Ready
		})
	})
}

func TestDamagedEntryEndsOneGroupAndNotTheProcess(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3, smallSegments)
		l := r.lead(r.nodes[0])
		l.produce(100, 1, filler)
		r.converge()
		// A second group on the leader's node must not notice.
		other := newSecondGroup(t, l)
		damageOldest(t, l)
		// A replica without a disk needs all of the log, also the damaged part.
		wiped := r.nodes[2]
		wiped.close()
		wiped.disk = vfs.NewCrashable()
		wiped.openNode()
		r.must(wiped.tryOpenGroup(nil))
		r.eventually("the damaged replica leaves service", func() bool { return l.g.Status().Failed != nil })
		var damage *log.CorruptionError
		if err := l.g.Status().Failed; !errors.As(err, &damage) || damage.File == "" {
			t.Errorf("the failure is %v, want a CorruptionError that names the file", err)
		}
		if !other.produce1(t) {
			t.Error("another group on the node suffers")
		}
	})
}

// damageOldest flips a byte in the middle of the oldest segment, on disk and in
// no cache.
func damageOldest(t *testing.T, x *rigNode) {
	t.Helper()
	x.closeGroup()
	names, err := x.disk.List("topics/t-7")
	x.rig.must(err)
	for _, n := range names {
		if strings.HasSuffix(n, ".log") {
			f, err := x.disk.OpenFile(filepath.Join("topics/t-7", n), false)
			x.rig.must(err)
			b := make([]byte, 1)
			_, err = f.ReadAt(b, 1000)
			x.rig.must(err)
			_, err = f.WriteAt([]byte{b[0] ^ 1}, 1000)
			x.rig.must(err)
			x.rig.must(f.Close())
			break
		}
	}
	x.openGroup()
	x.rig.lead(x)
}

// secondGroup is a group of one beside the rig's.
type secondGroup struct {
	g    *Group
	log  *log.Log
	term uint64
}

func newSecondGroup(t *testing.T, x *rigNode) *secondGroup {
	t.Helper()
	id := rpc.GroupID{Topic: [16]byte{9}, Partition: 1}
	l, _, err := log.Open(log.Config{FS: x.disk, Dir: "topics/second", Sidecar: Sidecar(x.db, id), TopicID: id.Topic, Partition: 1})
	x.rig.must(err)
	g, err := Open(Config{
		ID: id, Self: x.self, Bootstrap: []rpc.ServerID{x.self}, Log: l, KV: x.db, Node: x.node, FSM: newTestFSM(),
		BootID: x.bootID, Timers: quick(),
	})
	x.rig.must(err)
	s := &secondGroup{g: g, log: l}
	t.Cleanup(func() {
		g.Close(context.Background())
		l.Close()
	})
	x.rig.eventually("the second group leads", func() bool { return g.Status().Ready })
	s.term = g.Status().Term
	return s
}

func (s *secondGroup) produce1(t *testing.T) bool {
	o := newPending(batch(1, "other"), s.g.Status().Term)
	if err := s.g.Propose(o.p); err != nil {
		return false
	}
	return o.wait(t).err == nil
}

func TestClosingOneGroupLeavesTheOthersOfTheNode(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 1)
		x := r.leader()
		other := newSecondGroup(t, x)
		x.produce(1, 1, "a")
		x.closeGroup()
		if !other.produce1(t) {
			t.Error("a group does not commit after another was closed")
		}
	})
}
