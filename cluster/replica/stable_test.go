package replica

import (
	"errors"
	"testing"

	"gopherlog/engine/kv"
	"gopherlog/engine/vfs"
)

func openKV(t *testing.T, fs vfs.FS) *kv.DB {
	t.Helper()
	db, err := kv.Open(kv.Config{FS: fs, Dir: "kv"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func stableOn(db *kv.DB, mute func() error) *stableStore {
	if mute == nil {
		mute = func() error { return nil }
	}
	return newStableStore(db, kv.ControlStableKey, mute, func(err error) { panic(err) })
}

func vote(t *testing.T, s *stableStore, term uint64, cand string) {
	t.Helper()
	if err := errors.Join(s.SetUint64([]byte(nameLastVoteTerm), term), s.Set([]byte(nameLastVoteCand), []byte(cand))); err != nil {
		t.Fatal(err)
	}
}

// afterPowerLoss reads the vote that a disk without its unsynced data holds.
func afterPowerLoss(t *testing.T, fs *vfs.CrashFS) (uint64, string) {
	t.Helper()
	s := stableOn(openKV(t, fs.CrashClone(vfs.CrashConfig{Seed: 1})), nil)
	term, err := s.GetUint64([]byte(nameLastVoteTerm))
	if err != nil {
		t.Fatal(err)
	}
	cand, err := s.Get([]byte(nameLastVoteCand))
	if err != nil {
		t.Fatal(err)
	}
	return term, string(cand)
}

func TestVoteSurvivesPowerLossAsAWhole(t *testing.T) {
	fs := vfs.NewCrashable()
	s := stableOn(openKV(t, fs), nil)
	vote(t, s, 4, "1.a")
	if term, cand := afterPowerLoss(t, fs); term != 4 || cand != "1.a" {
		t.Errorf("vote is %d %q, want 4 1.a", term, cand)
	}
	// Only half of the next vote: as if the process died between the calls.
	if err := s.SetUint64([]byte(nameLastVoteTerm), 5); err != nil {
		t.Fatal(err)
	}
	if term, cand := afterPowerLoss(t, fs); term != 4 || cand != "1.a" {
		t.Errorf("after half a vote it is %d %q, want 4 1.a", term, cand)
	}
}

func TestVoteForTheSameCandidateInALaterTermIsDurable(t *testing.T) {
	fs := vfs.NewCrashable()
	s := stableOn(openKV(t, fs), nil)
	vote(t, s, 4, "1.a")
	vote(t, s, 5, "1.a") // the candidate does not change, yet this must be synced
	if term, cand := afterPowerLoss(t, fs); term != 5 || cand != "1.a" {
		t.Errorf("vote is %d %q, want 5 1.a", term, cand)
	}
}

func TestMuteReplicaForgetsARefusedVote(t *testing.T) {
	fs := vfs.NewCrashable()
	var mute error
	s := stableOn(openKV(t, fs), func() error { return mute })
	vote(t, s, 4, "1.a")
	mute = ErrSuspect
	if err := s.SetUint64([]byte(nameLastVoteTerm), 5); !errors.Is(err, ErrSuspect) {
		t.Fatalf("a vote of a mute replica says %v, want ErrSuspect", err)
	}
	if term, _ := s.GetUint64([]byte(nameLastVoteTerm)); term != 4 {
		t.Errorf("last vote is of term %d, want 4", term)
	}
}

func TestUnchangedStableValuesAreNotWritten(t *testing.T) {
	syncs := 0
	fs := vfs.NewFault(vfs.NewCrashable(), func(c vfs.Call) error {
		if c.Op == vfs.OpSync {
			syncs++
		}
		return nil
	})
	s := stableOn(openKV(t, fs), nil)
	set := func(v uint64) {
		if err := s.SetUint64([]byte(nameCurrentTerm), v); err != nil {
			t.Fatal(err)
		}
	}
	set(7)
	if err := s.settle(); err != nil {
		t.Fatal(err)
	}
	before := syncs
	set(7)
	if err := s.settle(); err != nil || syncs != before {
		t.Errorf("an unchanged term cost %d syncs, %v", syncs-before, err)
	}
	set(8)
	if err := s.settle(); err != nil || syncs == before {
		t.Errorf("a changed term was not synced before it was used, %v", err)
	}
}

func TestElectionSyncsTermAndVoteOnce(t *testing.T) {
	fs := vfs.NewCrashable()
	s := stableOn(openKV(t, fs), nil)
	if err := s.SetUint64([]byte(nameCurrentTerm), 9); err != nil {
		t.Fatal(err)
	}
	vote(t, s, 9, "1.a")
	if s.unsynced {
		t.Error("the term waits for a sync although the vote behind it was synced")
	}
	after := stableOn(openKV(t, fs.CrashClone(vfs.CrashConfig{Seed: 1})), nil)
	if term, err := after.GetUint64([]byte(nameCurrentTerm)); err != nil || term != 9 {
		t.Errorf("after a power loss the term is %d, %v; want 9", term, err)
	}
}
