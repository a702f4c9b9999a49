package broker

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/txn/group"
)

var syncGroupAPI = api{
	key: 14, name: "SyncGroup", min: 0, max: 5,
	maxFrame: maxGroupFrame,
	serve:    whenReady(syncGroup),
	notes:    []string{"Answered when the leader's assignment is committed on a majority of the group's shard. Assignments are bytes that only the members understand."},
}

const firstSyncNulls = 5

func syncGroup(c *call, req *kmsg.SyncGroupRequest, answer func(kmsg.Response)) {
	e := group.Sync{
		MemberID: req.MemberID, Instance: text(req.InstanceID), Generation: req.Generation,
		ProtocolType: text(req.ProtocolType), Protocol: text(req.Protocol), Assignments: map[string][]byte{},
	}
	for _, a := range req.GroupAssignment {
		e.Assignments[a.MemberID] = slices.Clone(a.MemberAssignment)
	}
	c.req.LetGo() // the answer waits for the leader's request
	c.settleGroups(req.Group)
	c.cfg.Groups.Sync(req.Group, e, func(s group.Synced) {
		resp := kmsg.NewPtrSyncGroupResponse()
		resp.ErrorCode, resp.MemberAssignment = c.refuse(int16(s.Code)), s.Assignment
		if resp.MemberAssignment == nil {
			resp.MemberAssignment = []byte{}
		}
		if s.Code == group.OK && c.version >= firstSyncNulls {
			resp.ProtocolType, resp.Protocol = &s.ProtocolType, &s.Protocol
		}
		answer(resp)
	})
}
