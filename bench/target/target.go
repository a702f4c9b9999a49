// Package target starts, finds the roles in, samples and stops a system under test.
//
// It knows processes, addresses, readiness and how a system tells who leads what.
// It knows nothing of load, faults or verdicts, and it never reaches into a
// system except through its public ports, its signals and the process table.
package target

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrUnsupported says that this target cannot do what was asked, for example
// kill a broker that somebody else runs.
var ErrUnsupported = errors.New("the target does not support this")

// NodeState is what the harness last did to a node's process.
type NodeState string

// The states of a node. Unknown is the state of every node of an external system.
const (
	Running NodeState = "running"
	Paused  NodeState = "paused"
	Down    NodeState = "down"
	Unknown NodeState = "unknown"
)

// Node is one broker process of the system under test.
type Node struct {
	ID     int
	Client string // host:port that clients dial
	Host   string // the loopback address that only this node uses, "" when external
	Admin  string // host:port of the admin HTTP server, "" when there is none
	PID    int    // 0 when down or external
	State  NodeState
	Log    string // path of the captured standard error
	Data   string // data directory
}

// Roles answers who leads and who holds a partition; the load driver implements
// it, so that this package needs no Kafka client.
type Roles interface {
	Replicas(ctx context.Context, topic string) (map[int32][]int32, error)
	Leaders(ctx context.Context, topic string) (map[int32]int32, error)
}

// Target is a system under test. Start returns when every node is ready to
// serve. Stop ends every process that Start made, whatever state it is in, and
// may be called more than once. The methods may be called from any goroutine.
type Target interface {
	System() string
	Version() string
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Bootstrap() []string
	Nodes() []Node
	// Deaths lists processes that ended although nobody ended them.
	Deaths() []string
	// Kill ends a node with SIGKILL and returns when the process is gone. A node
	// that had ended by itself is an error: the fault did not happen.
	Kill(ctx context.Context, id int) error
	// Restart starts a killed node on its data and returns when it is ready.
	Restart(ctx context.Context, id int) error
	// Pause stops a node with SIGSTOP, Resume continues it.
	Pause(id int) error
	Resume(id int) error
	// Control switches a planted fault of the broker on or off.
	Control(ctx context.Context, id int, path string, body any) error
}

// Leader returns the node that leads a partition now.
func Leader(ctx context.Context, r Roles, topic string, partition int32) (int, error) {
	m, err := r.Leaders(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("find the leader of %s/%d: %w", topic, partition, err)
	}
	id, ok := m[partition]
	if !ok || id < 0 {
		return 0, fmt.Errorf("find the leader of %s/%d: the partition has no leader", topic, partition)
	}
	return int(id), nil
}

// waitFor polls ready every 20 ms until it returns nil, gives up or ctx ends; the
// last reason is in the error.
func waitFor(ctx context.Context, what string, ready func(context.Context) (giveUp bool, err error)) error {
	for {
		giveUp, err := ready(ctx)
		if err == nil {
			return nil
		}
		if giveUp {
			return fmt.Errorf("%s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (last answer: %v)", what, ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
