package rpc_test

import (
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

// BenchmarkIdleGroups holds a thousand groups of three replicas still, with
// calm timers, for a second per iteration, and reports processor time and
// memory of one broker of the three that share this process. The logs are in
// memory: this is what the library and the transport cost.
//
// It needs more iterations than one to say something: -benchtime 10x.
func BenchmarkIdleGroups(b *testing.B) {
	groups := 1000
	if n, err := strconv.Atoi(os.Getenv("IDLE_GROUPS")); err == nil {
		groups = n
	}
	var listeners [3]net.Listener
	peers := map[rpc.NodeID]string{}
	for i := range listeners {
		listeners[i] = loopback(b)
		peers[rpc.NodeID(i+1)] = listeners[i].Addr().String()
	}
	var nodes [3]*rpc.Node
	for i := range nodes {
		nodes[i] = tcpNode(b, rpc.NodeID(i+1), peers, listeners[i])
	}
	var members []raft.Server
	for _, id := range []rpc.ServerID{server1, server2, server3} {
		members = append(members, raft.Server{ID: id.Raft(), Address: id.Address()})
	}
	var stops []func() error
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	for g := range groups {
		id := rpc.GroupID{Topic: [16]byte{1}, Partition: int32(g)}
		for i, n := range nodes {
			stops = append(stops, idleReplica(b, n, id, members, i))
		}
		if err := nodes[g%3].TimeoutNow(id, rpc.MakeServerID(rpc.NodeID(g%3+1), 0xabc)); err != nil {
			b.Fatal(err)
		}
		if g%50 == 49 {
			time.Sleep(50 * time.Millisecond)
		}
	}
	time.Sleep(5 * time.Second) // everybody has found its leader
	var before, after syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	start := time.Now()
	for b.Loop() {
		time.Sleep(time.Second)
	}
	syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	used := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	b.ReportMetric(used.Seconds()/time.Since(start).Seconds()/3, "cores/broker")
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapInuse+m.StackInuse)/3/(1<<20), "MiB/broker")
	b.ReportMetric(float64(runtime.NumGoroutine())/3, "goroutines/broker")
}

func idleReplica(b *testing.B, n *rpc.Node, id rpc.GroupID, members []raft.Server, i int) (stop func() error) {
	store := raft.NewInmemStore()
	t := n.Group(id, rpc.ServerID(members[i].ID), memoryLog{store}, rpc.GroupOptions{Bulk: true, Suppress: true})
	conf := raft.DefaultConfig()
	conf.LocalID = members[i].ID
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = 3*time.Second, 3*time.Second, 2*time.Second
	conf.CommitTimeout = 250*time.Millisecond + rand.N(10*time.Millisecond)
	conf.Logger, conf.NoLegacyTelemetry = hclog.NewNullLogger(), true
	conf.SnapshotInterval, conf.SnapshotThreshold, conf.TrailingLogs = 24*time.Hour, 1<<62, 1<<62
	snaps := raft.NewInmemSnapshotStore()
	if err := raft.BootstrapCluster(conf, store, store, snaps, t, raft.Configuration{Servers: members}); err != nil {
		b.Fatal(err)
	}
	r, err := raft.NewRaft(conf, &machine{}, store, store, snaps, t)
	if err != nil {
		b.Fatal(err)
	}
	return func() error {
		f := r.Shutdown()
		t.Abort()
		return f.Error()
	}
}
