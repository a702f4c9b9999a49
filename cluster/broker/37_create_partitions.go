package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
)

var createPartitionsAPI = api{
	key: 37, name: "CreatePartitions", min: 0, max: 3,
	maxFrame: maxControlFrame,
	serve:    inOrder(createPartitions),
	notes: []string{
		"Raises the number of partitions; it never falls. Any broker takes it.",
	},
}

func createPartitions(c *call, req *kmsg.CreatePartitionsRequest) kmsg.Response {
	resp := kmsg.NewPtrCreatePartitionsResponse()
	specs := make([]meta.PartitionsSpec, len(req.Topics))
	for i := range req.Topics {
		in := &req.Topics[i]
		specs[i] = meta.PartitionsSpec{Name: in.Topic, Count: in.Count}
		for j := range in.Assignment {
			specs[i].Assignments = append(specs[i].Assignments, toNodeIDs(in.Assignment[j].Replicas))
		}
	}
	ctx, cancel := c.timeout(req.TimeoutMillis)
	defer cancel()
	results, err := c.cfg.Meta.CreatePartitions(ctx, specs, req.ValidateOnly)
	for i := range specs {
		res := outcome(results, i, specs[i].Name, err)
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic, out.ErrorCode, out.ErrorMessage = specs[i].Name, c.code(res.Err), sentence(res.Err)
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
