package endtoend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gopherlog/bench/replicas"
)

// held compares what the nodes have on disk of topic t.
func (c *cluster) held(t *testing.T, wait time.Duration) *replicas.Report {
	t.Helper()
	var nodes []replicas.Node
	for i, d := range c.dirs {
		nodes = append(nodes, replicas.Node{ID: i + 1, Data: d})
	}
	r, err := replicas.Read(t.Context(), nodes, func(topic string) bool { return topic == "t" }, replicas.Limits{Whole: 1 << 30, Time: patience, Patience: wait})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What brokers write is what the harness reads: replicas agree to the byte, and one byte that is another at one node is found there.
func TestTheHarnessFindsAByteThatOneReplicaHasOtherwise(t *testing.T) {
	c := newCluster(t)
	must(t, "mqclient", "topic", "create", "-addr", c.addrs[0], "-topic", "t", "-partitions", "1", "-replication-factor", "3")
	c.produce(t, 300)
	r := c.held(t, patience)
	var batches int64
	for _, p := range r.Partitions {
		batches += p.Whole
		if p.Different != 0 || len(p.Behind()) != 0 || len(p.Copies) != 3 || p.Batches != p.Whole {
			t.Errorf("honest nodes: %+v", p)
		}
	}
	if len(r.Partitions) != 1 || batches == 0 {
		t.Fatalf("%+v", r)
	}
	segments, err := filepath.Glob(filepath.Join(c.dirs[1], "topics", "t-*", "00000000000000000000.log"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	flip(t, segments[0])
	for _, p := range c.held(t, 0).Partitions {
		if p.Different != 1 || p.Differences[0].Node != 2 || p.Differences[0].Offset != 0 || p.Differences[0].Kind != replicas.Damaged {
			t.Errorf("a flipped byte at node 2: %+v", p)
		}
	}
	r2 := try(t, "", "mqvalidate", c.dirs[1])
	if r2.code != 1 || !strings.Contains(r2.out, "CRC-32C") {
		t.Errorf("mqvalidate ends with %d: %s", r2.code, r2.out)
	}
}

// flip turns one bit of the first batch's records.
func flip(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	const at = 61 + 3 // within the first record
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}
