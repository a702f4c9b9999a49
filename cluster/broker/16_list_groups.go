package broker

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/txn/group"
)

var listGroupsAPI = api{
	key: 16, name: "ListGroups", min: 0, max: 5,
	maxFrame: maxControlFrame,
	serve:    whenReady(listGroups),
	notes:    []string{"The groups whose shards this node leads: ask every broker for all of them; while one of them is loading the answer is COORDINATOR_LOAD_IN_PROGRESS, with those of the others. A group that only offsets were committed for is Empty, also one whose offsets are those of an open transaction. Every group is of the type classic (version 5), so a filter of other types finds none."},
}

// classic is the type of all groups here, as Kafka calls those whose members assign.
const classic = "classic"

func listGroups(c *call, req *kmsg.ListGroupsRequest, answer func(kmsg.Response)) {
	req.StatesFilter, req.TypesFilter = once(req.StatesFilter), once(req.TypesFilter)
	c.cfg.Groups.List(func(all []coordinator.Described, code group.Code) {
		resp := kmsg.NewPtrListGroupsResponse()
		resp.ErrorCode = c.refuse(int16(code))
		resp.Groups = []kmsg.ListGroupsResponseGroup{}
		slices.SortFunc(all, func(a, b coordinator.Described) int { return strings.Compare(a.ID, b.ID) })
		for _, d := range all {
			if !passes(req.StatesFilter, d.State) || !passes(req.TypesFilter, classic) {
				continue
			}
			out := kmsg.NewListGroupsResponseGroup()
			out.Group, out.ProtocolType, out.GroupState = d.ID, d.ProtocolType, d.State
			out.GroupType = classic
			resp.Groups = append(resp.Groups, out)
		}
		answer(resp)
	})
}

// passes says whether a filter lets a word through; an empty one lets all.
func passes(filter []string, word string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(s string) bool { return strings.EqualFold(s, word) })
}
