package log

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"gopherlog/engine/failpoint"
	"gopherlog/engine/vfs"
)

var errDisk = errors.New("disk says no")

// faulty puts a hook between the log and its disk.
func faulty(c *Config, hook func(vfs.Call) error) func(fs vfs.FS) {
	return func(fs vfs.FS) { c.FS = vfs.NewFault(fs, hook) }
}

// TestFailedWriteRollsBack fails every write of an append once, whole and after some bytes: length, offsets,
// index and cache are as before, and the next append goes where this one would have gone.
func TestFailedWriteRollsBack(t *testing.T) {
	for _, short := range []int{0, 1, 400} {
		for nth := int32(1); nth <= 6; nth++ {
			var seen, fail atomic.Int32
			fs := vfs.NewCrashable()
			w := newTwin()
			r := &rig{t: t, fs: fs, side: newMemSidecar(), cfg: Config{Dir: "/d", SegmentBytes: 3000}}
			faulty(&r.cfg, func(c vfs.Call) error {
				if c.Op != vfs.OpWrite || fail.Load() == 0 || seen.Add(1) != fail.Load() {
					return nil
				}
				if short > 0 && c.Len > short {
					return &vfs.ShortWrite{N: short, Err: errDisk}
				}
				return errDisk
			})(fs)
			r.open()
			r.fill(w, side(1, 1), data(2, 1, 4, 500))
			entries := mixed(3, 2)
			fail.Store(nth)
			err := r.log.Append(entries)
			fail.Store(0)
			if err == nil { // index entries of a sealed segment, written after the append, or no such write
				w.append(entries)
				r.same(w)
				r.kill()
				r.same(w)
				continue
			}
			if !errors.Is(err, errDisk) || errors.Is(err, ErrFailed) {
				t.Fatal(err)
			}
			r.same(w)
			r.fill(w, entries...)
			r.same(w)
			r.kill()
			r.same(w)
		}
	}
}

// TestFullDiskLosesNothing: appends fail while the disk is full and work again when it is not.
func TestFullDiskLosesNothing(t *testing.T) {
	r, w := startedRig(t, nil)
	r.fs.SetSpace(6000)
	for i := 0; ; i++ {
		if i > 20 {
			t.Fatal("the disk is never full")
		}
		e := []Entry{side(w.last()+1, 1), data(w.last()+2, 1, 1, 900)}
		if err := r.log.Append(e); err != nil {
			break
		}
		w.append([]Entry{side(w.last()+1, 1), data(w.last()+2, 1, 1, 900)})
	}
	r.fs.SetSpace(0)
	got, err := r.log.Entry(w.last())
	if err != nil || got.Index != w.last() || r.log.LastIndex() != w.last() {
		t.Fatalf("last entry %v %v", got.Index, err)
	}
	r.fill(w, side(w.last()+1, 2))
	r.kill()
	if r.log.LastIndex() != w.last() || r.log.EndOffset() != w.end {
		t.Fatalf("log ends at %d/%d, want %d/%d", r.log.LastIndex(), r.log.EndOffset(), w.last(), w.end)
	}
}

// TestFailedSyncClosesTheLog: a second fsync would report success for pages that the kernel dropped, so there
// is none. Reads of what was visible go on.
func TestFailedSyncClosesTheLog(t *testing.T) {
	for name, sync := range map[string]func(*rig) error{
		"append":     func(r *rig) error { return r.log.Append([]Entry{data(3, 1, 1, 10)}) },
		"sync":       func(r *rig) error { return r.log.Sync() },
		"checkpoint": func(r *rig) error { return r.log.Checkpoint(2) },
	} {
		t.Run(name, func(t *testing.T) {
			r, w := startedRig(t, func(c *Config) { c.SyncEach = name == "append" })
			if err := r.cfg.Failpoints.Arm(FailSync, failpoint.Action{Kind: failpoint.Error, Nth: 1}); err != nil {
				t.Fatal(err)
			}
			if err := sync(r); !errors.Is(err, ErrFailed) {
				t.Fatalf("first: %v", err)
			}
			hits := r.cfg.Failpoints.Hits(FailSync)
			for _, err := range []error{r.log.Append([]Entry{data(3, 1, 1, 10)}), r.log.Sync(), r.log.Checkpoint(2), r.log.TruncateSuffix(2), r.log.Close()} {
				if !errors.Is(err, ErrFailed) {
					t.Fatalf("afterwards: %v", err)
				}
			}
			if n := r.cfg.Failpoints.Hits(FailSync); n != hits {
				t.Fatal("synced again")
			}
			if r.log.Failed() == nil || r.log.LastIndex() != w.last() {
				t.Fatalf("failed %v, last %d", r.log.Failed(), r.log.LastIndex())
			}
		})
	}
}

// TestReadsGoOnAfterAFailedSync until Close.
func TestReadsGoOnAfterAFailedSync(t *testing.T) {
	r, w := startedRig(t, nil)
	if err := r.cfg.Failpoints.Arm(FailSync, failpoint.Action{Kind: failpoint.Error, Nth: 1}); err != nil {
		t.Fatal(err)
	}
	if err := r.log.Sync(); !errors.Is(err, ErrFailed) {
		t.Fatal(err)
	}
	r.same(w)
	_ = r.log.Close()
	if _, err := r.log.Entry(1); !errors.Is(err, ErrClosed) {
		t.Fatalf("read after close: %v", err)
	}
}

// TestFailedRollBackClosesTheLog: then files and memory differ.
func TestFailedRollBackClosesTheLog(t *testing.T) {
	r, w := startedRig(t, nil)
	r.side.putErr, r.side.delErr = errDisk, errDisk
	if err := r.log.Append([]Entry{side(3, 1)}); !errors.Is(err, ErrFailed) || !errors.Is(err, errDisk) {
		t.Fatal(err)
	}
	r.same(w)
}

// TestRefusedEntriesLeaveTheLogAsItWas: gaps, terms that fall, foreign stamps, wrong checksums, half batches.
func TestRefusedEntriesLeaveTheLogAsItWas(t *testing.T) {
	r, w := startedRig(t, nil)
	stamped := func(offset int64, epoch int32) Entry {
		e := data(3, 1, 1, 10)
		b := bytes.Clone(e.Data)
		copyStamp(b, offset, epoch)
		e.Data = b
		return e
	}
	bad := stamped(4, 1)
	bad.Data[len(bad.Data)-2] ^= 1
	short := data(3, 1, 1, 10)
	short.Data = short.Data[:len(short.Data)-1]
	for name, c := range map[string]struct {
		entries []Entry
		is      error
	}{
		"gap":            {[]Entry{data(4, 1, 1, 10)}, nil},
		"again":          {[]Entry{data(2, 1, 1, 10)}, nil},
		"older term":     {[]Entry{data(3, 0, 1, 10)}, ErrDivergent},
		"other offset":   {[]Entry{stamped(5, 1)}, ErrDivergent},
		"other epoch":    {[]Entry{stamped(4, 2)}, ErrDivergent},
		"wrong checksum": {[]Entry{bad}, nil},
		"half a batch":   {[]Entry{short}, nil},
		"no batch":       {[]Entry{{Index: 3, Term: 1, Data: []byte("hello")}}, nil},
		"second is bad":  {[]Entry{data(3, 1, 1, 10), bad}, nil},
	} {
		err := r.log.Append(c.entries)
		if err == nil || c.is != nil && !errors.Is(err, c.is) || errors.Is(err, ErrFailed) {
			t.Errorf("%s: %v", name, err)
		}
		r.same(w)
	}
	e := stamped(4, 1)
	r.append(e)
	w.append([]Entry{e})
	r.same(w)
}

// TestCloseLeavesNoFileOpen after a life with rolls, truncations, trims, resets and slices.
func TestCloseLeavesNoFileOpen(t *testing.T) {
	dir := t.TempDir() + "/orders-0"
	r := &rig{t: t, side: newMemSidecar(), cfg: Config{FS: vfs.OS(), Dir: dir, SegmentBytes: 1000, IndexIntervalBytes: 100}}
	r.open()
	w := newTwin()
	for i := uint64(1); i < 30; i++ {
		r.fill(w, data(i, 1, 2, 150))
	}
	snapAll(t, r)
	s, err := r.log.Slice(3, 40, 5000, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.log.TruncateSuffix(20); err != nil {
		t.Fatal(err)
	}
	if _, err := r.log.TrimTo(20, 20); err != nil {
		t.Fatal(err)
	}
	if err := r.log.Reset(Base{Index: 50, Term: 2, NextOffset: 90}); err != nil {
		t.Fatal(err)
	}
	if err := r.log.Close(); err != nil {
		t.Fatal(err)
	}
	s.Release()
	fds, err := filepath.Glob("/proc/self/fd/*") // none where the system has no such directory
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, dir) {
			t.Errorf("%s is open", target)
		}
	}
	names, err := vfs.OS().List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if ext := filepath.Ext(name); ext == ".tmp" || ext == extDeleted {
			t.Errorf("%s is left", name)
		}
	}
}
