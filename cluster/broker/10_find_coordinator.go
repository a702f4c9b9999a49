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
		"The coordinator of a transactional id is the leader of its shard of __transaction_state, by the same rule. Other kinds are INVALID_REQUEST.",
	},
}

const (
	firstCoordinatorList = 4

	coordinatorOfGroup       = 0
	coordinatorOfTransaction = 1
)

var (
	noSuchKind    = "coordinators are of groups (0) and of transactional ids (1)"
	noCoordinator = "its shard has no leader at the moment"
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
	if kind != coordinatorOfGroup && kind != coordinatorOfTransaction {
		out.ErrorCode, out.ErrorMessage = c.refuse(codeInvalidRequest), &noSuchKind
		return out
	}
	br, err := c.findShard(kind, key)
	if br != nil {
		out.Host, out.Port = c.endpoint(c.req.Conn, br)
		out.NodeID = int32(br.ID)
		return out
	}
	out.ErrorCode, out.ErrorMessage = c.refuse(codeCoordinatorNotAvailable), &noCoordinator
	if why := sentence(err); why != nil {
		out.ErrorMessage = why
	}
	return out
}

// findShard returns the broker that leads the shard of a group or a transactional id, nil if there is none now.
func (c *call) findShard(kind int8, key string) (*meta.Broker, error) {
	ctx, cancel := context.WithTimeout(c.req.Conn.Context(), autoCreateWait)
	defer cancel()
	t, number, err := c.shardOf(ctx, kind, key)
	if err != nil {
		return nil, err
	}
	return c.cfg.Meta.Image().Brokers[c.leadership(t, number).leader], nil
}

func (c *call) shardOf(ctx context.Context, kind int8, key string) (t *meta.Topic, number int32, err error) {
	if kind == coordinatorOfTransaction {
		return c.cfg.Transactions.Find(ctx, key)
	}
	if t, err = c.cfg.Groups.Ensure(ctx); err != nil {
		return nil, 0, err
	}
	return t, coordinator.ShardOf(key, len(t.Partitions)), nil
}
