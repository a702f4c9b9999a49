package broker

import "github.com/twmb/franz-go/pkg/kmsg"

var findCoordinatorAPI = api{
	key: 10, name: "FindCoordinator", min: 0, max: 4,
	maxFrame: maxControlFrame,
	serve:    inOrder(findCoordinator),
	notes: []string{
		"This version has neither consumer groups nor transactions: every key is answered with COORDINATOR_NOT_AVAILABLE. Consumers assign partitions themselves.",
		"It is advertised all the same because librdkafka compresses with LZ4 only for brokers that offer version 0.",
	},
}

const firstCoordinatorList = 4

var noCoordinator = "this version has no group or transaction coordinator; assign partitions instead"

func findCoordinator(c *call, req *kmsg.FindCoordinatorRequest) kmsg.Response {
	resp := kmsg.NewPtrFindCoordinatorResponse()
	if c.version < firstCoordinatorList {
		resp.ErrorCode, resp.ErrorMessage = c.refuse(codeCoordinatorNotAvailable), &noCoordinator
		resp.NodeID, resp.Port = -1, -1
		return resp
	}
	for _, key := range req.CoordinatorKeys {
		out := kmsg.NewFindCoordinatorResponseCoordinator()
		out.Key, out.NodeID, out.Port = key, -1, -1
		out.ErrorCode, out.ErrorMessage = c.refuse(codeCoordinatorNotAvailable), &noCoordinator
		resp.Coordinators = append(resp.Coordinators, out)
	}
	return resp
}
