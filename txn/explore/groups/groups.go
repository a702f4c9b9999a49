// Package groups is the explorer's world of consumer groups: the shipped machine of txn/group, members that join, fetch positions, commit
// and leave, and what must hold.
//
// It knows the messages between them, how a driver turns effects into messages and records, and that members divide the partitions as
// clients do. It refuses to decide about the group itself; what it changes in the machine's or the driver's behaviour are the planted
// faults, which live here and nowhere else.
package groups

import (
	"fmt"

	"gopherlog/txn/explore"
	"gopherlog/txn/group"
)

// Setting says which world. Its limits end the world; they are no part of the protocol.
type Setting struct {
	Members     int
	Partitions  int // at most maxPartitions
	Commits     int // that each member wants to make before it leaves
	Tries       int // how often a member joins
	Generations int // how many there are
	// Punctual: a request that its member waits for no more does not arrive, except OffsetCommit and OffsetFetch, which is what a zombie sends.
	Punctual bool
	// Calm: sessions do not end while anything else can happen.
	Calm  bool
	Plant Plant
}

// Plant is a fault that the search must find.
type Plant string

const (
	None             Plant = ""
	ForgetGeneration Plant = "commits of older generations are taken"
	NoBarrier        Plant = "a coordinator serves before it has applied what is committed"
	EarlyAnswer      Plant = "commits are acknowledged before they are durable"
	EarlyAssignment  Plant = "assignments are given out before they are durable"
	EarlyGeneration  Plant = "generations are told of before they are durable"
	UncertainFetch   Plant = "positions are shown by who may have been deposed"
	ForgottenTimers  Plant = "timers are not kept after an election"
	ForgottenCount   Plant = "generations are counted anew after an election"
	MixedAssignment  Plant = "members get the leader's assignment"
)

// Plants lists every planted fault.
func Plants() []Plant {
	return []Plant{ForgetGeneration, NoBarrier, EarlyAnswer, EarlyAssignment, EarlyGeneration, UncertainFetch, ForgottenTimers, ForgottenCount, MixedAssignment}
}

// maxPartitions and maxGenerations bound every world.
const (
	maxPartitions  = 2
	maxGenerations = 7
)

// coordinatorID is the place of the coordinator; members stand behind it.
const coordinatorID explore.ID = 0

func memberID(i int) explore.ID { return explore.ID(1 + i) }

// System builds the world.
func (s Setting) System() explore.System {
	if s.Partitions > maxPartitions || s.Generations > maxGenerations {
		panic(fmt.Sprintf("groups: %d partitions, %d generations, want at most %d and %d", s.Partitions, s.Generations, maxPartitions, maxGenerations))
	}
	name := fmt.Sprintf("group of %d members, %d partitions, %d commits, %d tries, %d generations", s.Members, s.Partitions, s.Commits, s.Tries, s.Generations)
	if s.Punctual {
		name += ", punctual"
	}
	if s.Calm {
		name += ", calm"
	}
	if s.Plant != None {
		name += ", planted: " + string(s.Plant)
	}
	actors := []explore.Actor{newCoordinator(s)}
	for i := range s.Members {
		actors = append(actors, member{s, i})
	}
	in := invariants{s}
	return explore.System{Name: name, Actors: actors, Always: in.always, Ended: in.ended, Spent: in.spent, Digest: digest}
}

// kind is what a request asks for.
type kind int

const (
	joinNew kind = iota + 1
	joinAgain
	sync
	beat
	fetch
	commit
	leave
)

var kinds = [...]string{"", "JoinGroup", "JoinGroup", "SyncGroup", "Heartbeat", "OffsetFetch", "OffsetCommit", "LeaveGroup"}

// request names a request of a member: a repeat is the same request.
type request struct {
	Member int
	Try    int
	Kind   kind
	Number int // of commits
}

const (
	perMember = 10_000
	perTry    = 100
	perKind   = 10
)

// number is the request as the machine knows it; never zero, which is nobody.
func (r request) number() group.Request {
	return group.Request(r.Member*perMember + r.Try*perTry + int(r.Kind)*perKind + r.Number)
}

func requestOf(n group.Request) request {
	i := int(n)
	return request{i / perMember, i % perMember / perTry, kind(i % perTry / perKind), i % perKind}
}

// offsets are positions by partition; -1: none.
type offsets [maxPartitions]int

var nowhere = offsets{-1, -1}

// ask is a request. Which fields it has is said by its kind.
type ask struct {
	request
	ID         string
	Generation int32
	Assign     string // of a leader: who gets which partition, "" from others
	Offsets    offsets
}

func (a ask) String() string {
	s := fmt.Sprintf("%s #%d", kinds[a.Kind], a.number())
	if a.ID != "" {
		s += " by " + a.ID
	}
	switch a.Kind {
	case joinNew, joinAgain:
		return s
	case commit:
		s += fmt.Sprintf(" %v", a.Offsets)
	}
	s += fmt.Sprintf(" of generation %d", a.Generation)
	if a.Assign != "" {
		s += " assigns " + a.Assign
	}
	return s
}

// answer is what a member is told.
type answer struct {
	request
	Code       group.Code
	ID         string
	Generation int32
	Roster     string // to a leader: the members, in order
	Parts      string // SyncGroup: the partitions
	Offsets    offsets
}

func (a answer) String() string {
	s := fmt.Sprintf("answer #%d: %s", a.number(), a.Code)
	switch {
	case a.Kind == joinNew || a.Kind == joinAgain:
		s += fmt.Sprintf(" %s generation %d", a.ID, a.Generation)
		if a.Roster != "" {
			s += " leads " + a.Roster
		}
	case a.Code != group.OK:
	case a.Kind == sync:
		s += fmt.Sprintf(" gets %q", a.Parts)
	case a.Kind == fetch:
		s += fmt.Sprintf(" %v", a.Offsets)
	}
	return s
}

// own is an event that an actor has by itself.
type own string

func (e own) String() string { return string(e) }

// again is an event that only says something again.
type again string

func (e again) String() string { return string(e) }
func (again) Lazy()            {}
