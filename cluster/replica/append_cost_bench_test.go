//go:build linux

package replica

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"gopherlog/cluster/rpc"
	"gopherlog/engine/kv"
	"gopherlog/engine/log"
	"gopherlog/engine/record"
	"gopherlog/engine/vfs"
)

// BenchmarkAppendCost is what a batch of one record costs the processors of three nodes together, on real files and
// sockets: processor time rather than the wall's, since others use the machine, and allocations. With
// together=3 every node leads one group, and one batch of each is under way.
func BenchmarkAppendCost(b *testing.B) {
	for _, together := range []int{1, 3} {
		b.Run(fmt.Sprintf("together=%d", together), func(b *testing.B) {
			r := newBareRig(b, 3, func(o *rigOptions) { o.fabric, o.gentle = newSockets(b), true })
			dir := b.TempDir()
			for _, x := range r.nodes {
				x.openOn(filepath.Join(dir, x.id.String()))
			}
			b.Cleanup(r.close)
			leaders := make([]*Group, together)
			for i := range leaders {
				leaders[i] = openAppendGroup(b, r, dir, i)
			}
			benchmarkAppendCost(b, leaders)
		})
	}
}

// openOn opens the node without its group, with its store in real files.
func (x *rigNode) openOn(dir string) {
	x.openNode()
	x.rig.must(x.db.Close())
	var err error
	x.db, err = kv.Open(kv.Config{FS: vfs.OS(), Dir: filepath.Join(dir, "kv")})
	x.rig.must(err)
}

// openAppendGroup opens group number i on all nodes, led by the i-th, and returns the leader.
func openAppendGroup(b *testing.B, r *rig, dir string, i int) (leader *Group) {
	id := rpc.GroupID{Topic: [16]byte{77}, Partition: int32(i)}
	for k, x := range r.nodes {
		l, _, err := log.Open(log.Config{
			FS: vfs.OS(), Dir: filepath.Join(dir, x.id.String(), fmt.Sprint("g-", i)), Sidecar: Sidecar(x.db, id),
			TopicID: id.Topic, Partition: id.Partition, SegmentBytes: 256 << 20,
		})
		r.must(err)
		g, err := Open(Config{ID: id, Self: x.self, Bootstrap: r.servers, Log: l, KV: x.db, Node: x.node, FSM: newTestFSM(), BootID: "b"})
		r.must(err)
		b.Cleanup(func() { g.Close(context.Background()); l.Close() })
		if k == i%len(r.nodes) {
			leader = g
		}
	}
	tries := 0
	r.eventually("a group is led", func() bool {
		if tries++; tries%200 == 1 {
			_ = leader.Campaign()
		}
		return leader.Status().Ready
	})
	return leader
}

func benchmarkAppendCost(b *testing.B, leaders []*Group) {
	var rec record.Builder
	rec.Append(record.Record{Value: make([]byte, 100)})
	plain := rec.Finish()
	plain.SetBaseOffset(-1)
	done := make(chan error, len(leaders))
	finished := func(_ int64, err error) { done <- err }
	round := func() {
		for _, g := range leaders {
			p := &Proposal{Data: append([]byte(nil), plain...), Term: g.Status().Term, Done: finished}
			if err := g.Propose(p); err != nil {
				b.Fatal(err)
			}
		}
		for range leaders {
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
	}
	for range 300 { // until the library replicates by pipelines
		round()
	}
	before := usedSoFar(b)
	b.ResetTimer()
	for range b.N {
		round()
	}
	b.StopTimer()
	after := usedSoFar(b)
	n := float64(b.N * len(leaders))
	b.ReportMetric(float64(after.cpu-before.cpu)/1000/n, "cpu-us/append")
	b.ReportMetric(float64(after.sleeps-before.sleeps)/n, "sleeps/append")
	b.ReportMetric(float64(after.mallocs-before.mallocs)/n, "mallocs/append")
	b.ReportMetric(float64(after.bytes-before.bytes)/n, "B/append")
}

// used is what the process has used since it began.
type used struct {
	cpu, sleeps    int64 // nanoseconds; threads that went to sleep
	mallocs, bytes uint64
}

func usedSoFar(b *testing.B) used {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return used{u.Utime.Nano() + u.Stime.Nano(), int64(u.Nvcsw), m.Mallocs, m.TotalAlloc}
}
