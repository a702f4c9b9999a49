package replica

import (
	"fmt"
	"time"

	"gopherlog/engine/log"
)

// checkpointDue reports that a restart would read much again.
func (g *Group) checkpointDue() bool {
	applied, copied := g.appliedIndex.Load(), g.state.copied.Load()
	if applied <= copied {
		g.ticks = 0
		return false
	}
	return applied-copied >= checkpointEntries || g.log.Unsettled() >= checkpointBytes || time.Duration(g.ticks)*reconcileEvery >= checkpointEvery
}

// housekeep writes what is due on a goroutine of its own, one at a time: the
// loop must stay free for leadership events while the disk is slow.
func (g *Group) housekeep() {
	if g.failure() != nil || !g.busy.CompareAndSwap(false, true) {
		return
	}
	copyDue := g.checkpointDue()
	if copyDue {
		g.ticks = 0
	}
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		defer g.busy.Store(false)
		err := g.writeSnaps()
		if err == nil && copyDue {
			err = g.Checkpoint()
		}
		if unsaved := g.unsaved; err == nil {
			g.unsaved = false
		} else if g.unsaved = true; !unsaved { // tried again with every segment and checkpoint
			g.logger.Error("cannot write snapshot of partition", "group", g.id, "error", err)
		}
		if err != nil {
			if cause := g.log.Failed(); cause != nil {
				g.fail(cause)
			}
		}
	}()
}

// writeSnaps writes the states that were captured at segment ends.
func (g *Group) writeSnaps() error {
	s := &g.state
	for {
		s.mu.Lock()
		if len(s.snaps) == 0 {
			s.due.Store(false)
			s.mu.Unlock()
			return nil
		}
		b := s.snaps[0]
		s.snaps = s.snaps[1:]
		s.mu.Unlock()
		if b.Index+1 < g.log.FirstIndex() {
			continue // trimmed or replaced meanwhile
		}
		if err := g.points.Hit(failSnap); err != nil {
			return err
		}
		if err := g.log.WriteSnap(b); err != nil {
			return fmt.Errorf("write snapshot at the segment end %d: %w", b.Index, err)
		}
	}
}

// Checkpoint makes the log durable up to the applied index and stores the state
// there, so that a restart begins behind it. Order matters: a copy ahead of the
// log would hide a hole after a power loss.
func (g *Group) Checkpoint() error {
	b, ok, err := g.captureApplied()
	if err != nil || !ok {
		return err
	}
	if err := g.log.Sync(); err != nil {
		return fmt.Errorf("sync log for a checkpoint: %w", err)
	}
	if err := g.points.Hit(failCheckpoint); err != nil {
		return err
	}
	if err := g.cfg.KV.Set(g.restartKey(), encodeBase(b), true); err != nil {
		return fmt.Errorf("write restart copy: %w", err)
	}
	if err := g.log.Checkpoint(b.Index); err != nil {
		return fmt.Errorf("write recovery point: %w", err)
	}
	g.state.copied.Store(b.Index)
	return nil
}

// captureApplied takes the state as of the applied index; nothing if that did
// not move since the last copy.
func (g *Group) captureApplied() (b log.Base, ok bool, err error) {
	s := &g.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index <= s.copied.Load() || g.sealed.Load() {
		return b, false, nil
	}
	b, err = g.baseAt(s.index)
	return b, true, err
}
