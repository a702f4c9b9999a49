package rpc

import (
	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc/rpcpb"
)

// RequestVote and RequestPreVote are the library's. A suspect replica asks for
// no votes. The term is raised before the request leaves.
func (g *group) RequestVote(_ raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	g.raise(args.Term)
	r, err := g.vote(ServerID(target), &rpcpb.Vote{
		Term: args.Term, LastIndex: args.LastLogIndex, LastTerm: args.LastLogTerm, LeadershipTransfer: args.LeadershipTransfer,
	})
	if err != nil {
		return err
	}
	*resp = raft.RequestVoteResponse{Term: r.GetTerm(), Granted: r.GetGranted()}
	return nil
}

func (g *group) RequestPreVote(_ raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	r, err := g.vote(ServerID(target), &rpcpb.Vote{
		Pre: true, Term: args.Term, LastIndex: args.LastLogIndex, LastTerm: args.LastLogTerm,
	})
	if err != nil {
		return err
	}
	*resp = raft.RequestPreVoteResponse{Term: r.GetTerm(), Granted: r.GetGranted()}
	return nil
}

func (g *group) vote(to ServerID, v *rpcpb.Vote) (*rpcpb.VoteReply, error) {
	if g.suspect() {
		return nil, ErrSuspect
	}
	if g.stalled.Load() {
		return nil, ErrStalled
	}
	p := g.node.peer(to.Node())
	if p == nil {
		return nil, &remoteError{ErrUnknownPeer, "rpc: no address for " + string(to)}
	}
	v.Target = g.target(to)
	m, err := g.ask(p, &rpcpb.Message{Body: &rpcpb.Message_Vote{Vote: v}}, g.node.cfg.VoteTimeout)
	if err != nil {
		return nil, err
	}
	return m.GetVoteReply(), nil
}
