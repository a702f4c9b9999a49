package load

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/bench/history"
	"gopherlog/bench/scenario"
)

// stableTarget tells a last stable offset as the test wants.
type stableTarget struct {
	Driver
	end    func() int64
	stable func() int64
}

func (d *stableTarget) EndOffsets(context.Context, string) (map[int32]OffsetAnswer, error) {
	return map[int32]OffsetAnswer{0: {Offset: d.end()}}, nil
}

func (d *stableTarget) StableOffsets(context.Context, string) (map[int32]OffsetAnswer, error) {
	return map[int32]OffsetAnswer{0: {Offset: d.stable()}}, nil
}

// The final read waits for transactions that are about to end, and not for what nobody is going to end: what stood through the load without a
// fault as an excuse has had its time.
func TestWhatHoldsReadersBackIsWaitedForUntilItIsCertain(t *testing.T) {
	const timeout, load = 2 * time.Second, 20 * time.Second
	for name, c := range map[string]struct {
		troubled bool
		end      func(now time.Duration) int64 // nil: 100
		stable   func(now time.Duration) int64
		want     time.Duration // about
	}{
		"nothing does":             {stable: func(time.Duration) int64 { return 100 }},
		"stuck since the load":     {stable: func(time.Duration) int64 { return 7 }},
		"stuck since the faults":   {troubled: true, stable: func(time.Duration) int64 { return 7 }, want: timeout + stillGrace},
		"stuck since the very end": {stable: func(now time.Duration) int64 { return min(int64(now/time.Second), 19) }, want: timeout + stillGrace - time.Second},
		"ends late": {troubled: true, stable: func(now time.Duration) int64 {
			if now > load+5*time.Second {
				return 100
			}
			return 7
		}, want: 5 * time.Second},
		"stuck since the last transaction": {end: func(now time.Duration) int64 {
			if now > load-time.Second {
				return 100
			}
			return 7
		}, stable: func(time.Duration) int64 { return 7 }, want: timeout + stillGrace - time.Second},
		"moves and never gets there": {stable: func(now time.Duration) int64 { return min(int64(now/time.Second), 99) }, want: timeout + stableGrace},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := NewClock()
				clock.Start()
				d := &stableTarget{stable: func() int64 { return c.stable(clock.Now()) }, end: func() int64 {
					if c.end == nil {
						return 100
					}
					return c.end(clock.Now())
				}}
				r := &runner{driver: d, clock: clock, errors: newErrorTable(), topics: []topicPlan{{"t", 1, 0}}, places: []history.Partition{{Topic: "t"}},
					stood: make(standing, 1), plan: Plan{Troubled: c.troubled, Producers: scenario.Producers{Transaction: scenario.Transaction{Timeout: timeout}}}}
				for clock.Now() < load { // as during the load
					r.ends(t.Context(), nil)
					r.ask(t.Context(), history.StableAnswer, d.StableOffsets, nil)
					time.Sleep(250 * time.Millisecond)
				}
				from := clock.Now()
				r.awaitStable(t.Context(), d, nil)
				if took := clock.Now() - from; took < c.want || took > c.want+time.Second {
					t.Errorf("waited %v, want about %v", took, c.want)
				}
			})
		})
	}
}
