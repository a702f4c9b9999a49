package replica

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gopherlog/cluster/rpc"
	"gopherlog/engine/log"
	"gopherlog/engine/vfs"
)

func TestRandomIsolationLosesAndRepeatsNothing(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	inVirtualTime(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t, 3, smallSegments)
		r.leader()
		rounds := 40
		if testing.Short() {
			rounds = 10
		}
		var acked sync.Map
		var sent atomic.Int64
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for _, x := range r.nodes {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					s := x.g.Status()
					if !s.Ready {
						time.Sleep(time.Millisecond)
						continue
					}
					value := fmt.Sprintf("<%d>%s", sent.Add(1), filler[:50])
					_ = x.g.Propose(&Proposal{Data: batch(1, value), Term: s.Term, Done: func(_ int64, err error) {
						if err == nil {
							acked.Store(value, true)
						}
					}})
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		for range rounds {
			x := r.nodes[rng.IntN(3)]
			r.net.isolate(x.id)
			time.Sleep(time.Duration(50+rng.IntN(400)) * time.Millisecond)
			if rng.IntN(2) == 0 {
				_ = r.nodes[rng.IntN(3)].g.Campaign()
			}
			r.net.heal()
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		}
		close(stop)
		wg.Wait()
		r.leader()
		r.converge()
		r.check()
		want := r.nodes[0].bytesOf()
		for _, x := range r.nodes[1:] {
			if !bytes.Equal(x.bytesOf(), want) {
				t.Errorf("node %d differs from node 1", x.id)
			}
		}
		counts := make(map[string]int)
		for _, m := range regexp.MustCompile(`<\d+>f+`).FindAll(want, -1) {
			counts[string(m)]++
			if counts[string(m)] > 1 {
				t.Errorf("%s was proposed once and is in the log %d times", m, counts[string(m)])
			}
		}
		n := 0
		acked.Range(func(v, _ any) bool {
			n++
			if c := counts[v.(string)]; c != 1 {
				t.Errorf("acknowledged %q is in the log %d times", v, c)
			}
			return true
		})
		t.Logf("%d of %d batches acknowledged", n, sent.Load())
		if n == 0 {
			t.Error("nothing was acknowledged: the test did nothing")
		}
	})
}

func TestPowerLossAtEveryFileOperationKeepsWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	for k := 1; k <= 60; k += 2 {
		powerLossAt(t, k)
	}
}

// powerLossAt cuts the power at the k-th operation on the partition's files
// after the group serves, with every append synced.
func powerLossAt(t *testing.T, k int) {
	t.Helper()
	var f faults
	r := newRig(t, 1, smallSegments, func(o *rigOptions) {
		o.wrapFS, o.syncEach = f.wrap, true
		o.timers = Timers{Heartbeat: 50 * time.Millisecond, Election: 50 * time.Millisecond, Lease: 50 * time.Millisecond, Commit: 20 * time.Millisecond}
	})
	defer r.close()
	x := r.leader()
	x.produce(3, 1, filler)
	var acked, n atomic.Int64
	acked.Store(3)
	var clone *vfs.CrashFS
	var atClone int64
	f.set(x.id, func(vfs.Call) error {
		if n.Add(1) == int64(k) {
			atClone = acked.Load()
			clone = x.disk.CrashClone(vfs.CrashConfig{Seed: uint64(k), UnsyncedPercent: 50})
		}
		return nil
	})
	for i := range 20 {
		if i%5 == 4 {
			o := newPending(nil, x.g.Status().Term)
			o.p.Ctrl = []byte("c")
			r.must(x.g.Propose(o.p))
			o.wait(t)
		}
		x.produce(1, 1, filler)
		acked.Add(1)
	}
	f.set(x.id, nil)
	x.close()
	if clone == nil {
		return // fewer operations than k
	}
	x.disk, x.bootID = clone, "boot-2"
	x.open()
	r.leader()
	if got := x.log.EndOffset(); got < atClone {
		t.Errorf("power lost at operation %d: log ends at %d, %d were acknowledged", k, got, atClone)
	}
	x.produce(1, 1, "after")
	r.check()
}

func TestKilledReplicasComeBackWithEqualLogs(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r := newRig(t, 3, smallSegments)
		for round := range 6 {
			l := r.leader()
			l.produce(30, 1, filler)
			x := r.nodes[round%3]
			x.kill(false, uint64(round))
			x.open()
		}
		r.leader().produce(1, 1, "end")
		r.converge()
		want := r.nodes[0].bytesOf()
		if n := bytes.Count(want, []byte(filler)); n != 180 {
			t.Errorf("the log holds %d batches, 180 were acknowledged", n)
		}
		for _, x := range r.nodes[1:] {
			if !bytes.Equal(x.bytesOf(), want) {
				t.Errorf("node %d differs from node 1", x.id)
			}
		}
		r.check()
	})
}

func TestGroupCostsFewGoroutinesAndLittleMemory(t *testing.T) {
	r := newBareRig(t, 3)
	for _, x := range r.nodes {
		x.openNode()
	}
	const groups = 40
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	started := runtime.NumGoroutine()
	var gs []*Group
	var logs []*log.Log
	for i := range groups {
		id := rpc.GroupID{Topic: [16]byte{77}, Partition: int32(i)}
		for _, x := range r.nodes {
			l, _, err := log.Open(log.Config{FS: x.disk, Dir: fmt.Sprintf("topics/g-%d", i), Sidecar: Sidecar(x.db, id), TopicID: id.Topic, Partition: int32(i)})
			r.must(err)
			g, err := Open(Config{ID: id, Self: x.self, Bootstrap: r.servers, Log: l, KV: x.db, Node: x.node, FSM: newTestFSM(), BootID: "b"})
			r.must(err)
			gs, logs = append(gs, g), append(logs, l)
		}
	}
	t.Cleanup(func() {
		for i, g := range gs {
			g.Close(context.Background())
			logs[i].Close()
		}
		r.close()
	})
	r.eventually("all groups are led", func() bool {
		led := 0
		for i, g := range gs {
			if g.Status().Ready {
				led++
			} else if i%3 == 0 && g.Status().Leader == "" {
				_ = g.Campaign()
			}
		}
		return led == groups
	})
	runtime.GC()
	runtime.ReadMemStats(&after)
	perReplica := float64(runtime.NumGoroutine()-started) / float64(3*groups)
	heap := float64(after.HeapAlloc+after.StackInuse-before.HeapAlloc-before.StackInuse) / float64(3*groups) / 1024
	t.Logf("%.1f goroutines and %.0f KiB a replica", perReplica, heap)
	if perReplica > 12 {
		t.Errorf("%.1f goroutines a replica, want at most 12 on average", perReplica)
	}
	if heap > 256 {
		t.Errorf("%.0f KiB a replica, want at most 256", heap)
	}
}
