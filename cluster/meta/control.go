package meta

import (
	"context"
	"slices"

	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
)

// Network is what the controller needs of rpc.Node.
type Network interface {
	Handle(method string, h rpc.Handler)
	Call(ctx context.Context, to NodeID, method string, req []byte) ([]byte, error)
	Alive(id NodeID) bool
	Peers() map[NodeID]string
	SetPeer(id NodeID, addr string)
	// ReportsDead names the peers that take id for dead, as of what they last said.
	ReportsDead(id NodeID) map[NodeID]bool
	// OnPeerChange and OnReport add a callback, which must not block.
	OnPeerChange(fn func(id NodeID, alive bool))
	OnReport(fn func(about NodeID))
}

// Member is one server of the control group.
type Member = replica.Member

// Control is what the controller needs of the control group; OnReplica gives the real one.
type Control interface {
	// Apply proposes a command and returns what the state machine answered. An error is ambiguous: the command may yet take effect.
	Apply(ctx context.Context, cmd []byte) (any, error)
	// Barrier returns when this leader has applied everything that was committed before.
	Barrier(ctx context.Context) error
	// Leader is "" while none is known.
	Leader() rpc.ServerID
	IsLeader() bool
	Members() []Member
	AddNonvoter(ctx context.Context, id rpc.ServerID) error
	AddVoter(ctx context.Context, id rpc.ServerID) error
	RemoveServer(ctx context.Context, id rpc.ServerID) error
	// CaughtUp says, on the leader, whether id holds everything that is committed.
	CaughtUp(id rpc.ServerID) bool
	TransferTo(ctx context.Context, id rpc.ServerID) error
	// Campaign makes this member ask for leadership at once instead of after an election timeout.
	Campaign() error
	Close(ctx context.Context) error
}

// OnReplica makes Config.OpenControl out of the real control group. FSM, Self and Bootstrap are filled in.
func OnReplica(cfg replica.ControlConfig) func(replica.ControlFSM, rpc.ServerID, []rpc.ServerID) (Control, error) {
	return func(fsm replica.ControlFSM, self rpc.ServerID, founders []rpc.ServerID) (Control, error) {
		cfg.FSM, cfg.Self, cfg.Bootstrap = fsm, self, founders
		return replica.OpenControl(cfg)
	}
}

// maxControlVoters bounds who votes; further nodes follow the control group without a vote.
const maxControlVoters = 7

// step is the next thing to do so that a node becomes a member of the control group.
type step int

const (
	stepDone step = iota
	stepRemove
	stepAdd
	stepPromote
)

// nextStep looks at the members and says what is missing for joining to be one of them, and whom that concerns. An older incarnation
// of the same node leaves first: it has forgotten nothing that counts, since its disk is gone, and two would be one vote too many.
func nextStep(members []Member, joining rpc.ServerID) (step, rpc.ServerID) {
	voters := 0
	for _, m := range members {
		if m.ID != joining && m.ID.Node() == joining.Node() {
			return stepRemove, m.ID
		}
		if m.Voter {
			voters++
		}
	}
	at := slices.IndexFunc(members, func(m Member) bool { return m.ID == joining })
	switch {
	case at < 0:
		return stepAdd, joining
	case members[at].Voter || voters >= maxControlVoters:
		return stepDone, joining
	default:
		return stepPromote, joining
	}
}
