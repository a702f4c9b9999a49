package broker

import (
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/engine/wire"
	"gopherlog/txn/group"
)

var joinGroupAPI = api{
	key: 11, name: "JoinGroup", min: 0, max: 9,
	maxFrame: maxGroupFrame,
	serve:    whenReady(joinGroup),
	notes: []string{
		"Answered when the generation begins. From version 4 a dynamic member without an id is given one with MEMBER_ID_REQUIRED and joins again.",
		"Subscriptions are bytes that only the members understand. The reason for joining (version 8) is written to the node's log at level DEBUG.",
		"From version 9 on a static leader that was started anew in a stable group is told to leave the assignment as it is (KIP-814).",
	},
}

// maxGroupFrame bounds requests that carry subscriptions or assignments. Those that carry offsets need less: what is larger than
// maxControlFrame does not fit into a batch either.
const maxGroupFrame = 4 << 20

const (
	firstRebalanceTimeout = 1
	firstMemberIDRequired = 4
	firstJoinNulls        = 7 // protocol and type are null in an error
	firstSkipAssignment   = 9
)

func joinGroup(c *call, req *kmsg.JoinGroupRequest, answer func(kmsg.Response)) {
	e := group.Join{
		MemberID: req.MemberID, Instance: text(req.InstanceID), ClientID: c.req.ClientID, ClientHost: clientHost(c.req.Conn),
		Session: millis(req.SessionTimeoutMillis), Rebalance: millis(req.RebalanceTimeoutMillis), ProtocolType: req.ProtocolType,
		RequireID: c.version >= firstMemberIDRequired, MayBeExempted: c.version >= firstSkipAssignment,
	}
	if c.version < firstRebalanceTimeout {
		e.Rebalance = e.Session
	}
	for _, p := range req.Protocols {
		e.Protocols = append(e.Protocols, group.Protocol{Name: p.Name, Metadata: slices.Clone(p.Metadata)})
	}
	c.reason("member joins", req.Group, req.MemberID, req.Reason)
	c.req.LetGo() // the answer may wait for members that have not been read yet
	c.settleGroups(req.Group)
	c.cfg.Groups.Join(req.Group, e, func(j group.Joined) {
		resp := kmsg.NewPtrJoinGroupResponse()
		resp.ErrorCode, resp.Generation = c.refuse(int16(j.Code)), j.Generation
		resp.LeaderID, resp.MemberID, resp.SkipAssignment = j.Leader, j.MemberID, j.Exempted
		if j.Code == group.OK || c.version < firstJoinNulls {
			resp.ProtocolType, resp.Protocol = &j.ProtocolType, &j.Protocol
		}
		resp.Members = []kmsg.JoinGroupResponseMember{}
		for _, m := range j.Members {
			out := kmsg.NewJoinGroupResponseMember()
			out.MemberID, out.InstanceID, out.ProtocolMetadata = m.MemberID, nullable(m.Instance), m.Metadata
			resp.Members = append(resp.Members, out)
		}
		answer(resp)
	})
}

// reason logs why a member says that it joins or leaves (KIP-800).
func (c *call) reason(what, id, member string, why *string) {
	if text(why) != "" {
		c.cfg.Logger.Debug(what, "group", id, "member", member, "reason", *why)
	}
}

func millis(n int32) time.Duration { return time.Duration(n) * time.Millisecond }

// clientHost is a client's address as Kafka shows it.
func clientHost(conn *wire.Conn) string {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		host = conn.RemoteAddr().String()
	}
	return "/" + host
}
