package broker

import (
	"sync"
	"sync/atomic"
	"time"

	"gopherlog/cluster/partition"
)

// idleParkers is how many goroutines wait for the next fetch to park. A goroutine that has parked one before has the stack, the
// timer and the waiter that the next one needs.
const idleParkers = 64

// parked keeps the goroutines of parked fetches, one for each: at most the number of unanswered requests of all
// connections, and idleParkers.
type parked struct {
	count atomic.Int64
	wg    sync.WaitGroup

	mu     sync.Mutex
	halted bool
	quit   chan struct{} // made by the first fetch, closed by stop
	idle   []*parker     // the last one was busy last
}

// parker is a goroutine that parks one fetch after the other.
type parker struct {
	calls  chan *fetchCall // capacity 1; filled only while the parker is idle
	waiter *partition.Waiter
	timer  *time.Timer // the client's patience
	settle *time.Timer // runs while a partition is between leaders
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
	p.count.Add(1)
	if n := len(p.idle); n > 0 {
		k := p.idle[n-1]
		p.idle = p.idle[:n-1]
		k.calls <- f
		return true
	}
	k := &parker{calls: make(chan *fetchCall, 1), waiter: partition.NewWaiter(), timer: time.NewTimer(time.Hour), settle: time.NewTimer(time.Hour)}
	p.wg.Add(1)
	go p.run(k, f)
	return true
}

func (p *parked) run(k *parker, f *fetchCall) {
	defer p.wg.Done()
	defer k.timer.Stop()
	defer k.settle.Stop()
	for f != nil {
		f.park(k, p.quit)
		p.count.Add(-1)
		if !p.rest(k) {
			return
		}
		select {
		case f = <-k.calls:
		case <-p.quit:
			select {
			case f = <-k.calls: // was parked before stop
			default:
				f = nil
			}
		}
	}
}

// rest lets k wait for another fetch, unless enough do.
func (p *parked) rest(k *parker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.halted || len(p.idle) >= idleParkers {
		return false
	}
	p.idle = append(p.idle, k)
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
