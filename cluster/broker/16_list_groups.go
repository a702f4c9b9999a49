package broker

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/txn/group"
)

var listGroupsAPI = api{
	key: 16, name: "ListGroups", min: 0, max: 4,
	maxFrame: maxControlFrame,
	serve:    whenReady(listGroups),
	notes:    []string{"The groups whose shards this node leads: ask every broker for all of them. A group that only offsets were committed for is Empty."},
}

func listGroups(c *call, req *kmsg.ListGroupsRequest, answer func(kmsg.Response)) {
	c.cfg.Groups.List(func(all []coordinator.Described, code group.Code) {
		resp := kmsg.NewPtrListGroupsResponse()
		resp.ErrorCode = c.refuse(int16(code))
		resp.Groups = []kmsg.ListGroupsResponseGroup{}
		slices.SortFunc(all, func(a, b coordinator.Described) int { return strings.Compare(a.ID, b.ID) })
		for _, d := range all {
			same := func(state string) bool { return strings.EqualFold(state, d.State) }
			if len(req.StatesFilter) > 0 && !slices.ContainsFunc(req.StatesFilter, same) {
				continue
			}
			out := kmsg.NewListGroupsResponseGroup()
			out.Group, out.ProtocolType, out.GroupState = d.ID, d.ProtocolType, d.State
			resp.Groups = append(resp.Groups, out)
		}
		answer(resp)
	})
}
