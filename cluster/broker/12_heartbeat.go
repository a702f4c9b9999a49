package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/txn/group"
)

var heartbeatAPI = api{
	key: 12, name: "Heartbeat", min: 0, max: 4,
	maxFrame: maxControlFrame,
	serve:    whenReady(heartbeat),
	notes:    []string{"REBALANCE_IN_PROGRESS tells a member to join again."},
}

func heartbeat(c *call, req *kmsg.HeartbeatRequest, answer func(kmsg.Response)) {
	e := group.Heartbeat{MemberID: req.MemberID, Instance: text(req.InstanceID), Generation: req.Generation}
	c.settleGroups(req.Group)
	c.cfg.Groups.Heartbeat(req.Group, e, func(code group.Code) {
		resp := kmsg.NewPtrHeartbeatResponse()
		resp.ErrorCode = c.refuse(int16(code))
		answer(resp)
	})
}
