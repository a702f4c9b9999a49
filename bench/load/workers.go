package load

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Workers are the members of a running trial's first group, for whoever injects faults.
type Workers struct {
	mu      sync.Mutex
	members []*member // empty before the load starts
}

func (w *Workers) set(members []*member) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members = members
}

// Strike lets member n vanish in the midst of its next poll (kill), or cuts it off there for at least d while another takes its place
// (pause). It returns when that has happened, with what was seen.
func (w *Workers) Strike(ctx context.Context, n int, kind string, d time.Duration) (proof string, err error) {
	w.mu.Lock()
	members := w.members
	w.mu.Unlock()
	if n >= len(members) {
		return "", fmt.Errorf("load: there is no worker %d among %d", n, len(members))
	}
	m := members[n]
	if kind == "kill" {
		d = -1
	}
	for {
		m.mu.Lock()
		inc := m.current
		m.mu.Unlock()
		if inc != nil {
			if proof, done := inc.struck(ctx, kind, d); done {
				return proof, nil
			}
		}
		if !pause(ctx, memberPause) {
			return "", fmt.Errorf("load: worker %s polled nothing to be struck in: %w", m.name, ctx.Err())
		}
	}
}

// struck hands the fault to the incarnation and waits until it bit, or the incarnation is over.
func (i *incarnation) struck(ctx context.Context, kind string, d time.Duration) (proof string, done bool) {
	select {
	case i.frozen <- d:
	case <-i.ended:
		return "", false
	case <-ctx.Done():
		return "", false
	}
	select {
	case <-i.replace:
		return fmt.Sprintf("%s, session %d, was cut off in the midst of a poll", i.member.name, i.session), true
	case <-i.ended:
		return fmt.Sprintf("%s, session %d, ended in the midst of a poll", i.member.name, i.session), kind == "kill"
	case <-ctx.Done():
		return "", false
	}
}
