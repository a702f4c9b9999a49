package log

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gopherlog/engine/failpoint"
	"gopherlog/engine/vfs"
)

// appendPoints are the failpoints that an append passes; roll only when it starts a segment.
var appendPoints = []failpoint.Name{FailBeforeSidecar, FailAfterSidecar, FailRoll, FailSync, FailAfterWrite}

// mixed is an append with side entries before, between and behind batches, which rolls on the way.
func mixed(index, term uint64) []Entry {
	return []Entry{side(index, term), data(index+1, term, 2, 300), side(index+2, term), data(index+3, term, 3, 900), side(index+4, term)}
}

func startedRig(t *testing.T, change func(*Config)) (*rig, *twin) {
	w := newTwin()
	r := newRig(t, func(c *Config) {
		c.SegmentBytes, c.Failpoints = 3000, failpoint.New()
		if change != nil {
			change(c)
		}
	})
	r.fill(w, side(1, 1), data(2, 1, 4, 500))
	return r, w
}

// TestFailedAppendLeavesNoTrace fails an append at every step: nothing of it is there, in memory, on disk or
// after a restart, and the same entries can be appended again.
func TestFailedAppendLeavesNoTrace(t *testing.T) {
	for _, point := range appendPoints {
		if point == FailSync {
			continue // latches: see TestFailedSyncClosesTheLog
		}
		t.Run(string(point), func(t *testing.T) {
			r, w := startedRig(t, nil)
			entries := mixed(3, 2)
			before := bytes.Clone(entries[1].Data)
			if err := r.cfg.Failpoints.Arm(point, failpoint.Action{Kind: failpoint.Error}); err != nil {
				t.Fatal(err)
			}
			if err := r.log.Append(entries); !errors.Is(err, failpoint.ErrInjected) {
				t.Fatalf("append: %v", err)
			}
			r.cfg.Failpoints.Disarm(point)
			if !bytes.Equal(before, entries[1].Data) {
				t.Fatal("the batch is still stamped")
			}
			r.same(w)
			clone := *r
			clone.kill()
			clone.same(w)
			r.fill(w, entries...)
			r.same(w)
			r.kill()
			r.same(w)
		})
	}
}

// TestKillAtAnyStepOfAnAppend kills the process at every step of an append: after the restart the log is what
// it was, with a prefix of the append's entries.
func TestKillAtAnyStepOfAnAppend(t *testing.T) {
	for _, point := range appendPoints {
		t.Run(string(point), func(t *testing.T) {
			r, w := startedRig(t, func(c *Config) { c.SyncEach = point == FailSync })
			killed := *r
			arm(t, r, point, func() error {
				killed.fs, killed.side = r.fs.Clone(), r.side.clone()
				return nil
			})
			before := w.last()
			r.fill(w, mixed(3, 2)...)
			if killed.fs == r.fs {
				t.Fatal("the point was not passed")
			}
			killed.cfg.FS, killed.cfg.Failpoints = nil, nil
			killed.open()
			last := killed.log.LastIndex()
			if last < before || last > w.last() {
				t.Fatalf("log ends at %d, want %d to %d", last, before, w.last())
			}
			if point == FailAfterWrite && last != w.last() {
				t.Fatalf("log ends at %d after all was written up to %d", last, w.last())
			}
			w.truncate(last + 1)
			killed.same(w)
			killed.fill(w, data(last+1, 9, 1, 10))
			killed.same(w)
			killed.kill()
			killed.same(w)
		})
	}
}

func arm(t *testing.T, r *rig, point failpoint.Name, do func() error) {
	t.Helper()
	if err := r.cfg.Failpoints.Arm(point, failpoint.Action{Kind: failpoint.Do, Do: do, Nth: 1}); err != nil {
		t.Fatal(err)
	}
}

// TestKillAtAnyStepOfAChange kills a truncation, trim, reset or checkpoint at every step.
func TestKillAtAnyStepOfAChange(t *testing.T) {
	base := Base{Index: 100, Term: 7, NextOffset: 500, LogStart: 500, State: []byte("state")}
	for _, c := range []struct {
		point failpoint.Name
		do    func(*rig) error
		after func(w *twin) // what a finished change leaves
	}{
		{FailBeforeTruncate, func(r *rig) error { return r.log.TruncateSuffix(5) }, func(w *twin) { w.truncate(5) }},
		{FailTruncateSegment, func(r *rig) error { return r.log.TruncateSuffix(5) }, func(w *twin) { w.truncate(5) }},
		{FailAfterTruncate, func(r *rig) error { return r.log.TruncateSuffix(5) }, func(w *twin) { w.truncate(5) }},
		{FailReset, func(r *rig) error { return r.log.Reset(base) }, func(w *twin) { *w = twin{base: base, end: 500} }},
		{FailResetDone, func(r *rig) error { return r.log.Reset(base) }, func(w *twin) { *w = twin{base: base, end: 500} }},
		{FailCheckpoint, func(r *rig) error { return r.log.Checkpoint(9) }, func(*twin) {}},
		{FailTrim, func(r *rig) error { _, err := r.log.TrimTo(r.log.EndOffset(), 100); return err }, nil},
	} {
		t.Run(string(c.point), func(t *testing.T) {
			r, w := startedRig(t, nil)
			for i := uint64(3); i < 14; i += 2 {
				r.fill(w, data(i, 2, 2, 900), side(i+1, 2))
			}
			snapAll(t, r)
			killed := *r
			arm(t, r, c.point, func() error {
				killed.fs, killed.side = r.fs.Clone(), r.side.clone()
				return nil
			})
			if err := c.do(r); err != nil {
				t.Fatal(err)
			}
			if killed.fs == r.fs {
				t.Fatal("the point was not passed")
			}
			done := w.clone()
			if c.after == nil {
				done.trimBelow(r.log.FirstIndex())
			} else {
				c.after(done)
			}
			r.same(done)
			killed.cfg.FS, killed.cfg.Failpoints = nil, nil
			killed.open()
			if last := killed.log.LastIndex(); last <= w.last() {
				w.truncate(last + 1)
			}
			if killed.log.LastIndex() < done.last() {
				t.Fatalf("ends at %d, want at least %d", killed.log.LastIndex(), done.last())
			}
			if done.compare(killed.log) != nil {
				killed.same(w)
			}
		})
	}
}

func snapAll(t *testing.T, r *rig) {
	t.Helper()
	for _, s := range r.log.Segments()[1:] {
		term, err := r.log.Term(s.FirstIndex - 1)
		if err == nil {
			err = r.log.WriteSnap(Base{Index: s.FirstIndex - 1, Term: term, NextOffset: s.BaseOffset})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSidecarAheadOfTheSegment: side entries are durable, the batches before them are not. They must go, or
// the next batch would be numbered as one of them.
func TestSidecarAheadOfTheSegment(t *testing.T) {
	r, w := startedRig(t, nil)
	if err := r.side.Put([]Entry{side(4, 1), side(6, 1)}); err != nil {
		t.Fatal(err)
	}
	rec := r.kill()
	if rec.CutEntries != 2 {
		t.Fatalf("%d side entries cut, want 2", rec.CutEntries)
	}
	r.same(w)
	r.fill(w, data(3, 1, 1, 10), data(4, 1, 1, 10), data(5, 1, 1, 10))
	r.kill()
	r.same(w)
}

// TestTornTail: on the same boot the incomplete last write is cut and nothing else; after a power cut the log
// ends before the first batch that does not check out.
func TestTornTail(t *testing.T) {
	lastOf := func(r *rig) (string, int64) {
		segs := r.log.Segments()
		s := segs[len(segs)-1]
		return r.fs.PathJoin(r.cfg.Dir, segmentName(s.BaseOffset, extLog)), s.Bytes
	}
	whole := data(4, 1, 2, 100)
	size := int64(len(whole.Data))
	for _, c := range []struct {
		name     string
		change   func(b []byte, from int64) []byte // from: where the last batch begins
		sameBoot bool                              // opens on the same boot
		keeps    bool                              // the last batch stays
	}{
		{"whole", func(b []byte, _ int64) []byte { return b }, true, true},
		{"one byte missing", func(b []byte, _ int64) []byte { return b[:len(b)-1] }, true, false},
		{"half a header", func(b []byte, from int64) []byte { return b[:from+30] }, true, false},
		{"one byte of it", func(b []byte, from int64) []byte { return b[:from+1] }, true, false},
		{"zeros behind", func(b []byte, _ int64) []byte { return append(b, make([]byte, 500)...) }, false, true},
		{"zero-filled", func(b []byte, from int64) []byte { clear(b[from:]); return b }, false, false},
		{"half zero-filled", func(b []byte, from int64) []byte { clear(b[from+size/2:]); return b }, false, false},
		{"flipped bit in the records", func(b []byte, from int64) []byte { b[from+size-5] ^= 4; return b }, false, false},
		{"flipped bit in the offset", func(b []byte, from int64) []byte { b[from+7] ^= 1; return b }, false, false},
		{"garbage behind", func(b []byte, _ int64) []byte { return append(b, bytes.Repeat([]byte{0xa5}, 300)...) }, false, true},
	} {
		for _, sameBoot := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, same boot %v", c.name, sameBoot), func(t *testing.T) {
				r, w := startedRig(t, nil)
				r.fill(w, data(3, 1, 1, 100))
				_, from := lastOf(r)
				r.fill(w, whole)
				path, _ := lastOf(r)
				rewrite(t, r, path, func(b []byte) []byte { return c.change(b, from) })
				r.fs, r.side, r.cfg.FS = r.fs.Clone(), r.side.clone(), nil
				r.cfg.SameBoot = sameBoot
				_, err := r.tryOpen()
				if sameBoot && !c.sameBoot {
					var damage *CorruptionError
					if !errors.As(err, &damage) || damage.File != r.fs.PathBase(path) || damage.Pos < from {
						t.Fatalf("open: %v, want damage in %s at %d or behind", err, path, from)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if !c.keeps {
					w.truncate(4)
				}
				r.same(w)
				r.fill(w, data(w.last()+1, 2, 1, 50))
				r.kill()
				r.same(w)
			})
		}
	}
}

// rewrite changes a file's content behind the log's back; the new content is synced.
func rewrite(t testing.TB, r *rig, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := vfs.ReadFile(r.fs, path)
	if err == nil {
		err = vfs.WriteFileAtomic(r.fs, path, change(b))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDamageIsNeverCutOnTheSameBoot flips each byte of a log that a kill left: whatever opens must hold all
// entries, anything else must be refused as damage or be found when it is read.
func TestDamageIsNeverCutOnTheSameBoot(t *testing.T) {
	r, w := startedRig(t, nil)
	r.fill(w, data(3, 1, 2, 20), data(4, 1, 1, 10), side(5, 1), data(6, 2, 1, 30))
	path := r.fs.PathJoin(r.cfg.Dir, segmentName(0, extLog))
	whole, err := vfs.ReadFile(r.fs, path)
	if err != nil {
		t.Fatal(err)
	}
	last := int64(len(whole)) - int64(len(w.entries[5].Data))
	for i := range whole {
		x := *r
		x.fs, x.side, x.cfg.FS = r.fs.Clone(), r.side.clone(), nil
		rewrite(t, &x, path, func(b []byte) []byte { b[i] ^= 0x41; return b })
		_, err := x.tryOpen()
		switch {
		case isDamage(err):
		case err != nil:
			t.Fatalf("byte %d: %v", i, err)
		case x.log.LastIndex() != w.last() && int64(i) < last:
			t.Fatalf("byte %d: cut to %d without a word", i, x.log.LastIndex())
		case x.log.LastIndex() == w.last() && int64(i) >= last+12 && int64(i) < last+16:
			// The last batch's epoch: no checksum covers it, and the .ridx is not written that far.
		case x.log.LastIndex() == w.last():
			t.Fatalf("byte %d: nobody noticed", i)
		}
	}
}

// TestDamageBelowTheRecoveryPoint: what was synced is never cut, on any boot; a file that lost bytes is
// refused at once, a flipped bit when it is read.
func TestDamageBelowTheRecoveryPoint(t *testing.T) {
	for _, sameBoot := range []bool{true, false} {
		r, w := startedRig(t, func(c *Config) { c.CacheBytes = 1 })
		r.fill(w, data(3, 1, 2, 200))
		if err := r.log.Checkpoint(3); err != nil {
			t.Fatal(err)
		}
		path := r.fs.PathJoin(r.cfg.Dir, segmentName(0, extLog))

		x := *r
		x.fs, x.side, x.cfg.FS, x.cfg.SameBoot = r.fs.Clone(), r.side.clone(), nil, sameBoot
		rewrite(t, &x, path, func(b []byte) []byte { return b[:len(b)-1] })
		if _, err := x.tryOpen(); !isDamage(err) {
			t.Fatalf("open of a shortened file: %v", err)
		}

		x = *r
		x.fs, x.side, x.cfg.FS, x.cfg.SameBoot = r.fs.Clone(), r.side.clone(), nil, sameBoot
		rewrite(t, &x, path, func(b []byte) []byte { b[len(b)-3] ^= 1; return b })
		x.open()
		var damage *CorruptionError
		if _, err := x.log.Entry(3); !errors.As(err, &damage) || damage.File != segmentName(0, extLog) {
			t.Fatalf("read of a damaged batch: %v", err)
		}
		if rep, err := Verify(x.fs, x.cfg.Dir); err != nil || len(rep.Problems) != 1 {
			t.Fatalf("verify: %+v %v", rep, err)
		}
	}
}

// TestMissingSideEntryIsDamage: without it the batches behind would be numbered one too low.
func TestMissingSideEntryIsDamage(t *testing.T) {
	r, w := startedRig(t, nil)
	r.fill(w, side(3, 2), data(4, 2, 1, 10))
	if err := r.log.Checkpoint(2); err != nil { // .ridx is written up to the end
		t.Fatal(err)
	}
	delete(r.side.entries, 3)
	r.fs, r.cfg.FS = r.fs.Clone(), nil
	if _, err := r.tryOpen(); !isDamage(err) {
		t.Fatalf("open: %v", err)
	}
}

// unwritten is b with zeros instead of n bytes, if it goes on behind them.
func unwritten(b []byte, at, n int) []byte {
	if len(b) > at+n {
		clear(b[at : at+n])
	}
	return b
}

// TestLostIndexFilesAreRebuilt removes or damages each index file of each segment: after a restart they are
// byte for byte what they were.
func TestLostIndexFilesAreRebuilt(t *testing.T) {
	r, w := startedRig(t, nil)
	r.fill(w, side(3, 2))
	for i := uint64(4); i < 24; i++ {
		r.fill(w, data(i, 2+i/10, 1, 400))
	}
	snapAll(t, r)
	if err := r.log.Close(); err != nil {
		t.Fatal(err)
	}
	bases := []int64{}
	for _, s := range r.log.Segments() {
		bases = append(bases, s.BaseOffset)
	}
	for _, ext := range []string{extRidx, extIndex, extTimeIndex} {
		for _, base := range []int64{bases[0], bases[1], bases[len(bases)-1]} {
			for name, change := range map[string]func([]byte) []byte{
				"removed": nil,
				"empty":   func([]byte) []byte { return nil },
				"zeros":   func(b []byte) []byte { return make([]byte, len(b)) },
				// as a power cut may leave the second of several entries
				"a time without its offset":  func(b []byte) []byte { return unwritten(b, timeIndexEntry+8, 4) },
				"an offset without its time": func(b []byte) []byte { return unwritten(b, timeIndexEntry, 8) },
			} {
				if strings.Contains(name, "without") && ext != extTimeIndex {
					continue
				}
				x := *r
				x.fs, x.side, x.cfg.FS = r.fs.Clone(), r.side.clone(), nil
				path := x.fs.PathJoin(x.cfg.Dir, segmentName(base, ext))
				want, ok, err := readIfThere(x.fs, path)
				if err != nil || !ok && ext == extRidx {
					t.Fatal(err)
				}
				if !ok {
					continue // nothing to index yet
				}
				if change == nil {
					err = x.fs.Remove(path)
				} else {
					rewrite(t, &x, path, change)
				}
				if err != nil {
					t.Fatal(err)
				}
				rec := x.open()
				x.same(w)
				if err := x.log.Close(); err != nil {
					t.Fatal(err)
				}
				got, err := vfs.ReadFile(x.fs, path)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s of segment %d, %s: %d bytes, want %d (%v)", ext, base, name, len(got), len(want), err)
				}
				if len(want) > 0 && len(rec.Rebuilt) == 0 && ext == extRidx {
					t.Fatalf("%s of segment %d, %s: nothing reported", ext, base, name)
				}
			}
		}
	}
}

// TestUnknownVersionIsRefusedAsAVersion in every file of ours.
func TestUnknownVersionIsRefusedAsAVersion(t *testing.T) {
	for _, name := range []string{segmentName(0, extRidx), filePoint, fileReset, ""} {
		r, w := startedRig(t, nil)
		r.fill(w, data(3, 1, 3, 900), data(4, 1, 3, 900))
		snapAll(t, r)
		if name == "" {
			name = segmentName(r.log.Segments()[1].BaseOffset, extSnap)
		}
		if err := r.log.Close(); err != nil {
			t.Fatal(err)
		}
		path := r.fs.PathJoin(r.cfg.Dir, name)
		if name == fileReset {
			if err := vfs.WriteFileAtomic(r.fs, path, encodeBase(magicReset, Base{Index: 1})); err != nil {
				t.Fatal(err)
			}
		}
		rewrite(t, r, path, func(b []byte) []byte { b[5] = 2; return b })
		if _, err := r.tryOpen(); !errors.Is(err, ErrVersion) || isDamage(err) {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// TestDirectoryOfAnotherTopicIsRefused by its partition.metadata.
func TestDirectoryOfAnotherTopicIsRefused(t *testing.T) {
	r, _ := startedRig(t, nil)
	if err := r.log.Close(); err != nil {
		t.Fatal(err)
	}
	r.cfg.TopicID[3]++
	if _, err := r.tryOpen(); err == nil {
		t.Fatal("opened")
	}
}

// TestSegmentsBeginWhereTheEntriesSay: however appends are grouped, killed, failed or cut, replicas with the
// same entries have the same files.
func TestSegmentsBeginWhereTheEntriesSay(t *testing.T) {
	var entries []Entry
	for i := uint64(1); i < 40; i++ {
		switch {
		case i%13 == 0:
			entries = append(entries, rollSide(i, 1))
		case i%5 == 0:
			entries = append(entries, side(i, 1))
		default:
			entries = append(entries, data(i, 1, 1, int(i*37%700)))
		}
	}
	files := func(r *rig) []string {
		var out []string
		for _, s := range r.log.Segments() {
			b, err := vfs.ReadFile(r.fs, r.fs.PathJoin(r.cfg.Dir, segmentName(s.BaseOffset, extLog)))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%d/%d: %x", s.BaseOffset, s.FirstIndex, b))
		}
		return out
	}
	fresh := func(from, to int) []Entry {
		out := slices.Clone(entries[from:to])
		for i := range out {
			out[i].Data = bytes.Clone(out[i].Data)
		}
		return out
	}
	one := newRig(t, nil)
	one.append(fresh(0, len(entries))...)
	want := files(one)
	if len(want) < 4 {
		t.Fatalf("%d segments", len(want))
	}
	two := newRig(t, nil)
	for i := range entries {
		two.append(fresh(i, i+1)...)
		two.kill()
	}
	if got := files(two); !slices.Equal(got, want) {
		t.Fatalf("one by one: %d segments, want %d", len(got), len(want))
	}
	three := newRig(t, nil)
	for i := 0; i < len(entries); {
		n := min(i+4, len(entries))
		three.append(fresh(i, n)...)
		if n == len(entries) {
			break
		}
		if err := three.log.TruncateSuffix(uint64(i + 3)); err != nil {
			t.Fatal(err)
		}
		i += 2
	}
	if got := files(three); !slices.Equal(got, want) {
		t.Fatalf("with truncations: %d segments, want %d", len(got), len(want))
	}
}

// TestLostDirectoryIsNeverSilentlyEmpty: the side entries tell that there was a log.
func TestLostDirectoryIsNeverSilentlyEmpty(t *testing.T) {
	for _, sameBoot := range []bool{true, false} {
		r, _ := startedRig(t, nil)
		r.fs, r.cfg.FS, r.cfg.SameBoot = vfs.NewCrashable(), nil, sameBoot
		if _, err := r.tryOpen(); !isDamage(err) {
			t.Fatalf("open: %v", err)
		}
	}
}

// TestLostNewestSegmentIsDamageOnTheSameBoot: its .ridx tells.
func TestLostNewestSegmentIsDamageOnTheSameBoot(t *testing.T) {
	r, w := startedRig(t, nil)
	r.fill(w, data(3, 1, 3, 900))
	segs := r.log.Segments()
	name := segmentName(segs[len(segs)-1].BaseOffset, extLog)
	r.fs, r.side, r.cfg.FS = r.fs.Clone(), r.side.clone(), nil
	if err := r.fs.Remove(r.fs.PathJoin(r.cfg.Dir, name)); err != nil {
		t.Fatal(err)
	}
	var damage *CorruptionError
	if _, err := r.tryOpen(); !errors.As(err, &damage) || damage.File != name || len(segs) != 2 {
		t.Fatalf("open: %v, %d segments", err, len(segs))
	}
}
