package replica

import (
	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

// guarded is a group's transport as the library gets it.
type guarded struct {
	rpc.GroupTransport
	host *host
}

// SetHeartbeatHandler drops the handler. The library's fast path changes the
// term on the transport's goroutine while the main goroutine appends, and two
// replicas then hold different entries at one index and term. Heartbeats come
// through Consumer instead.
//
// It is also the library's last call before it starts its goroutines.
func (t *guarded) SetHeartbeatHandler(func(raft.RPC)) { t.host.booting.Store(false) }

// RequestVote refuses while the replica must not campaign.
func (t *guarded) RequestVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if err := t.host.mayAsk(); err != nil {
		return err
	}
	return t.GroupTransport.RequestVote(id, to, args, resp)
}

// RequestPreVote refuses while the replica must not campaign.
func (t *guarded) RequestPreVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if err := t.host.mayAsk(); err != nil {
		return err
	}
	return t.GroupTransport.RequestPreVote(id, to, args, resp)
}
