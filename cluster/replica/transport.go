package replica

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

// guarded is a group's transport as the library gets it.
type guarded struct {
	rpc.GroupTransport
	host *host
	gone chan struct{} // closed by Abort
	once sync.Once

	resigned atomic.Uint64 // no term up to this one is led any more
}

// retreatAfter is how long a replica that was told to campaign and lost a vote
// waits for a leader, its own victory included, before it becomes a follower
// again. It is longer than a winner needs to make itself known.
const retreatAfter = 400 * time.Millisecond

// Abort fails every call of the instance.
func (t *guarded) Abort() {
	t.once.Do(func() { close(t.gone) })
	t.GroupTransport.Abort()
}

// resign ends the requests of a term that this replica leads; false if that was
// done before.
func (t *guarded) resign(term uint64) bool {
	for {
		old := t.resigned.Load()
		if term <= old {
			return false
		}
		if t.resigned.CompareAndSwap(old, term) {
			t.Resign(term)
			return true
		}
	}
}

// AppendEntries answers in place of the peer once the replica has resigned: with
// a refusal and a newer term, as a peer that follows another leader does. To
// become a follower is always safe, and the library does it for either. What a
// peer said to a request from before is not handed on any more.
func (t *guarded) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	var err error
	if args.Term > t.resigned.Load() {
		err = t.GroupTransport.AppendEntries(id, to, args, resp)
	}
	if args.Term > t.resigned.Load() {
		return err
	}
	*resp = raft.AppendEntriesResponse{RPCHeader: resp.RPCHeader, Term: args.Term + 1}
	return nil
}

// SetHeartbeatHandler drops the handler. The library's fast path changes the
// term on the transport's goroutine while the main goroutine appends, and two
// replicas then hold different entries at one index and term. Heartbeats come
// through Consumer instead.
//
// It is also the library's last call before it starts its goroutines.
func (t *guarded) SetHeartbeatHandler(func(raft.RPC)) { t.host.booting.Store(false) }

// RequestVote refuses while the replica must not campaign.
//
// Two replicas that were told to campaign at the same time vote for themselves,
// and the library leaves both candidates for one or two election timeouts. So a refusal is handed on late and with a newer term, which any
// server may enter at any time: a candidate that is still one then becomes a
// follower, which can be told to campaign again.
func (t *guarded) RequestVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if err := t.host.mayAsk(); err != nil {
		return err
	}
	err := t.GroupTransport.RequestVote(id, to, args, resp)
	if err != nil || resp.Granted || resp.Term > args.Term || !args.LeadershipTransfer {
		return err
	}
	wait := time.NewTimer(retreatAfter)
	defer wait.Stop()
	select {
	case <-wait.C:
		resp.Term = args.Term + 1
	case <-t.gone:
	}
	return nil
}

// RequestPreVote refuses while the replica must not campaign.
func (t *guarded) RequestPreVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if err := t.host.mayAsk(); err != nil {
		return err
	}
	return t.GroupTransport.RequestPreVote(id, to, args, resp)
}
