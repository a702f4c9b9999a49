package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/meta"
)

var findCoordinatorAPI = api{
	key: 10, name: "FindCoordinator", min: 0, max: 4,
	maxFrame: maxControlFrame,
	serve:    inOrder(findCoordinator),
	notes: []string{
		"The coordinator of a group is the leader of its shard of __consumer_offsets: the group id's hash code as Java has it, modulo the number of partitions. The topic is made when somebody first asks; until it is, and while a shard has no leader, the answer is COORDINATOR_NOT_AVAILABLE.",
		"Transactional ids are answered with COORDINATOR_NOT_AVAILABLE: this version has no transactions.",
	},
}

const (
	firstCoordinatorList = 4
	coordinatorOfGroup   = 0
)

var (
	noTransactions = "this version has no transactions"
	noCoordinator  = "the group's shard has no leader at the moment"
)

func findCoordinator(c *call, req *kmsg.FindCoordinatorRequest) kmsg.Response {
	resp := kmsg.NewPtrFindCoordinatorResponse()
	if c.version < firstCoordinatorList {
		out := c.coordinatorOf(req.CoordinatorType, req.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage = out.ErrorCode, out.ErrorMessage
		resp.NodeID, resp.Host, resp.Port = out.NodeID, out.Host, out.Port
		return resp
	}
	for _, key := range req.CoordinatorKeys {
		resp.Coordinators = append(resp.Coordinators, c.coordinatorOf(req.CoordinatorType, key))
	}
	return resp
}

func (c *call) coordinatorOf(kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	out := kmsg.NewFindCoordinatorResponseCoordinator()
	out.Key, out.NodeID, out.Port = key, -1, -1
	why := &noTransactions
	if kind == coordinatorOfGroup {
		br, err := c.findShard(key)
		if br != nil {
			out.Host, out.Port = c.endpoint(c.req.Conn, br)
			out.NodeID = int32(br.ID)
			return out
		}
		if why = sentence(err); why == nil {
			why = &noCoordinator
		}
	}
	out.ErrorCode, out.ErrorMessage = c.refuse(codeCoordinatorNotAvailable), why
	return out
}

// findShard returns the broker that leads a group's shard, nil if there is none now.
func (c *call) findShard(key string) (*meta.Broker, error) {
	ctx, cancel := context.WithTimeout(c.req.Conn.Context(), autoCreateWait)
	defer cancel()
	t, err := c.cfg.Groups.Ensure(ctx)
	if err != nil {
		return nil, err
	}
	l := c.leadership(t, coordinator.ShardOf(key, len(t.Partitions)))
	return c.cfg.Meta.Image().Brokers[l.leader], nil
}
