package load

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm sleeps through a timer descriptor: the runtime's own timers are rounded up to a millisecond when the process is idle,
// which would be half of the latency that is to be measured.
type alarm struct {
	f   *os.File
	fd  int
	buf [8]byte
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("load: timer: %w", err)
	}
	return &alarm{f: os.NewFile(uintptr(fd), "timerfd"), fd: fd}, nil
}

// sleep returns after d. A pacer sleeps briefly, so that it needs no cancellation: long waits are cut into pieces.
func (a *alarm) sleep(d time.Duration) {
	const longest = 50 * time.Millisecond
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(min(d, longest)))}
	if err := unix.TimerfdSettime(a.fd, 0, &spec, nil); err != nil {
		time.Sleep(min(d, longest))
		return
	}
	if _, err := a.f.Read(a.buf[:]); err != nil {
		time.Sleep(min(d, longest))
	}
}

func (a *alarm) close() { a.f.Close() }
