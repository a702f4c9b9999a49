package rpc_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

func TestPipelineCloseUnblocksItsSender(t *testing.T) {
	bothWays(t, func(t *testing.T, opts rpc.GroupOptions) {
		_, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, opts)
		n[2].Group(testTopic, server2, nil, opts) // nobody reads its requests
		p := openPipeline(t, g1, server2)
		sent := make(chan error, 10)
		go func() {
			for i := range 10 {
				_, err := p.AppendEntries(request(uint64(i), entry(uint64(i+1), 10)), &raft.AppendEntriesResponse{})
				sent <- err
				if err != nil {
					return
				}
			}
		}()
		time.Sleep(time.Second)
		if len(sent) != 4 {
			t.Errorf("%d requests under way, want a depth of 4", len(sent))
		}
		within(t, 0, "close", func() {
			p.Close()
			for range 4 {
				<-sent
			}
			if err := <-sent; !errors.Is(err, rpc.ErrClosed) {
				t.Errorf("blocked sender: %v", err)
			}
		})
	})
}

// The library stops reading answers before it closes the pipeline; completing
// what is under way must not need a reader.
func TestPipelineCompletesWithoutAReader(t *testing.T) {
	bothWays(t, func(t *testing.T, opts rpc.GroupOptions) {
		network, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, opts)
		n[2].Group(testTopic, server2, nil, opts)
		p := openPipeline(t, g1, server2)
		for i := range 4 {
			if _, err := p.AppendEntries(request(uint64(i), entry(uint64(i+1), 10)), &raft.AppendEntriesResponse{}); err != nil {
				t.Fatal(err)
			}
		}
		network.Reset(2)
		time.Sleep(time.Second)
		for range 4 {
			f := <-p.Consumer()
			if f.Error() == nil || f.Response().Success {
				t.Errorf("request %d on a broken link: %v, %+v", f.Request().PrevLogEntry, f.Error(), f.Response())
			}
		}
		p.Close()
	})
}

func TestIdleGroupSendsNothingWhileThePeerIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, n := nodes(t, 2, nil)
		opts := rpc.GroupOptions{Bulk: true, Suppress: true}
		g1 := n[1].Group(testTopic, server1, nil, opts)
		g2 := n[2].Group(testTopic, server2, nil, opts)
		arrived := make(chan *raft.AppendEntriesRequest, 10)
		defer answerWith(g2, func(cmd any) (any, error) {
			a := cmd.(*raft.AppendEntriesRequest)
			arrived <- a
			return success(a), nil
		})()
		p := openPipeline(t, g1, server2)
		defer p.Close()
		ask := func(what string, a *raft.AppendEntriesRequest, travels bool) {
			t.Helper()
			if _, err := p.AppendEntries(a, &raft.AppendEntriesResponse{}); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			select {
			case f := <-p.Consumer():
				if !f.Response().Success || f.Response().Term != a.Term {
					t.Errorf("%s: %+v, %v", what, f.Response(), f.Error())
				}
			case <-time.After(100 * time.Millisecond):
				if travels {
					t.Errorf("%s: no answer", what)
				}
			}
			if got := len(arrived) > 0; got != travels {
				t.Errorf("%s: travelled: %v, want %v", what, got, travels)
			}
			for len(arrived) > 0 {
				<-arrived
			}
		}
		commits := func(a *raft.AppendEntriesRequest, i uint64) *raft.AppendEntriesRequest {
			a.LeaderCommitIndex = i
			return a
		}
		ask("entries", commits(request(0, entry(1, 10), entry(2, 10)), 1), true)
		ask("empty, nothing new", commits(request(2), 1), false)
		ask("empty, new commit index", commits(request(2), 2), true)
		ask("empty, nothing new again", commits(request(2), 2), false)
		network.CutBoth(1, 2)
		time.Sleep(900 * time.Millisecond)
		a := commits(request(2), 2)
		time.Sleep(200 * time.Millisecond) // the last pong is more than a second old
		if _, err := p.AppendEntries(a, &raft.AppendEntriesResponse{}); err == nil {
			select {
			case f := <-p.Consumer():
				if f.Response().Success {
					t.Error("an empty request was answered for a peer that does not answer pings")
				}
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
}

// The group of the cluster's metadata relies on leases: its answers must come
// from its peers.
func TestNothingIsSuppressedUnlessAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		g1 := n[1].Group(rpc.ControlGroup, server1, nil, rpc.GroupOptions{})
		g2 := n[2].Group(rpc.ControlGroup, server2, nil, rpc.GroupOptions{})
		arrived := 0
		defer answerWith(g2, func(cmd any) (any, error) {
			arrived++
			return success(cmd.(*raft.AppendEntriesRequest)), nil
		})()
		p := openPipeline(t, g1, server2)
		defer p.Close()
		for i := range 5 {
			a := request(0, entry(1, 1))
			if i > 0 {
				a = request(1)
			}
			if _, err := p.AppendEntries(a, &raft.AppendEntriesResponse{}); err != nil {
				t.Fatal(err)
			}
			<-p.Consumer()
		}
		if arrived != 5 {
			t.Errorf("%d of 5 requests arrived", arrived)
		}
	})
}

func TestReopenedReplicaIsToldTheCommitIndexAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		opts := rpc.GroupOptions{Bulk: true, Suppress: true}
		g1 := n[1].Group(testTopic, server1, nil, opts)
		serve := func(cmd any) (any, error) { return success(cmd.(*raft.AppendEntriesRequest)), nil }
		stop := answerWith(n[2].Group(testTopic, server2, nil, opts), serve)
		p := openPipeline(t, g1, server2)
		defer p.Close()
		first := request(0, entry(1, 1))
		first.LeaderCommitIndex = 1
		if _, err := p.AppendEntries(first, &raft.AppendEntriesResponse{}); err != nil {
			t.Fatal(err)
		}
		<-p.Consumer()
		stop()

		g2 := n[2].Group(testTopic, server2, nil, opts)
		told := make(chan uint64, 10)
		defer answerWith(g2, func(cmd any) (any, error) {
			a := cmd.(*raft.AppendEntriesRequest)
			told <- a.LeaderCommitIndex
			return success(a), nil
		})()
		if _, err := send(g1, server2, heartbeat(1)); err != nil {
			t.Fatal(err)
		}
		<-told // the heartbeat
		again := request(1)
		again.LeaderCommitIndex = 1
		if _, err := p.AppendEntries(again, &raft.AppendEntriesResponse{}); err != nil {
			t.Fatal(err)
		}
		<-p.Consumer()
		if len(told) != 1 {
			t.Error("the reopened replica was not told the commit index")
		}
	})
}
