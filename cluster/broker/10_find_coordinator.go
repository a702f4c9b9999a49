package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/cluster/meta"
)

var findCoordinatorAPI = api{
	key: 10, name: "FindCoordinator", min: 0, max: 6,
	maxFrame: maxControlFrame,
	serve:    inOrder(findCoordinator),
	notes: []string{
		"The coordinator of a group is the leader of its shard of __consumer_offsets: the group id's hash code as Java has it, modulo the number of partitions. The topic is made when somebody first asks. The answer waits for a leader of the shard, five seconds at most; without one it is COORDINATOR_NOT_AVAILABLE.",
		"A request for a coordinator whose shard is between leaders at this node (it was elected and does not serve yet, or knows no leader although most of the replicas are up) is held until that is over, at most half a second; then it is COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR. Administrators' requests (Describe, List, Delete) are answered at once.",
		"The coordinator of a transactional id is the leader of its shard of __transaction_state, by the same rule. Other kinds, such as the share groups of version 6, are INVALID_REQUEST.",
	},
}

const (
	firstCoordinatorList = 4

	coordinatorOfGroup       = 0
	coordinatorOfTransaction = 1

	coordinatorWait = 5 * time.Second // for a shard that has no leader at the moment
	coordinatorLook = 5 * time.Millisecond
)

var (
	noSuchKind    = "coordinators are of groups (0) and of transactional ids (1)"
	noCoordinator = "its shard has no leader at the moment"
)

func findCoordinator(c *call, req *kmsg.FindCoordinatorRequest) kmsg.Response {
	resp := kmsg.NewPtrFindCoordinatorResponse()
	ctx, cancel := context.WithTimeout(c.req.Conn.Context(), autoCreateWait)
	defer cancel()
	if c.version < firstCoordinatorList {
		out := c.coordinatorOf(ctx, req.CoordinatorType, req.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage = out.ErrorCode, out.ErrorMessage
		resp.NodeID, resp.Host, resp.Port = out.NodeID, out.Host, out.Port
		return resp
	}
	for _, key := range once(req.CoordinatorKeys) {
		resp.Coordinators = append(resp.Coordinators, c.coordinatorOf(ctx, req.CoordinatorType, key))
	}
	return resp
}

func (c *call) coordinatorOf(ctx context.Context, kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	out := kmsg.NewFindCoordinatorResponseCoordinator()
	out.Key, out.NodeID, out.Port = key, -1, -1
	if kind != coordinatorOfGroup && kind != coordinatorOfTransaction {
		out.ErrorCode, out.ErrorMessage = c.refuse(codeInvalidRequest), &noSuchKind
		return out
	}
	br, err := c.findShard(ctx, kind, key)
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
func (c *call) findShard(ctx context.Context, kind int8, key string) (*meta.Broker, error) {
	t, number, err := c.shardOf(ctx, kind, key)
	if err != nil {
		return nil, err
	}
	return c.awaitShard(ctx, t, number), nil
}

// awaitShard returns the broker that leads a shard as soon as there is one; nil at the limit, and at once if nobody can lead it any more. It
// waits because a client that is told that there is none comes back after a pause that is longer than most elections, or never: to franz-go it
// is the end of what it asks for, be it a heartbeat, if it had asked a node before that is down.
func (c *call) awaitShard(ctx context.Context, t *meta.Topic, number int32) *meta.Broker {
	ctx, cancel := context.WithTimeout(ctx, coordinatorWait)
	defer cancel()
	br := c.leaderOf(t, number)
	if br != nil || c.cfg.Meta.Image().Lost(&t.Partitions[number]) {
		return br
	}
	look := time.NewTicker(coordinatorLook)
	defer look.Stop()
	for {
		if br = c.leaderOf(t, number); br != nil {
			return br
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}

// leaderOf is the broker that leads a shard as far as is known now, nil if there is none, or it is this one and does not serve yet.
func (c *call) leaderOf(t *meta.Topic, number int32) *meta.Broker {
	image := c.cfg.Meta.Image()
	if now := image.Topic(t.Name); now != nil && now.ID == t.ID {
		t = now
	}
	if c.leaderless(t, number) {
		return nil
	}
	return image.Brokers[c.leadership(t, number).leader]
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
