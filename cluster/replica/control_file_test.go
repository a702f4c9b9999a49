package replica

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"gopherlog/cluster/rpc"
	"gopherlog/engine/vfs"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

// mqvalidate reads the same file in its own test: neither may change the format alone.
func TestControlSnapshotFileIsTheOneInTestdata(t *testing.T) {
	fs := vfs.NewCrashable()
	s, err := openFileSnapshots(fs, "control")
	if err != nil {
		t.Fatal(err)
	}
	sink, err := s.Create(1, 30, 2, configuration([]rpc.ServerID{"1.a", "2.b"}), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write([]byte("the state")); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := vfs.ReadFile(fs, s.path(sink.ID()))
	if err != nil {
		t.Fatal(err)
	}
	golden := "testdata/" + sink.ID() + snapshotSuffix
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes differ from %s: %v", len(got), golden, err)
	}
}
