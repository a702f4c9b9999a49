package broker

import (
	"sync"
	"sync/atomic"
)

// parked keeps the goroutines of parked fetches, one for each: at most the number of unanswered requests of all
// connections.
type parked struct {
	count atomic.Int64
	wg    sync.WaitGroup

	mu     sync.Mutex
	halted bool
	quit   chan struct{} // made by the first fetch, closed by stop
}

// start parks f in a goroutine; false after stop.
func (p *parked) start(f *fetchCall) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.halted {
		return false
	}
	if p.quit == nil {
		p.quit = make(chan struct{})
	}
	p.wg.Add(1)
	p.count.Add(1)
	go func() {
		defer p.wg.Done()
		defer p.count.Add(-1)
		f.park(f.req.Conn.Context(), p.quit)
	}()
	return true
}

// stop makes all parked fetches answer with what there is, and lets none park again.
func (p *parked) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.halted {
		p.halted = true
		if p.quit != nil {
			close(p.quit)
		}
	}
}

// wait returns when no fetch is parked.
func (p *parked) wait() { p.wg.Wait() }
