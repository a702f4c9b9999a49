package log

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gopherlog/engine/vfs"
)

// TestBudgetBoundsTheCachesOfAllLogs: together they never hold more, charged by the capacity of the buffers,
// and a busy log takes from idle ones.
func TestBudgetBoundsTheCachesOfAllLogs(t *testing.T) {
	const limit = 100 << 10
	budget := NewBudget(limit)
	logs := make([]*Log, 4)
	for i := range logs {
		l, _, err := Open(Config{FS: vfs.NewCrashable(), Dir: "/p", Sidecar: newMemSidecar(), CacheBudget: budget})
		if err != nil {
			t.Fatal(err)
		}
		logs[i] = l
		for index := uint64(1); index <= 40; index++ {
			if err := l.Append([]Entry{data(index, 1, 1, 4<<10)}); err != nil {
				t.Fatal(err)
			}
			if used := budget.Used(); used > limit {
				t.Fatalf("%d bytes of %d used", used, limit)
			}
		}
		if _, ok := l.cached(40, false); !ok {
			t.Fatalf("log %d, the busy one, has its newest entry not in memory", i)
		}
	}
	for i, l := range logs {
		if err := errors.Join(l.Checkpoint(40), l.Checkpoint(40)); err != nil {
			t.Fatal(err)
		}
		if l.cache.bytes != 0 {
			t.Fatalf("idle log %d keeps %d bytes", i, l.cache.bytes)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if budget.Used() != 0 {
		t.Fatalf("%d bytes still charged", budget.Used())
	}
}

// TestSmallEntryDoesNotPinALargeBuffer that it came in.
func TestSmallEntryDoesNotPinALargeBuffer(t *testing.T) {
	r := newRig(t, nil)
	slab := make([]byte, 1<<20)
	b := batch(1, 100, 1)
	r.append(Entry{Index: 1, Term: 1, Data: slab[:copy(slab, b)]})
	if n := r.log.cache.bytes; n > 4096 {
		t.Fatalf("%d bytes charged", n)
	}
}

// slowFile counts syncs and how many run at once.
type slowFile struct {
	vfs.File
	syncs, now, most atomic.Int32
	gate             chan struct{}
}

func (f *slowFile) SyncData() error {
	f.syncs.Add(1)
	n := f.now.Add(1)
	for m := f.most.Load(); n > m && !f.most.CompareAndSwap(m, n); m = f.most.Load() {
	}
	<-f.gate
	f.now.Add(-1)
	return nil
}

// TestCommitterSharesASyncThatHasNotBegun: of many callers for one file while a sync runs, all that wait are
// served by the next one; none is served by the one that began before it came.
func TestCommitterSharesASyncThatHasNotBegun(t *testing.T) {
	c := NewCommitter(1)
	f := &slowFile{gate: make(chan struct{})}
	var wg sync.WaitGroup
	call := func() {
		wg.Go(func() {
			if err := c.Sync(f); err != nil {
				t.Error(err)
			}
		})
	}
	call()
	waitFor(t, func() bool { return f.syncs.Load() == 1 })
	for range 10 {
		call()
	}
	waitFor(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.waiting[f] != nil })
	close(f.gate)
	wg.Wait()
	if n := f.syncs.Load(); n < 2 || f.most.Load() != 1 {
		t.Fatalf("%d syncs, %d at once", n, f.most.Load())
	}
}

// TestCommitterBoundsSyncsAtOnce over files.
func TestCommitterBoundsSyncsAtOnce(t *testing.T) {
	c := NewCommitter(3)
	shared := &slowFile{gate: make(chan struct{})}
	type one struct{ *slowFile } // a file of its own, counted together
	var wg sync.WaitGroup
	for range 12 {
		f := &one{shared}
		wg.Go(func() {
			if err := c.Sync(f); err != nil {
				t.Error(err)
			}
		})
	}
	waitFor(t, func() bool { return shared.now.Load() == 3 })
	close(shared.gate)
	wg.Wait()
	if shared.syncs.Load() != 12 || shared.most.Load() > 3 {
		t.Fatalf("%d syncs, %d at once", shared.syncs.Load(), shared.most.Load())
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for range 60_000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("never happened")
}

// TestSyncThatRunsCoversNoLaterWrite: a mark is clean only once a sync that began after the last write is done.
func TestSyncThatRunsCoversNoLaterWrite(t *testing.T) {
	var m syncMark
	m.wrote()
	if err := m.run(func() error { m.wrote(); return nil }); err != nil {
		t.Fatal(err)
	}
	if !m.dirty() {
		t.Fatal("clean though something was written during the sync")
	}
	if err := m.run(func() error { return nil }); err != nil || m.dirty() {
		t.Fatal("dirty after a sync")
	}
}

// TestDurableAppendSurvivesAPowerCut, though another goroutine's sync of the file is under way.
func TestDurableAppendSurvivesAPowerCut(t *testing.T) {
	r, w := newRig(t, func(c *Config) { c.SyncEach, c.Committer = true, NewCommitter(2) }), newTwin()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := r.log.Sync(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for i := uint64(1); i < 60; i++ {
		r.fill(w, data(i, 1, 1, 200))
		x := *r
		x.fs = r.fs.CrashClone(vfs.CrashConfig{Seed: i})
		x.side, x.cfg.FS, x.cfg.SameBoot = r.side.clone(), nil, false
		x.open()
		if x.log.LastIndex() != i {
			t.Fatalf("ends at %d after entry %d was acknowledged", x.log.LastIndex(), i)
		}
	}
	close(stop)
	wg.Wait()
}

// TestCatchUpReadsEachByteOnceOrOneEntryAtATime: a sequential cold reader is served from chunks, and without room
// for them it does not read a chunk per entry.
func TestCatchUpReadsEachByteOnceOrOneEntryAtATime(t *testing.T) {
	for _, limit := range []int64{0, 64 << 20} {
		var read atomic.Int64
		fs := vfs.NewFault(vfs.NewCrashable(), func(c vfs.Call) error {
			if c.Op == vfs.OpRead {
				read.Add(int64(c.Len))
			}
			return nil
		})
		l, _, err := Open(Config{FS: fs, Dir: "/p", Sidecar: newMemSidecar(), CacheBytes: 1, CacheBudget: NewBudget(limit)})
		if err != nil {
			t.Fatal(err)
		}
		for i := uint64(1); i <= 300; i++ {
			if err := l.Append([]Entry{data(i, 1, 1, 8<<10)}); err != nil {
				t.Fatal(err)
			}
		}
		read.Store(0)
		for i := uint64(1); i <= 300; i++ {
			if _, err := l.Entry(i); err != nil {
				t.Fatal(err)
			}
		}
		if n := read.Load(); n > l.Size()+3<<20 {
			t.Errorf("budget %d: %d bytes read of %d", limit, n, l.Size())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
