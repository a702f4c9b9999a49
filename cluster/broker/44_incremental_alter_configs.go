package broker

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
)

var incrementalAlterConfigsAPI = api{
	key: 44, name: "IncrementalAlterConfigs", min: 0, max: 1,
	maxFrame: maxControlFrame,
	serve:    inOrder(incrementalAlterConfigs),
	notes: []string{
		"Topics only, operations SET and DELETE; of one topic all changes or none. Unknown keys and values that this version does not honour are refused with INVALID_CONFIG and a sentence.",
	},
}

func incrementalAlterConfigs(c *call, req *kmsg.IncrementalAlterConfigsRequest) kmsg.Response {
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	refused := make([]error, len(req.Resources))
	var changes []meta.ConfigChange
	for i := range req.Resources {
		change, err := configChange(&req.Resources[i])
		if refused[i] = err; err == nil {
			changes = append(changes, change)
		}
	}
	ctx, cancel := c.timeout(int32(c.cfg.AdminTimeout.Milliseconds()))
	defer cancel()
	var results []meta.TopicResult
	var err error
	if len(changes) > 0 {
		results, err = c.cfg.Meta.AlterConfigs(ctx, changes, req.ValidateOnly)
	}
	k := 0
	for i := range req.Resources {
		in := &req.Resources[i]
		fault := refused[i]
		if fault == nil {
			fault = outcome(results, k, in.ResourceName, err).Err
			k++
		}
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = in.ResourceType, in.ResourceName
		out.ErrorCode, out.ErrorMessage = c.code(fault), sentence(fault)
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func configChange(in *kmsg.IncrementalAlterConfigsRequestResource) (meta.ConfigChange, error) {
	change := meta.ConfigChange{Topic: in.ResourceName}
	if in.ResourceType != kmsg.ConfigResourceTypeTopic {
		return change, fmt.Errorf("%w: only topics have configs that can be changed while running", meta.ErrInvalidRequest)
	}
	for i := range in.Configs {
		op := &in.Configs[i]
		switch op.Op {
		case kmsg.IncrementalAlterConfigOpSet:
			if op.Value == nil {
				return change, &meta.ConfigError{Key: op.Name, Msg: "null value"}
			}
			change.Ops = append(change.Ops, meta.ConfigOp{Key: op.Name, Value: *op.Value})
		case kmsg.IncrementalAlterConfigOpDelete:
			change.Ops = append(change.Ops, meta.ConfigOp{Key: op.Name, Delete: true})
		default:
			return change, &meta.ConfigError{Key: op.Name, Msg: "only SET and DELETE are possible: no key here is a list that grows"}
		}
	}
	return change, nil
}
