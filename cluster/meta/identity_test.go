package meta

import (
	"errors"
	"strings"
	"testing"

	"gopherlog/cluster/rpc"
	"gopherlog/engine/kv"
	"gopherlog/engine/vfs"
)

func newDir(t *testing.T) *vfs.CrashFS {
	t.Helper()
	fs := vfs.NewCrashable()
	if err := vfs.MkdirAllSync(fs, "data"); err != nil {
		t.Fatal(err)
	}
	return fs
}

func mustRead(t *testing.T, fs vfs.FS, node NodeID) *Identity {
	t.Helper()
	id, err := ReadIdentity(fs, "data", node)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestIdentitySurvivesAPowerCut(t *testing.T) {
	fs := newDir(t)
	id := mustRead(t, fs, 3)
	if id.ClusterID() != "" || id.Incarnation() == 0 || id.ServerID().Node() != 3 {
		t.Fatalf("fresh identity: %q %x %s", id.ClusterID(), id.Incarnation(), id.ServerID())
	}
	founders := []rpc.ServerID{"1.000000000000000a", id.ServerID()}
	fs = fs.CrashClone(vfs.CrashConfig{})
	again := mustRead(t, fs, 3)
	if again.ServerID() != id.ServerID() {
		t.Fatalf("another incarnation after a power cut: %s, was %s", again.ServerID(), id.ServerID())
	}
	if err := again.Adopt("abc", founders); err != nil {
		t.Fatal(err)
	}
	again = mustRead(t, fs.CrashClone(vfs.CrashConfig{}), 3)
	if again.ClusterID() != "abc" || len(again.Founders()) != 2 || again.Founders()[1] != id.ServerID() {
		t.Fatalf("after adopting: %q %v", again.ClusterID(), again.Founders())
	}
	if err := again.Adopt("xyz", nil); !errors.Is(err, ErrForeignCluster) {
		t.Fatalf("adopted a second cluster: %v", err)
	}
}

func TestTwoWipesGiveTwoIncarnations(t *testing.T) {
	a, b := mustRead(t, newDir(t), 1), mustRead(t, newDir(t), 1)
	if a.ServerID() == b.ServerID() {
		t.Fatalf("both disks are %s", a.ServerID())
	}
}

func TestForeignDataDirectoryIsRefusedByName(t *testing.T) {
	good := string((&properties{node: 1, incarnation: 0xabc, cluster: "c", founders: []rpc.ServerID{"1.0000000000000abc"}}).encode())
	for name, c := range map[string]struct{ content, want string }{
		"another node":    {good, "belongs to node 1, and this is node 2"},
		"newer version":   {strings.Replace(good, "gopherlog 1", "gopherlog 2", 1), "format version 2, this program knows version 1"},
		"another program": {"#\n#Thu\nbroker.id=1\nversion=1\n", "belongs to another program"},
		"a flipped bit":   {strings.Replace(good, "cluster.id=c", "cluster.id=d", 1), "damaged"},
		"cut short":       {good[:len(good)-3], "damaged"},
		"empty":           {"", "another program"},
	} {
		fs := newDir(t)
		if err := vfs.WriteFileAtomic(fs, "data/"+PropertiesFile, []byte(c.content)); err != nil {
			t.Fatal(err)
		}
		_, err := ReadIdentity(fs, "data", 2)
		var de *DirError
		if !errors.As(err, &de) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(de.Path, "data") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPartitionsWithoutAnIdentityAreNotAdopted(t *testing.T) {
	fs := newDir(t)
	if err := vfs.MkdirAllSync(fs, "data/topics/orders-0"); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadIdentity(fs, "data", 1); err == nil || !strings.Contains(err.Error(), "move the whole directory away") {
		t.Fatalf("got %v", err)
	}
}

func openKV(t *testing.T, fs vfs.FS) *kv.DB {
	t.Helper()
	db, err := kv.Open(kv.Config{FS: fs, Dir: "data/kv"})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func TestStoreThatLostItsVotesIsRefused(t *testing.T) {
	fs := newDir(t)
	id := mustRead(t, fs, 1)
	db := openKV(t, fs)
	if err := errors.Join(id.bind(db), id.Adopt("abc", nil), id.bind(db), db.Close()); err != nil {
		t.Fatal(err)
	}
	if err := fs.RemoveAll("data/kv"); err != nil {
		t.Fatal(err)
	}
	db = openKV(t, fs)
	if err := mustRead(t, fs, 1).bind(db); err == nil || !strings.Contains(err.Error(), "votes, is lost") {
		t.Errorf("an emptied store: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestStoreOfAnotherIncarnationIsRefused(t *testing.T) {
	fs := newDir(t)
	db := openKV(t, fs)
	defer db.Close()
	if err := mustRead(t, fs, 1).bind(db); err != nil {
		t.Fatal(err)
	}
	if err := fs.Remove("data/" + PropertiesFile); err != nil {
		t.Fatal(err)
	}
	if err := mustRead(t, fs, 1).bind(db); err == nil || !strings.Contains(err.Error(), "belongs to") {
		t.Errorf("a new identity over an old store: %v", err)
	}
}

func FuzzParseProperties(f *testing.F) {
	f.Add([]byte("format=gopherlog 1\n"))
	f.Add((&properties{node: 1, incarnation: 7}).encode())
	f.Add((&properties{node: 1, incarnation: 7, cluster: "c", founders: []rpc.ServerID{"1.07"}}).encode())
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := parseProperties(raw)
		if err != nil {
			return
		}
		if again, err := parseProperties(p.encode()); err != nil || again.node != p.node || again.cluster != p.cluster {
			t.Fatalf("%q does not survive: %v", raw, err)
		}
	})
}
