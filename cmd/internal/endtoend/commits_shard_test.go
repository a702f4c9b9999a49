package endtoend

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	coord "gopherlog/cluster/coordinator"
)

// Many groups of one shard, three copies of its log: a node that takes the shard over has all their offsets at once, and so have all nodes when
// they start again. GOPHERLOG_TEST_BUDGETS=1 commits ten million offsets under a hundred thousand keys.
func TestAShardOfManyGroupsIsTakenOverSoon(t *testing.T) {
	const partitions, conns = 10, 4
	groups, rounds := 40, 5
	if judged() {
		groups, rounds = 10_000, 100
	}
	c := newCluster(t)
	must(t, "mqclient", "topic", "create", "-addr", c.addrs[0], "t", "-partitions", fmt.Sprint(partitions), "-replication-factor", "3")
	names := ofOneShard(groups)
	must(t, "mqclient", "group", "reset", names[0], "-to", "0", "-topic", "t", "-addr", c.addrs[0])
	began := time.Now()
	var wg sync.WaitGroup
	for some := range slices.Chunk(names, (groups+conns-1)/conns) {
		wg.Go(func() {
			for done := 0; done < len(some)*rounds; { // the shard may go to its preferred leader meanwhile
				n, err := dialWire(t, c.addrs[c.coordinatorOf(t, names[0])]).commitAll(some, partitions, rounds, done)
				if done += n; err != nil && !errors.Is(err, kerr.NotCoordinator) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	leader := c.coordinatorOf(t, names[0])
	took := time.Since(began)
	if t.Failed() {
		return
	}
	const most = 128 << 20
	var largest int64
	eventually(t, func() error { // files go a little after the log was trimmed
		largest = 0
		for _, dir := range c.dirs {
			_, one := logBytes(t, dir)
			largest = max(largest, one)
		}
		if largest > most {
			return fmt.Errorf("the log of the shard has %d MiB, want %d at most", largest>>20, most>>20)
		}
		return nil
	})
	commits := groups * partitions * rounds
	budget{what: fmt.Sprintf("log of a shard after %d commits of %d keys", commits, groups*partitions), figure: float64(largest) / (1 << 20), limit: most >> 20,
		unit: "MiB", note: fmt.Sprintf("three nodes, %.0f a second", float64(commits)/took.Seconds())}.show(t)

	began = time.Now()
	c.nodes[leader].stop(t, syscall.SIGKILL)
	next := (leader + 1) % 3
	c.served(t, names, int64(rounds), next, (next+1)%3)
	budget{what: "taken over after the leader was killed, until they are served", figure: time.Since(began).Seconds(), limit: 2, unit: "s", note: "with the election"}.show(t)

	for i := range c.nodes {
		if i != leader {
			c.nodes[i].stop(t, syscall.SIGKILL)
		}
	}
	began = time.Now()
	for id := 1; id <= 3; id++ {
		c.start(t, id)
	}
	c.served(t, names, int64(rounds), 0, 1, 2)
	budget{what: "start of all nodes after SIGKILL, until they are served", figure: time.Since(began).Seconds(), unit: "s", note: "with the elections"}.show(t)
}

// ofOneShard are names of groups that belong to one shard.
func ofOneShard(n int) (names []string) {
	const shards = 16
	want := coord.ShardOf("g-0", shards)
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprintf("g-%d", i); coord.ShardOf(name, shards) == want {
			names = append(names, name)
		}
	}
	return names
}

// commitAll commits the offsets 1, 2, … of all partitions for one group after the other, again and again, and returns how
// many requests were answered before an error. The first of them are left out.
func (c *wire) commitAll(groups []string, partitions int32, rounds, i int) (int, error) {
	return c.pump(1000, func() kmsg.Request {
		if i == len(groups)*rounds {
			return nil
		}
		req := commitOf(groups[i%len(groups)], 0, int64(i/len(groups)+1), "")
		for n := int32(1); n < partitions; n++ {
			p := req.Topics[0].Partitions[0]
			p.Partition = n
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
		}
		i++
		return req
	})
}

// coordinatorOf is the index of the node that coordinates a group.
func (c *cluster) coordinatorOf(t *testing.T, id string) (at int) {
	t.Helper()
	eventually(t, func() error {
		addr, err := coordinator(t, c.addrs[0], 0, id)
		at = slices.Index(c.addrs, addr)
		if err == nil && at < 0 {
			err = fmt.Errorf("%s is nobody's address", addr)
		}
		return err
	})
	return at
}

// served waits until one of the nodes tells the offsets of the first and the last of the groups.
func (c *cluster) served(t *testing.T, groups []string, want int64, nodes ...int) {
	t.Helper()
	for _, id := range []string{groups[0], groups[len(groups)-1]} {
		eventually(t, func() (err error) {
			for _, i := range nodes {
				var got int64
				if got, err = fetched(c.addrs[i], id, 9); err == nil {
					if got != want {
						t.Errorf("%s: offset %d, want %d", id, got, want)
					}
					return nil
				}
			}
			return err
		})
	}
}
