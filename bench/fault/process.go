package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"gopherlog/bench/target"
)

// proofTimeout bounds how long a fault may take to show its effect.
const proofTimeout = 5 * time.Second

// kill ends processes with SIGKILL and starts them again on their data.
type kill struct{}

func (*kill) Inject(ctx context.Context, env *Env, nodes []int) (string, error) {
	var proofs []string
	for _, id := range nodes {
		pid := node(env, id).PID
		if err := env.Target.Kill(ctx, id); err != nil {
			return "", fmt.Errorf("kill node %d: %w", id, err)
		}
		addr := node(env, id).Client
		if err := refused(ctx, addr); err != nil {
			return "", fmt.Errorf("node %d was killed but %s still answers: %w", id, addr, err)
		}
		proofs = append(proofs, fmt.Sprintf("process %d of node %d is gone, %s refuses connections", pid, id, addr))
	}
	return strings.Join(proofs, "; "), nil
}

func (*kill) Heal(ctx context.Context, env *Env, nodes []int) (string, error) {
	errs := make(chan error, len(nodes))
	for _, id := range nodes { // all at once: a majority may be needed to become ready
		go func() { errs <- env.Target.Restart(ctx, id) }()
	}
	var all []error
	for range nodes {
		all = append(all, <-errs)
	}
	if err := errors.Join(all...); err != nil {
		return "", err
	}
	return fmt.Sprintf("ready again: node %s", join(nodes)), nil
}

// pause stops processes with SIGSTOP: their sockets stay open and answer nothing.
type pause struct{}

func (*pause) Inject(ctx context.Context, env *Env, nodes []int) (string, error) {
	var proofs []string
	for _, id := range nodes {
		pid := node(env, id).PID
		if err := env.Target.Pause(id); err != nil {
			return "", fmt.Errorf("pause node %d: %w", id, err)
		}
		if err := awaitState(ctx, pid, 'T'); err != nil {
			return "", fmt.Errorf("node %d: %w", id, err)
		}
		proofs = append(proofs, fmt.Sprintf("process %d of node %d is in state T (stopped)", pid, id))
	}
	return strings.Join(proofs, "; "), nil
}

func (*pause) Heal(_ context.Context, env *Env, nodes []int) (string, error) {
	for _, id := range nodes {
		if err := env.Target.Resume(id); err != nil {
			return "", fmt.Errorf("resume node %d: %w", id, err)
		}
	}
	return fmt.Sprintf("continued: node %s", join(nodes)), nil
}

func node(env *Env, id int) target.Node {
	for _, n := range env.Target.Nodes() {
		if n.ID == id {
			return n
		}
	}
	return target.Node{ID: id}
}

func join(ids []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ", "), "[]")
}

// refused returns nil once addr refuses connections.
func refused(ctx context.Context, addr string) error {
	return poll(ctx, func() error {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err == nil {
			c.Close()
			return errors.New("it accepts connections")
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		return err
	})
}

// awaitState returns nil once the process table shows the process in state.
func awaitState(ctx context.Context, pid int, state byte) error {
	return poll(ctx, func() error {
		s, err := target.ReadProc(pid)
		if err == nil && s.State != state {
			err = fmt.Errorf("process %d is in state %c, not %c", pid, s.State, state)
		}
		return err
	})
}

// poll repeats check every 5 ms until it succeeds or proofTimeout is over.
func poll(ctx context.Context, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}
