package partition

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopherlog/engine/log"
	"gopherlog/engine/vfs"
	"gopherlog/txn/producer"
)

var formatDir = flag.String("format-dir", "", "where TestWriteSegmentsForDumpLog leaves its files; empty: a temporary directory")

// TestWriteSegmentsForDumpLog leaves what a live partition with transactions has on disk, for Kafka's dump-log to read
// (scripts/check-format.sh): three segments with the .snapshot and .txnindex files beside them.
func TestWriteSegmentsForDumpLog(t *testing.T) {
	dir := *formatDir
	if dir == "" {
		dir = t.TempDir()
	}
	l := newLedger()
	c := startCluster(t, 1, coordinated(l))
	c.create("t", 1, 1, map[string]string{"segment.bytes": "1048576"})
	c.led("t", 1)
	for id := int64(7); id <= 9; id++ {
		l.begin(id, 1)
	}
	fill := func() {
		for range 11 {
			c.produce("t", 0, batchOf(nil, 1, 100_000))
		}
	}
	c.mustPart(0, part(7, 1, 0, 2)) // 0, aborted
	c.mustPart(0, part(8, 1, 0, 1)) // 2, committed
	c.mustMark(0, producer.Marker{ProducerID: 7, Epoch: 1, CoordinatorEpoch: 9})
	fill()
	c.mustPart(0, part(9, 1, 0, 3)) // aborted in the next segment but one
	c.mustMark(0, producer.Marker{ProducerID: 8, Epoch: 2, CoordinatorEpoch: 9, Commit: true, Version: producer.Version2})
	fill()
	c.mustMark(0, producer.Marker{ProducerID: 9, Epoch: 1, CoordinatorEpoch: 9})
	fill()
	n := c.nodes[0]
	root := n.fs.PathJoin("data", topicsDir, "t-0")
	c.await("the files beside the segments", func() bool {
		names, err := n.fs.List(root)
		n.must(err)
		return count(names, ".snapshot") >= 3 && count(names, ".txnindex") >= 2
	})
	n.stop()
	if rep, err := log.Verify(n.fs, root); err != nil || len(rep.Problems) > 0 || rep.Segments < 4 {
		t.Fatalf("%+v %v", rep, err)
	}
	n.must(os.MkdirAll(dir, 0o755))
	names, err := n.fs.List(root)
	n.must(err)
	for _, name := range names {
		data, err := vfs.ReadFile(n.fs, n.fs.PathJoin(root, name))
		n.must(err)
		if strings.HasSuffix(name, ".snapshot") {
			if _, err := producer.ParseSnapshot(data); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		n.must(os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
}

func count(names []string, ext string) (n int) {
	for _, name := range names {
		if strings.HasSuffix(name, ext) {
			n++
		}
	}
	return n
}
