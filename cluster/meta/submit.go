package meta

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"gopherlog/cluster/meta/metapb"
	"gopherlog/cluster/rpc"

	"google.golang.org/protobuf/proto"
)

const methodSubmit = "meta.submit"

const (
	// submitTimeout bounds a command whose context has no deadline.
	submitTimeout = 30 * time.Second
	// tryTimeout bounds one try, so that a leader that hangs does not use up the whole time; a command that is tried twice takes
	// effect once.
	tryTimeout = 3 * time.Second
	// first and longest pause between two tries.
	minRetry, maxRetry = 10 * time.Millisecond, 250 * time.Millisecond
)

// submit brings a command to the control leader, wherever it is, and returns what the state machine answered, once this node's image
// shows it (or ctx ended meanwhile). Without an answer before ctx ends the error is an ErrNotController, and the command may yet
// take effect.
func (c *Controller) submit(ctx context.Context, cmd *metapb.Command, validateOnly bool) (*metapb.Result, error) {
	ctx, cancel := c.join(ctx)
	defer cancel()
	if _, ok := ctx.Deadline(); !ok {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, submitTimeout)
		defer stop()
	}
	id := newUUID()
	cmd.RequestId = id[:]
	req := &metapb.SubmitRequest{ClusterId: c.cfg.Identity.ClusterID(), Command: cmd, ValidateOnly: validateOnly}
	resp, err := c.tryUntil(ctx, req)
	if err != nil {
		return nil, err
	}
	if resp.Code != metapb.Code_OK {
		return nil, codeError(resp.Code, resp.Message)
	}
	if !validateOnly {
		_ = c.views.wait(ctx, func(img *Image) bool { return img.Epoch >= resp.Result.Index }) // the command is done all the same
	}
	return resp.Result, nil
}

func (c *Controller) tryUntil(ctx context.Context, req *metapb.SubmitRequest) (*metapb.SubmitResponse, error) {
	hint, pause := NoLeader, minRetry
	for try := 0; ; try++ {
		resp, err := c.try(ctx, c.target(try, hint), req)
		if err == nil && final(resp.Code) {
			return resp, nil
		}
		hint = NoLeader
		if err == nil {
			if resp.LeaderHint != nil {
				hint = NodeID(*resp.LeaderHint)
			}
			err = codeError(resp.Code, resp.Message)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			if cause := context.Cause(ctx); cause == ErrClosed {
				return nil, ErrClosed
			}
			return nil, fmt.Errorf("%w within the time given; last: %w", ErrNotController, err)
		}
		pause = min(2*pause, maxRetry)
	}
}

// final says whether an answer would be the same from any leader at any time.
func final(code metapb.Code) bool {
	return code != metapb.Code_NOT_CONTROLLER && code != metapb.Code_IN_PROGRESS
}

// target chooses whom to ask: the leader that the own group knows, else the one that was hinted at, else each peer in turn.
func (c *Controller) target(try int, hint NodeID) NodeID {
	if id, ok := c.Leader(); ok {
		return id
	}
	if hint != NoLeader {
		return hint
	}
	peers := slices.Sorted(maps.Keys(c.cfg.Node.Peers()))
	if len(peers) == 0 {
		return c.self.ID
	}
	return peers[try%len(peers)]
}

func (c *Controller) try(ctx context.Context, to NodeID, req *metapb.SubmitRequest) (*metapb.SubmitResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	if to == c.self.ID {
		return c.lead(ctx, req), nil
	}
	raw, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	raw, err = c.cfg.Node.Call(ctx, to, methodSubmit, raw)
	if err != nil {
		return nil, fmt.Errorf("ask node %d: %w", to, err)
	}
	resp := &metapb.SubmitResponse{}
	if err := proto.Unmarshal(raw, resp); err != nil {
		return nil, fmt.Errorf("decode answer of node %d: %w", to, err)
	}
	if resp.Code == metapb.Code_OK && resp.Result == nil {
		return nil, fmt.Errorf("answer of node %d has no result", to)
	}
	return resp, nil
}

func (c *Controller) handleSubmit(ctx context.Context, _ NodeID, raw []byte) ([]byte, error) {
	var req metapb.SubmitRequest
	if err := proto.Unmarshal(raw, &req); err != nil {
		return nil, fmt.Errorf("decode command: %w", err)
	}
	ctx, cancel := c.join(ctx)
	defer cancel()
	return proto.Marshal(c.lead(ctx, &req))
}

// lead answers for this node as the control leader, or says that it is not.
func (c *Controller) lead(ctx context.Context, req *metapb.SubmitRequest) *metapb.SubmitResponse {
	if own := c.cfg.Identity.ClusterID(); own != "" && req.ClusterId != own {
		return answer(metapb.Code_FOREIGN_CLUSTER, fmt.Errorf("node %d belongs to cluster %s, the command is for %q", c.self.ID, own, req.ClusterId))
	}
	ctl := c.controlGroup()
	if ctl == nil || !ctl.IsLeader() || req.Command == nil {
		return c.notLeader()
	}
	if req.ValidateOnly {
		return c.rehearse(ctx, ctl, req.Command)
	}
	if reg := req.Command.GetRegisterBroker(); reg != nil {
		if code, err := c.admit(ctx, ctl, reg.GetBroker()); code != metapb.Code_OK {
			return answer(code, err)
		}
	}
	return c.propose(ctx, ctl, req.Command)
}

func (c *Controller) propose(ctx context.Context, ctl Control, cmd *metapb.Command) *metapb.SubmitResponse {
	cmd.Live = c.live()
	raw, err := proto.Marshal(cmd)
	if err != nil {
		return answer(metapb.Code_INVALID_REQUEST, err)
	}
	out, err := ctl.Apply(ctx, raw)
	if err != nil {
		return answer(metapb.Code_NOT_CONTROLLER, err)
	}
	return &metapb.SubmitResponse{Result: out.(*metapb.Result)}
}

// rehearse applies the command to a copy that nobody sees.
func (c *Controller) rehearse(ctx context.Context, ctl Control, cmd *metapb.Command) *metapb.SubmitResponse {
	if err := ctl.Barrier(ctx); err != nil {
		return answer(metapb.Code_NOT_CONTROLLER, err)
	}
	cmd.Live = c.live()
	img := c.Image()
	_, result := img.apply(img.Epoch, cmd)
	return &metapb.SubmitResponse{Result: result}
}

// admit makes a broker a member of the control group before it is registered, and the first of all names the cluster.
func (c *Controller) admit(ctx context.Context, ctl Control, b *metapb.Broker) (metapb.Code, error) {
	if c.Image().ClusterID == "" {
		init := &metapb.Command{Op: &metapb.Command_InitCluster{InitCluster: &metapb.InitCluster{ClusterId: c.cfg.Identity.ClusterID()}}}
		if resp := c.propose(ctx, ctl, init); resp.Code != metapb.Code_OK {
			return resp.Code, codeError(resp.Code, resp.Message)
		}
	}
	joining := rpc.MakeServerID(NodeID(b.GetId()), b.GetIncarnation())
	if _, known := c.cfg.Node.Peers()[joining.Node()]; !known && joining.Node() != c.self.ID && b.GetRpcAddr() != "" {
		c.cfg.Node.SetPeer(joining.Node(), b.GetRpcAddr()) // it cannot catch up before it is in the image, from which others learn it
	}
	for {
		var err error
		switch step, whom := nextStep(ctl.Members(), joining); step {
		case stepDone:
			return metapb.Code_OK, nil
		case stepRemove:
			if code, err := c.replaceable(ctx, whom, joining); err != nil {
				return code, err
			}
			c.log.Info("control group: wiped node leaves under its old id", "old", whom, "new", joining)
			err = ctl.RemoveServer(ctx, whom)
		case stepAdd:
			err = ctl.AddNonvoter(ctx, joining)
		case stepPromote:
			if !ctl.CaughtUp(joining) {
				return metapb.Code_IN_PROGRESS, fmt.Errorf("%s is catching up with the control group", joining)
			}
			err = ctl.AddVoter(ctx, joining)
		}
		if err != nil {
			return metapb.Code_NOT_CONTROLLER, err
		}
	}
}

// replaceable asks the node itself which incarnation it is: a second process that was started with the id of a running one must not
// take its place.
func (c *Controller) replaceable(ctx context.Context, old, joining rpc.ServerID) (metapb.Code, error) {
	if joining.Node() == c.self.ID {
		return metapb.Code_NODE_ID_IN_USE, fmt.Errorf("node %d is running as %s", c.self.ID, c.self.ServerID())
	}
	a, err := c.hello(ctx, joining.Node())
	if err != nil {
		return metapb.Code_IN_PROGRESS, fmt.Errorf("node %d cannot be reached by the control leader: %w", joining.Node(), err)
	}
	if rpc.ServerID(a.ServerId) != joining {
		return metapb.Code_NODE_ID_IN_USE, fmt.Errorf("node %d is running as %s, another process asks to join as %s: give it another -id", joining.Node(), a.ServerId, joining)
	}
	return metapb.Code_OK, nil
}

// live lists the nodes that are alive and may be given new replicas. This node's image may be older than the log that the command is
// appended to, so a peer that it does not show counts too: whoever applies the command knows who is registered.
func (c *Controller) live() []int32 {
	img, peers := c.Image(), c.cfg.Node.Peers()
	nodes := append(slices.AppendSeq(slices.Collect(maps.Keys(img.Brokers)), maps.Keys(peers)), c.self.ID)
	slices.Sort(nodes)
	var out []int32
	for _, id := range slices.Compact(nodes) {
		if b := img.Brokers[id]; b != nil && !b.Eligible() || id != c.self.ID && !c.cfg.Node.Alive(id) {
			continue
		}
		out = append(out, int32(id))
	}
	return out
}

func (c *Controller) notLeader() *metapb.SubmitResponse {
	resp := answer(metapb.Code_NOT_CONTROLLER, fmt.Errorf("node %d does not lead the control group", c.self.ID))
	if id, ok := c.Leader(); ok && id != c.self.ID {
		hint := int32(id)
		resp.LeaderHint = &hint
	}
	return resp
}

func answer(code metapb.Code, err error) *metapb.SubmitResponse {
	return &metapb.SubmitResponse{Code: code, Message: err.Error()}
}
