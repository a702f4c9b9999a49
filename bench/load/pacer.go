package load

import (
	"context"
	"time"
)

// minNap bounds how often a pacer wakes: slots due meanwhile go out together. It is the price in lateness for being cheap on shared cores.
const minNap = 100 * time.Microsecond

// A Pacer walks through a schedule and never waits for anything but time.
type Pacer struct {
	clock    *Clock
	arrivals Arrivals
	nap      time.Duration
	sleep    func(time.Duration) // nil: an alarm of the operating system
}

// NewPacer paces one of n producers that share the machine.
func NewPacer(clock *Clock, arrivals Arrivals, n int) *Pacer {
	return &Pacer{clock: clock, arrivals: arrivals, nap: max(minNap, time.Duration(n)*minNap/2)}
}

// Run calls slot for every intended time before end, at that time or as soon after as possible: late slots go out at once, none is
// skipped. slot must not block. It returns ctx's error if that ended the walk.
func (p *Pacer) Run(ctx context.Context, end time.Duration, slot func(intended time.Duration)) error {
	sleep := p.sleep
	if sleep == nil {
		alarm, err := newAlarm()
		if err != nil {
			return err
		}
		defer alarm.close()
		sleep = alarm.sleep
	}
	for next := p.arrivals.Next(); next < end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		now := p.clock.Now()
		if next > now {
			sleep(max(next-now, p.nap))
			continue
		}
		for next <= now && next < end {
			slot(next)
			next = p.arrivals.Next()
		}
	}
	return nil
}
