package replica

import (
	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

// guarded keeps a replica that must not vote from asking for votes.
type guarded struct {
	rpc.GroupTransport
	mute func() error
}

// RequestVote refuses while the replica is mute.
func (t *guarded) RequestVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if err := t.mute(); err != nil {
		return err
	}
	return t.GroupTransport.RequestVote(id, to, args, resp)
}

// RequestPreVote refuses while the replica is mute.
func (t *guarded) RequestPreVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if err := t.mute(); err != nil {
		return err
	}
	return t.GroupTransport.RequestPreVote(id, to, args, resp)
}
