package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gopherlog/bench/load"
	"gopherlog/bench/replicas"
	"gopherlog/bench/scenario"
	"gopherlog/bench/target"
)

// replicaLimits bound what is read of the replicas after a trial. Faults make replicas differ, so that a trial with some is read byte by
// byte; of others the first part is, and of the rest the heads of the batches, so that trials at full load do not take longer for it.
func replicaLimits(c scenario.Cell) replicas.Limits {
	if len(c.Faults) > 0 {
		return replicas.Limits{Whole: 4 << 30, Time: 10 * time.Second, Patience: 10 * time.Second}
	}
	return replicas.Limits{Whole: 64 << 20, Time: 500 * time.Millisecond, Patience: 10 * time.Second}
}

// replicasFile is the evidence, beside the history.
const replicasFile = "replicas.json"

// replicasOf compares what the nodes have on disk of the trial's topics, and of those in which the brokers keep their own affairs; nil
// where there is one replica only, or the disks are not ours.
func (t *oneTrial) replicasOf(ctx context.Context, plan load.Plan, limits replicas.Limits) *replicas.Report {
	if t.cell.Target.System != "gopherlog" || t.cell.Target.ReplicationFactor < 2 {
		return nil
	}
	for _, f := range t.cell.Faults {
		if f.Kind == "partition" && f.For == 0 {
			return &replicas.Report{Unread: []string{"the network was not mended: a replica that is cut off may hold what was never committed"}}
		}
	}
	nodes, unread := running(t.target.Nodes())
	topics := map[string]bool{}
	for _, x := range plan.Topics {
		topics[x.Name] = true
	}
	r, err := replicas.Read(ctx, nodes, func(topic string) bool { return topics[topic] || strings.HasPrefix(topic, "__") }, limits)
	if err != nil {
		unread = append(unread, err.Error())
	}
	r.Unread = append(unread, r.Unread...)
	b, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(filepath.Join(t.dir.History(t.out.ID), replicasFile), b, 0o644)
	}
	if err != nil {
		t.Progress.Note(fmt.Sprintf("what was found of the replicas could not be kept: %v", err))
	}
	return r
}

// running are the nodes that take what they lack: one that is down or frozen may hold what was never committed.
func running(nodes []target.Node) (out []replicas.Node, unread []string) {
	for _, n := range nodes {
		if n.State != target.Running {
			unread = append(unread, fmt.Sprintf("node %d is %s: its replicas were not read", n.ID, n.State))
			continue
		}
		out = append(out, replicas.Node{ID: n.ID, Data: n.Data})
	}
	return out, unread
}
