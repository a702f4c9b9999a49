package rpc_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

// kinds are the two ways in which groups run: as partitions do, and as the
// control group does.
var kinds = map[string]rpc.GroupOptions{
	"partition": {Bulk: true, Suppress: true},
	"control":   {},
}

func withCluster(t *testing.T, conf func(*raft.Config), f func(t *testing.T, c *cluster)) {
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, testTopic, opts, conf)
				defer c.stop()
				f(t, c)
			})
		})
	}
}

func TestThreeNodesReplicate(t *testing.T) {
	withCluster(t, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		for i, size := range []int{1, 100, 16 << 10, 70 << 10, 1 << 20, 3 << 20} {
			c.apply(l, payload(i, size))
		}
		c.converge()
		for _, r := range c.replicas {
			if r == l {
				continue
			}
			eventually(t, fmt.Sprintf("%s holds what the leader holds", r.id), func() bool { // its answers come after it has applied
				got, _ := c.nodes[l.id.Node()].Match(testTopic, r.id)
				return got == l.raft.LastIndex()
			})
		}
	})
}

// The library ships 64 entries per poke of its replication goroutine and then
// waits for its commit timeout.
func TestBurstOfSmallEntriesCommitsWithoutWaitingForTheCommitTimeout(t *testing.T) {
	slow := func(c *raft.Config) { c.CommitTimeout, c.BatchApplyCh = 10*time.Second, true }
	withCluster(t, slow, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.apply(l, payload(0, 10))
		time.Sleep(time.Minute) // pipelines are open
		within(t, 200*time.Millisecond, "burst of 2000 entries", func() {
			var last raft.ApplyFuture
			for i := range 2000 {
				last = l.raft.Apply(payload(i, 100), 0)
			}
			if err := last.Error(); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestBurstAboveTheBudgetDrainsInSingleRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, testTopic, rpc.GroupOptions{Bulk: true, Suppress: true, InflightBytes: 512 << 10},
			func(c *raft.Config) { c.CommitTimeout, c.BatchApplyCh = time.Second, true })
		defer c.stop()
		l := c.leader()
		c.apply(l, payload(0, 10))
		time.Sleep(time.Minute)
		within(t, 3*time.Second, "burst of 2 MiB under a budget of 512 KiB", func() {
			var last raft.ApplyFuture
			for i := range 32 {
				last = l.raft.Apply(payload(i, 64<<10), 0)
			}
			if err := last.Error(); err != nil {
				t.Error(err)
			}
		})
		c.converge()
	})
}

func TestEmptyFollowerCatchesUp(t *testing.T) {
	withCluster(t, nil, func(t *testing.T, c *cluster) {
		l, f := c.leader(), c.follower()
		id := f.id.Node()
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
		for i := range 150 {
			c.apply(l, payload(i, 20<<10))
		}
		within(t, 5*time.Second, "catch-up of 3 MB", func() {
			c.startReplica(id, f.log)
			c.converge()
		})
	})
}

// The back-off of the library reaches ten seconds while a peer is down.
func TestFollowerThatWasDownForLongIsServedAtOnce(t *testing.T) {
	withCluster(t, nil, func(t *testing.T, c *cluster) {
		f := c.follower()
		id := f.id.Node()
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
		c.nodes[id].Close()
		c.net.Kill(id)
		for i := range 10 {
			c.apply(c.leader(), payload(i, 100))
			time.Sleep(10 * time.Second)
		}
		within(t, time.Second, "catch-up after two minutes", func() {
			c.startNode(id)
			c.startReplica(id, f.log)
			c.converge()
		})
	})
}

func TestTimeoutNowElectsAtOnce(t *testing.T) {
	calm := func(c *raft.Config) {
		c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 30*time.Second, 30*time.Second, 10*time.Second
	}
	withCluster(t, calm, func(t *testing.T, c *cluster) {
		eventually(t, "links up", func() bool { return c.nodes[2].Alive(1) && c.nodes[2].Alive(3) && c.nodes[3].Alive(2) })
		within(t, 100*time.Millisecond, "first leader", func() {
			if err := c.nodes[2].TimeoutNow(testTopic, c.replicas[2].id); err != nil {
				t.Error(err)
			}
			for c.replicas[2].raft.State() != raft.Leader {
				time.Sleep(time.Millisecond)
			}
		})
		c.apply(c.replicas[2], payload(1, 1))
		eventually(t, "the target holds all", func() bool {
			match, _ := c.nodes[2].Match(testTopic, c.replicas[3].id)
			return match == c.replicas[2].raft.LastIndex()
		})
		within(t, 100*time.Millisecond, "transfer to another node", func() {
			if err := c.nodes[2].TimeoutNow(testTopic, c.replicas[3].id); err != nil {
				t.Error(err)
			}
			for c.replicas[3].raft.State() != raft.Leader {
				time.Sleep(time.Millisecond)
			}
		})
	})
}

func TestStalledLeaderIsReplaced(t *testing.T) {
	withCluster(t, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.apply(l, payload(1, 1))
		c.nodes[l.id.Node()].SetStalled(testTopic, true)
		eventually(t, "another leader", func() bool {
			for _, r := range c.replicas {
				if r != l && r.raft.State() == raft.Leader {
					return true
				}
			}
			return false
		})
		c.nodes[l.id.Node()].SetStalled(testTopic, false)
		c.apply(c.leader(), payload(2, 1))
		c.converge()
	})
}

func TestLeadershipIsStableOnABridge(t *testing.T) {
	withCluster(t, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.apply(l, payload(1, 1))
		time.Sleep(5 * time.Second)
		c.net.CutBoth(l.id.Node(), c.follower().id.Node())
		var last rpc.ServerID
		changes := 0
		for i := range 600 {
			time.Sleep(100 * time.Millisecond)
			if i < 100 {
				continue // it may settle once
			}
			if now := c.leader().id; now != last {
				last = now
				changes++
			}
		}
		if changes > 1 {
			t.Errorf("leadership changed %d times in 50 s", changes-1)
		}
		c.net.Heal()
		c.apply(c.leader(), payload(2, 1))
		c.converge()
	})
}

func TestReplicasAgreeUnderRandomCuts(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rounds := 15
	if testing.Short() {
		rounds = 8
	}
	t.Logf("seed %d", seed)
	withCluster(t, func(c *raft.Config) { c.BatchApplyCh = true }, func(t *testing.T, c *cluster) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		acked := map[string]bool{}
		n := 0
		for range rounds {
			switch a, b := c.ids[rnd.IntN(3)], c.ids[rnd.IntN(3)]; rnd.IntN(5) {
			case 0:
				c.net.Isolate(a)
			case 1:
				c.net.Cut(a, b)
			case 2:
				c.net.CutBoth(a, b)
			case 3:
				c.net.Reset(a)
			case 4:
				c.net.Isolate(c.leader().id.Node())
			}
			futures := map[string]raft.ApplyFuture{}
			for range 40 {
				for _, r := range c.replicas {
					if r.raft.State() != raft.Leader {
						continue
					}
					n++
					b := fmt.Sprintf("<%d>", n)
					futures[b] = r.raft.Apply([]byte(b), time.Second)
				}
				time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
			}
			c.net.Heal()
			for b, f := range futures {
				if f.Error() == nil {
					acked[b] = true
				}
			}
		}
		c.apply(c.leader(), []byte("<end>"))
		c.converge()
		held := string(c.leader().fsm.content())
		seen := map[string]int{}
		for rest := held; rest != ""; {
			i := indexByte(rest, '>')
			seen[rest[:i+1]]++
			rest = rest[i+1:]
		}
		for b := range acked {
			if seen[b] != 1 {
				t.Errorf("acknowledged %s was applied %d times", b, seen[b])
			}
		}
		t.Logf("%d acknowledged of %d", len(acked), n)
	})
}

func indexByte(s string, c byte) int {
	for i := range len(s) {
		if s[i] == c {
			return i
		}
	}
	return len(s) - 1
}
