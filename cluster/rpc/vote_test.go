package rpc_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

func TestVotesAndPreVotesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, rpc.GroupOptions{Bulk: true})
		g2 := n[2].Group(testTopic, server2, nil, rpc.GroupOptions{Bulk: true})
		defer answerWith(g2, func(cmd any) (any, error) {
			switch v := cmd.(type) {
			case *raft.RequestVoteRequest:
				return &raft.RequestVoteResponse{Term: v.Term, Granted: v.LeadershipTransfer && v.LastLogIndex == 8 && string(v.Addr) == string(server1)}, nil
			case *raft.RequestPreVoteRequest:
				return &raft.RequestPreVoteResponse{Term: v.Term, Granted: v.LastLogTerm == 6}, nil
			}
			return nil, errors.New("unexpected")
		})()
		vote := &raft.RequestVoteResponse{}
		err := g1.RequestVote(server2.Raft(), server2.Address(), &raft.RequestVoteRequest{Term: 9, LastLogIndex: 8, LastLogTerm: 7, LeadershipTransfer: true}, vote)
		if err != nil || !vote.Granted || vote.Term != 9 {
			t.Errorf("vote %+v, %v", vote, err)
		}
		pre := &raft.RequestPreVoteResponse{}
		err = g1.(raft.WithPreVote).RequestPreVote(server2.Raft(), server2.Address(), &raft.RequestPreVoteRequest{Term: 9, LastLogTerm: 6}, pre)
		if err != nil || !pre.Granted || pre.Term != 9 {
			t.Errorf("pre-vote %+v, %v", pre, err)
		}
	})
}

func TestSuspectReplicaNeitherVotesNorCampaigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		suspect := true
		g1 := n[1].Group(testTopic, server1, nil, rpc.GroupOptions{})
		g2 := n[2].Group(testTopic, server2, nil, rpc.GroupOptions{Suspect: func() bool { return suspect }})
		all := func(from rpc.GroupTransport, to rpc.ServerID) []error {
			return []error{
				from.RequestVote(to.Raft(), to.Address(), &raft.RequestVoteRequest{Term: 2}, &raft.RequestVoteResponse{}),
				from.RequestPreVote(to.Raft(), to.Address(), &raft.RequestPreVoteRequest{Term: 2}, &raft.RequestPreVoteResponse{}),
			}
		}
		asked := append(all(g1, server2), n[1].TimeoutNow(testTopic, server2), n[2].TimeoutNow(testTopic, server2))
		for i, err := range append(asked, all(g2, server1)...) {
			if !errors.Is(err, rpc.ErrSuspect) {
				t.Errorf("request %d: %v, want %v", i, err, rpc.ErrSuspect)
			}
		}
		if len(g2.Consumer()) != 0 || len(g1.Consumer()) != 0 {
			t.Error("a request reached a group")
		}
		suspect = false
		if err := n[2].TimeoutNow(testTopic, server2); err != nil || len(g2.Consumer()) != 1 {
			t.Errorf("after suspicion ended: %v", err)
		}
	})
}

func TestDrainingReplicaRefusesToCampaignButVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, rpc.GroupOptions{})
		g2 := n[2].Group(testTopic, server2, nil, rpc.GroupOptions{MayCampaign: func() bool { return false }})
		if err := n[1].TimeoutNow(testTopic, server2); !errors.Is(err, rpc.ErrMayNotCampaign) {
			t.Errorf("TimeoutNow: %v", err)
		}
		defer answerWith(g2, func(any) (any, error) { return &raft.RequestVoteResponse{Term: 2, Granted: true}, nil })()
		resp := &raft.RequestVoteResponse{}
		if err := g1.RequestVote(server2.Raft(), server2.Address(), &raft.RequestVoteRequest{Term: 2}, resp); err != nil || !resp.Granted {
			t.Errorf("vote: %+v, %v", resp, err)
		}
	})
}

func TestFollowerLearnsTheLeadersEndAndWhatItAccepted(t *testing.T) {
	bothWays(t, func(t *testing.T, opts rpc.GroupOptions) {
		_, n := nodes(t, 2, nil)
		store := raft.NewInmemStore()
		if err := store.StoreLogs([]*raft.Log{entry(1, 1), entry(2, 1), entry(3, 1)}); err != nil {
			t.Fatal(err)
		}
		type said struct {
			leader      rpc.ServerID
			term, index uint64
		}
		ends, accepted, matched := make(chan said, 9), make(chan said, 9), make(chan said, 9)
		leader, follower := opts, opts
		leader.Matched = func(peer rpc.ServerID, index uint64) { matched <- said{peer, 0, index} }
		follower.LeaderEnd = func(l rpc.ServerID, term, index uint64) { ends <- said{l, term, index} }
		follower.Accepted = func(term, index uint64) { accepted <- said{"", term, index} }
		g1 := n[1].Group(testTopic, server1, memoryLog{store}, leader)
		g2 := n[2].Group(testTopic, server2, nil, follower)
		defer answerWith(g2, func(cmd any) (any, error) { return success(cmd.(*raft.AppendEntriesRequest)), nil })()
		if _, err := send(g1, server2, heartbeat(1)); err != nil {
			t.Fatal(err)
		}
		if got := <-ends; got != (said{server1, 1, 3}) || len(accepted) != 0 {
			t.Errorf("heartbeat: leader's end %+v, %d accepted", got, len(accepted))
		}
		a := request(0, entry(1, 1))
		if _, err := send(g1, server2, a); err != nil {
			t.Fatal(err)
		}
		if got := <-ends; got != (said{server1, 1, 3}) {
			t.Errorf("entries: leader's end %+v", got)
		}
		if got := <-accepted; got != (said{"", 1, 3}) {
			t.Errorf("accepted %+v, want all three: the request was filled", got)
		}
		if got := <-matched; got != (said{server2, 0, 3}) {
			t.Errorf("matched %+v", got)
		}
	})
}

func TestWhoLeadsAnswersForManyGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		heard, told, empty, absent := rpc.GroupID{Partition: 1}, rpc.GroupID{Partition: 2}, rpc.GroupID{Partition: 3}, rpc.GroupID{Partition: 4}
		g1 := n[1].Group(heard, server1, nil, rpc.GroupOptions{})
		g2 := n[2].Group(heard, server2, nil, rpc.GroupOptions{})
		n[2].Group(told, server2, nil, rpc.GroupOptions{Leader: func() (rpc.ServerID, uint64) { return server3, 7 }})
		n[2].Group(empty, server2, nil, rpc.GroupOptions{})
		defer answerWith(g2, func(cmd any) (any, error) { return success(cmd.(*raft.AppendEntriesRequest)), nil })()
		if _, err := send(g1, server2, heartbeat(5)); err != nil {
			t.Fatal(err)
		}
		got, err := n[1].WhoLeads(t.Context(), 2, []rpc.GroupID{heard, told, absent, empty})
		want := []rpc.Leadership{{Group: heard, Leader: server1, Term: 5}, {Group: told, Leader: server3, Term: 7}, {Group: empty}}
		if err != nil || len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	})
}

func TestVoteGivesUpOnAPeerThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, rpc.GroupOptions{})
		n[2].Group(testTopic, server2, nil, rpc.GroupOptions{})
		start := time.Now()
		err := g1.RequestVote(server2.Raft(), server2.Address(), &raft.RequestVoteRequest{Term: 1}, &raft.RequestVoteResponse{})
		if took := time.Since(start); !errors.Is(err, rpc.ErrTimeout) || took != 2*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// A node that was stopped finds the request when it wakes up, long after the
// transfer was given up and another leader was found.
func TestTimeoutNowThatArrivesLateElectsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, n := nodes(t, 2, func(c *rpc.Config) { c.HangUpAfter = time.Hour })
		n[1].Group(testTopic, server1, nil, rpc.GroupOptions{})
		g2 := n[2].Group(testTopic, server2, nil, rpc.GroupOptions{})
		time.Sleep(time.Second)
		network.CutBoth(1, 2) // holds back what is sent, as a stopped node does
		start := time.Now()
		err := n[1].TimeoutNow(testTopic, server2)
		if took := time.Since(start); !errors.Is(err, rpc.ErrTimeout) || took != 500*time.Millisecond {
			t.Errorf("%v after %v, want %v after 500ms", err, took, rpc.ErrTimeout)
		}
		time.Sleep(2 * time.Second)
		network.Heal()
		time.Sleep(time.Second)
		if got := len(g2.Consumer()); got != 0 {
			t.Errorf("%d requests reached the woken replica", got)
		}
		done := make(chan error, 1)
		go func() { done <- n[1].TimeoutNow(testTopic, server2) }()
		r := <-g2.Consumer()
		if _, ok := r.Command.(*raft.TimeoutNowRequest); !ok {
			t.Errorf("got %T", r.Command)
		}
		r.Respond(&raft.TimeoutNowResponse{}, nil)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
