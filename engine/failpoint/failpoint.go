// Package failpoint holds the named points at which a test may stop, delay, fail or kill a node.
//
// A Set belongs to one node and is handed down in Config fields, so that one node of a simulated
// cluster can be hit alone; only the names are global. It knows nothing of what a point protects.
package failpoint

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// ExitCode is the status of a process ended by an Exit action: what a shell reports for SIGKILL.
const ExitCode = 137

// ErrInjected is what an Error action without an error of its own returns.
var ErrInjected = errors.New("failpoint: injected error")

// ErrUnknown is wrapped by Arm and SetSabotage for a name that nobody registered.
var ErrUnknown = errors.New("failpoint: unknown name")

// Set is the armed state of one node. Create it with New; a nil *Set is valid and never fires.
// All methods may be called from any goroutine.
type Set struct {
	armed atomic.Int32 // armed points and sabotage switches: zero makes Hit and Sabotage one load

	mu        sync.Mutex
	points    map[Name]*point
	hits      map[Name]int64
	sabotages map[Name]int64
}

type point struct {
	action  Action
	seen    int64
	rng     *rand.Rand
	release chan struct{}
	blocked int
}

// New returns a Set with nothing armed.
func New() *Set {
	return &Set{points: map[Name]*point{}, hits: map[Name]int64{}, sabotages: map[Name]int64{}}
}

// Hit reports that execution passes the point called name and performs what is armed there.
// It returns nil when nothing is, after one atomic load; otherwise it may return the action's error,
// sleep, block until Release or Disarm, panic, or end the process.
func (s *Set) Hit(name Name) error {
	if s == nil || s.armed.Load() == 0 {
		return nil
	}
	return s.hit(name)
}

func (s *Set) hit(name Name) error {
	s.mu.Lock()
	s.hits[name]++
	p := s.points[name]
	if p == nil || !p.due() {
		s.mu.Unlock()
		return nil
	}
	action, release := p.action, p.release
	if action.Kind == Block {
		p.blocked++
	}
	s.mu.Unlock()
	return action.perform(name, release)
}

// due counts one pass and says whether the action fires on it. The set's mutex is held.
func (p *point) due() bool {
	p.seen++
	if p.action.Nth > 0 && p.seen != p.action.Nth {
		return false
	}
	return p.action.Probability <= 0 || p.rng.Float64() < p.action.Probability
}

func (a Action) perform(name Name, release <-chan struct{}) error {
	switch a.Kind {
	case Error:
		if a.Err == nil {
			return fmt.Errorf("%w at %s", ErrInjected, name)
		}
		return a.Err
	case Sleep:
		time.Sleep(a.Sleep)
	case Panic:
		panic(fmt.Sprintf("failpoint %s: armed to panic", name))
	case Exit:
		os.Exit(ExitCode)
	case Block:
		<-release
		return a.Err
	case Do:
		return a.Do()
	}
	return nil
}

// Arm makes the action fire at name until Disarm, replacing what was armed there; passes that block
// at the old action are released. The name must have been registered.
func (s *Set) Arm(name Name, a Action) error {
	if !known(name) {
		return fmt.Errorf("%w: %q", ErrUnknown, name)
	}
	if err := a.validate(); err != nil {
		return fmt.Errorf("failpoint %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(name)
	s.points[name] = &point{
		action:  a,
		rng:     rand.New(rand.NewPCG(uint64(a.Seed), 0x9e3779b97f4a7c15)),
		release: make(chan struct{}),
	}
	s.armed.Add(1)
	return nil
}

// Disarm turns the point off and lets blocked passes go on.
func (s *Set) Disarm(name Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(name)
}

func (s *Set) drop(name Name) {
	p := s.points[name]
	if p == nil {
		return
	}
	close(p.release)
	delete(s.points, name)
	s.armed.Add(-1)
}

// DisarmAll turns every point and sabotage switch off; a node calls it first when it closes, so that no
// goroutine stays blocked in a point. A nil Set is allowed.
func (s *Set) DisarmAll() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.points {
		s.drop(name)
	}
	s.armed.Add(-int32(len(s.sabotages)))
	clear(s.sabotages)
}

// Release lets the passes that block at name go on; later passes block again.
func (s *Set) Release(name Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.points[name]; p != nil {
		close(p.release)
		p.release = make(chan struct{})
		p.blocked = 0
	}
}

// Blocked returns how many passes wait at name.
func (s *Set) Blocked(name Name) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.points[name]; p != nil {
		return p.blocked
	}
	return 0
}

// Hits returns how often name was passed while anything in the Set was armed.
func (s *Set) Hits(name Name) int64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits[name]
}

// Armed lists the armed points with their actions, for the control port.
func (s *Set) Armed() map[Name]Action {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[Name]Action, len(s.points))
	for name, p := range s.points {
		out[name] = p.action
	}
	return out
}
