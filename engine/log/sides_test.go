package log

import (
	"errors"
	"os"
	"slices"
	"testing"
)

// settled makes everything durable but the side entries in the journal.
func settled(t *testing.T, r *rig) {
	t.Helper()
	segs, err := r.log.pinUpTo(noIndex)
	if err == nil {
		for _, s := range segs {
			err = errors.Join(err, r.log.flush(s, 0))
		}
		err = errors.Join(err, r.log.syncAll(segs))
		unpinSegments(segs)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestBatchBehindALostCommandTakesNoOtherPlace: in the tier that syncs nothing a power cut may take a side entry and leave the batches behind it.
// Which indexes they had cannot be known then: they must go, or they would count as other entries of the same term.
func TestBatchBehindALostCommandTakesNoOtherPlace(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(r *rig, w *twin)
		last uint64
	}{
		"in one segment": {func(r *rig, w *twin) {
			r.fill(w, data(1, 1, 1, 100), command(2, 1), data(3, 1, 1, 100), data(4, 1, 1, 100))
		}, 1},
		"at a segment's end": {func(r *rig, w *twin) {
			r.fill(w, data(1, 1, 1, 3000), command(2, 1), data(3, 1, 1, 3000), data(4, 1, 1, 3000))
		}, 1},
		"behind a sync": {func(r *rig, w *twin) {
			r.fill(w, command(1, 1), data(2, 1, 1, 100), command(3, 1), data(4, 1, 1, 100))
			if err := r.log.Sync(); err != nil {
				t.Fatal(err)
			}
			r.fill(w, data(5, 1, 1, 100), command(6, 1), data(7, 1, 1, 100))
		}, 4},
		"behind a cut below what was synced": {func(r *rig, w *twin) {
			r.fill(w, command(1, 1), data(2, 1, 1, 100), data(3, 1, 1, 100), data(4, 1, 1, 100))
			if err := r.log.Sync(); err != nil {
				t.Fatal(err)
			}
			if err := r.log.TruncateSuffix(3); err != nil {
				t.Fatal(err)
			}
			w.truncate(3)
			r.fill(w, command(3, 2), data(4, 2, 1, 100))
		}, 2},
		"before one that is durable": {func(r *rig, w *twin) {
			r.fill(w, data(1, 1, 1, 100), command(2, 1))
			r.fill(w, data(3, 1, 1, 100), side(4, 2), data(5, 2, 1, 100))
		}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			r, w := newRig(t, nil), newTwin()
			c.do(r, w)
			settled(t, r)
			r.cutPower(1, 0)
			if last := r.log.LastIndex(); last != c.last {
				t.Fatalf("the log ends at %d, want %d", last, c.last)
			}
			w.truncate(c.last + 1)
			r.same(w)
			r.fill(w, command(c.last+1, 3), data(c.last+2, 3, 1, 10))
			r.kill()
			r.same(w)
		})
	}
}

// TestCommandsFollowTheTier: without syncs they reach the sidecar with the next checkpoint and outlive a kill; with syncs, at once.
func TestCommandsFollowTheTier(t *testing.T) {
	r, w := newRig(t, nil), newTwin()
	stored := func() int { return len(r.side.clone().entries) }
	r.fill(w, data(1, 1, 1, 10), command(2, 1), data(3, 1, 1, 10), command(4, 1))
	if n := stored(); n != 0 {
		t.Fatalf("%d entries were synced", n)
	}
	r.same(w)
	r.kill()
	r.same(w)
	r.fill(w, command(5, 1))
	if err := r.log.Checkpoint(5); err != nil {
		t.Fatal(err)
	}
	if n := stored(); n != 3 {
		t.Fatalf("%d entries are in the sidecar after a checkpoint, want 3", n)
	}
	if err := r.log.Checkpoint(5); err != nil {
		t.Fatal(err)
	}
	if _, err := r.fs.Stat(r.fs.PathJoin(r.cfg.Dir, fileSides)); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the journal of a log without commands: %v", err)
	}
	r.fill(w, command(6, 1))
	if err := r.log.Tune(r.cfg.SegmentBytes, true); err != nil {
		t.Fatal(err)
	}
	r.fill(w, data(7, 1, 1, 10), command(8, 1), data(9, 1, 1, 10))
	r.cutPower(1, 0)
	r.same(w)
}

func journalOf(floor uint64, entries ...Entry) []byte {
	b := sidesHead(floor)
	for i := range entries {
		b, _ = encodeSide(b, &entries[i])
	}
	return b
}

// TestTornJournalEndsWhereItIsTorn: any prefix, and any changed byte, gives a prefix of the entries; what lies there from before does not count.
func TestTornJournalEndsWhereItIsTorn(t *testing.T) {
	whole := journalOf(3, command(4, 1), command(6, 1), command(9, 2))
	check := func(b []byte, want int) {
		t.Helper()
		floor, kept, err := decodeSides(b)
		if err != nil || floor != 3 || len(kept) != want {
			t.Fatalf("%d bytes: floor %d, %d entries, %v, want %d", len(b), floor, len(kept), err, want)
		}
		for i, e := range kept {
			if e.Index != []uint64{4, 6, 9}[i] || string(e.Data) != string(command(e.Index, 1).Data) || string(e.Ext) != "\x01" {
				t.Fatalf("entry %d: %+v", i, e)
			}
		}
	}
	size := (len(whole) - sidesHeader) / 3
	for n := sidesHeader; n <= len(whole); n++ {
		check(whole[:n], (n-sidesHeader)/size)
		if n < len(whole) {
			bad := slices.Clone(whole)
			bad[n] ^= 0x40
			check(bad, (n-sidesHeader)/size)
		}
	}
	check(append(slices.Clone(whole), journalOf(3, command(8, 1))[sidesHeader:]...), 3)
	for n := range sidesHeader {
		var damage *CorruptionError
		if _, _, err := decodeSides(whole[:n]); !errors.As(err, &damage) {
			t.Fatalf("header of %d bytes: %v", n, err)
		}
	}
}

// TestManyCommandsMoveOnTogether keeps the journal short.
func TestManyCommandsMoveOnTogether(t *testing.T) {
	r, w := newRig(t, nil), newTwin()
	puts := 0
	for i := range uint64(20_000) {
		e := command(i+1, 1)
		w.append([]Entry{e})
		before := len(r.log.sidecar.kept)
		r.append(e)
		if len(r.log.sidecar.kept) < before {
			puts++
		}
		if size := r.log.sidecar.size; size > sidesCapacity+100 {
			t.Fatalf("journal of %d bytes", size)
		}
	}
	if puts == 0 || puts > 10 {
		t.Errorf("moved %d times", puts)
	}
	r.kill()
	r.same(w)
}
