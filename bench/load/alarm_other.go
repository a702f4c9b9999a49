//go:build !linux

package load

import "time"

// alarm sleeps by the runtime's timers, which are coarser than Linux's timer descriptors: slots are later, and lateness shows it.
type alarm struct{}

func newAlarm() (*alarm, error) { return &alarm{}, nil }

func (*alarm) sleep(d time.Duration) { time.Sleep(min(d, 50*time.Millisecond)) }

func (*alarm) close() {}
