// Package fault injects failures into a running target, heals them, and proves
// that each one bit.
//
// It knows kinds of faults, whom they hit and how their effect is observed from
// outside. It knows nothing of load or delivery: whether a guarantee held is
// judged elsewhere, and a fault without proof makes that judgement inconclusive.
package fault

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"gopherlog/bench/target"
)

// ErrSkipped marks a fault that this machine cannot inject; the reason is in
// the wrapping error and is printed.
var ErrSkipped = errors.New("skipped")

// Env is what a fault may touch. Net is nil where no network namespace could be
// entered; NetReason then says why.
type Env struct {
	Target    target.Target
	Roles     target.Roles
	Net       Network
	NetReason string
	// Coordinator names the node that coordinates the trial's transactions ("txn") or its first group ("group"); nil: the trial has none.
	Coordinator func(ctx context.Context, of string) (int32, error)
	// Worker lets a fault befall a member of the trial's first group; nil: it has none.
	Worker func(ctx context.Context, n int, kind string, d time.Duration) (proof string, err error)

	parted atomic.Bool // a network partition is in effect
}

// Fault is one kind of failure aimed at chosen nodes. Inject returns once the
// fault is in effect; Heal returns once the system has been put back, not once
// it has recovered. Each returns what proves it. Neither may be called twice;
// after a failed Inject, Heal undoes what was begun.
type Fault interface {
	Inject(ctx context.Context, env *Env, nodes []int) (proof string, err error)
	Heal(ctx context.Context, env *Env, nodes []int) (proof string, err error)
}

// New returns the fault of a scenario's kind and shape.
func New(kind, shape string) (Fault, error) {
	switch {
	case kind == "kill" && shape == "":
		return &kill{}, nil
	case kind == "pause" && shape == "":
		return &pause{}, nil
	case kind == "partition" && shape == "isolate":
		return &isolate{}, nil
	case kind == "partition" && shape == "halves":
		return &halves{}, nil
	case kind == "partition":
		return nil, fmt.Errorf("a network partition of shape %q is not supported yet: use isolate or halves", shape)
	case shape != "":
		return nil, fmt.Errorf("a fault of kind %q has no shape", kind)
	}
	return nil, fmt.Errorf("unknown fault kind %q: use kill, pause or partition", kind)
}

// Selector names the nodes that a fault hits; it is resolved when the fault
// starts, because leaders move.
type Selector struct {
	Role      string // leader | follower | node | all | txn_coordinator | group_coordinator | worker
	Topic     string
	Partition int32
	Node      int
	Worker    int // counted from 0
}

var (
	roleForm = regexp.MustCompile(`^(leader|follower)\(([A-Za-z0-9._-]+)/(\d+)\)$`)
	nodeForm = regexp.MustCompile(`^node\((\d+)\)$`)
	workForm = regexp.MustCompile(`^worker\((\d+)\)$`)
)

// ParseSelector reads leader(topic/partition), follower(topic/partition),
// node(n), worker(n), txn_coordinator, group_coordinator or all.
func ParseSelector(s string) (Selector, error) {
	switch s {
	case "all", txnCoordinator, groupCoordinator:
		return Selector{Role: s}, nil
	}
	if m := workForm.FindStringSubmatch(s); m != nil {
		n, err := strconv.Atoi(m[1])
		return Selector{Role: "worker", Worker: n}, err
	}
	if m := nodeForm.FindStringSubmatch(s); m != nil {
		n, err := strconv.Atoi(m[1])
		return Selector{Role: "node", Node: n}, err
	}
	if m := roleForm.FindStringSubmatch(s); m != nil {
		p, err := strconv.ParseInt(m[3], 10, 32)
		return Selector{Role: m[1], Topic: m[2], Partition: int32(p)}, err
	}
	return Selector{}, fmt.Errorf("%q names no target: use leader(topic/partition), follower(topic/partition), node(n), worker(n), txn_coordinator, group_coordinator or all", s)
}

// Targets that are looked up with the brokers when the fault begins.
const (
	txnCoordinator   = "txn_coordinator"
	groupCoordinator = "group_coordinator"
)

// Resolve returns the ids of the nodes that the selector means now.
func (s Selector) Resolve(ctx context.Context, env *Env) ([]int, error) {
	nodes := env.Target.Nodes()
	switch s.Role {
	case "all":
		var ids []int
		for _, n := range nodes {
			ids = append(ids, n.ID)
		}
		return ids, nil
	case "node":
		if s.Node < 1 || s.Node > len(nodes) {
			return nil, fmt.Errorf("there is no node(%d): the target has %d", s.Node, len(nodes))
		}
		return []int{s.Node}, nil
	case txnCoordinator, groupCoordinator:
		if env.Coordinator == nil {
			return nil, fmt.Errorf("the trial has nothing that %s would be for", s.Role)
		}
		id, err := env.Coordinator(ctx, strings.TrimSuffix(s.Role, "_coordinator"))
		return []int{int(id)}, err
	}
	leader, err := s.awaitLeader(ctx, env)
	if err != nil {
		return nil, err
	}
	if s.Role == "leader" {
		return []int{leader}, nil
	}
	held, err := env.Roles.Replicas(ctx, s.Topic)
	if err != nil {
		return nil, fmt.Errorf("find who holds %s/%d: %w", s.Topic, s.Partition, err)
	}
	for _, n := range nodes {
		if n.ID != leader && n.State == target.Running && slices.Contains(held[s.Partition], int32(n.ID)) {
			return []int{n.ID}, nil
		}
	}
	return nil, fmt.Errorf("no node but the leader of %s/%d both runs and holds it", s.Topic, s.Partition)
}

// leaderPatience is how long a fault waits for its partition to have a leader: it may still be without one by the fault before.
const leaderPatience = 10 * time.Second

// awaitLeader returns the node that leads the selector's partition, as soon as there is one; after leaderPatience, why it is not known.
func (s Selector) awaitLeader(ctx context.Context, env *Env) (int, error) {
	limit := time.Now().Add(leaderPatience)
	for {
		leader, err := target.Leader(ctx, env.Roles, s.Topic, s.Partition)
		if err == nil || time.Now().After(limit) || !sleepUntil(ctx, time.Now().Add(50*time.Millisecond)) {
			return leader, err
		}
	}
}

// Event is what became of one planned fault. Zero times mean "did not happen".
type Event struct {
	Kind      string    `json:"kind"`
	Shape     string    `json:"shape,omitempty"`
	Target    string    `json:"target"`
	Failpoint string    `json:"failpoint,omitempty"` // where in the broker's work it struck; "": at some moment
	Nodes     []int     `json:"nodes"`
	Planned   time.Time `json:"planned"`
	Injected  time.Time `json:"injected"`  // asked for
	Effective time.Time `json:"effective"` // proved
	HealAsked time.Time `json:"heal_asked"`
	Healed    time.Time `json:"healed"`
	Proof     string    `json:"proof,omitempty"`
	Pace      *float64  `json:"pace,omitempty"` // records a second that the aimed-at partition acknowledged just before; nil: no partition
	HealProof string    `json:"heal_proof,omitempty"`
	Error     string    `json:"error,omitempty"`
	Skipped   bool      `json:"skipped,omitempty"`
}

// Proved says whether the fault was seen to bite.
func (e Event) Proved() bool { return e.Proof != "" && e.Error == "" && !e.Skipped }
