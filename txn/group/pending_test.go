package group

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"gopherlog/txn/field"
)

func at(offset int64) Offset { return Offset{Offset: offset, LeaderEpoch: -1, Expires: -1} }

func TestOffsetsOfATransactionCountWhenItIsCommitted(t *testing.T) {
	p, k0, k1 := NewPending(), Key{"g", "t", 0}, Key{"g", "t", 1}
	p.Hold(7, k1, at(1), 10)
	p.Hold(7, k0, at(2), 11)
	p.Hold(7, k1, at(3), 12) // the later one counts
	p.Hold(8, k1, at(4), 13)
	if !p.Unstable(k0) || !p.Unstable(k1) || p.Unstable(Key{"h", "t", 0}) {
		t.Fatal("unstable")
	}
	if got, want := fmt.Sprint(p.End(7, true)), fmt.Sprint([]Settled{{k0, at(2), 11}, {k1, at(3), 12}}); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	if p.Unstable(k0) || !p.Unstable(k1) {
		t.Fatal("the other transaction is open still")
	}
	if got := p.End(8, false); got != nil || p.Unstable(k1) {
		t.Fatalf("aborted: %v", got)
	}
	if got := p.End(8, true); len(got) != 0 {
		t.Fatalf("a marker without offsets: %v", got)
	}
}

func TestADeletedGroupHasNothingPending(t *testing.T) {
	p := NewPending()
	p.Hold(7, Key{"g", "t", 0}, at(1), 10)
	p.Hold(7, Key{"h", "t", 0}, at(2), 11)
	p.Forget("g")
	if p.Unstable(Key{"g", "t", 0}) || len(p.End(7, true)) != 1 {
		t.Fatal("not forgotten, or too much")
	}
	p.Hold(7, Key{"g", "t", 0}, at(1), 10)
	p.Forget("g")
	if !bytes.Equal(p.Encode(nil), NewPending().Encode(nil)) {
		t.Fatal("something is left")
	}
}

func TestADeletedOffsetIsPendingInNoTransaction(t *testing.T) {
	p, gone, stays := NewPending(), Key{"g", "t", 0}, Key{"g", "t", 1}
	p.Hold(7, gone, at(1), 10)
	p.Hold(7, stays, at(2), 11)
	p.Hold(8, gone, at(3), 12)
	p.Remove(gone)
	p.Remove(Key{"h", "t", 0})
	if p.Unstable(gone) || !p.Unstable(stays) || !p.Holds("g") || len(p.End(8, true)) > 0 {
		t.Fatal("not removed, or too much")
	}
	p.Remove(stays)
	if p.Holds("g") || !bytes.Equal(p.Encode(nil), NewPending().Encode(nil)) {
		t.Fatal("something is left")
	}
}

// TestReplicasThatAppliedTheSameLogHoldTheSame, also when one was restarted from a snapshot in the middle.
func TestReplicasThatAppliedTheSameLogHoldTheSame(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 6))
	a, b := NewPending(), NewPending()
	for i := range int64(2000) {
		id, key := int64(rng.IntN(4)), Key{fmt.Sprint("g", rng.IntN(3)), "t", int32(rng.IntN(3))}
		switch rng.IntN(9) {
		case 0:
			commit := rng.IntN(2) == 0
			if got, want := fmt.Sprint(a.End(id, commit)), fmt.Sprint(b.End(id, commit)); got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		case 1:
			var err error
			var rest []byte
			if b, rest, err = DecodePending(append(b.Encode(nil), 0xee)); err != nil || len(rest) != 1 {
				t.Fatal(rest, err)
			}
		case 2:
			if rng.IntN(10) == 0 {
				a.Forget(key.Group)
				b.Forget(key.Group)
			}
		case 3:
			a.Remove(key)
			b.Remove(key)
		default:
			a.Hold(id, key, at(i), i)
			b.Hold(id, key, at(i), i)
		}
		if !bytes.Equal(a.Encode(nil), b.Encode(nil)) || a.Unstable(key) != b.Unstable(key) || !maps.Equal(a.groups, b.groups) {
			t.Fatalf("step %d: they differ", i)
		}
		for id, n := range a.groups {
			if keys := slices.Collect(maps.Keys(a.keys)); n != len(slices.DeleteFunc(keys, func(k Key) bool { return k.Group != id })) {
				t.Fatalf("step %d: %d keys of %s are counted", i, n, id)
			}
		}
	}
}

func TestDamagedPendingOffsetsAreRefused(t *testing.T) {
	p := NewPending()
	p.Hold(7, Key{"g", "t", 0}, at(1), 10)
	b := p.Encode(nil)
	for n := range b {
		if _, _, err := DecodePending(b[:n]); err == nil {
			t.Fatalf("%d of %d bytes were accepted", n, len(b))
		}
	}
	b[0] = 9
	if _, _, err := DecodePending(b); !errors.Is(err, ErrVersion) {
		t.Fatal(err)
	}
	if _, _, err := DecodePending([]byte{1, 0xff, 0xff, 0xff, 0xff}); !errors.Is(err, field.ErrMalformed) {
		t.Fatal(err)
	}
}
