package main

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"gopherlog/cluster/replica"
)

// commitRow is the time from a proposal to its commit with nothing else under way.
func commitRow(e *env) row {
	const size = 16 << 10
	chunk := batchOf(size)
	ops := e.pick(4000, 20)
	return row{
		name: "commit latency, one in flight", unit: "µs p50", value: micros, limit: 3, atMost: true, note: "16 KiB; bare: gRPC stream echo and one pwrite",
		open: func(ctx context.Context, dir string) (bare, ours side, end func(), err error) {
			echo, err := openEcho(filepath.Join(dir, "echo"))
			if err != nil {
				return nil, nil, nil, err
			}
			bare = func(context.Context, string) (sample, error) {
				return latencies(ops, len(chunk), func() error { return echo.trip(chunk) })
			}
			ours = func(ctx context.Context, dir string) (sample, error) {
				t, err := openTrio(ctx, dir, 1)
				defer t.close()
				if err != nil {
					return sample{}, err
				}
				return latencies(ops, len(chunk), func() error { return t.commit(ctx, chunk) })
			}
			return bare, ours, echo.close, nil
		},
	}
}

// latencies repeats one operation, after a warm-up of an eighth.
func latencies(ops, size int, one func() error) (sample, error) {
	for range ops/8 + 1 {
		if err := one(); err != nil {
			return sample{}, err
		}
	}
	took := make([]time.Duration, ops)
	m := startMeter()
	for i := range took {
		began := time.Now()
		if err := one(); err != nil {
			return sample{}, err
		}
		took[i] = time.Since(began)
	}
	s := m.stop(int64(ops), int64(ops)*int64(size))
	slices.Sort(took)
	s.p50 = took[len(took)/2]
	return s, nil
}

// commit proposes one batch to the first group and waits.
func (t *trio) commit(ctx context.Context, chunk []byte) error {
	g, done := t.groups[0], make(chan error, 1)
	p := replica.Proposal{Data: append([]byte(nil), chunk...), Term: g.Status().Term, Done: func(_ int64, err error) { done <- err }}
	if err := g.Propose(&p); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
