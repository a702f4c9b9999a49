package replica

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gopherlog/cluster/rpc"
	"gopherlog/engine/kv"
	"gopherlog/engine/log"
	"gopherlog/engine/vfs"
)

// BenchmarkFailover measures from the death of a node that leads all groups to
// the moment when another serves them all, with the dead node's groups asked to
// campaign at once, on real files.
func BenchmarkFailover(b *testing.B) {
	for _, groups := range []int{16, 256} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			var total time.Duration
			for range b.N {
				total += failover(b, groups)
			}
			b.ReportMetric(float64(total.Milliseconds())/float64(b.N), "ms/failover")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func failover(b *testing.B, groups int) time.Duration {
	r := newBareRig(b, 3, func(o *rigOptions) { o.fabric = newSockets(b) })
	dir := b.TempDir()
	for _, x := range r.nodes {
		x.openNode()
		x.db.Close()
		var err error
		x.db, err = kv.Open(kv.Config{FS: vfs.OS(), Dir: filepath.Join(dir, x.id.String(), "kv")})
		r.must(err)
	}
	defer r.close()
	gs := make([][]*Group, 3)
	var mu sync.Mutex
	var closers []func()
	defer func() {
		for _, c := range closers {
			c()
		}
	}()
	var wg sync.WaitGroup
	for i, x := range r.nodes {
		gs[i] = make([]*Group, groups)
		for k := range groups {
			wg.Go(func() {
				id := rpc.GroupID{Topic: [16]byte{77}, Partition: int32(k)}
				l, _, err := log.Open(log.Config{FS: vfs.OS(), Dir: filepath.Join(dir, x.id.String(), fmt.Sprint("g-", k)), Sidecar: Sidecar(x.db, id), TopicID: id.Topic, Partition: int32(k)})
				if err != nil {
					b.Error(err)
					return
				}
				g, err := Open(Config{ID: id, Self: x.self, Bootstrap: r.servers, Log: l, KV: x.db, Node: x.node, FSM: newTestFSM(), BootID: "b"})
				if err != nil {
					b.Error(err)
					return
				}
				gs[i][k] = g
				mu.Lock()
				closers = append(closers, func() { g.Close(context.Background()); l.Close() })
				mu.Unlock()
			})
		}
	}
	wg.Wait()
	lead := func(node int) time.Duration {
		begin := time.Now()
		for _, g := range gs[node] {
			_ = g.Campaign()
		}
		r.eventually("all groups are led", func() bool {
			for _, g := range gs[node] {
				if !g.Status().Ready {
					return false
				}
			}
			return true
		})
		return time.Since(begin)
	}
	lead(0)
	r.net.isolate(r.nodes[0].id)
	return lead(1)
}
