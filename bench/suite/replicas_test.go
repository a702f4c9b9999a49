package suite

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gopherlog/bench/check"
	"gopherlog/bench/load"
	"gopherlog/bench/replicas"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/bench/target"
)

// disks is a system of which only the data directories are there.
type disks struct {
	target.External
	nodes []target.Node
}

func (d *disks) Nodes() []target.Node { return d.nodes }

// onDisks is a trial on three nodes, each with one batch in the partition 0 of some topics.
func onDisks(t *testing.T, topics ...string) (*oneTrial, *disks) {
	t.Helper()
	d := &disks{}
	for id := 1; id <= 3; id++ {
		n := target.Node{ID: id, State: target.Running, Data: t.TempDir()}
		for _, topic := range topics {
			dir := filepath.Join(n.Data, "topics", topic+"-0")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%020d.log", 0)), oneBatch(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		d.nodes = append(d.nodes, n)
	}
	tr := &oneTrial{run: &run{dir: &result.Dir{Path: t.TempDir()}}, target: d, outcome: &load.Outcome{}}
	tr.cell.Target.System, tr.cell.Target.ReplicationFactor = "gopherlog", 3
	if err := os.MkdirAll(tr.dir.History(""), 0o755); err != nil {
		t.Fatal(err)
	}
	return tr, d
}

// oneBatch is a record batch of one record, as on disk.
func oneBatch() []byte {
	b := make([]byte, 80)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	b[16] = 2
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// hasty waits for nothing: what tests plant stays.
var hasty = replicas.Limits{Whole: 1 << 20, Time: time.Minute, Patience: -time.Minute}

func TestReplicasOfTheTrialAndOfTheBrokersOwnTopicsAreCompared(t *testing.T) {
	tr, d := onDisks(t, "load", "__two_phase_commit", "of-another-trial")
	plan := load.Plan{Topics: []load.TopicSpec{{Name: "load"}}}
	tr.cell.Faults = []scenario.Fault{{Kind: "kill", For: 1}}
	name := filepath.Join(d.nodes[1].Data, "topics", "__two_phase_commit-0", fmt.Sprintf("%020d.log", 0))
	b := oneBatch()
	b[70] ^= 1
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	r := tr.replicasOf(t.Context(), plan, hasty)
	if len(r.Partitions) != 2 || len(r.Unread) != 0 {
		t.Fatalf("%+v", r)
	}
	for _, p := range r.Partitions {
		if want := map[string]int64{"load": 0, "__two_phase_commit": 1}[p.Topic]; p.Different != want || len(p.Copies) != 3 {
			t.Errorf("%+v", p)
		}
	}
	var kept replicas.Report
	raw, err := os.ReadFile(filepath.Join(tr.dir.History(""), replicasFile))
	if err == nil {
		err = json.Unmarshal(raw, &kept)
	}
	if err != nil || len(kept.Partitions) != 2 {
		t.Errorf("the evidence: %v %+v", err, kept)
	}
	tr.cell.Guarantee, tr.outcome.Drain.Complete = scenario.AtLeastOnce, true
	writeHistory(t, tr)
	if err := tr.judge(plan, r); err != nil || tr.out.Check.Status != check.Violated || !strings.Contains(tr.out.Check.Reasons[0], "A8: 1 batches") {
		t.Errorf("%v %s %q", err, tr.out.Check.Status, tr.out.Check.Reasons)
	}
}

func TestWhoIsDownOrCutOffIsNotHeldAgainstAnybody(t *testing.T) {
	tr, d := onDisks(t, "load")
	plan := load.Plan{Topics: []load.TopicSpec{{Name: "load"}}}
	tr.cell.Faults = []scenario.Fault{{Kind: "kill"}}
	d.nodes[2].State = target.Down
	if err := os.RemoveAll(filepath.Join(d.nodes[2].Data, "topics")); err != nil {
		t.Fatal(err)
	}
	r := tr.replicasOf(t.Context(), plan, hasty)
	if len(r.Partitions) != 1 || len(r.Partitions[0].Copies) != 2 || len(r.Unread) != 1 || r.Unread[0] != "node 3 is down: its replicas were not read" {
		t.Errorf("a node that is down: %+v", r)
	}
	tr.cell.Faults[0].Kind = "partition"
	if r := tr.replicasOf(t.Context(), plan, hasty); len(r.Partitions) != 0 || len(r.Unread) != 1 {
		t.Errorf("a network that is never mended: %+v", r)
	}
	tr.cell.Target.ReplicationFactor = 1
	if r := tr.replicasOf(t.Context(), plan, hasty); r != nil {
		t.Errorf("one replica: %+v", r)
	}
	tr.cell.Target.System, tr.cell.Target.ReplicationFactor = "kafka", 3
	if r := tr.replicasOf(t.Context(), plan, hasty); r != nil {
		t.Errorf("another system: %+v", r)
	}
}
