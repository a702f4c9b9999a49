package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/txn/group"
)

var leaveGroupAPI = api{
	key: 13, name: "LeaveGroup", min: 0, max: 5,
	maxFrame: maxControlFrame,
	serve:    whenReady(leaveGroup),
	notes:    []string{"From version 3 several members may leave at once, static ones named by their instance alone. The reason (version 5) is written to the node's log at level DEBUG."},
}

const firstLeavers = 3

func leaveGroup(c *call, req *kmsg.LeaveGroupRequest, answer func(kmsg.Response)) {
	var e group.Leave
	if c.version < firstLeavers {
		e.Members = []group.Leaver{{MemberID: req.MemberID}}
	}
	for _, m := range req.Members {
		e.Members = append(e.Members, group.Leaver{MemberID: m.MemberID, Instance: text(m.InstanceID)})
		c.reason("member leaves", req.Group, m.MemberID, m.Reason)
	}
	c.settleGroups(req.Group)
	c.cfg.Groups.Leave(req.Group, e, func(code group.Code, codes []group.Code) {
		resp := kmsg.NewPtrLeaveGroupResponse()
		resp.ErrorCode = c.refuse(int16(code))
		resp.Members = []kmsg.LeaveGroupResponseMember{}
		for i, one := range codes {
			if c.version < firstLeavers {
				resp.ErrorCode = c.refuse(int16(one))
				break
			}
			out := kmsg.NewLeaveGroupResponseMember()
			out.MemberID, out.InstanceID = e.Members[i].MemberID, nullable(e.Members[i].Instance)
			out.ErrorCode = c.refuse(int16(one))
			resp.Members = append(resp.Members, out)
		}
		answer(resp)
	})
}
