package rpc_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
	"gopherlog/cluster/rpc/rpctest"
)

func TestForeignClusterIsRefusedByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, func(c *rpc.Config) {
			name := map[rpc.NodeID]string{1: "north", 2: "south"}[c.Node]
			c.ClusterID = func() string { return name }
		})
		time.Sleep(2 * time.Second)
		err := n[1].LinkError(2)
		if !errors.Is(err, rpc.ErrForeignCluster) || !strings.Contains(err.Error(), "north") || !strings.Contains(err.Error(), "south") {
			t.Errorf("link: %v", err)
		}
		if _, err := n[1].Call(t.Context(), 2, "m", nil); !errors.Is(err, rpc.ErrForeignCluster) {
			t.Errorf("call: %v", err)
		}
		if n[1].Alive(2) {
			t.Error("a node of another cluster counts as alive")
		}
	})
}

func TestAnotherNodeAtAnAddressIsRefusedByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := rpctest.New()
		dial := network.Dial(1)
		n1, err := rpc.New(rpc.Config{
			Node: 1, Listen: network.Listen(1), Peers: network.Peers(2),
			Dial: func(ctx context.Context, _ rpc.NodeID, addr string) (c netConn, err error) { return dial(ctx, 3, addr) },
		})
		if err != nil {
			t.Fatal(err)
		}
		n1.Start()
		defer n1.Close()
		startNode(t, network, 3, []rpc.NodeID{1}, func(c *rpc.Config) { c.ClusterID = nil })
		time.Sleep(time.Second)
		if err := n1.LinkError(2); err == nil || !strings.Contains(err.Error(), "this is node 3, not node 2") {
			t.Errorf("link: %v", err)
		}
	})
}

// A fresh node asks its peers for the cluster's name by a typed call; groups
// are served only between nodes that agree on it.
func TestNodeWithoutAClusterMayCallButServesNoGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := map[rpc.NodeID]string{1: "", 2: "test"}
		learned := make(chan string, 1)
		_, n := nodes(t, 2, func(c *rpc.Config) {
			id := c.Node
			c.ClusterID = func() string {
				select {
				case name := <-learned:
					learned <- name
					return name
				default:
				}
				return cluster[id]
			}
		})
		n[2].Handle("cluster", func(context.Context, rpc.NodeID, []byte) ([]byte, error) { return []byte("test"), nil })
		if b, err := n[1].Call(t.Context(), 2, "cluster", nil); err != nil || string(b) != "test" {
			t.Fatalf("call: %q, %v", b, err)
		}
		g1 := n[1].Group(testTopic, server1, nil, rpc.GroupOptions{Bulk: true})
		g2 := n[2].Group(testTopic, server2, nil, rpc.GroupOptions{Bulk: true})
		defer answerWith(g2, func(cmd any) (any, error) { return success(cmd.(*raft.AppendEntriesRequest)), nil })()
		if _, err := send(g1, server2, heartbeat(1)); !errors.Is(err, rpc.ErrUnknownGroup) {
			t.Errorf("heartbeat of a node without a cluster: %v", err)
		}
		learned <- "test"
		within(t, time.Second, "entries once the name is known", func() {
			if resp, err := send(g1, server2, request(0, entry(1, 10))); err != nil || !resp.Success {
				t.Errorf("%+v, %v", resp, err)
			}
		})
	})
}

func TestTypedCallsCarryBodiesAndErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		n[2].Handle("echo", func(_ context.Context, from rpc.NodeID, req []byte) ([]byte, error) {
			if from != 1 {
				t.Errorf("call from node %d", from)
			}
			return req, nil
		})
		n[2].Handle("fail", func(context.Context, rpc.NodeID, []byte) ([]byte, error) { return nil, errors.New("no room on disk") })
		n[2].Handle("slow", func(ctx context.Context, _ rpc.NodeID, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		for _, size := range []int{0, 1, 1 << 20, 5<<20 + 1} {
			got, err := n[1].Call(t.Context(), 2, "echo", payload(size, size+8))
			if err != nil || len(got) != size+8 {
				t.Errorf("echo of %d bytes: %d, %v", size+8, len(got), err)
			}
		}
		if _, err := n[1].Call(t.Context(), 2, "fail", nil); err == nil || err.Error() != "no room on disk" {
			t.Errorf("error came back as %v", err)
		}
		if _, err := n[1].Call(t.Context(), 2, "none", nil); !errors.Is(err, rpc.ErrUnknownMethod) {
			t.Errorf("unknown method: %v", err)
		}
		n[2].Handle("echo", nil)
		if _, err := n[1].Call(t.Context(), 2, "echo", nil); !errors.Is(err, rpc.ErrUnknownMethod) {
			t.Errorf("method that was taken back: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		within(t, 3*time.Second, "call with a deadline", func() {
			if _, err := n[1].Call(ctx, 2, "slow", nil); err == nil {
				t.Error("slow call succeeded")
			}
		})
		n[1].Handle("own", func(_ context.Context, from rpc.NodeID, _ []byte) ([]byte, error) { return []byte(from.String()), nil })
		if b, err := n[1].Call(t.Context(), 1, "own", nil); err != nil || string(b) != "1" {
			t.Errorf("call to itself: %q, %v", b, err)
		}
	})
}

// Short calls share the link: one that is served slowly must not keep others, nor the peer's pings, and a link that breaks ends them at once.
func TestSlowShortCallKeepsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, n := nodes(t, 2, nil)
		n[2].Handle("echo", func(_ context.Context, _ rpc.NodeID, req []byte) ([]byte, error) { return req, nil })
		ended := make(chan error, 100)
		n[2].Handle("slow", func(ctx context.Context, _ rpc.NodeID, _ []byte) ([]byte, error) {
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		})
		answers := make(chan error, 100)
		for range cap(answers) {
			go func() {
				_, err := n[1].Call(t.Context(), 2, "slow", nil)
				answers <- err
			}()
		}
		time.Sleep(time.Second)
		within(t, time.Millisecond, "a call beside slow ones", func() {
			if b, err := n[1].Call(t.Context(), 2, "echo", []byte("x")); err != nil || string(b) != "x" {
				t.Errorf("%q, %v", b, err)
			}
		})
		if !n[1].Alive(2) {
			t.Error("dead beside slow calls")
		}
		within(t, 5*time.Millisecond, "the end of calls to a killed peer", func() {
			network.Kill(2)
			for range cap(answers) {
				if err := <-answers; !errors.Is(err, rpc.ErrDown) {
					t.Errorf("call: %v", err)
				}
			}
		})
		n[2].Close()
		for range cap(ended) {
			<-ended
		}
	})
}

func TestKilledPeerIsDeadAtOnceAndAliveSoonAfterItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, n := nodes(t, 2, nil)
		changes := make(chan bool, 10)
		n[1].OnPeerChange(func(id rpc.NodeID, alive bool) { changes <- alive })
		if !<-changes || !n[1].Alive(2) {
			t.Fatal("first change is not alive")
		}
		time.Sleep(time.Second)
		within(t, 5*time.Millisecond, "verdict on a killed peer", func() {
			network.Kill(2)
			if <-changes {
				t.Error("verdict: alive")
			}
		})
		n[2].Close()
		time.Sleep(time.Minute)
		within(t, 250*time.Millisecond, "verdict on a restarted peer", func() {
			startNode(t, network, 2, []rpc.NodeID{1, 2}, nil)
			if !<-changes {
				t.Error("verdict: dead")
			}
		})
	})
}

func TestSilentPeerIsDeadAfterTheThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, n := nodes(t, 2, nil)
		time.Sleep(10 * time.Second)
		changes := make(chan bool, 10)
		n[1].OnPeerChange(func(id rpc.NodeID, alive bool) { changes <- alive })
		start := time.Now()
		network.Cut(2, 1) // its answers are lost, our pings arrive
		if <-changes {
			t.Fatal("verdict: alive")
		}
		if took := time.Since(start); took < 200*time.Millisecond || took > 300*time.Millisecond {
			t.Errorf("dead after %v, want 300ms since the last pong", took)
		}
		time.Sleep(20 * time.Second)
		network.Heal()
		within(t, time.Second, "reconnection after the cut", func() {
			if !<-changes {
				t.Error("verdict: dead")
			}
		})
	})
}

func TestReportsOfDeathAreToldToTheOthersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, n := nodes(t, 3, nil)
		time.Sleep(time.Second)
		reported := make(chan rpc.NodeID, 10)
		n[2].OnReport(func(about rpc.NodeID) { reported <- about })
		n[2].OnPeerChange(func(about rpc.NodeID, _ bool) { reported <- about })
		network.Kill(1)
		both := map[rpc.NodeID]bool{2: true, 3: true}
		within(t, 10*time.Millisecond, "majority of reports", func() {
			for !maps.Equal(n[2].ReportsDead(1), both) {
				<-reported
			}
		})
		for range 1000 {
			time.Sleep(time.Millisecond)
			if got := n[2].ReportsDead(1); !maps.Equal(got, both) {
				t.Fatalf("a report was taken back: only %v say so", got)
			}
		}
	})
}

// A–B cut while both see C: only A takes B for dead, so no majority does.
func TestBridgeIsNotReportedAsADeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, n := nodes(t, 3, nil)
		time.Sleep(time.Second)
		network.CutBoth(1, 2)
		for range 60 {
			time.Sleep(time.Second)
			if got := n[1].ReportsDead(2); !maps.Equal(got, map[rpc.NodeID]bool{1: true}) {
				t.Fatalf("on node 1, node 2 is reported dead by %v", got)
			}
			if got := n[3].ReportsDead(2); !maps.Equal(got, map[rpc.NodeID]bool{1: true}) {
				t.Fatalf("on node 3, node 2 is reported dead by %v", got)
			}
			if !n[3].Alive(1) || !n[3].Alive(2) {
				t.Fatal("the bridge lost a side")
			}
		}
	})
}

func TestMovedPeerIsDialledAtItsNewAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := rpctest.New()
		dialled := make(chan string, 100)
		dial := network.Dial(1)
		n := startNode(t, network, 1, []rpc.NodeID{1, 2}, func(c *rpc.Config) {
			c.Dial = func(ctx context.Context, to rpc.NodeID, addr string) (netConn, error) {
				dialled <- addr
				return dial(ctx, to, addr)
			}
		})
		startNode(t, network, 2, []rpc.NodeID{1, 2}, nil)
		time.Sleep(time.Second)
		for len(dialled) > 0 {
			<-dialled
		}
		n.SetPeer(2, "elsewhere")
		time.Sleep(time.Second)
		if got := <-dialled; got != "elsewhere" || n.Peers()[2] != "elsewhere" || !n.Alive(2) {
			t.Errorf("dialled %q, alive %v", got, n.Alive(2))
		}
	})
}

func TestCloseBeforeStartAndTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, err := rpc.New(rpc.Config{Node: 1, Peers: map[rpc.NodeID]string{2: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		n.Close()
		n.Start()
		n.Close()
		if _, err := send(n.Group(testTopic, server1, nil, rpc.GroupOptions{}), server2, heartbeat(1)); err == nil {
			t.Error("a closed node sends")
		}
	})
}

func TestConfigNamesEveryMistake(t *testing.T) {
	_, err := rpc.New(rpc.Config{Node: 0, Peers: map[rpc.NodeID]string{-4: "a", 5: ""}})
	for _, want := range []string{"node id is 0", "peer -4", "peer 5"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}
