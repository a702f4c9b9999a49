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

// ClientHosts are the addresses from which the harness' clients dial where a scenario parts halves: those of one half from the first.
var ClientHosts = [2]string{"127.0.2.1", "127.0.2.2"}

// halves parts the nodes into the chosen ones, with as many others as make them less than a majority, and the rest; half of the
// clients on either side reach that side only.
type halves struct{ isolate }

func (f *halves) Inject(ctx context.Context, env *Env, nodes []int) (string, error) {
	if env.Net == nil {
		return "", fmt.Errorf("%w: a network partition needs an unprivileged user and network namespace: %s", ErrSkipped, env.NetReason)
	}
	if !env.parted.CompareAndSwap(false, true) {
		return "", fmt.Errorf("part node %s: another network partition is still in effect", join(nodes))
	}
	f.cutting = true
	few, many := split(env, nodes)
	for _, cut := range [][2][]string{{few, many}, {{ClientHosts[0]}, many}, {{ClientHosts[1]}, few}} {
		if err := env.Net.Cut(cut[0], cut[1]); err != nil {
			return "", fmt.Errorf("part node %s from the rest: %w", join(nodes), err)
		}
	}
	if err := awaitDrop(ctx, env); err != nil {
		return "", fmt.Errorf("part node %s from the rest: %w", join(nodes), err)
	}
	return fmt.Sprintf("%v and the clients at %s cut from %v and the clients at %s, first of the packets dropped by %s", few, ClientHosts[0], many, ClientHosts[1],
		time.Now().Format("15:04:05.000")), nil
}

// split names the hosts on both sides.
func split(env *Env, nodes []int) (few, many []string) {
	all := env.Target.Nodes()
	side := map[int]bool{}
	for _, id := range nodes {
		side[id] = true
	}
	for _, n := range all {
		if len(side) < (len(all)-1)/2 {
			side[n.ID] = true
		}
	}
	for _, n := range all {
		if side[n.ID] {
			few = append(few, n.Host)
		} else {
			many = append(many, n.Host)
		}
	}
	return few, many
}

// awaitDrop returns nil once a rule has dropped a packet.
func awaitDrop(ctx context.Context, env *Env) error {
	return poll(ctx, func() error {
		dropped, err := env.Net.Dropped()
		if err == nil && dropped == 0 {
			err = fmt.Errorf("the rules dropped no packet within %s", proofTimeout)
		}
		return err
	})
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
	if err := awaitDrop(ctx, env); err != nil {
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
