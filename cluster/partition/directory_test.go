package partition

import (
	"errors"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/kv"
	"gopherlog/engine/vfs"
)

func onDisk(t *testing.T) (*Manager, *vfs.CrashFS) {
	fs := vfs.NewCrashable()
	db, err := kv.Open(kv.Config{FS: fs, Dir: "d/kv"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	cfg := Config{FS: fs, KV: db, DataDir: "d"}.WithDefaults()
	return &Manager{cfg: cfg, logger: cfg.Logger, node: 1}, fs
}

func topicID(b byte) (id meta.TopicID) {
	id[0], id[15] = b, b
	return id
}

func exists(t *testing.T, fs vfs.FS, path string) bool {
	t.Helper()
	_, err := fs.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestNothingIsCreatedOrSetAsideByAnOldImage(t *testing.T) {
	m, fs := onDisk(t)
	key := slotKey{topicID(1), 0}
	dir := m.dir("orders", 0)
	if _, err := m.prepare(dir, key, false); !errors.Is(err, errNotYet) || exists(t, fs, dir) {
		t.Fatalf("%v", err)
	}
	if fresh, err := m.prepare(dir, key, true); !fresh || err != nil {
		t.Fatalf("%v %v", fresh, err)
	}
	if fresh, err := m.prepare(dir, key, false); fresh || err != nil {
		t.Fatalf("reopening needs no current image: %v %v", fresh, err)
	}
	other := slotKey{topicID(2), 0}
	if _, err := m.prepare(dir, other, false); !errors.Is(err, errNotYet) {
		t.Fatalf("%v", err)
	}
	if id, err := readMetadata(fs, dir); err != nil || id != key.id {
		t.Fatalf("the directory was touched: %x %v", id, err)
	}
}

func TestAnOldImageThatNamesTheDiskBeforeThisOneCondemnsNothing(t *testing.T) {
	m, _ := onDisk(t)
	m.cfg.Self = "1.new"
	topic := &meta.Topic{Name: "orders", ID: topicID(1), Partitions: []meta.PartitionInfo{{Replicas: []meta.NodeID{1}, Servers: []rpc.ServerID{"1.old"}}}}
	if _, err := m.open(topic, 0, false); !errors.Is(err, errNotYet) {
		t.Fatalf("by an image that may be old: %v", err)
	}
	if _, err := m.open(topic, 0, true); !errors.Is(err, errLost) {
		t.Fatalf("by the current image: %v", err)
	}
}

func TestARecreatedTopicDoesNotGetTheOldOnesData(t *testing.T) {
	m, fs := onDisk(t)
	old, key := slotKey{topicID(1), 0}, slotKey{topicID(2), 0}
	dir := m.dir("orders", 0)
	if _, err := m.prepare(dir, old, true); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFileAtomic(fs, fs.PathJoin(dir, "00000000000000000000.log"), []byte("old")); err != nil {
		t.Fatal(err)
	}
	if fresh, err := m.prepare(dir, key, true); !fresh || err != nil {
		t.Fatalf("%v %v", fresh, err)
	}
	if exists(t, fs, fs.PathJoin(dir, "00000000000000000000.log")) {
		t.Fatal("the old topic's data is in the new one's directory")
	}
	if id, err := readMetadata(fs, dir); err != nil || id != key.id {
		t.Fatalf("%x %v", id, err)
	}
}

func TestAVanishedDirectoryDoesNotComeBackEmpty(t *testing.T) {
	m, fs := onDisk(t)
	key := slotKey{topicID(1), 0}
	dir := m.dir("orders", 0)
	if _, err := m.prepare(dir, key, true); err != nil {
		t.Fatal(err)
	}
	if err := m.mark(key); err != nil { // its log was opened
		t.Fatal(err)
	}
	if err := fs.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := m.prepare(dir, key, true); !errors.Is(err, errVanished) {
		t.Fatalf("%v", err)
	}
}

func TestACrashWhileCreatingIsFinishedAtTheNextStart(t *testing.T) {
	m, fs := onDisk(t)
	dir := m.dir("orders", 0)
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if fresh, err := m.prepare(dir, slotKey{topicID(1), 0}, true); !fresh || err != nil {
		t.Fatalf("%v %v", fresh, err)
	}
}

// A power cut between any two steps of a creation leaves what the next start goes on with.
func TestAPowerCutWhileCreatingManyIsFinishedAtTheNextStart(t *testing.T) {
	m, fs := onDisk(t)
	const partitions = 20
	errs := make([]error, partitions)
	parallel(partitions, partitions, func(i int) {
		_, errs[i] = m.prepare(m.dir("orders", int32(i)), slotKey{topicID(1), int32(i)}, true)
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	left := fs.CrashClone(vfs.CrashConfig{})
	for i := range int32(partitions) {
		if id, err := readMetadata(left, m.dir("orders", i)); err != nil || id != topicID(1) {
			t.Errorf("partition %d: %x, %v", i, id, err)
		}
	}
}

func TestWhoAsksForASyncGetsOneThatBeganLater(t *testing.T) {
	var all together
	var began, ended atomic.Int64
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 20 {
				before := began.Load()
				err := all.sync(func() error {
					n := began.Add(1)
					runtime.Gosched()
					ended.Store(n)
					return nil
				})
				if ended.Load() <= before || err != nil {
					t.Errorf("%d had begun, then %d had ended: %v", before, ended.Load(), err)
				}
			}
		})
	}
	wg.Wait()
	if err := all.sync(func() error { return os.ErrClosed }); err != os.ErrClosed {
		t.Errorf("got %v", err)
	}
	t.Logf("%d syncs for %d calls", began.Load(), 50*20)
}

func TestFilesWithoutAnOwnerAreNotTaken(t *testing.T) {
	m, fs := onDisk(t)
	dir := m.dir("orders", 0)
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFileAtomic(fs, fs.PathJoin(dir, "00000000000000000000.log"), []byte("whose?")); err != nil {
		t.Fatal(err)
	}
	if _, err := m.prepare(dir, slotKey{topicID(1), 0}, true); !errors.Is(err, errNoMetadata) {
		t.Fatalf("%v", err)
	}
}

func TestSweepRemovesWhatTheImageDoesNotKnow(t *testing.T) {
	m, fs := onDisk(t)
	for i, name := range []string{"orders", "users"} {
		if _, err := m.prepare(m.dir(name, 0), slotKey{topicID(byte(i + 1)), 0}, true); err != nil {
			t.Fatal(err)
		}
	}
	left := "d/topics/gone-0.00" + deletedSuffix
	if err := fs.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	m.sweep(&meta.Image{})
	for _, dir := range []string{m.dir("orders", 0), m.dir("users", 0), left} {
		if exists(t, fs, dir) {
			t.Errorf("%s is still there", dir)
		}
	}
	if _, err := m.prepare(m.dir("orders", 0), slotKey{topicID(1), 0}, true); err != nil {
		t.Fatalf("what was swept is forgotten entirely: %v", err)
	}
}

// A topic's name may have 249 bytes, which leaves no room for what is put behind it.
func TestADirectoryWithALongNameIsSetAside(t *testing.T) {
	fs, root := vfs.OS(), t.TempDir()
	long, seen := strings.Repeat("x", 249), map[string]bool{}
	for _, name := range []string{dirName("orders", 0), dirName(long, 0), dirName(long, 1), dirName(long, 9999)} {
		dir := fs.PathJoin(root, name)
		if err := fs.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		aside, err := setAside(fs, dir, topicID(1))
		if err != nil || !strings.HasSuffix(aside, deletedSuffix) || seen[aside] || exists(t, fs, dir) || !exists(t, fs, aside) {
			t.Errorf("%s: set aside as %s, %v", name, aside, err)
		}
		seen[aside] = true
	}
}

func TestMetadataOfAnotherVersionIsRefusedAsAVersion(t *testing.T) {
	if _, err := parseMetadata("f", "version: 7\ntopic_id: x\n"); err == nil || err.Error() != `f: version "7" is not supported, want 0` {
		t.Fatalf("%v", err)
	}
	for _, bad := range []string{"", "version: 0\n", "version: 0\ntopic_id: ?\n", "version: 0\ntopic_id: AAAA\n"} {
		if _, err := parseMetadata("f", bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// What an older topic of the same name left must be gone before the name is used: its files would be read as the new one's.
func TestADirectoryThatCannotBeSetAsideIsNotTakenOver(t *testing.T) {
	m, fs := onDisk(t)
	old, fresh := slotKey{topicID(1), 0}, slotKey{topicID(2), 0}
	dir := m.dir("orders", 0)
	if _, err := m.prepare(dir, old, true); err != nil {
		t.Fatal(err)
	}
	refusal := errors.New("disk says no")
	var lines counting
	m.logger = slog.New(slog.NewTextHandler(&lines, nil))
	m.cfg.FS = vfs.NewFault(fs, func(c vfs.Call) error {
		if c.Op == vfs.OpRename {
			return refusal
		}
		return nil
	})
	for range 3 {
		if _, err := m.prepare(dir, fresh, true); !errors.Is(err, refusal) {
			t.Fatalf("got %v", err)
		}
	}
	if id, err := readMetadata(fs, dir); err != nil || id != old.id {
		t.Fatalf("the directory belongs to %x now (%v)", id, err)
	}
	if lines != 1 {
		t.Errorf("%d lines in the log about one trouble", lines)
	}
	m.cfg.FS = fs
	if _, err := m.prepare(dir, fresh, true); err != nil {
		t.Fatal(err)
	}
}

// counting counts log lines.
type counting int

func (c *counting) Write(b []byte) (int, error) { *c++; return len(b), nil }
