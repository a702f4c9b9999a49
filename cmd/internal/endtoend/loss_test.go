package endtoend

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// restart kills the nodes with these ids at once and starts them again, as a machine does that lost power.
func (c *cluster) restart(t *testing.T, boot string, kill []int, back []int) {
	t.Helper()
	for _, id := range kill {
		c.nodes[id-1].stop(t, syscall.SIGKILL)
	}
	for _, id := range back {
		c.start(t, id, "-boot-id", boot)
	}
}

// produce writes n lines to topic t and returns when all are acknowledged.
func (c *cluster) produce(t *testing.T, n int) {
	t.Helper()
	r := try(t, strings.Repeat("line\n", n), "mqclient", "produce", "-addr", strings.Join(c.addrs, ","), "-topic", "t", "-timeout", patience.String())
	if r.code != 0 || strings.Count(r.out, "produced to t ") != n {
		t.Fatalf("%d of %d acknowledged: %s", strings.Count(r.out, "produced to t "), n, r.err)
	}
}

// holds waits until topic t gives n records back.
func (c *cluster) holds(t *testing.T, n int) {
	t.Helper()
	want := fmt.Sprintf("-- %d message(s)", n)
	eventually(t, func() error {
		r := try(t, "", "mqclient", "consume", "-addr", strings.Join(c.addrs, ","), "-topic", "t", "-timeout", "30s")
		if !strings.Contains(r.out, want) {
			return fmt.Errorf("want %q, got %q, %s", want, r.out[max(0, len(r.out)-100):], r.err)
		}
		return nil
	})
}

func TestAllNodesComeBackByThemselvesAfterAPowerLoss(t *testing.T) {
	c := newCluster(t)
	must(t, "mqclient", "topic", "create", "-addr", c.addrs[0], "-topic", "t", "-partitions", "3", "-replication-factor", "3")
	c.produce(t, 300)
	c.restart(t, "another boot", []int{1, 2, 3}, []int{1, 2, 3})
	for _, a := range c.admins {
		ready(t, a)
	}
	c.produce(t, 300)
	c.holds(t, 600)
}

func TestTwoOfThreeNodesAfterAPowerLossWaitForTheOperator(t *testing.T) {
	c := newCluster(t)
	must(t, "mqclient", "topic", "create", "-addr", c.addrs[0], "-topic", "t", "-partitions", "3", "-replication-factor", "3")
	c.produce(t, 300)
	c.restart(t, "another boot", []int{1, 2, 3}, []int{1, 2})
	ready(t, c.admins[0])
	ready(t, c.admins[1])
	status := func() result {
		return try(t, "", "mqclient", "cluster", "status", "-addr", c.addrs[0]+","+c.addrs[1], "-timeout", "30s")
	}
	eventually(t, func() error {
		r := status()
		for _, dir := range []string{"topics/t-0", "topics/t-1", "topics/t-2"} {
			if strings.Count(r.out, dir) != 2 {
				return fmt.Errorf("not both replicas of %s are suspect:\n%s%s", dir, r.out, r.err)
			}
		}
		return nil
	})
	r := try(t, "x\n", "mqclient", "produce", "-addr", c.addrs[0]+","+c.addrs[1], "-topic", "t", "-timeout", "2s")
	if r.code == 0 {
		t.Errorf("a record was acknowledged by replicas that may have lost acknowledged ones: %s", r.out)
	}
	if got := must(t, "mqclient", "cluster", "recover", "-addr", c.addrs[0]+","+c.addrs[1], "-after-power-loss"); strings.Count(got, ": 3 replica(s) vote again") != 2 ||
		!strings.Contains(got, "node 3 at "+c.addrs[2]+" does not answer: it was not asked") {
		t.Errorf("recover printed\n%s", got)
	}
	c.produce(t, 300)
	c.start(t, 3, "-boot-id", "another boot")
	ready(t, c.admins[2])
	eventually(t, func() error {
		if r := status(); r.code != 0 {
			return fmt.Errorf("%s%s", r.out, r.err)
		}
		return nil
	})
	c.holds(t, 600)
}

func TestWipedNodeJoinsAnewAndIsRefilledByteForByte(t *testing.T) {
	c := newCluster(t)
	must(t, "mqclient", "topic", "create", "-addr", c.addrs[0], "-topic", "t", "-partitions", "3", "-replication-factor", "3")
	c.produce(t, 500)
	c.nodes[2].stop(t, syscall.SIGKILL)
	if err := os.RemoveAll(c.dirs[2]); err != nil {
		t.Fatal(err)
	}
	c.produce(t, 100)
	c.start(t, 3)
	ready(t, c.admins[2])
	eventually(t, func() error {
		if r := try(t, "", "mqclient", "cluster", "status", "-addr", c.addrs[0], "-timeout", "30s"); r.code != 0 {
			return fmt.Errorf("%s%s", r.out, r.err)
		}
		return nil
	})
	for p := range 3 {
		name := filepath.Join("topics", fmt.Sprintf("t-%d", p), "00000000000000000000.log")
		eventually(t, func() error {
			want, err := os.ReadFile(filepath.Join(c.dirs[0], name))
			if err != nil {
				return err
			}
			got, err := os.ReadFile(filepath.Join(c.dirs[2], name))
			if err == nil && !bytes.Equal(got, want) {
				err = fmt.Errorf("partition %d: %d bytes of %d, or others", p, len(got), len(want))
			}
			return err
		})
	}
	c.produce(t, 100)
	c.holds(t, 700)
}
