package failpoint

import (
	"fmt"
	"maps"
)

// Sabotage switches plant a lasting fault in the broker, so that a test of the harness can see its
// checkers turn red. Each must be subtle: the argument says how long replication is held back, or on
// one of how many operations the fault acts.
var (
	AckBeforeCommit = Register("sabotage/ack-before-commit", "acks=all is answered before the commit; argument: milliseconds that replication is held back")
	SkipDedupe      = Register("sabotage/skip-dedupe", "the duplicate check lets repeats through; argument: acts on one of so many repeats")
	HideBatches     = Register("sabotage/hide-batches", "fetch leaves batches out; argument: acts on one of so many answers")
	AppendTwice     = Register("sabotage/append-twice", "a batch is appended twice; argument: acts on one of so many batches")
	Diverge         = Register("sabotage/diverge", "a follower writes another byte into a batch than the leader sent, with the checksum that fits; argument: acts on one of so many batches")

	CommitBeforeVotes     = Register("sabotage/commit-before-votes", "a voted transaction is decided without asking anybody, and participants obey without a promise; argument: acts on one of so many transactions")
	SkipEpochCheck        = Register("sabotage/skip-epoch-check", "a fenced producer's batches and commits are taken as its successor's")
	MarkerToOnePartition  = Register("sabotage/marker-to-one-partition", "only one of the partitions of a transaction that commits gets its marker; argument: acts on one of so many transactions")
	ForgetGroupGeneration = Register("sabotage/forget-group-generation", "offset commits and heartbeats of older generations of a group are taken")
	NoBarrier             = Register("sabotage/no-barrier", "a coordinator serves before all that was committed is in its table; argument: by how many milliseconds followers' tables are behind")
)

// Sabotages returns the names of all switches.
func Sabotages() []Name {
	return []Name{AckBeforeCommit, SkipDedupe, HideBatches, AppendTwice, Diverge, CommitBeforeVotes, SkipEpochCheck, MarkerToOnePartition, ForgetGroupGeneration, NoBarrier}
}

// Sabotage reports whether the switch is on, and its argument. One atomic load when nothing is armed;
// a nil Set is never on.
func (s *Set) Sabotage(name Name) (on bool, arg int64) {
	if s == nil || s.armed.Load() == 0 {
		return false, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	arg, on = s.sabotages[name]
	return on, arg
}

// SetSabotage turns a switch on with its argument, or off.
func (s *Set) SetSabotage(name Name, on bool, arg int64) error {
	if !known(name) {
		return fmt.Errorf("%w: %q", ErrUnknown, name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, was := s.sabotages[name]
	switch {
	case on && !was:
		s.armed.Add(1)
	case !on && was:
		s.armed.Add(-1)
	}
	if on {
		s.sabotages[name] = arg
	} else {
		delete(s.sabotages, name)
	}
	return nil
}

// Sabotaged lists the switches that are on with their arguments, for the control port.
func (s *Set) Sabotaged() map[Name]int64 {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.sabotages)
}
