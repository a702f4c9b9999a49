package replica

import (
	"sync"
	"sync/atomic"
	"time"
)

// stallWatch notices a log write that does not return. One timer is moved along
// instead of a goroutine per write.
type stallWatch struct {
	stalled atomic.Bool

	mu      sync.Mutex // held around tell, so that its calls keep their order
	writing bool
	timer   *time.Timer
	tell    func(stalled bool)
}

func (s *stallWatch) init(tell func(bool)) {
	s.tell = tell
	s.timer = time.AfterFunc(time.Hour, s.expire)
	s.timer.Stop()
}

// begin starts the clock of a write.
func (s *stallWatch) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = true
	s.timer.Reset(stallAfter)
}

// end stops it and takes a reported stall back.
func (s *stallWatch) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = false
	s.timer.Stop()
	if s.stalled.CompareAndSwap(true, false) {
		s.tell(false)
	}
}

// expire may run late, when the write has ended or another has begun: then the
// report is missing or is taken back with that one.
func (s *stallWatch) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing && s.stalled.CompareAndSwap(false, true) {
		s.tell(true)
	}
}
