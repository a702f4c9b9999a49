// Package kafkastyle is the explorer's world of Kafka's transactions: the shipped machines of txn/kafkatx and txn/producer, a client that
// runs a few transactions over a few partitions, and what must hold.
//
// It knows the messages between them and how a driver turns effects into messages. It refuses to decide anything itself; what it changes
// in the machines' behaviour are the planted faults, which live here and nowhere else.
package kafkastyle

import (
	"fmt"
	"math"

	"gopherlog/txn/explore"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/producer"
)

// Setting says which world.
type Setting struct {
	Transactions int  // that the client runs, one after the other
	Partitions   int  // that each of them writes to
	Version      int  // transaction.version of the client, 1 or 2
	OnlyEndsLate bool // of all messages only EndTxn may come late: shows what that alone does
	Plant        Plant
}

// Plant is a fault that the search must find.
type Plant string

const (
	None          Plant = ""
	EarlyOutcome  Plant = "decision not durable before the markers"
	OneEpoch      Plant = "no epoch per transaction"
	RefusedMarker Plant = "re-sent marker refused after reload"
	NoVerify      Plant = "no verification before a batch opens a transaction"
	OldMarkers    Plant = "markers that may end a transaction of their own epoch"
	Reopened      Plant = "decision forgotten by the next coordinator"
	NoTermFence   Plant = "markers of a deposed coordinator taken"
	OwedForgotten Plant = "what is owed of the transaction before forgotten by the next coordinator"
	EarlyAdd      Plant = "a transaction let in before the markers of the one before are there"
	EarlyEnd      Plant = "a transaction ended before the markers of the one before are there"
)

// Plants lists every planted fault.
func Plants() []Plant {
	return []Plant{EarlyOutcome, OneEpoch, RefusedMarker, NoVerify, OldMarkers, Reopened, NoTermFence, OwedForgotten, EarlyAdd, EarlyEnd}
}

// Places of the actors.
const (
	clientID explore.ID = iota
	coordinatorID
	firstPartition
)

func partitionID(i int) explore.ID { return firstPartition + explore.ID(i) }

func participant(i int) kafkatx.Partition { return kafkatx.Partition{Topic: "p", Number: int32(i)} }

// theProducer is the only producer id of the world.
const theProducer = 7

// System builds the world.
func (s Setting) System() explore.System {
	name := fmt.Sprintf("Kafka style, version %d, %d transactions, %d partitions", s.Version, s.Transactions, s.Partitions)
	if s.OnlyEndsLate {
		name += ", only EndTxn late"
	}
	if s.Plant != None {
		name += ", planted: " + string(s.Plant)
	}
	actors := []explore.Actor{client{s}, newCoordinator(s)}
	for i := range s.Partitions {
		actors = append(actors, partition{s, i})
	}
	in := invariants{s}
	return explore.System{Name: name, Actors: actors, Always: in.always, Step: in.step, Ended: in.ended, Rest: in.rest, Spent: in.spent, Digest: digest}
}

// client's version as the coordinator and the partitions name it.
func (s Setting) coordinated() kafkatx.Version {
	if s.Version >= 2 {
		return kafkatx.Version2
	}
	return kafkatx.Version0
}

// Requests of the client are numbered by transaction and move; those of a partition by the partition and the epoch.
func clientRequest(txn, move int) kafkatx.Request { return kafkatx.Request(txn*100 + move + 1) }

const partitionRequests = 10000

func partitionRequest(part int, epoch int16) kafkatx.Request {
	return partitionRequests + kafkatx.Request(part)*1000 + kafkatx.Request(epoch)
}

// The messages.
type (
	add struct {
		Request kafkatx.Request
		Epoch   int16
		Part    int
	}
	end struct {
		Request kafkatx.Request
		Epoch   int16
		Commit  bool
	}
	initialise struct {
		Request kafkatx.Request
		Epoch   int16
	}
	answer struct {
		Request kafkatx.Request
		Code    kafkatx.Code
		Epoch   int16
	}
	produce struct {
		Txn   int
		Epoch int16
		Seq   int32
	}
	produced struct {
		Txn  int
		Part int
		Code kafkatx.Code
	}
	verify struct {
		Part  int
		Epoch int16
	}
	verified struct {
		Epoch int16
		Code  kafkatx.Code
	}
	mark struct {
		Epoch       int16
		Coordinator int32
		Commit      bool
		Version     kafkatx.Version
	}
	marked struct {
		Part  int
		Epoch int16
	}
)

func word(commit bool) string {
	if commit {
		return "commit"
	}
	return "abort"
}

func (m add) String() string {
	return fmt.Sprintf("AddPartitions p%d epoch %d #%d", m.Part, m.Epoch, m.Request)
}
func (m end) String() string {
	return fmt.Sprintf("EndTxn %s epoch %d #%d", word(m.Commit), m.Epoch, m.Request)
}
func (m initialise) String() string {
	return fmt.Sprintf("InitProducerId holding epoch %d #%d", m.Epoch, m.Request)
}
func (m answer) String() string {
	return fmt.Sprintf("answer #%d: %s epoch %d", m.Request, m.Code, m.Epoch)
}
func (m produce) String() string {
	return fmt.Sprintf("Produce batch %d epoch %d sequence %d", m.Txn, m.Epoch, m.Seq)
}
func (m produced) String() string {
	return fmt.Sprintf("produced batch %d in p%d: %s", m.Txn, m.Part, m.Code)
}
func (m verify) String() string   { return fmt.Sprintf("verify p%d epoch %d", m.Part, m.Epoch) }
func (m verified) String() string { return fmt.Sprintf("verified epoch %d: %s", m.Epoch, m.Code) }
func (m mark) String() string {
	return fmt.Sprintf("WriteMarker %s epoch %d of coordinator %d, version %d", word(m.Commit), m.Epoch, m.Coordinator, m.Version)
}
func (m marked) String() string { return fmt.Sprintf("marked p%d epoch %d", m.Part, m.Epoch) }

func (m mark) marker(plant Plant) producer.Marker {
	out := producer.Marker{ProducerID: theProducer, Epoch: m.Epoch, CoordinatorEpoch: m.Coordinator, Version: producer.TransactionVersion(m.Version)}
	switch plant {
	case OldMarkers:
		out.Version = producer.Version0
	case NoTermFence:
		out.CoordinatorEpoch = math.MaxInt32
	}
	return out
}

// own is an event that an actor has by itself.
type own string

func (e own) String() string { return string(e) }

// again is an event that only says something again.
type again string

func (e again) String() string { return string(e) }
func (again) Lazy()            {}

// due is a timer after which something changes; dueAgain is one that makes its machine repeat itself.
type (
	due      struct{ Kind kafkatx.TimerKind }
	dueAgain struct{ Kind kafkatx.TimerKind }
)

func (e due) String() string      { return "timer: " + e.Kind.String() }
func (e dueAgain) String() string { return "timer: " + e.Kind.String() }
func (dueAgain) Lazy()            {}
