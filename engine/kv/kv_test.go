package kv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gopherlog/engine/failpoint"
	"gopherlog/engine/vfs"
)

func open(t *testing.T, fs vfs.FS) *DB {
	t.Helper()
	d, err := Open(Config{FS: fs, Dir: "/kv"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func set(t *testing.T, d *DB, key, value string, sync bool) {
	t.Helper()
	if err := d.Set([]byte(key), []byte(value), sync); err != nil {
		t.Fatal(err)
	}
}

func TestValuesAreCopiesAndMissingKeysSaySo(t *testing.T) {
	d := open(t, vfs.NewCrashable())
	set(t, d, "a", "1", false)
	v, err := d.Get([]byte("a"))
	if err != nil || string(v) != "1" {
		t.Fatalf("%q, %v", v, err)
	}
	v[0] = 'x'
	if again, _ := d.Get([]byte("a")); string(again) != "1" {
		t.Fatal("the caller changed the store through what Get returned")
	}
	if _, err := d.Get([]byte("b")); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	if _, _, err := d.First([]byte("x"), []byte("y")); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
}

func TestSyncedCommitsSurviveAPowerCutWhole(t *testing.T) {
	fs := vfs.NewCrashable()
	d := open(t, fs)
	b := d.NewBatch()
	b.Set([]byte("x"), []byte("1"))
	b.Set([]byte("y"), []byte("2"))
	if err := b.Commit(true); err != nil {
		t.Fatal(err)
	}
	b.Close()
	set(t, d, "unsynced", "3", false)
	after := open(t, fs.CrashClone(vfs.CrashConfig{}))
	var keys []string
	if err := after.Scan([]byte("a"), []byte("z"), func(k, _ []byte) error { keys = append(keys, string(k)); return nil }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"x", "y"}, keys); d != "" {
		t.Fatal(d)
	}
}

func TestCommitWithoutSyncIsLostByAKill(t *testing.T) {
	fs := vfs.NewCrashable()
	d := open(t, fs)
	set(t, d, "synced", "1", true)
	set(t, d, "memory only", "2", false)
	after := open(t, fs.Clone())
	if _, err := after.Get([]byte("synced")); err != nil {
		t.Fatal(err)
	}
	// Whether the other is there depends on Pebble's buffers; callers must not count on it.
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	clean := open(t, fs.CrashClone(vfs.CrashConfig{}))
	if _, err := clean.Get([]byte("memory only")); err != nil {
		t.Fatalf("a clean Close lost it: %v", err)
	}
}

func TestFirstFailedSyncIsReportedOnceAndEndsWrites(t *testing.T) {
	mem := vfs.NewCrashable()
	var broken atomic.Bool
	var syncs, reports atomic.Int32
	planted := errors.New("planted I/O error")
	fs := vfs.NewFault(mem, func(c vfs.Call) error {
		if !broken.Load() || c.Op != vfs.OpSync || !strings.HasSuffix(c.Path, ".log") {
			return nil
		}
		syncs.Add(1)
		return planted
	})
	d, err := Open(Config{FS: fs, Dir: "/kv", OnFatal: func(err error) {
		reports.Add(1)
		if !errors.Is(err, planted) {
			t.Errorf("reported %v", err)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	set(t, d, "before", "1", true)
	broken.Store(true)
	if err := d.Set([]byte("k"), []byte("v"), true); !errors.Is(err, ErrFatal) {
		t.Fatalf("failed sync: %v", err)
	}
	broken.Store(false)
	for range 3 {
		if err := d.Set([]byte("later"), []byte("v"), true); !errors.Is(err, ErrFatal) {
			t.Fatalf("write after the failed sync: %v", err)
		}
	}
	if reports.Load() != 1 || syncs.Load() != 1 {
		t.Fatalf("%d reports, %d syncs: a failed sync must not be retried", reports.Load(), syncs.Load())
	}
	_ = d.Close()
	after := open(t, mem.CrashClone(vfs.CrashConfig{}))
	if _, err := after.Get([]byte("before")); err != nil {
		t.Fatal(err)
	}
	if _, err := after.Get([]byte("later")); !errors.Is(err, ErrNotFound) {
		t.Fatalf("a refused write is there: %v", err)
	}
}

func TestFailpointFailsASync(t *testing.T) {
	points := failpoint.New()
	d, err := Open(Config{FS: vfs.NewCrashable(), Dir: "/kv", Failpoints: points})
	if err != nil {
		t.Fatal(err)
	}
	if err := points.Arm(beforeSync, failpoint.Action{Kind: failpoint.Error}); err != nil {
		t.Fatal(err)
	}
	if err := d.Set([]byte("k"), nil, true); !errors.Is(err, ErrFatal) || !errors.Is(err, failpoint.ErrInjected) {
		t.Fatalf("got %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFullDiskAtCommitIsFatalNotAPanic(t *testing.T) {
	fs := vfs.NewCrashable()
	var reports atomic.Int32
	d, err := Open(Config{FS: fs, Dir: "/kv", OnFatal: func(error) { reports.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	fs.SetSpace(1)
	var wg sync.WaitGroup
	var failed atomic.Int32
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				if d.Set(fmt.Appendf(nil, "%d-%d", i, j), make([]byte, 40000), true) != nil {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if failed.Load() != 160 || reports.Load() != 1 {
		t.Fatalf("%d of 160 commits failed on a full disk, %d reports", failed.Load(), reports.Load())
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSecondOpenSaysThatTheDirectoryIsTaken(t *testing.T) {
	for name, fs := range map[string]vfs.FS{"memory": vfs.NewCrashable(), "os": vfs.OS()} {
		dir := "/kv"
		if name == "os" {
			dir = t.TempDir()
		}
		d, err := Open(Config{FS: fs, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		for _, readOnly := range []bool{false, true} {
			if _, err := Open(Config{FS: fs, Dir: dir, ReadOnly: readOnly}); !errors.Is(err, ErrLocked) {
				t.Errorf("%s, read only %v: %v", name, readOnly, err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		ro, err := Open(Config{FS: fs, Dir: dir, ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := ro.Set([]byte("k"), nil, true); err == nil {
			t.Errorf("%s: a read-only store took a write", name)
		}
		if err := ro.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamagedStoreIsNamedAsDamage(t *testing.T) {
	fs := vfs.NewCrashable()
	d := open(t, fs)
	set(t, d, "k", "v", true)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("/kv")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if !strings.HasPrefix(n, "MANIFEST") {
			continue
		}
		f, err := fs.OpenFile("/kv/"+n, false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("garbage garbage"), 3); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	if _, err := Open(Config{FS: fs, Dir: "/kv"}); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("got %v", err)
	}
}

func TestCallsAfterCloseAreErrors(t *testing.T) {
	d := open(t, vfs.NewCrashable())
	b := d.NewBatch()
	b.Set([]byte("k"), nil)
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	_, err := d.Get([]byte("k"))
	for _, err := range []error{err, b.Commit(true), d.Scan(nil, nil, nil)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
	}
}

func TestKeySpacesNeverMeet(t *testing.T) {
	g := NewGroupKey([16]byte{1}, 2)
	next := NewGroupKey([16]byte{1}, 3)
	spaces := map[string][2][]byte{}
	add := func(name string, lo, hi []byte) { spaces[name] = [2][]byte{lo, hi} }
	add("stable of one group", nil, nil)
	lo, hi := StableGroupRange(g)
	add("stable of one group", lo, hi)
	lo, hi = StableGroupRange(next)
	add("stable of the next", lo, hi)
	lo, hi = SideGroupRange(g)
	add("side of one group", lo, hi)
	lo, hi = ControlLogAll()
	add("control log", lo, hi)
	keys := map[string][][]byte{
		"stable of one group": {StableKey(g, ""), StableKey(g, "CurrentTerm"), StableKey(g, "\xff\xff")},
		"stable of the next":  {StableKey(next, "x")},
		"side of one group":   {SideKey(g, 0), SideKey(g, 1<<63), SideKey(g, ^uint64(0))},
		"control log":         {ControlLogKey(0), ControlLogKey(^uint64(0))},
		"":                    {MetaKey("boot"), ControlStableKey("CurrentTerm")},
	}
	for owner, list := range keys {
		for _, k := range list {
			for name, r := range spaces {
				in := slices.Compare(k, r[0]) >= 0 && (r[1] == nil || slices.Compare(k, r[1]) < 0)
				if in != (name == owner) {
					t.Errorf("key %x of %q lies in %q: %v", k, owner, name, in)
				}
			}
		}
	}
	if got, err := GroupOf(SideKey(g, 7)); err != nil || got != g {
		t.Errorf("%x, %v", got, err)
	}
}

// TestSideEntriesFollowAMap applies random puts, truncations and trims, with a power cut after each, and
// compares with a map.
func TestSideEntriesFollowAMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	fs := vfs.NewCrashable()
	d := open(t, fs)
	g, other := NewGroupKey([16]byte{9}, 0), NewGroupKey([16]byte{9}, 1)
	if err := d.Side(other).Put([]SideEntry{{Index: 50, Term: 1}}); err != nil {
		t.Fatal(err)
	}
	twin := map[uint64]SideEntry{}
	for range 60 {
		s := d.Side(g)
		at := uint64(rng.IntN(100))
		var err error
		switch rng.IntN(4) {
		case 0:
			err = s.DeleteFrom(at)
			for i := range twin {
				if i >= at {
					delete(twin, i)
				}
			}
		case 1:
			err = s.DeleteBelow(at / 4)
			for i := range twin {
				if i < at/4 {
					delete(twin, i)
				}
			}
		default:
			e := SideEntry{Index: at, Term: rng.Uint64(), Type: uint8(rng.IntN(6)), Data: []byte("data"), Ext: []byte{1}}
			if rng.IntN(3) == 0 {
				e.Data, e.Ext = nil, nil
			}
			twin[at] = e
			err = s.Put([]SideEntry{e})
		}
		if err != nil {
			t.Fatal(err)
		}
		if rng.IntN(10) == 0 {
			fs = fs.CrashClone(vfs.CrashConfig{Seed: rng.Uint64(), UnsyncedPercent: rng.IntN(100)})
			d = open(t, fs)
		}
		got := map[uint64]SideEntry{}
		last := int64(-1)
		err = d.Side(g).Scan(0, ^uint64(0), func(e SideEntry) error {
			if int64(e.Index) <= last {
				return fmt.Errorf("index %d after %d", e.Index, last)
			}
			last = int64(e.Index)
			got[e.Index] = e
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(twin, got); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
	if _, err := d.Side(other).Get(50); err != nil {
		t.Fatalf("the neighbour lost its entry: %v", err)
	}
	if err := d.DropGroup(other); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Side(other).Get(50); !errors.Is(err, ErrNotFound) {
		t.Fatalf("dropped group: %v", err)
	}
}

func TestSideEntryOfUnknownVersionIsRefusedAsAVersion(t *testing.T) {
	d := open(t, vfs.NewCrashable())
	g := GroupKey{1}
	v := encodeSide(SideEntry{Index: 1})
	v[0] = 9
	if err := d.Set(SideKey(g, 1), v, true); err != nil {
		t.Fatal(err)
	}
	_, err := d.Side(g).Get(1)
	if err == nil || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "version 9") {
		t.Fatalf("got %v", err)
	}
	if _, err := decodeSide(1, []byte{1}); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("cut entry: %v", err)
	}
}

func TestUnwritableDirectoryIsAPlainError(t *testing.T) {
	if os.Getuid() == 0 {
		fs := vfs.NewFault(vfs.NewCrashable(), func(c vfs.Call) error {
			if c.Op == vfs.OpCreate {
				return os.ErrPermission
			}
			return nil
		})
		if _, err := Open(Config{FS: fs, Dir: "/kv"}); !errors.Is(err, os.ErrPermission) {
			t.Fatal(err)
		}
		return
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir + "/kv"}); !errors.Is(err, os.ErrPermission) {
		t.Fatal(err)
	}
}
