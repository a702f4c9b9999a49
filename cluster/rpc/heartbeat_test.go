package rpc_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

// The library's fast path changes a group's term on the transport's goroutine
// while the group appends. It must never be called.
func TestHeartbeatsGoThroughTheConsumerNeverTheFastPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, rpc.GroupOptions{Bulk: true})
		g2 := n[2].Group(testTopic, server2, nil, rpc.GroupOptions{Bulk: true})
		g2.SetHeartbeatHandler(func(raft.RPC) { t.Error("fast path called") })
		got := make(chan any, 1)
		defer answerWith(g2, func(cmd any) (any, error) {
			got <- cmd
			return success(cmd.(*raft.AppendEntriesRequest)), nil
		})()
		if _, err := send(g1, server2, heartbeat(3)); err != nil {
			t.Fatal(err)
		}
		a := (<-got).(*raft.AppendEntriesRequest)
		if a.Term != 3 || string(a.Addr) != string(server1) || string(a.ID) != string(server1) || len(a.Entries) != 0 {
			t.Errorf("heartbeat arrived as %+v", a)
		}
	})
}

func TestHeartbeatsOfManyGroupsShareOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		const groups = 100
		done := make(chan error, groups)
		time.Sleep(time.Second)
		start := time.Now()
		for i := range groups {
			id := rpc.GroupID{Partition: int32(i + 1)}
			g1 := n[1].Group(id, server1, nil, rpc.GroupOptions{Bulk: true})
			g2 := n[2].Group(id, server2, nil, rpc.GroupOptions{Bulk: true})
			defer answerWith(g2, func(cmd any) (any, error) { return success(cmd.(*raft.AppendEntriesRequest)), nil })()
			go func() {
				_, err := send(g1, server2, heartbeat(1))
				done <- err
			}()
		}
		for range groups {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); took != 50*time.Millisecond {
			t.Errorf("heartbeats answered after %v, want one window of 50ms", took)
		}
	})
}

func TestHeartbeatOfTheFollowedLeaderIsAnsweredWhileTheGroupIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, rpc.GroupOptions{Bulk: true})
		g2 := n[2].Group(testTopic, server2, nil, rpc.GroupOptions{Bulk: true})
		stop := answerWith(g2, func(cmd any) (any, error) { return success(cmd.(*raft.AppendEntriesRequest)), nil })
		if _, err := send(g1, server2, request(0, entry(1, 10))); err != nil {
			t.Fatal(err)
		}
		stop() // from here on nobody reads the group's requests
		resp, err := send(g1, server2, heartbeat(1))
		if err != nil || !resp.Success || resp.Term != 1 {
			t.Errorf("got %+v, %v; want success in term 1", resp, err)
		}
		if _, err := send(g1, server2, heartbeat(2)); !errors.Is(err, rpc.ErrTimeout) {
			t.Errorf("heartbeat of a leader that the group does not follow: %v, want to wait for the group", err)
		}
	})
}

// Once a vote in a higher term has left the node, saying "still following"
// would be a lie.
func TestHeartbeatIsNotAnsweredEarlyOnceAHigherTermHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, rpc.GroupOptions{Bulk: true})
		g2 := n[2].Group(testTopic, server2, nil, rpc.GroupOptions{Bulk: true})
		defer answerWith(g1, func(cmd any) (any, error) { return &raft.RequestVoteResponse{Term: 2, Granted: true}, nil })()
		stop := answerWith(g2, func(cmd any) (any, error) { return success(cmd.(*raft.AppendEntriesRequest)), nil })
		if _, err := send(g1, server2, request(0, entry(1, 10))); err != nil {
			t.Fatal(err)
		}
		stop()
		vote := &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte(server2), Addr: []byte(server2)}, Term: 2}
		if err := g2.RequestVote(server1.Raft(), server1.Address(), vote, &raft.RequestVoteResponse{}); err != nil {
			t.Fatal(err)
		}
		if resp, err := send(g1, server2, heartbeat(1)); err == nil {
			t.Errorf("got %+v for a heartbeat of term 1 after a vote request of term 2", resp)
		}
	})
}

func TestHeartbeatsAreDroppedWhenTheGroupDoesNotKeepUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, rpc.GroupOptions{Bulk: true})
		g2 := n[2].Group(testTopic, server2, nil, rpc.GroupOptions{Bulk: true})
		var last error
		for i := range 200 {
			_, last = send(g1, server2, heartbeat(uint64(i+1)))
			if errors.Is(last, rpc.ErrBusy) {
				break
			}
		}
		if !errors.Is(last, rpc.ErrBusy) {
			t.Errorf("after 200 heartbeats that nobody read: %v, want %v", last, rpc.ErrBusy)
		}
		if queued := len(g2.Consumer()); queued == 0 || queued > 64 {
			t.Errorf("%d heartbeats wait, want at most half of the queue", queued)
		}
	})
}
