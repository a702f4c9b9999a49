package log

import (
	"fmt"
	"slices"
	"testing"

	"gopherlog/engine/record"
	"gopherlog/engine/vfs"
)

// moment is a question by timestamp and what the batches answer.
type moment struct{ ask, offset, at int64 }

// moments are the timestamps of every step-th record from offset start on, each with the first record that is not older, and the largest.
func (w *twin) moments(step int, start int64) (out []moment, largest int64) {
	largest = -1
	var all []moment
	for i := range w.entries {
		if b := record.Batch(w.entries[i].Data); w.entries[i].IsData() {
			for rec := range record.Records(b) {
				if o := b.BaseOffset() + int64(rec.OffsetDelta); o >= start {
					all = append(all, moment{offset: o, at: b.BaseTimestamp() + rec.TimestampDelta})
				}
			}
		}
	}
	for i := 0; i < len(all); i += step {
		k := slices.IndexFunc(all, func(m moment) bool { return m.at >= all[i].at })
		out = append(out, moment{all[i].at, all[k].offset, all[k].at})
		largest = max(largest, all[i].at)
	}
	return out, largest
}

// compareTimes asks l by timestamp; largest is the largest that was asked for.
func compareTimes(l *Log, ask []moment, largest int64) error {
	for _, m := range ask {
		o, ts, _, ok, err := l.OffsetForTimestamp(m.ask, l.EndOffset())
		if err != nil || !ok || o != m.offset || ts != m.at {
			return fmt.Errorf("offset for timestamp %d: %d at %d %v %v, want %d at %d", m.ask, o, ts, ok, err, m.offset, m.at)
		}
	}
	if _, ts, err := l.MaxTimestamp(l.EndOffset()); err != nil || ts < largest {
		return fmt.Errorf("largest timestamp %d %v, want %d", ts, err, largest)
	}
	return nil
}

// indexedRig is one segment with all of it below the recovery point, and more entries in its time index than making it again gives:
// checkpoints add some. Its newest batches are older than some before them.
func indexedRig(t *testing.T) (*rig, *twin) {
	r, w := newRig(t, func(c *Config) { c.SegmentBytes = 1 << 20 }), newTwin()
	for i := uint64(1); i <= 360; i++ {
		e := data(i, 1, 1, 60)
		if i > 300 {
			e.Data = batch(1, 60, 500)
		}
		r.fill(w, e)
		if i%7 == 0 {
			if err := r.log.Checkpoint(i); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.log.Close(); err != nil {
		t.Fatal(err)
	}
	return r, w
}

// TestIndexFilesMadeAgainOutlivePowerCuts damages an index file below the recovery point, has it made again, and cuts the power before
// the next checkpoint: what the disk has of it then is never believed where it disagrees with the batches.
func TestIndexFilesMadeAgainOutlivePowerCuts(t *testing.T) {
	r, w := indexedRig(t)
	ask, largest := w.moments(10, 0)
	torn := func(b []byte) []byte { // an entry above the recovery point that a power cut left in part
		e := be.AppendUint64(nil, 1<<40)
		return append(b, be.AppendUint32(e, 0)...)
	}
	for _, c := range []struct {
		name, ext string
		change    func(b []byte) []byte
	}{
		{"an entry in part", extTimeIndex, torn},
		{"the first half", extTimeIndex, func(b []byte) []byte { clear(b[:len(b)/2]); return b }},
		{"a middle", extTimeIndex, func(b []byte) []byte { clear(b[len(b)/3 : len(b)/2]); return b }},
		{"a middle", extIndex, func(b []byte) []byte { clear(b[len(b)/3 : len(b)/2]); return b }},
		{"the second half", extRidx, func(b []byte) []byte { return b[:len(b)/2] }},
		{"the head", extRidx, func(b []byte) []byte { clear(b[:ridxHeader]); return b }},
		{"the last row", extRidx, func(b []byte) []byte { clear(b[len(b)-ridxSize:]); return b }},
	} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s of %s, killed %v", c.name, c.ext, killed), func(t *testing.T) {
				x := *r
				x.t, x.fs, x.side, x.cfg.FS, x.cfg.SameBoot = t, r.fs.Clone(), r.side.clone(), nil, false
				rewrite(t, &x, x.fs.PathJoin(x.cfg.Dir, segmentName(0, c.ext)), c.change)
				x.open()
				check := func(when string, x *rig) {
					t.Helper()
					if err := compareTimes(x.log, ask, largest); err != nil {
						t.Fatalf("%s: %v", when, err)
					}
					x.same(w)
				}
				check("made again", &x)
				if killed { // the page cache has it then, and nobody knows that the disk does not
					x.kill()
					if err := x.log.Checkpoint(noIndex); err != nil {
						t.Fatal(err)
					}
				}
				for seed := range uint64(24) {
					y := x
					y.cutPower(seed, []int{0, 50, 80}[seed%3])
					check(fmt.Sprintf("seed %d", seed), &y)
					if err := y.log.Close(); err != nil {
						t.Fatal(err)
					}
					if rep, err := Verify(y.fs, y.cfg.Dir); err != nil || len(rep.Problems) > 0 {
						t.Fatalf("seed %d: verify: %v %v", seed, rep.Problems, err)
					}
				}
			})
		}
	}
}

// TestPowerCutsWhileIndexFilesAreMadeAgain cuts the power at every sync of a recovery that makes a segment's .ridx or time index again.
func TestPowerCutsWhileIndexFilesAreMadeAgain(t *testing.T) {
	r, w := indexedRig(t)
	ask, largest := w.moments(10, 0)
	for _, ext := range []string{extRidx, extTimeIndex} {
		t.Run(ext, func(t *testing.T) {
			x := *r
			x.t, x.fs, x.side, x.cfg.SameBoot = t, r.fs.Clone(), r.side.clone(), false
			rewrite(t, &x, x.fs.PathJoin(x.cfg.Dir, segmentName(0, ext)), func(b []byte) []byte { clear(b[len(b)/3 : len(b)-ridxSize]); return b[:len(b)-1] })
			var cuts []*vfs.CrashFS
			x.cfg.FS = vfs.NewFault(x.fs, func(c vfs.Call) error {
				if c.Op == vfs.OpSync || c.Op == vfs.OpSyncDir || c.Op == vfs.OpRename {
					for seed := range uint64(8) {
						cuts = append(cuts, x.fs.CrashClone(vfs.CrashConfig{Seed: seed, UnsyncedPercent: 60}))
					}
				}
				return nil
			})
			x.open()
			if len(cuts) < 16 {
				t.Fatalf("%d power cuts", len(cuts))
			}
			for i, fs := range cuts {
				y := x
				y.fs, y.side, y.cfg.FS = fs, x.side.clone(), nil
				y.open()
				if err := compareTimes(y.log, ask, largest); err != nil {
					t.Fatalf("power cut %d: %v", i, err)
				}
				y.same(w)
				if err := y.log.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
