package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
)

var deleteTopicsAPI = api{
	key: 20, name: "DeleteTopics", min: 0, max: 6,
	maxFrame: maxControlFrame,
	serve:    inOrder(deleteTopics),
	notes: []string{
		"By name, or by id from version 6. The metadata forgets the topic at once, its files go as each node learns of it. Topics of the cluster itself are refused with INVALID_TOPIC_EXCEPTION.",
	},
}

const firstDeleteByID = 6

func deleteTopics(c *call, req *kmsg.DeleteTopicsRequest) kmsg.Response {
	resp := kmsg.NewPtrDeleteTopicsResponse()
	var refs []meta.TopicRef
	if c.version < firstDeleteByID {
		for _, name := range req.TopicNames {
			refs = append(refs, meta.TopicRef{Name: name})
		}
	}
	for i := range req.Topics {
		ref := meta.TopicRef{ID: req.Topics[i].TopicID}
		if name := req.Topics[i].Topic; name != nil {
			ref.Name = *name
		}
		refs = append(refs, ref)
	}
	ctx, cancel := c.timeout(req.TimeoutMillis)
	defer cancel()
	results, err := c.cfg.Meta.DeleteTopics(ctx, refs)
	for i, ref := range refs {
		res := outcome(results, i, ref.Name, err)
		out := kmsg.NewDeleteTopicsResponseTopic()
		if name := res.Name; name != "" {
			out.Topic = &name
		} else if c.version < firstDeleteByID {
			out.Topic = new(string)
		}
		if out.TopicID = res.ID; res.Err != nil {
			out.TopicID = ref.ID
		}
		out.ErrorCode, out.ErrorMessage = c.code(res.Err), sentence(res.Err)
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
