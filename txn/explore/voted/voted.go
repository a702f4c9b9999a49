// Package voted is the explorer's world of the voted two-phase commit: the shipped machines of txn/twopc, a client that runs a few
// transactions over a few partitions, and what must hold.
//
// It knows the messages between them and how a driver turns effects into messages. It refuses to decide anything itself; what it changes
// in the machines' behaviour are the planted faults, which live here and nowhere else.
package voted

import (
	"fmt"

	"gopherlog/txn/explore"
	"gopherlog/txn/twopc"
)

// Setting says which world.
type Setting struct {
	Transactions int  // that the client runs, one after the other
	Partitions   int  // that each of them writes to
	Version      int8 // transaction.version of the client, 0 or 2
	Replaced     bool // the client may vanish once, and another instance takes its id
	Narrow       bool // transactions after the first leave out the first partition
	Patient      bool // timeouts wait until nothing else can happen
	OnlyEndsLate bool // of the client's requests only EndTxn may come late: shows what that alone does
	Punctual     bool // no request of the client comes late: what version 0 needs
	Plant        Plant
}

// Plant is a fault that the search must find.
type Plant string

const (
	None          Plant = ""
	EarlyOutcome  Plant = "decision not durable before the outcome"
	NoTermFence   Plant = "no term fence"
	OneEpoch      Plant = "no epoch per transaction"
	RefusedMarker Plant = "re-sent marker refused after reload"
	LonelyAbort   Plant = "prepared participant that times out"
	EarlyVote     Plant = "yes said before the promise is durable"
	IgnorantEnded Plant = "acknowledgement without a replicated reason"
	AdoptedOrphan Plant = "orphan adopted by the next epoch"
	EarlyWord     Plant = "data let in before its transaction is known to have begun"
)

// Plants lists every planted fault.
func Plants() []Plant {
	return []Plant{EarlyOutcome, NoTermFence, OneEpoch, RefusedMarker, LonelyAbort, EarlyVote, IgnorantEnded, AdoptedOrphan, EarlyWord}
}

// Places of the actors.
const (
	clientID explore.ID = iota
	coordinatorID
	firstPartition
)

func partitionID(i int) explore.ID { return firstPartition + explore.ID(i) }

func member(i int) twopc.Member { return twopc.Member(fmt.Sprintf("p%d", i)) }

func index(m twopc.Member) int { return int(m[1] - '0') }

// config of the machines: back-offs are of no concern, so nothing counts tries.
func config() twopc.Config { return twopc.Config{MaxEpoch: 1000} }

// System builds the world.
func (s Setting) System() explore.System {
	name := fmt.Sprintf("voted, version %d, %d transactions, %d partitions", s.Version, s.Transactions, s.Partitions)
	if s.Replaced {
		name += ", replaced client"
	}
	if s.Narrow {
		name += ", narrow"
	}
	if s.Patient {
		name += ", patient"
	}
	if s.Punctual {
		name += ", punctual"
	}
	if s.OnlyEndsLate {
		name += ", only EndTxn late"
	}
	if s.Plant != None {
		name += ", planted: " + string(s.Plant)
	}
	actors := []explore.Actor{client{s}, coordinator{config(), s}}
	for i := range s.Partitions {
		actors = append(actors, partition{config(), s, i})
	}
	in := invariants{s}
	return explore.System{Name: name, Actors: actors, Always: in.always, Step: in.step, Ended: in.ended, Rest: in.rest, Spent: in.spent, Digest: digest}
}

// Requests of the client are numbered by transaction and move; those of a partition by the partition and batch.
func clientRequest(txn, move int) twopc.Request { return twopc.Request(txn*100 + move + 1) }

func partitionRequest(part, txn int) twopc.Request { return twopc.Request(10000 + part*100 + txn) }

// The messages.
type (
	add struct {
		Request twopc.Request
		Owner   twopc.Identity
		Part    int
	}
	end struct {
		Request twopc.Request
		Owner   twopc.Identity
		Commit  bool
	}
	initialise struct {
		Request twopc.Request
		Claim   twopc.Identity
	}
	answer struct {
		Request twopc.Request
		Result  twopc.Result
		Owner   twopc.Identity
	}
	produce struct {
		Txn   int
		Owner twopc.Identity
	}
	produced struct {
		Txn    int
		Part   int
		Result twopc.Result
	}
	verify struct {
		Txn   int
		Part  int
		Owner twopc.Identity
	}
	verified struct {
		Txn    int
		Owner  twopc.Identity
		Result twopc.Result
		Of     twopc.Txn
	}
	protocol struct{ twopc.Message }
)

func (m add) String() string { return fmt.Sprintf("Add p%d as %s #%d", m.Part, m.Owner, m.Request) }
func (m end) String() string {
	word := "abort"
	if m.Commit {
		word = "commit"
	}
	return fmt.Sprintf("EndTxn %s as %s #%d", word, m.Owner, m.Request)
}
func (m initialise) String() string { return fmt.Sprintf("Init holding %s #%d", m.Claim, m.Request) }
func (m answer) String() string {
	return fmt.Sprintf("answer #%d: %s %s", m.Request, m.Result, m.Owner)
}
func (m produce) String() string { return fmt.Sprintf("Produce batch %d as %s", m.Txn, m.Owner) }
func (m produced) String() string {
	return fmt.Sprintf("produced batch %d in p%d: %s", m.Txn, m.Part, m.Result)
}
func (m verify) String() string {
	return fmt.Sprintf("Verify batch %d of p%d as %s", m.Txn, m.Part, m.Owner)
}
func (m verified) String() string {
	return fmt.Sprintf("verified batch %d as %s: %s %s", m.Txn, m.Owner, m.Result, m.Of)
}

// batch is the record of a client's data. Txn is the client's count: the machines do not see it. Opens is the record of the same append
// that precedes a transaction's first batch.
type batch struct {
	Txn   int
	Opens twopc.Txn
}

func (b batch) String() string {
	if b.Opens.None() {
		return fmt.Sprintf("batch %d", b.Txn)
	}
	return fmt.Sprintf("batch %d opening %s", b.Txn, b.Opens)
}

// own is an event that an actor has by itself.
type own string

func (e own) String() string { return string(e) }

// mishap is one that need not happen.
type mishap string

func (e mishap) String() string { return string(e) }
func (mishap) Mishap()          {}

// again is an event that only says something again.
type again string

func (e again) String() string { return string(e) }
func (again) Lazy()            {}

// due is a timer after which something changes; dueAgain is one that makes its machine repeat itself.
type (
	due      struct{ Kind twopc.TimerKind }
	dueAgain struct{ Kind twopc.TimerKind }
)

func (e due) String() string      { return "timer: " + e.Kind.String() }
func (e dueAgain) String() string { return "timer: " + e.Kind.String() }
func (dueAgain) Lazy()            {}

// timeout is a timer that may fire at any time, or in a patient world when nothing else can happen.
func (s Setting) timeout(k twopc.TimerKind) explore.Event {
	if s.Patient {
		return dueAgain{k}
	}
	return due{k}
}
