package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"gopherlog/bench/target"
)

// asker is a target whose control port can be read.
type asker interface {
	Ask(ctx context.Context, id int, path string) ([]byte, error)
}

// errNoPoint: a node that knows no such point will not learn it.
var errNoPoint = errors.New("no such failpoint")

// pollPause is between questions whether a node stands at a point.
const pollPause = 5 * time.Millisecond

// awaitPoint stops the chosen node at a failpoint of the broker, at its Hit-th pass from now on, and returns when it stands there. A
// question without an answer is asked again: a busy node answers late. Where the node never comes to stand there, nothing stays armed.
func awaitPoint(ctx context.Context, env *Env, nodes []int, p Plan) (string, error) {
	ask, ok := env.Target.(asker)
	if !ok {
		return "", fmt.Errorf("failpoint %s: %w", p.Failpoint, target.ErrUnsupported)
	}
	if len(nodes) != 1 {
		return "", fmt.Errorf("failpoint %s: aims at one node, not at %d", p.Failpoint, len(nodes))
	}
	id := nodes[0]
	before, err := hits(ctx, ask, id, p.Failpoint)
	for err != nil && !errors.Is(err, errNoPoint) && sleepUntil(ctx, time.Now().Add(pollPause)) {
		before, err = hits(ctx, ask, id, p.Failpoint)
	}
	if err != nil {
		return "", err
	}
	arm := map[string]any{"name": p.Failpoint, "action": fmt.Sprintf("block nth=%d", p.Hit)}
	if err := env.Target.Control(ctx, id, "/failpoint", arm); err != nil {
		return "", fmt.Errorf("arm failpoint %s in node %d: %w", p.Failpoint, id, err)
	}
	for now := before; ; {
		n, err := hits(ctx, ask, id, p.Failpoint)
		if err == nil {
			now = n
		}
		if now >= before+p.Hit {
			return fmt.Sprintf("node %d stood at %s, pass %d", id, p.Failpoint, p.Hit), nil
		}
		if !sleepUntil(ctx, time.Now().Add(pollPause)) {
			err := fmt.Errorf("node %d passed %s %d of %d times before the trial ended", id, p.Failpoint, now-before, p.Hit)
			return "", errors.Join(err, disarm(context.WithoutCancel(ctx), env, id, p.Failpoint))
		}
	}
}

func disarm(ctx context.Context, env *Env, id int, name string) error {
	if err := env.Target.Control(ctx, id, "/failpoint", map[string]any{"name": name, "action": "off"}); err != nil {
		return fmt.Errorf("disarm failpoint %s in node %d: %w", name, id, err)
	}
	return nil
}

const hitsPatience = 2 * time.Second // of one question for them

// hits is how often a node has passed a point.
func hits(ctx context.Context, ask asker, id int, name string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, hitsPatience)
	defer cancel()
	b, err := ask.Ask(ctx, id, "/failpoint")
	if err != nil {
		return 0, fmt.Errorf("read the failpoints of node %d: %w", id, err)
	}
	var points []struct {
		Name string `json:"name"`
		Hits int64  `json:"hits"`
	}
	if err := json.Unmarshal(b, &points); err != nil {
		return 0, fmt.Errorf("read the failpoints of node %d: %w", id, err)
	}
	for _, p := range points {
		if p.Name == name {
			return p.Hits, nil
		}
	}
	return 0, fmt.Errorf("node %d: %w: %q", id, errNoPoint, name)
}

// strike befalls a member of a consumer group of the harness, not a node. The member's replacement is what heals it.
type strike struct {
	kind   string
	worker int
	length time.Duration
}

func (f *strike) Inject(ctx context.Context, env *Env, _ []int) (string, error) {
	if env.Worker == nil {
		return "", fmt.Errorf("the trial has no worker(%d)", f.worker)
	}
	return env.Worker(ctx, f.worker, f.kind, f.length)
}

func (f *strike) Heal(context.Context, *Env, []int) (string, error) {
	return "another member took its place", nil
}
