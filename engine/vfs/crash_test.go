package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
)

func TestPowerCutKeepsWhatWasSyncedAndNothingElse(t *testing.T) {
	fs := NewCrashable()
	write(t, fs, "/kept", "synced", true)
	write(t, fs, "/unsynced", "gone", false)
	if err := SyncDir(fs, "/"); err != nil {
		t.Fatal(err)
	}
	write(t, fs, "/nameless", "its name was not synced", true)
	write(t, fs, "/kept", "SYN", false)
	after := fs.CrashClone(CrashConfig{})
	if got := content(t, after, "/kept"); got != "synced" {
		t.Errorf("kept: %q", got)
	}
	if got := content(t, after, "/unsynced"); got != "" {
		t.Errorf("unsynced: %q", got)
	}
	if _, err := after.Stat("/nameless"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nameless: %v", err)
	}
	if got := content(t, fs, "/kept"); got != "SYNced" {
		t.Errorf("the original changed: %q", got)
	}
	if got := content(t, fs.CrashClone(CrashConfig{UnsyncedPercent: 100}), "/kept"); got != "SYNced" {
		t.Errorf("all kept: %q", got)
	}
}

func TestRenameIsOneChangeForAPowerCut(t *testing.T) {
	seen := map[bool]bool{}
	for seed := range uint64(40) {
		fs := NewCrashable()
		write(t, fs, "/old", "x", true)
		if err := SyncDir(fs, "/"); err != nil {
			t.Fatal(err)
		}
		if err := fs.Rename("/old", "/new"); err != nil {
			t.Fatal(err)
		}
		after := fs.CrashClone(CrashConfig{Seed: seed, UnsyncedPercent: 50})
		old, _ := Exists(after, "/old")
		now, _ := Exists(after, "/new")
		if old == now {
			t.Fatalf("seed %d: old name there %v, new name there %v", seed, old, now)
		}
		seen[now] = true
	}
	if len(seen) != 2 {
		t.Fatalf("only one outcome in 40 seeds: %v", seen)
	}
}

func TestSigkillKeepsUnsyncedDataButNotItsSync(t *testing.T) {
	fs := NewCrashable()
	write(t, fs, "/f", "12345", true)
	if err := SyncDir(fs, "/"); err != nil {
		t.Fatal(err)
	}
	write(t, fs, "/f", "abc", false)
	killed := fs.Clone()
	write(t, fs, "/f", "zombie", true)
	if got := content(t, killed, "/f"); got != "abc45" {
		t.Fatalf("after the kill: %q", got)
	}
	if got := content(t, killed.CrashClone(CrashConfig{}), "/f"); got != "12345" {
		t.Fatalf("after kill and power cut: %q", got)
	}
}

func TestTruncationAndRewriteAreUndoneByAPowerCut(t *testing.T) {
	fs := NewCrashable()
	long := string(bytes.Repeat([]byte("abcdefgh"), 2000))
	write(t, fs, "/f", long, true)
	if err := SyncDir(fs, "/"); err != nil {
		t.Fatal(err)
	}
	f, err := fs.OpenFile("/f", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(5000); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte("X"), 9000), 4000); err != nil {
		t.Fatal(err)
	}
	if got := content(t, fs.CrashClone(CrashConfig{}), "/f"); got != long {
		t.Fatalf("the synced content did not come back: %d bytes", len(got))
	}
}

// TestRandomWritesAgainstATwin writes, truncates and syncs at random, cuts the power and checks each byte
// of the outcome: it must be the synced one where nothing was written since, else the synced, a newer
// one, or zero past the synced size.
func TestRandomWritesAgainstATwin(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 60 {
		if err := oneCrash(rng); err != nil {
			t.Fatalf("seed %d round %d: %v", seed, round, err)
		}
	}
}

func oneCrash(rng *rand.Rand) error {
	fs := NewCrashable()
	f, err := fs.OpenFile("/f", true)
	if err != nil {
		return err
	}
	if err := SyncDir(fs, "/"); err != nil {
		return err
	}
	var now, synced []byte
	allowed := map[int]map[byte]bool{} // bytes that an unsynced write put at a place
	for range 1 + rng.IntN(20) {
		switch op := rng.IntN(6); op {
		case 0:
			err = f.Sync()
			synced = append([]byte(nil), now...)
			clear(allowed)
		case 1:
			size := rng.IntN(20000)
			err = f.Truncate(int64(size))
			for i := size; i < len(now); i++ {
				allow(allowed, i, 0)
			}
			now = append(now[:min(size, len(now))], make([]byte, max(0, size-len(now)))...)
		default:
			off, n := rng.IntN(16000), 1+rng.IntN(6000)
			if off > len(now) {
				now = append(now, make([]byte, off-len(now))...)
			}
			b := bytes.Repeat([]byte{byte(1 + rng.IntN(255))}, n)
			_, err = f.WriteAt(b, int64(off))
			now = append(now[:off], append(b, now[min(len(now), off+n):]...)...)
			for i := range b {
				allow(allowed, off+i, b[i])
			}
		}
		if err != nil {
			return err
		}
	}
	got, err := ReadFile(fs, "/f")
	if err != nil || !bytes.Equal(got, now) {
		return fmt.Errorf("before the crash the file differs from its twin: %v", err)
	}
	after, err := ReadFile(fs.CrashClone(CrashConfig{Seed: rng.Uint64(), UnsyncedPercent: rng.IntN(101)}), "/f")
	if err != nil {
		return err
	}
	if len(after) < min(len(synced), len(now)) || len(after) > max(len(synced), len(now)) {
		return fmt.Errorf("size %d, synced %d, newest %d", len(after), len(synced), len(now))
	}
	for i, b := range after {
		fromSync := i < len(synced) && synced[i] == b || i >= len(synced) && b == 0
		if !fromSync && !allowed[i][b] {
			return fmt.Errorf("byte %d is %d: neither synced nor written since", i, b)
		}
	}
	return nil
}

func allow(m map[int]map[byte]bool, at int, b byte) {
	if m[at] == nil {
		m[at] = map[byte]bool{}
	}
	m[at][b] = true
}

func TestPowerCutTearsAndZeroesTails(t *testing.T) {
	var torn, zeroed, short int
	for seed := range uint64(200) {
		fs := NewCrashable()
		write(t, fs, "/f", string(bytes.Repeat([]byte("s"), 1000)), true)
		if err := SyncDir(fs, "/"); err != nil {
			t.Fatal(err)
		}
		write(t, fs, "/f", string(bytes.Repeat([]byte("n"), 10000)), false)
		got := content(t, fs.CrashClone(CrashConfig{Seed: seed, UnsyncedPercent: 40}), "/f")
		if len(got) > 1000 && len(got) < 10000 {
			short++
		}
		if bytes.HasSuffix([]byte(got), make([]byte, 64)) {
			zeroed++
		}
		if bytes.Contains([]byte(got), []byte("nnn\x00\x00\x00")) || bytes.Contains([]byte(got), []byte("nnnsss")) {
			torn++
		}
	}
	if torn == 0 || zeroed == 0 || short == 0 {
		t.Fatalf("of 200 power cuts %d tore a page, %d left zeros, %d cut the tail", torn, zeroed, short)
	}
}

func TestOneSeedGivesOneOutcome(t *testing.T) {
	fs := NewCrashable()
	for i := range 20 {
		write(t, fs, fmt.Sprintf("/f%d", i), string(bytes.Repeat([]byte{byte(i + 1)}, 9000)), i%2 == 0)
	}
	dump := func() string {
		var out bytes.Buffer
		c := fs.CrashClone(CrashConfig{Seed: 5, UnsyncedPercent: 90})
		names, err := c.List("/")
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			fmt.Fprintf(&out, "%s %x\n", n, content(t, c, "/"+n))
		}
		return out.String()
	}
	if first, second := dump(), dump(); first != second {
		t.Fatal("the same seed kept other bytes")
	}
}
