package log

import (
	"bytes"
	"errors"
	"testing"

	"gopherlog/engine/vfs"
)

// FuzzRecover opens a directory whose files are whatever the fuzzer makes of them: Open must not panic or
// allocate without bound, what it opens must be readable and appendable, and a second Open must find nothing
// more to do.
func FuzzRecover(f *testing.F) {
	for _, seed := range recoverSeeds(f) {
		f.Add(seed.log, seed.ridx, seed.index, seed.times, seed.point, true)
		f.Add(seed.log, seed.ridx, seed.index, seed.times, seed.point, false)
		f.Add(seed.log, []byte(nil), []byte(nil), []byte(nil), []byte(nil), false)
		if n := len(seed.log); n > 10 {
			f.Add(seed.log[:n-7], seed.ridx, seed.index, seed.times, []byte(nil), true)
			torn := append(bytes.Clone(seed.log[:n-40]), make([]byte, 40)...)
			f.Add(torn, seed.ridx, seed.index, seed.times, []byte(nil), false)
			f.Add(seed.log, seed.ridx[:len(seed.ridx)-5], seed.index, seed.times, seed.point, false)
		}
	}
	f.Fuzz(func(t *testing.T, log, ridx, index, times, point []byte, sameBoot bool) {
		fs := vfs.NewCrashable()
		files := map[string][]byte{
			segmentName(0, extLog): log, segmentName(0, extRidx): ridx, segmentName(0, extIndex): index,
			segmentName(0, extTimeIndex): times, filePoint: point,
		}
		if err := fs.MkdirAll("/d", 0o755); err != nil {
			t.Fatal(err)
		}
		for name, b := range files {
			if b == nil {
				continue
			}
			if err := vfs.WriteFileAtomic(fs, "/d/"+name, b); err != nil {
				t.Fatal(err)
			}
		}
		r := &rig{t: t, fs: fs, side: newMemSidecar(), cfg: Config{Dir: "/d", SegmentBytes: 2000, SameBoot: sameBoot}}
		r.side.entries = fuzzSides()
		if _, err := r.tryOpen(); err != nil {
			if !isDamage(err) && !errors.Is(err, ErrVersion) {
				t.Fatalf("open: %v", err)
			}
			return
		}
		useRecovered(t, r)
	})
}

func fuzzSides() map[uint64]Entry {
	return map[uint64]Entry{1: side(1, 1), 4: side(4, 2), 7: rollSide(7, 2)}
}

// useRecovered reads everything, appends, and opens again.
func useRecovered(t *testing.T, r *rig) {
	l := r.log
	for i := l.FirstIndex(); i <= l.LastIndex(); i++ {
		if _, err := l.Entry(i); err != nil && !isDamage(err) && !errors.Is(err, ErrNotFound) {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
	if s, err := l.Slice(l.StartOffset(), l.EndOffset(), 1<<20, true); err == nil {
		s.Release()
	} else if !isDamage(err) {
		t.Fatalf("slice: %v", err)
	}
	if _, _, _, _, err := l.OffsetForTimestamp(1, l.EndOffset()); err != nil && !isDamage(err) && l.LastIndex() < 3 {
		t.Fatalf("timestamp: %v", err)
	}
	last := l.LastIndex()
	term := max(l.LastTerm(), 1)
	if err := l.Append([]Entry{data(last+1, term, 1, 10)}); err != nil {
		t.Fatalf("append: %v", err)
	}
	r.kill()
	if r.log.LastIndex() != last+1 {
		t.Fatalf("ends at %d, want %d", r.log.LastIndex(), last+1)
	}
}

type recoverSeed struct{ log, ridx, index, times, point []byte }

// recoverSeeds are the files of a log, open and closed.
func recoverSeeds(f *testing.F) []recoverSeed {
	r := &rig{t: f, fs: vfs.NewCrashable(), side: newMemSidecar(), cfg: Config{Dir: "/d", SegmentBytes: 2000, IndexIntervalBytes: 100}}
	r.open()
	r.append(side(1, 1), data(2, 1, 2, 100), data(3, 1, 1, 200), side(4, 2), data(5, 2, 3, 50), data(6, 2, 1, 10))
	read := func() (s recoverSeed) {
		for name, to := range map[string]*[]byte{
			segmentName(0, extLog): &s.log, segmentName(0, extRidx): &s.ridx, segmentName(0, extIndex): &s.index,
			segmentName(0, extTimeIndex): &s.times, filePoint: &s.point,
		} {
			*to, _, _ = readIfThere(r.fs, "/d/"+name)
		}
		return s
	}
	open := read()
	if err := r.log.Checkpoint(3); err != nil {
		f.Fatal(err)
	}
	half := read()
	if err := r.log.Close(); err != nil {
		f.Fatal(err)
	}
	return []recoverSeed{open, half, read()}
}
