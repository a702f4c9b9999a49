package rpc_test

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

// bothWays runs a test over gRPC and over the plain stream.
func bothWays(t *testing.T, f func(t *testing.T, opts rpc.GroupOptions)) {
	for name, opts := range map[string]rpc.GroupOptions{"gRPC": {}, "plain stream": {Bulk: true}} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, opts) }) })
	}
}

func TestRequestArrivesAsItWasSent(t *testing.T) {
	bothWays(t, func(t *testing.T, opts rpc.GroupOptions) {
		_, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, opts)
		g2 := n[2].Group(testTopic, server2, nil, opts)
		var parts []*raft.AppendEntriesRequest
		defer answerWith(g2, func(cmd any) (any, error) {
			a := cmd.(*raft.AppendEntriesRequest)
			parts = append(parts, a)
			return success(a), nil
		})()
		want := request(4,
			entry(5, 10), &raft.Log{Index: 6, Term: 1, Type: raft.LogNoop},
			&raft.Log{Index: 7, Term: 1, Data: []byte("trim"), Extensions: []byte{3}},
			entry(8, 100<<10), &raft.Log{Index: 9, Term: 1, Data: payload(9, 5000), Extensions: payload(9, 3000)},
		)
		want.LeaderCommitIndex = 7
		resp, err := send(g1, server2, want)
		if err != nil || !resp.Success || resp.LastLog != 9 {
			t.Fatalf("answer %+v, %v", resp, err)
		}
		if diff := cmp.Diff([]*raft.AppendEntriesRequest{want}, parts, cmp.Comparer(bytes.Equal)); diff != "" {
			t.Error(diff)
		}
	})
}

// The library commits up to min(leader's commit, last index) even if nobody
// compared the entries in between with the leader's.
func TestCommitIndexStopsAtTheEntriesThatTheRequestChecked(t *testing.T) {
	bothWays(t, func(t *testing.T, opts rpc.GroupOptions) {
		_, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, opts)
		g2 := n[2].Group(testTopic, server2, nil, opts)
		got := make(chan uint64, 10)
		defer answerWith(g2, func(cmd any) (any, error) {
			a := cmd.(*raft.AppendEntriesRequest)
			got <- a.LeaderCommitIndex
			return success(a), nil
		})()
		a := request(2, entry(3, 10), entry(4, 10))
		a.LeaderCommitIndex = 9
		if _, err := send(g1, server2, a); err != nil {
			t.Fatal(err)
		}
		if commit := <-got; commit != 4 {
			t.Errorf("follower is told that %d is committed, the request reaches 4", commit)
		}
	})
}

func TestEntryOfEightMiBTravelsWhole(t *testing.T) {
	bothWays(t, func(t *testing.T, opts rpc.GroupOptions) {
		_, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, opts)
		g2 := n[2].Group(testTopic, server2, nil, opts)
		sum := 0
		var last *raft.Log
		defer answerWith(g2, func(cmd any) (any, error) {
			a := cmd.(*raft.AppendEntriesRequest)
			for _, l := range a.Entries {
				sum += len(l.Data)
				last = l
			}
			return success(a), nil
		})()
		want := entry(2, 8<<20)
		if resp, err := send(g1, server2, request(0, entry(1, 100), want)); err != nil || !resp.Success {
			t.Fatalf("answer %+v, %v", resp, err)
		}
		if sum != 8<<20+100 || !bytes.Equal(last.Data, want.Data) {
			t.Errorf("%d bytes arrived", sum)
		}
	})
}

// On the plain stream a large request is a sequence of complete small ones, so
// that a follower stores the first while the next is under way.
func TestLargeRequestArrivesInPartsWithOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		opts := rpc.GroupOptions{Bulk: true}
		g1 := n[1].Group(testTopic, server1, nil, opts)
		g2 := n[2].Group(testTopic, server2, nil, opts)
		var prevs []uint64
		defer answerWith(g2, func(cmd any) (any, error) {
			a := cmd.(*raft.AppendEntriesRequest)
			prevs = append(prevs, a.PrevLogEntry)
			size := 0
			for i, l := range a.Entries {
				size += len(l.Data)
				if l.Index != a.PrevLogEntry+uint64(i)+1 {
					t.Errorf("entry %d at place %d after %d", l.Index, i, a.PrevLogEntry)
				}
			}
			if size > 1<<20 {
				t.Errorf("part of %d bytes", size)
			}
			return success(a), nil
		})()
		a := request(0)
		for i := range 40 {
			a.Entries = append(a.Entries, entry(uint64(i+1), 100<<10))
		}
		resp, err := send(g1, server2, a)
		if err != nil || !resp.Success || resp.LastLog != 40 {
			t.Fatalf("answer %+v, %v", resp, err)
		}
		if diff := cmp.Diff([]uint64{0, 10, 20, 30}, prevs); diff != "" {
			t.Error(diff)
		}
		if match, _ := n[1].Match(testTopic, server2); match != 40 {
			t.Errorf("match %d, want 40", match)
		}
	})
}

func TestFailedPartAnswersTheWholeRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		opts := rpc.GroupOptions{Bulk: true}
		g1 := n[1].Group(testTopic, server1, nil, opts)
		g2 := n[2].Group(testTopic, server2, nil, opts)
		defer answerWith(g2, func(cmd any) (any, error) {
			a := cmd.(*raft.AppendEntriesRequest)
			if a.PrevLogEntry == 2 {
				return &raft.AppendEntriesResponse{Term: 1, LastLog: 2, NoRetryBackoff: true}, nil
			}
			return success(a), nil
		})()
		a := request(0)
		for i := range 4 {
			a.Entries = append(a.Entries, entry(uint64(i+1), 500<<10))
		}
		resp, err := send(g1, server2, a)
		if err != nil || resp.Success || resp.LastLog != 2 || !resp.NoRetryBackoff {
			t.Errorf("answer %+v, %v; want the failure of the second part", resp, err)
		}
	})
}

func TestUnknownGroupIsRefusedAndNeverCreated(t *testing.T) {
	bothWays(t, func(t *testing.T, opts rpc.GroupOptions) {
		_, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, opts)
		vote := &raft.RequestVoteRequest{Term: 1}
		err := g1.RequestVote(server2.Raft(), server2.Address(), vote, &raft.RequestVoteResponse{})
		if !errors.Is(err, rpc.ErrUnknownGroup) {
			t.Errorf("vote: %v, want %v", err, rpc.ErrUnknownGroup)
		}
		if _, err := send(g1, server2, heartbeat(1)); !errors.Is(err, rpc.ErrUnknownGroup) {
			t.Errorf("heartbeat: %v, want %v", err, rpc.ErrUnknownGroup)
		}
		// Entries wait for the group, so that the library does not back off.
		done := make(chan error, 1)
		go func() {
			_, err := send(g1, server2, request(0, entry(1, 10)))
			done <- err
		}()
		time.Sleep(30 * time.Second)
		select {
		case err := <-done:
			t.Fatalf("entries for a group that the peer does not hold: %v", err)
		default:
		}
		g2 := n[2].Group(testTopic, server2, nil, opts)
		defer answerWith(g2, func(cmd any) (any, error) { return success(cmd.(*raft.AppendEntriesRequest)), nil })()
		within(t, time.Second, "entries once the group is there", func() {
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	})
}

func TestStaleIncarnationIsRefused(t *testing.T) {
	bothWays(t, func(t *testing.T, opts rpc.GroupOptions) {
		_, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, opts)
		n[2].Group(testTopic, rpc.MakeServerID(2, 0xdef), nil, opts)
		if _, err := send(g1, server2, request(0, entry(1, 10))); !errors.Is(err, rpc.ErrStaleServer) {
			t.Errorf("entries: %v, want %v", err, rpc.ErrStaleServer)
		}
		if err := n[1].TimeoutNow(testTopic, server2); !errors.Is(err, rpc.ErrStaleServer) {
			t.Errorf("TimeoutNow: %v, want %v", err, rpc.ErrStaleServer)
		}
	})
}

func TestCloseOfAGroupDetachesOnlyThatGroup(t *testing.T) {
	bothWays(t, func(t *testing.T, opts rpc.GroupOptions) {
		_, n := nodes(t, 2, nil)
		other := rpc.GroupID{Partition: 9}
		g1, o1 := n[1].Group(testTopic, server1, nil, opts), n[1].Group(other, server1, nil, opts)
		g2, o2 := n[2].Group(testTopic, server2, nil, opts), n[2].Group(other, server2, nil, opts)
		serve := func(cmd any) (any, error) { return success(cmd.(*raft.AppendEntriesRequest)), nil }
		defer answerWith(o2, serve)()
		for range 2 { // closing twice is closing once
			if err := errors.Join(g1.Close(), g2.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := send(g1, server2, request(0, entry(1, 10))); !errors.Is(err, rpc.ErrAborted) {
			t.Errorf("closed group: %v", err)
		}
		if resp, err := send(o1, server2, request(0, entry(1, 10))); err != nil || !resp.Success {
			t.Errorf("other group: %+v, %v", resp, err)
		}
	})
}

func TestCloseOfAGroupFailsWhatItDidNotAnswer(t *testing.T) {
	bothWays(t, func(t *testing.T, opts rpc.GroupOptions) {
		_, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, opts)
		g2 := n[2].Group(testTopic, server2, nil, opts)
		done := make(chan error, 2)
		vote := &raft.RequestVoteRequest{Term: 1}
		go func() { done <- g1.RequestVote(server2.Raft(), server2.Address(), vote, &raft.RequestVoteResponse{}) }()
		time.Sleep(500 * time.Millisecond)
		r := <-g2.Consumer() // the group's goroutine holds one request
		if err := g2.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, rpc.ErrUnknownGroup) {
			t.Errorf("unanswered vote: %v, want %v", err, rpc.ErrUnknownGroup)
		}
		r.Respond(&raft.RequestVoteResponse{}, nil) // must not block
	})
}

func TestAbortEndsParkedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, rpc.GroupOptions{Bulk: true})
		time.Sleep(time.Second)
		network.Kill(2)
		eventually(t, "link down", func() bool { return n[1].LinkError(2) != nil })
		done := make(chan error, 3)
		go func() { _, err := send(g1, server2, request(0, entry(1, 10))); done <- err }()
		go func() { _, err := send(g1, server2, heartbeat(1)); done <- err }()
		go func() {
			done <- g1.InstallSnapshot(server2.Raft(), server2.Address(), &raft.InstallSnapshotRequest{}, &raft.InstallSnapshotResponse{}, bytes.NewReader(nil))
		}()
		time.Sleep(20 * time.Second)
		if len(done) != 0 {
			t.Fatalf("a call to a peer that is down ended: %v", <-done)
		}
		within(t, 10*time.Millisecond, "abort", func() {
			g1.Abort()
			for range 3 {
				if err := <-done; err == nil {
					t.Error("aborted call succeeded")
				}
			}
		})
	})
}

func TestStalledGroupNeitherSendsNorAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		opts := rpc.GroupOptions{Bulk: true}
		g1 := n[1].Group(testTopic, server1, nil, opts)
		g2 := n[2].Group(testTopic, server2, nil, opts)
		defer answerWith(g2, func(cmd any) (any, error) { return success(cmd.(*raft.AppendEntriesRequest)), nil })()
		n[1].SetStalled(testTopic, true)
		if _, err := send(g1, server2, heartbeat(1)); !errors.Is(err, rpc.ErrStalled) {
			t.Errorf("heartbeat of a stalled leader: %v", err)
		}
		if _, err := send(g1, server2, request(0, entry(1, 1))); !errors.Is(err, rpc.ErrStalled) {
			t.Errorf("entries of a stalled leader: %v", err)
		}
		n[1].SetStalled(testTopic, false)
		n[2].SetStalled(testTopic, true)
		if _, err := send(g1, server2, heartbeat(1)); !errors.Is(err, rpc.ErrStalled) {
			t.Errorf("heartbeat to a stalled follower: %v", err)
		}
		n[2].SetStalled(testTopic, false)
		if _, err := send(g1, server2, heartbeat(1)); err != nil {
			t.Errorf("after the stall: %v", err)
		}
	})
}
