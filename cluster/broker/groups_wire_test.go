package broker

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
)

func joinOf(version int16, id, member string, metadata []byte) *kmsg.JoinGroupRequest {
	req := groupQuestion(11, 4).(*kmsg.JoinGroupRequest)
	req.Version, req.Group, req.MemberID, req.Protocols[0].Metadata = version, id, member, metadata
	return req
}

// enter joins a group as one more member: from version 4 on that takes two requests. The answer to the last one is not awaited.
func (c *client) enter(version int16, id string, metadata []byte) *kmsg.JoinGroupRequest {
	c.t.Helper()
	req := joinOf(version, id, "", metadata)
	if version >= firstMemberIDRequired {
		resp := c.ask(req).(*kmsg.JoinGroupResponse)
		if resp.ErrorCode != codeMemberIDRequired || resp.MemberID == "" {
			c.t.Fatalf("version %d: code %d, member %q", version, resp.ErrorCode, resp.MemberID)
		}
		req.MemberID = resp.MemberID
	}
	c.send(req)
	return req
}

func syncOf(version int16, id string, j *kmsg.JoinGroupResponse, assignments map[string][]byte) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation = version, id, j.MemberID, j.Generation
	for member, b := range assignments {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = member, b
		req.GroupAssignment = append(req.GroupAssignment, a)
	}
	return req
}

func TestAMemberIsGivenItsIDBeforeItJoinsFromVersionFourOn(t *testing.T) {
	w := newWorld(t)
	w.coordinate()
	for v := joinGroupAPI.min; v <= joinGroupAPI.max; v++ {
		c := w.dial()
		req := c.enter(v, fmt.Sprint("g", v), []byte("topics"))
		resp := c.receive(req).(*kmsg.JoinGroupResponse)
		if resp.ErrorCode != codeNone || resp.MemberID == "" || resp.LeaderID != resp.MemberID || len(resp.Members) != 1 || resp.Generation != 1 {
			t.Errorf("version %d: %+v", v, resp)
		}
		if again := joinOf(v, fmt.Sprint("g", v), "stranger", nil); c.ask(again).(*kmsg.JoinGroupResponse).ErrorCode != codeUnknownMemberID {
			t.Errorf("version %d: an id that was never given out was taken", v)
		}
	}
}

// Requests lie in buffers that are used again (and overwritten at once in this test): what a group keeps of them is its own.
func TestSubscriptionsAndAssignmentsComeBackByteForByte(t *testing.T) {
	w := newWorld(t)
	w.coordinate()
	const v = 5
	a, b := w.dial(), w.dial()
	subscription := map[*client][]byte{a: bytes.Repeat([]byte{0, 0xa1, 0xff}, 300), b: bytes.Repeat([]byte{0xb2}, 2000)}
	ja := a.receive(a.enter(v, "g", subscription[a])).(*kmsg.JoinGroupResponse)
	waits := b.enter(v, "g", subscription[b])
	eventually(t, "a member that waits for others holds no memory for requests", func() bool {
		describe := kmsg.NewPtrDescribeGroupsRequest()
		describe.Groups = []string{"g"}
		members := a.ask(describe).(*kmsg.DescribeGroupsResponse).Groups[0].Members
		return len(members) == 2 && w.broker.Stats().InflightBytes == 0
	})
	eventually(t, "the first member is told to join again", func() bool {
		beat := kmsg.NewPtrHeartbeatRequest()
		beat.Version, beat.Group, beat.MemberID, beat.Generation = 3, "g", ja.MemberID, ja.Generation
		return a.ask(beat).(*kmsg.HeartbeatResponse).ErrorCode == codeRebalanceInProgress
	})
	ja = a.ask(joinOf(v, "g", ja.MemberID, subscription[a])).(*kmsg.JoinGroupResponse)
	jb := b.receive(waits).(*kmsg.JoinGroupResponse)
	if ja.Generation != 2 || jb.Generation != 2 || ja.LeaderID != ja.MemberID || len(ja.Members) != 2 || len(jb.Members) != 0 {
		t.Fatalf("%+v\n%+v", ja, jb)
	}
	for _, m := range ja.Members {
		want := subscription[a]
		if m.MemberID == jb.MemberID {
			want = subscription[b]
		}
		if !bytes.Equal(m.ProtocolMetadata, want) {
			t.Errorf("the leader is told another subscription of %s: %x…", m.MemberID, m.ProtocolMetadata[:8])
		}
	}
	assigned := map[string][]byte{ja.MemberID: bytes.Repeat([]byte{1, 0}, 100), jb.MemberID: bytes.Repeat([]byte{2, 0}, 500)}
	b.send(syncOf(v, "g", jb, nil)) // before the leader
	if s := a.ask(syncOf(v, "g", ja, assigned)).(*kmsg.SyncGroupResponse); !bytes.Equal(s.MemberAssignment, assigned[ja.MemberID]) {
		t.Errorf("the leader's assignment: code %d, %x", s.ErrorCode, s.MemberAssignment)
	}
	if s := b.receive(syncOf(v, "g", jb, nil)).(*kmsg.SyncGroupResponse); !bytes.Equal(s.MemberAssignment, assigned[jb.MemberID]) {
		t.Errorf("the other's assignment: code %d, %x", s.ErrorCode, s.MemberAssignment)
	}
	for range 50 { // other requests use the buffers
		a.ask(joinOf(v, "other", "stranger", bytes.Repeat([]byte{0xee}, 2500)))
	}
	if s := b.ask(syncOf(v, "g", jb, nil)).(*kmsg.SyncGroupResponse); !bytes.Equal(s.MemberAssignment, assigned[jb.MemberID]) {
		t.Errorf("asked again: code %d, %x", s.ErrorCode, s.MemberAssignment)
	}
	req := groupQuestion(15, 5).(*kmsg.DescribeGroupsRequest)
	req.Version, req.Groups = 5, []string{"g"}
	for _, m := range a.ask(req).(*kmsg.DescribeGroupsResponse).Groups[0].Members {
		want := subscription[a]
		if m.MemberID == jb.MemberID {
			want = subscription[b]
		}
		if !bytes.Equal(m.ProtocolMetadata, want) || !bytes.Equal(m.MemberAssignment, assigned[m.MemberID]) {
			t.Errorf("%s is described with other bytes than it sent and got", m.MemberID)
		}
	}
}

// Kafka's consumer takes an error here for the end of its position (GROUP_ID_NOT_FOUND does it in), so it gets none.
func TestAGroupThatNobodyKnowsHasCommittedNothing(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	w.coordinate()
	c := w.dial()
	for v := offsetFetchAPI.min; v <= offsetFetchAPI.max; v++ {
		req := groupQuestion(9, v).(*kmsg.OffsetFetchRequest)
		req.Version, req.Group, req.Groups[0].Group = v, "nobody", "nobody"
		w.withIDs(req)
		resp := c.ask(req).(*kmsg.OffsetFetchResponse)
		code, topics := resp.ErrorCode, resp.Topics
		if v >= firstOffsetFetchGroups {
			code = resp.Groups[0].ErrorCode
			for _, p := range resp.Groups[0].Topics[0].Partitions {
				if p.ErrorCode != codeNone || p.Offset != -1 || p.LeaderEpoch != -1 || *p.Metadata != "" {
					t.Errorf("version %d: %+v", v, p)
				}
			}
		}
		for _, topic := range topics {
			for _, p := range topic.Partitions {
				if p.ErrorCode != codeNone || p.Offset != -1 || v >= 5 && p.LeaderEpoch != -1 || *p.Metadata != "" {
					t.Errorf("version %d: %+v", v, p)
				}
			}
		}
		if code != codeNone {
			t.Errorf("version %d: code %d", v, code)
		}
		if v < firstOffsetFetchCode {
			continue
		}
		req.Topics, req.Groups[0].Topics = nil, nil // everything that is committed
		resp = c.ask(req).(*kmsg.OffsetFetchResponse)
		if v >= firstOffsetFetchGroups {
			resp.Topics, resp.ErrorCode = nil, resp.Groups[0].ErrorCode
			if len(resp.Groups[0].Topics) > 0 {
				t.Errorf("version %d: %+v", v, resp.Groups[0])
			}
		}
		if len(resp.Topics) > 0 || resp.ErrorCode != codeNone {
			t.Errorf("version %d: %+v", v, resp)
		}
	}
}

func TestAnAskerWaitsForTheCoordinatorThatIsBeingElected(t *testing.T) {
	w := newWorld(t)
	w.coordinate()
	shard := w.part(coordinator.OffsetsTopic, coordinator.ShardOf("g", 16))
	shard.lead(false, 1)
	c := w.dial()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 4, []string{"g"}
	if resp := c.ask(req).(*kmsg.FindCoordinatorResponse).Coordinators[0]; resp.ErrorCode != codeCoordinatorNotAvailable || *resp.ErrorMessage == "" {
		t.Errorf("without a leader: %+v", resp)
	}
	c.send(req)
	time.Sleep(20 * time.Millisecond)
	shard.lead(true, 2)
	if resp := c.receive(req).(*kmsg.FindCoordinatorResponse).Coordinators[0]; resp.ErrorCode != codeNone || resp.NodeID != 1 {
		t.Errorf("with a leader that came meanwhile: %+v", resp)
	}
}

// A coordinator that does not serve yet says so in every API, with the code on which clients come back to it; one that leads nothing sends
// them away.
func TestWhatCannotBeAnsweredYetSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	w.coordinate()
	for n := range int32(16) {
		p := w.part(coordinator.OffsetsTopic, n)
		p.lead(false, 1)
		w.groups.Led(p)
	}
	c := w.dial()
	for _, want := range []int16{codeNotCoordinator, codeCoordinatorLoadInProgress} {
		for _, a := range registry() {
			if !isGroupAPI(a.key) || a.key == listGroupsAPI.key {
				continue
			}
			req := w.withIDs(groupQuestion(a.key, a.max))
			req.SetVersion(a.max)
			if got := firstCode(t, c.ask(req)); got != want {
				t.Errorf("%s: code %d, want %d", a.name, got, want)
			}
		}
		for n := range int32(16) { // elected, but what older terms left is not all applied
			p := w.part(coordinator.OffsetsTopic, n)
			p.mu.Lock()
			p.leads, p.elected = true, true
			p.mu.Unlock()
		}
	}
}

// firstCode is the code of an answer about one group.
func firstCode(t *testing.T, resp kmsg.Response) int16 {
	switch r := resp.(type) {
	case *kmsg.OffsetCommitResponse:
		return r.Topics[0].Partitions[0].ErrorCode
	case *kmsg.OffsetFetchResponse:
		return r.Groups[0].ErrorCode
	case *kmsg.JoinGroupResponse:
		return r.ErrorCode
	case *kmsg.HeartbeatResponse:
		return r.ErrorCode
	case *kmsg.LeaveGroupResponse:
		return r.ErrorCode
	case *kmsg.SyncGroupResponse:
		return r.ErrorCode
	case *kmsg.DescribeGroupsResponse:
		return r.Groups[0].ErrorCode
	case *kmsg.DeleteGroupsResponse:
		return r.Groups[0].ErrorCode
	case *kmsg.OffsetDeleteResponse:
		return r.ErrorCode
	}
	t.Fatalf("no code is known in %T", resp)
	return 0
}
