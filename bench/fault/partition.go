package fault

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Network cuts the links between nodes inside the harness's own network
// namespace. Cut drops every packet between the two sides, both ways, without
// a reset: connections stay up and go silent. Dropped counts the packets that
// rules made since Cut have dropped. Mend removes all rules.
type Network interface {
	Cut(a, b []string) error
	Dropped() (uint64, error)
	Mend() error
}

// isolate parts each chosen node from all other nodes; clients still reach it.
// One at a time: counters and Mend speak of all rules, so that a second one
// would be proved by the packets of the first, and healed with it.
type isolate struct{ cutting bool }

func (f *isolate) Inject(ctx context.Context, env *Env, nodes []int) (string, error) {
	if env.Net == nil {
		return "", fmt.Errorf("%w: a network partition needs an unprivileged user and network namespace: %s", ErrSkipped, env.NetReason)
	}
	if !env.parted.CompareAndSwap(false, true) {
		return "", fmt.Errorf("isolate node %s: another network partition is still in effect", join(nodes))
	}
	f.cutting = true
	chosen := map[int]bool{}
	for _, id := range nodes {
		chosen[id] = true
	}
	for _, id := range nodes {
		var others []string
		for _, n := range env.Target.Nodes() {
			if n.ID != id && (n.ID > id || !chosen[n.ID]) {
				others = append(others, n.Host)
			}
		}
		if err := env.Net.Cut([]string{node(env, id).Host}, others); err != nil {
			return "", fmt.Errorf("isolate node %d: %w", id, err)
		}
	}
	var dropped uint64
	err := poll(ctx, func() (err error) {
		if dropped, err = env.Net.Dropped(); err == nil && dropped == 0 {
			err = fmt.Errorf("the rules dropped no packet within %s", proofTimeout)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("isolate node %s: %w", join(nodes), err)
	}
	return fmt.Sprintf("node %s cut from its peers, first of the packets dropped by %s", join(nodes), time.Now().Format("15:04:05.000")), nil
}

func (f *isolate) Heal(_ context.Context, env *Env, nodes []int) (string, error) {
	if !f.cutting {
		return "", nil
	}
	f.cutting = false
	defer env.parted.Store(false)
	dropped, err := env.Net.Dropped()
	if err := errors.Join(err, env.Net.Mend()); err != nil {
		return "", err
	}
	return fmt.Sprintf("rules removed for node %s after %d dropped packets", join(nodes), dropped), nil
}
