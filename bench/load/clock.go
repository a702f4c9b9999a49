package load

import (
	"context"
	"sync"
	"time"
)

// A Clock is the one clock of a trial: load, history, faults and samples are placed on it.
type Clock struct {
	once    sync.Once
	started chan struct{}
	zero    time.Time // set before started is closed
}

// NewClock makes a clock that has not started.
func NewClock() *Clock { return &Clock{started: make(chan struct{})} }

// Start sets zero to now and closes Started. Run calls it before the first send; later calls do nothing.
func (c *Clock) Start() {
	c.once.Do(func() {
		c.zero = time.Now()
		close(c.started)
	})
}

// Started is closed when the clock runs.
func (c *Clock) Started() <-chan struct{} { return c.started }

func (c *Clock) running() bool {
	select {
	case <-c.started:
		return true
	default:
		return false
	}
}

// Now is the time since zero, monotonic; zero before the start.
func (c *Clock) Now() time.Duration {
	if !c.running() {
		return 0
	}
	return time.Since(c.zero)
}

// Zero is the wall-clock time of zero; the zero time before the start.
func (c *Clock) Zero() time.Time {
	if !c.running() {
		return time.Time{}
	}
	return c.zero
}

// SleepUntil returns at the moment t, or earlier with ctx's error. It waits for the start first.
func (c *Clock) SleepUntil(ctx context.Context, t time.Duration) error {
	select {
	case <-c.started:
	case <-ctx.Done():
		return ctx.Err()
	}
	timer := time.NewTimer(t - c.Now())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
