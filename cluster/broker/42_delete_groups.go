package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/txn/group"
)

var deleteGroupsAPI = api{
	key: 42, name: "DeleteGroups", min: 0, max: 3,
	maxFrame: maxControlFrame,
	serve:    whenReady(deleteGroups),
	notes:    []string{"A group without members goes with its offsets, also with those that an open transaction holds for it; one with members is NON_EMPTY_GROUP."},
}

func deleteGroups(c *call, req *kmsg.DeleteGroupsRequest, answer func(kmsg.Response)) {
	resp := kmsg.NewPtrDeleteGroupsResponse()
	req.Groups = once(req.Groups)
	resp.Groups = make([]kmsg.DeleteGroupsResponseGroup, len(req.Groups))
	finish := after(len(req.Groups), func() { answer(resp) })
	for i, id := range req.Groups {
		c.cfg.Groups.Delete(id, func(code group.Code) {
			out := &resp.Groups[i]
			out.Default()
			out.Group, out.ErrorCode, out.ErrorMessage = id, c.refuse(int16(code)), groupMessage(code)
			finish()
		})
	}
}
