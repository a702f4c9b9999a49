package load

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// alarm sleeps through a timer descriptor: the runtime's own timers are rounded up to a millisecond when the process is idle,
// which would be half of the latency that is to be measured. It blocks a thread of its own there: a goroutine that the runtime's
// poller wakes waits until a scheduler looks, ten milliseconds when all of them are busy. Where there are more of them than cores
// (cmd/mqbench sees to that) the one that it needs to go on is free, and only the operating system decides how late it is.
type alarm struct {
	fd  int
	buf [8]byte
}

// newAlarm binds the calling goroutine to its thread until close.
func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("load: timer: %w", err)
	}
	runtime.LockOSThread()
	return &alarm{fd: fd}, nil
}

// sleep returns after d. A pacer sleeps briefly, so that it needs no cancellation: long waits are cut into pieces.
func (a *alarm) sleep(d time.Duration) {
	const longest = 50 * time.Millisecond
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(min(d, longest)))}
	if err := unix.TimerfdSettime(a.fd, 0, &spec, nil); err != nil {
		time.Sleep(min(d, longest))
		return
	}
	for {
		switch _, err := unix.Read(a.fd, a.buf[:]); {
		case err == unix.EINTR:
			continue
		case err != nil:
			time.Sleep(min(d, longest))
		}
		return
	}
}

func (a *alarm) close() {
	unix.Close(a.fd)
	runtime.UnlockOSThread()
}
