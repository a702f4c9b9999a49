package broker

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/txn/group"
)

var describeGroupsAPI = api{
	key: 15, name: "DescribeGroups", min: 0, max: 5,
	maxFrame: maxControlFrame,
	serve:    whenReady(describeGroups),
	notes:    []string{"A group that is not there is Dead, without an error. Subscriptions and assignments are shown of stable groups."},
}

func describeGroups(c *call, req *kmsg.DescribeGroupsRequest, answer func(kmsg.Response)) {
	resp := kmsg.NewPtrDescribeGroupsResponse()
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
	out.ErrorCode = c.refuse(int16(code))
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
