package endtoend

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// three starts a cluster of three nodes and waits until all are ready. Both slices are by id - 1.
func three(t *testing.T, more ...string) (nodes []*process, addrs []string) {
	t.Helper()
	var rpcs, admins, peers []string
	for i := range 3 {
		addrs, rpcs, admins = append(addrs, freeAddr(t)), append(rpcs, freeAddr(t)), append(admins, freeAddr(t))
		peers = append(peers, fmt.Sprintf("%d@%s", i+1, rpcs[i]))
	}
	for i := range 3 {
		nodes = append(nodes, start(t, nil, append([]string{"-id", fmt.Sprint(i + 1), "-addr", addrs[i], "-rpc", rpcs[i], "-admin", admins[i],
			"-peers", strings.Join(peers, ","), "-data", t.TempDir(), "-log-level", "warn"}, more...)...))
	}
	for _, a := range admins {
		ready(t, a)
	}
	return nodes, addrs
}

// leaders returns the leader of each partition of topic t, as one of the nodes at these addresses tells.
func leaders(ctx context.Context, addrs ...string) (map[int32]int32, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	meta, err := kadm.NewClient(cl).Metadata(ctx, "t")
	if err != nil {
		return nil, err
	}
	out := map[int32]int32{}
	for _, p := range meta.Topics["t"].Partitions {
		out[p.Partition] = p.Leader
	}
	return out, nil
}

// A broker that leads 256 groups is killed, or freezes: each group gets another leader and takes records again.
func TestBrokerThatLeadsHundredsOfGroupsIsReplaced(t *testing.T) {
	perNode := 256
	if testing.Short() {
		perNode = 32
	}
	for name, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "frozen": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) { replaceLeader(t, perNode, sig) })
	}
}

func replaceLeader(t *testing.T, perNode int, sig syscall.Signal) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	nodes, addrs := three(t)
	must(t, "mqclient", "topic", "create", "-addr", addrs[0], "-topic", "t", "-partitions", fmt.Sprint(3*perNode), "-replication-factor", "3")
	const victim = 2
	var before map[int32]int32
	eventually(t, func() (err error) {
		before, err = leaders(ctx, addrs[0])
		return evenly(before, err, perNode)
	})
	if err := nodes[victim-1].cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	rest := []string{addrs[0], addrs[2]}
	eventually(t, func() error {
		now, err := leaders(ctx, rest...)
		if err != nil {
			return err
		}
		for p, id := range now {
			if id < 1 || id == victim {
				return fmt.Errorf("partition %d is led by %d", p, id)
			}
		}
		return nil
	})
	t.Logf("%d groups led again after %v", perNode, time.Since(began))
	produceEverywhere(ctx, t, rest, before)
	t.Logf("and a record in each of %d after %v", len(before), time.Since(began))
}

// evenly says whether each of three nodes leads the same number of partitions.
func evenly(leaders map[int32]int32, err error, perNode int) error {
	count := map[int32]int{}
	for _, id := range leaders {
		count[id]++
	}
	if want := map[int32]int{1: perNode, 2: perNode, 3: perNode}; err == nil && !maps.Equal(count, want) {
		err = fmt.Errorf("leaderships by node %v, want %v", count, want)
	}
	return err
}

func produceEverywhere(ctx context.Context, t *testing.T, addrs []string, partitions map[int32]int32) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var records []*kgo.Record
	for p := range partitions {
		records = append(records, &kgo.Record{Topic: "t", Partition: p, Value: []byte("after")})
	}
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// A node that is left alone, or cut off, lists nodes that nobody reaches; an operator must not take them for healthy.
func TestClusterStatusSaysWhichNodesDoNotAnswer(t *testing.T) {
	nodes, addrs := three(t)
	status := func(what string, ok func(r result) bool) {
		t.Helper()
		var r result
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
			if r = try(t, "", "mqclient", "cluster", "status", "-addr", addrs[2]); ok(r) {
				return
			}
		}
		t.Fatalf("%s, and the status is never right; exit code %d:\n%s%s", what, r.code, r.out, r.err)
	}
	status("all are up", func(r result) bool { return r.code == 0 && strings.Count(r.out, "ready") == 3 })
	eventually(t, func() error { // the one that stays may learn last who is there
		resp, err := dialWire(t, addrs[2]).ask(kmsg.NewPtrDescribeClusterRequest())
		if err != nil {
			return err
		}
		if n := len(resp.(*kmsg.DescribeClusterResponse).Brokers); n != 3 {
			return fmt.Errorf("node 3 knows of %d nodes", n)
		}
		return nil
	})
	kill := func(p *process) { p.cmd.Process.Kill(); <-p.done }
	kill(nodes[0])
	status("one of three is killed", func(r result) bool { return r.code == 1 && strings.Count(r.out, "does not answer") == 1 })
	kill(nodes[1])
	status("two of three are killed", func(r result) bool { return r.code == 1 && strings.Count(r.out, "does not answer") == 2 })
}
