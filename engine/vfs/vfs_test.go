package vfs

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// both runs a test on the operating system's files and on the memory twin, which must agree.
func both(t *testing.T, test func(t *testing.T, fs FS, dir string)) {
	t.Run("os", func(t *testing.T) { test(t, OS(), t.TempDir()) })
	t.Run("memory", func(t *testing.T) {
		fs := NewCrashable()
		if err := fs.MkdirAll("/data", 0o755); err != nil {
			t.Fatal(err)
		}
		test(t, fs, "/data")
	})
	t.Run("fault", func(t *testing.T) { test(t, NewFault(OS(), nil), t.TempDir()) })
}

func write(t *testing.T, fs FS, path, content string, sync bool) {
	t.Helper()
	f, err := fs.OpenFile(path, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(content), 0); err != nil {
		t.Fatal(err)
	}
	if sync {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, fs FS, path string) string {
	t.Helper()
	b, err := ReadFile(fs, path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestOpenFileNeverTruncatesAndCreatesOnlyOnRequest(t *testing.T) {
	both(t, func(t *testing.T, fs FS, dir string) {
		path := fs.PathJoin(dir, "a")
		if _, err := fs.OpenFile(path, false); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("missing file: %v", err)
		}
		write(t, fs, path, "hello", false)
		write(t, fs, path, "J", false)
		if got := content(t, fs, path); got != "Jello" {
			t.Fatalf("content %q", got)
		}
	})
}

func TestVectoredWriteEqualsOneWrite(t *testing.T) {
	both(t, func(t *testing.T, fs FS, dir string) {
		f, err := fs.OpenFile(fs.PathJoin(dir, "v"), true)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		rng := rand.New(rand.NewPCG(1, 2))
		var bufs [][]byte
		var want []byte
		for range 2500 { // more than one system call takes
			b := make([]byte, rng.IntN(60))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			bufs, want = append(bufs, b), append(want, b...)
		}
		n, err := f.WriteVAt(bufs, 5)
		if err != nil || n != len(want) {
			t.Fatalf("wrote %d of %d: %v", n, len(want), err)
		}
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got, 5); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("read back: %v, equal %v", err, bytes.Equal(got, want))
		}
	})
}

func TestVectoredWriteAndSyncAllocateNothing(t *testing.T) {
	f, err := OS().OpenFile(filepath.Join(t.TempDir(), "f"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bufs := [][]byte{make([]byte, 61), make([]byte, 4096), make([]byte, 4096)}
	if n := testing.AllocsPerRun(200, func() {
		if _, err := f.WriteVAt(bufs, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.SyncData(); err != nil {
			t.Fatal(err)
		}
	}); n > 2 { // 0, but the race detector makes the pool forget a quarter of what it is given
		t.Fatalf("%v allocations", n)
	}
}

func TestTruncateCutsAndGrowsWithZeros(t *testing.T) {
	both(t, func(t *testing.T, fs FS, dir string) {
		path := fs.PathJoin(dir, "t")
		write(t, fs, path, "0123456789", false)
		f, err := fs.OpenFile(path, false)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, size := range []int64{4, 6} {
			if err := f.Truncate(size); err != nil {
				t.Fatal(err)
			}
		}
		if got := content(t, fs, path); got != "0123\x00\x00" {
			t.Fatalf("content %q", got)
		}
		if n, err := f.ReadAt(make([]byte, 10), 0); n != 6 || err != io.EOF {
			t.Fatalf("short read gives %d, %v", n, err)
		}
	})
}

func TestDirectoriesListRenameAndRemove(t *testing.T) {
	both(t, func(t *testing.T, fs FS, dir string) {
		sub := fs.PathJoin(dir, "x", "y")
		if err := MkdirAllSync(fs, sub); err != nil {
			t.Fatal(err)
		}
		write(t, fs, fs.PathJoin(sub, "f"), "1", false)
		if err := fs.Remove(sub); err == nil {
			t.Fatal("removed a directory with a file in it")
		}
		if err := fs.Rename(sub, fs.PathJoin(dir, "z")); err != nil {
			t.Fatal(err)
		}
		if got := content(t, fs, fs.PathJoin(dir, "z", "f")); got != "1" {
			t.Fatalf("content %q", got)
		}
		names, err := fs.List(dir)
		if err != nil || len(names) != 2 {
			t.Fatalf("list %v, %v", names, err)
		}
		if err := errors.Join(fs.RemoveAll(fs.PathJoin(dir, "z")), fs.RemoveAll(fs.PathJoin(dir, "none"))); err != nil {
			t.Fatal(err)
		}
		if there, err := Exists(fs, fs.PathJoin(dir, "z")); there || err != nil {
			t.Fatalf("there %v, %v", there, err)
		}
	})
}

func TestClosedFileIsAnError(t *testing.T) {
	both(t, func(t *testing.T, fs FS, dir string) {
		f, err := fs.OpenFile(fs.PathJoin(dir, "c"), true)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, os.ErrClosed) {
			t.Fatalf("write: %v", err)
		}
		if _, err := f.WriteVAt([][]byte{{1}, {2}}, 0); !errors.Is(err, os.ErrClosed) {
			t.Fatalf("vectored write: %v", err)
		}
	})
}

func TestWriteFileAtomicLeavesOldOrNewContentAtEveryFailure(t *testing.T) {
	for step := 0; ; step++ {
		mem := NewCrashable()
		if err := WriteFileAtomic(mem, "/f", []byte("old")); err != nil {
			t.Fatal(err)
		}
		calls := 0
		fs := NewFault(mem, func(c Call) error {
			calls++
			if calls-1 == step {
				return errors.New("planted")
			}
			return nil
		})
		err := WriteFileAtomic(fs, "/f", []byte("new!"))
		for seed := range uint64(8) {
			got := content(t, mem.CrashClone(CrashConfig{Seed: seed, UnsyncedPercent: 50}), "/f")
			if got != "old" && got != "new!" || err == nil && got != "new!" {
				t.Fatalf("step %d seed %d: content %q after error %v", step, seed, got, err)
			}
		}
		if err == nil {
			if step < 5 {
				t.Fatalf("only %d steps could fail", step)
			}
			return
		}
	}
}

func TestFdIsValidOnlyForRealFiles(t *testing.T) {
	f, err := OS().OpenFile(filepath.Join(t.TempDir(), "f"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := NewCrashable().OpenFile("f", true)
	if err != nil {
		t.Fatal(err)
	}
	if f.Fd() == InvalidFd || m.Fd() != InvalidFd {
		t.Fatalf("fd %d of a real file, %d in memory", f.Fd(), m.Fd())
	}
}

func TestShortWriteFaultLetsAPrefixThrough(t *testing.T) {
	mem := NewCrashable()
	fs := NewFault(mem, func(c Call) error {
		if c.Op == OpWrite {
			return &ShortWrite{N: 5, Err: ErrNoSpace}
		}
		return nil
	})
	f, err := fs.OpenFile("/f", true)
	if err != nil {
		t.Fatal(err)
	}
	n, err := f.WriteVAt([][]byte{[]byte("abc"), []byte("defg")}, 0)
	if n != 5 || !errors.Is(err, ErrNoSpace) {
		t.Fatalf("%d, %v", n, err)
	}
	if got := content(t, mem, "/f"); got != "abcde" {
		t.Fatalf("content %q", got)
	}
}

func TestFullDiskTakesWhatFitsAndSpaceComesBack(t *testing.T) {
	fs := NewCrashable()
	fs.SetSpace(10)
	f, err := fs.OpenFile("/f", true)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.WriteAt(make([]byte, 16), 0); n != 10 || !errors.Is(err, ErrNoSpace) {
		t.Fatalf("%d, %v", n, err)
	}
	if err := f.Truncate(2); err != nil {
		t.Fatal(err)
	}
	if n, err := f.WriteAt(make([]byte, 8), 2); n != 8 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if err := fs.Remove("/f"); err != nil {
		t.Fatal(err)
	}
	if u, err := fs.GetDiskUsage("/"); err != nil || u.AvailBytes != 10 {
		t.Fatalf("%+v, %v", u, err)
	}
}

func TestPebbleRunsOnTheMemoryTwinAndSurvivesPowerCuts(t *testing.T) {
	fs := NewCrashable()
	db, err := pebble.Open("/kv", &pebble.Options{FS: fs, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	synced := 0
	for i := range 200 {
		sync := i%10 == 9
		if err := db.Set([]byte{byte(i)}, bytes.Repeat([]byte{byte(i)}, 100), &pebble.WriteOptions{Sync: sync}); err != nil {
			t.Fatal(err)
		}
		if sync {
			synced = i + 1
		}
		if i == 100 {
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if i%37 != 0 {
			continue
		}
		for seed := range uint64(3) {
			checkKeys(t, fs.CrashClone(CrashConfig{Seed: seed, UnsyncedPercent: 50}), synced)
		}
		checkKeys(t, fs.CrashClone(CrashConfig{}), synced)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	checkKeys(t, fs.CrashClone(CrashConfig{}), 200)
}

func checkKeys(t *testing.T, fs FS, synced int) {
	t.Helper()
	db, err := pebble.Open("/kv", &pebble.Options{FS: fs, Logger: quiet{}})
	if err != nil {
		t.Fatalf("reopen after a power cut with %d synced keys: %v", synced, err)
	}
	defer db.Close()
	for i := range synced {
		v, closer, err := db.Get([]byte{byte(i)})
		if err != nil || len(v) != 100 {
			t.Fatalf("synced key %d: %v", i, err)
		}
		closer.Close()
	}
}

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, a ...any) { panic(f) }
