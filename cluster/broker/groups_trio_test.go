package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
)

// served waits for a coordinator of a group that is another node than old and serves, and connects to it.
func (c *trio) served(id string, old *trioNode) (n *trioNode, cl *client) {
	c.t.Helper()
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{id}
	eventually(c.t, "the group has a coordinator", func() bool {
		if n = c.coordinatorOf(id); n == nil || n == old {
			return false
		}
		cl = dialAddr(c.t, n.addr)
		return cl.ask(req).(*kmsg.DescribeGroupsResponse).Groups[0].ErrorCode == codeNone
	})
	return n, cl
}

// resting waits until the shard of a group is led by the node that it prefers: it would go there in the midst of what follows.
func (c *trio) resting(id string) {
	c.t.Helper()
	t, err := c.nodes[0].groups.Ensure(within(c.t, patience))
	if err != nil {
		c.t.Fatal(err)
	}
	c.known(t.Name)
	shard := coordinator.ShardOf(id, len(t.Partitions))
	c.await("the shard of "+id+" is led where it is to be", func() bool {
		p := c.nodes[0].ctl.Image().Topic(t.Name).Partitions[shard]
		return p.Leader == p.Replicas[0]
	})
}

// Who was a member, with which generation and assignment, and what it committed, is in the log: after its coordinator's death a member goes on
// with the next one as if nothing had happened, and somebody of an older generation gets nowhere.
func TestAMemberKeepsItsPlaceWhenItsCoordinatorDies(t *testing.T) {
	c := newTrio(t)
	c.createTopic("t", 2)
	c.resting("g")
	first, member := c.served("g", nil)
	old := member.receive(member.enter(5, "g", []byte("topics"))).(*kmsg.JoinGroupResponse)
	member.ask(syncOf(3, "g", old, map[string][]byte{old.MemberID: []byte("first")}))
	j := member.ask(joinOf(5, "g", old.MemberID, []byte("more topics"))).(*kmsg.JoinGroupResponse)
	if s := member.ask(syncOf(3, "g", j, map[string][]byte{j.MemberID: []byte("all")})).(*kmsg.SyncGroupResponse); string(s.MemberAssignment) != "all" {
		t.Fatalf("sync: %+v", s)
	}
	commit := func(c *client, j *kmsg.JoinGroupResponse, offset int64) int16 {
		req := commitOf("g", 0, offset, "")
		req.Version, req.MemberID, req.Generation = 7, j.MemberID, j.Generation
		return c.ask(req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
	}
	eventually(t, "the coordinator's image shows the topic", func() bool { return commit(member, j, 7) == codeNone })

	first.kill()
	_, member = c.served("g", first)
	if code := commit(member, old, 5); code != codeIllegalGeneration {
		t.Errorf("a commit of the generation before: code %d", code)
	}
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Version, beat.Group, beat.MemberID, beat.Generation = 3, "g", j.MemberID, j.Generation
	if code := member.ask(beat).(*kmsg.HeartbeatResponse).ErrorCode; code != codeNone {
		t.Errorf("heartbeat: code %d", code)
	}
	if s := member.ask(syncOf(3, "g", j, nil)).(*kmsg.SyncGroupResponse); string(s.MemberAssignment) != "all" {
		t.Errorf("the assignment: %+v", s)
	}
	if code := commit(member, j, 9); code != codeNone {
		t.Errorf("commit: code %d", code)
	}
	fetch := groupQuestion(9, 7).(*kmsg.OffsetFetchRequest)
	fetch.Version, fetch.Group = 7, "g"
	if p := member.ask(fetch).(*kmsg.OffsetFetchResponse).Topics[0].Partitions[0]; p.Offset != 9 {
		t.Errorf("committed: %+v", p)
	}
	again := member.ask(joinOf(5, "g", j.MemberID, []byte("less"))).(*kmsg.JoinGroupResponse)
	if again.ErrorCode != codeNone || again.Generation != j.Generation+1 || again.MemberID != j.MemberID {
		t.Errorf("joined again: %+v", again)
	}
}

// A coordinator that is cut off from the others acknowledges nothing that they do not have, and when it is back it sends everybody to the one
// that took its place, whose offsets stand.
func TestACoordinatorThatIsCutOffCommitsNothing(t *testing.T) {
	c := newTrio(t)
	c.createTopic("t", 2)
	c.resting("g")
	first, before := c.served("g", nil)
	commit := func(cl *client, offset int64) int16 {
		req := commitOf("g", 0, offset, "")
		req.Version = 7
		return cl.ask(req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
	}
	eventually(t, "the coordinator's image shows the topic", func() bool { return commit(before, 1) == codeNone })

	c.net.Isolate(first.id)
	if code := commit(before, 2); code != codeNotCoordinator {
		t.Errorf("a commit that no other node can have: code %d", code)
	}
	second, after := c.served("g", first)
	eventually(t, "the next coordinator commits", func() bool { return commit(after, 3) == codeNone })
	if code := commit(before, 4); code != codeNotCoordinator {
		t.Errorf("a commit to who was replaced: code %d", code)
	}
	c.net.Heal()
	fetch := groupQuestion(9, 7).(*kmsg.OffsetFetchRequest)
	fetch.Version, fetch.Group = 7, "g"
	eventually(t, "the group has one coordinator, and its offset", func() bool {
		n, cl := c.served("g", nil)
		resp := cl.ask(fetch).(*kmsg.OffsetFetchResponse)
		if resp.ErrorCode != codeNone {
			return false
		}
		if got := resp.Topics[0].Partitions[0].Offset; got != 3 {
			t.Fatalf("offset %d at node %d, want what node %d acknowledged: 3", got, n.id, second.id)
		}
		return true
	})
}
