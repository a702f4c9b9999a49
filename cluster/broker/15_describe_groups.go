package broker

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/txn/group"
)

var describeGroupsAPI = api{
	key: 15, name: "DescribeGroups", min: 0, max: 6,
	maxFrame: maxControlFrame,
	serve:    whenReady(describeGroups),
	notes:    []string{"A group that is not there is Dead, before version 6 without an error, from then on with GROUP_ID_NOT_FOUND (KIP-1043). Subscriptions and assignments are shown of stable groups."},
}

const firstDescribedMissing = 6 // a group that is not there has a code, and codes have a message

func describeGroups(c *call, req *kmsg.DescribeGroupsRequest, answer func(kmsg.Response)) {
	resp := kmsg.NewPtrDescribeGroupsResponse()
	req.Groups = once(req.Groups)
	resp.Groups = make([]kmsg.DescribeGroupsResponseGroup, len(req.Groups))
	finish := after(len(req.Groups), func() { answer(resp) })
	for i, id := range req.Groups {
		c.cfg.Groups.Describe(id, func(d coordinator.Described, code group.Code) {
			resp.Groups[i] = c.describedGroup(id, d, code)
			finish()
		})
	}
}

// after returns a function that is to be called n times; the last call, or with none this one, calls done.
func after(n int, done func()) func() {
	if n == 0 {
		done()
		return nil
	}
	var left atomic.Int64
	left.Store(int64(n))
	return func() {
		if left.Add(-1) == 0 {
			done()
		}
	}
}

func (c *call) describedGroup(id string, d coordinator.Described, code group.Code) kmsg.DescribeGroupsResponseGroup {
	out := kmsg.NewDescribeGroupsResponseGroup()
	if code == group.OK && d.State == coordinator.Dead && c.version >= firstDescribedMissing {
		code = group.GroupIDNotFound
	}
	out.ErrorCode, out.ErrorMessage = c.refuse(int16(code)), groupMessage(code)
	out.Group, out.State, out.ProtocolType, out.Protocol = id, d.State, d.ProtocolType, d.Protocol
	out.Members = []kmsg.DescribeGroupsResponseGroupMember{}
	for _, m := range d.Members {
		member := kmsg.NewDescribeGroupsResponseGroupMember()
		member.MemberID, member.InstanceID, member.ClientID, member.ClientHost = m.ID, nullable(m.Instance), m.ClientID, m.ClientHost
		member.ProtocolMetadata, member.MemberAssignment = m.Subscription, m.Assignment
		out.Members = append(out.Members, member)
	}
	return out
}

// groupMessage is the sentence that goes with a group's code where versions have room for one; nil without an error.
func groupMessage(code group.Code) *string {
	var s string
	switch code {
	case group.OK:
		return nil
	case group.GroupIDNotFound:
		s = "there is no group of that name"
	case group.NonEmptyGroup:
		s = "the group has members"
	case coordinator.LoadInProgress:
		s = "the group's coordinator is still reading its log: ask again"
	case group.NotCoordinator:
		s = "another node is the group's coordinator: find it and ask again"
	default:
		s = nameOf(int16(code))
	}
	return &s
}
