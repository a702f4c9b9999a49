package rpc

import (
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc/rpcpb"
)

// campaignWindow bounds a TimeoutNow from its sending to its effect. A node
// that was stopped and wakes up later must not depose a leader because of what
// somebody wanted long ago: the target first says that it is there, and
// campaigns only if the confirmation follows within the window, by its own
// monotonic clock.
const campaignWindow = 500 * time.Millisecond

// TimeoutNow asks the target replica to campaign at once. It returns when the
// replica has begun, or ErrTimeout after campaignWindow: then it will not.
func (g *group) TimeoutNow(_ raft.ServerID, target raft.ServerAddress, _ *raft.TimeoutNowRequest, _ *raft.TimeoutNowResponse) error {
	to := ServerID(target)
	p := g.node.peer(to.Node())
	if p == nil {
		return &remoteError{ErrUnknownPeer, "rpc: no address for " + string(to)}
	}
	start := time.Now()
	for _, confirmed := range []bool{false, true} {
		_, err := g.ask(p, &rpcpb.Message{Body: &rpcpb.Message_TimeoutNow{
			TimeoutNow: &rpcpb.TimeoutNow{Target: g.target(to), Confirmed: confirmed},
		}}, campaignWindow-time.Since(start))
		if err != nil {
			return err
		}
	}
	return nil
}

// campaignAsked answers the question and the confirmation.
func (n *Node) campaignAsked(out *sender, id uint64, m *rpcpb.TimeoutNow, serving bool) error {
	g, err := n.receiver(m.GetTarget(), serving)
	if err != nil {
		return err
	}
	ack := func() { out.send(&rpcpb.Message{Id: id, Body: &rpcpb.Message_Ack{Ack: &rpcpb.Ack{}}}) }
	if err := g.mayCampaign(); err != nil {
		return err
	}
	from := ServerID(m.GetTarget().GetFrom())
	if !m.GetConfirmed() {
		g.mu.Lock()
		g.offer = offer{to: from, at: time.Now()}
		g.mu.Unlock()
		ack()
		return nil
	}
	g.mu.Lock()
	o := g.offer
	g.offer = offer{}
	g.mu.Unlock()
	if o.to != from || time.Since(o.at) > campaignWindow {
		return ErrTimeout
	}
	return g.campaign(string(from), answerFunc(func(r raft.RPCResponse) {
		if r.Error != nil {
			n.answerTo(out, id, r.Error)
			return
		}
		ack()
	}))
}

// offer is the readiness of this replica to campaign, told to somebody.
type offer struct {
	to ServerID
	at time.Time
}

func (g *group) mayCampaign() error {
	if g.suspect() {
		return ErrSuspect
	}
	if g.opts.MayCampaign != nil && !g.opts.MayCampaign() {
		return ErrMayNotCampaign
	}
	return nil
}

// campaign delivers a TimeoutNow to this replica.
func (g *group) campaign(from string, a answerer) error {
	if err := g.mayCampaign(); err != nil {
		return err
	}
	header := raft.RPCHeader{ProtocolVersion: raftProtocol, ID: []byte(from), Addr: []byte(from)}
	return g.deliver(&raft.TimeoutNowRequest{RPCHeader: header}, nil, consumerDepth, a)
}

// TimeoutNow makes the target replica of group campaign at once, without
// asking whether it has a leader. On this node it is queued for the group and
// the call returns at once; elsewhere it returns when the replica has begun.
//
// A leader that is told so steps down: only ask followers, or set MayCampaign.
func (n *Node) TimeoutNow(id GroupID, target ServerID) error {
	g := n.group(id)
	if g == nil {
		return ErrUnknownGroup
	}
	if target.Node() != n.cfg.Node {
		return g.TimeoutNow(target.Raft(), target.Address(), nil, nil)
	}
	if target != g.self {
		return ErrStaleServer
	}
	return g.campaign(string(g.self), answerFunc(func(raft.RPCResponse) {}))
}
