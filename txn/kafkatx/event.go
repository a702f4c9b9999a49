package kafkatx

import (
	"fmt"
	"time"
)

// Event is what happens to a machine.
type Event interface{ event() }

type (
	// InitProducerID asks for a producer id and epoch (KIP-360: for the epoch after the one that is named). ProducerID and Epoch are
	// None unless the client names them. Fresh is an unused producer id, or None if the driver has none at hand.
	InitProducerID struct {
		Request    Request
		Timeout    time.Duration
		ProducerID int64
		Epoch      int16
		Fresh      int64
	}
	// AddPartitions makes partitions part of the transaction and begins it if need be. It is AddPartitionsToTxn of a client, the same of
	// a partition leader whose client speaks version 2, and AddOffsetsToTxn with the partition of the group's offsets.
	AddPartitions struct {
		Request    Request
		ProducerID int64
		Epoch      int16
		Partitions []Partition
		Version    Version
	}
	// Verify asks whether the transaction is ongoing and has the partitions: a partition leader does before a batch opens a
	// transaction there (KIP-890).
	Verify struct {
		Request    Request
		ProducerID int64
		Epoch      int16
		Partitions []Partition
	}
	// EndTxn decides. Fresh is as in InitProducerID.
	EndTxn struct {
		Request    Request
		ProducerID int64
		Epoch      int16
		Commit     bool
		Version    Version
		Fresh      int64
	}
	// Durable says that the oldest record which was appended and not reported yet is committed in this term.
	Durable struct{}
	// Marked says that a partition has the marker of that epoch, committed, or can never need it: its topic was deleted, or the partition
	// knows a newer epoch of the producer.
	Marked struct {
		Partition  Partition
		ProducerID int64
		Epoch      int16
	}
	// Timer says that a timer that was set is due. One that was cleared or replaced does not fire any more.
	Timer struct{ Kind TimerKind }
	// Lost says that the term is over. What is pending may be durable or not, so nothing is said about it.
	Lost struct{}
)

func (InitProducerID) event() {}
func (AddPartitions) event()  {}
func (Verify) event()         {}
func (EndTxn) event()         {}
func (Durable) event()        {}
func (Marked) event()         {}
func (Timer) event()          {}
func (Lost) event()           {}

// TimerKind names a timer of a machine. Setting one again replaces it.
type TimerKind uint8

const (
	TimerTransaction TimerKind = iota + 1 // the client took too long: abort
	TimerResend                           // send the markers again
	TimerExpiry                           // the transactional id was not used for long: forget it
)

func (k TimerKind) String() string {
	return [...]string{"", "transaction timeout", "resend", "expiry"}[k]
}

// Effect is what a machine wants done, in order.
type Effect interface{ effect() }

type (
	// Append replicates a record (nil: a tombstone) after all that were appended before it; when it is committed, and not before, the
	// driver hands back Durable. The other effects of the same step do not wait for it.
	Append struct{ Record *Meta }
	// Answer ends a request.
	Answer struct {
		Request Request
		Code    Code
		// ProducerID and Epoch are what the client uses from now on; None with an error, and where the client asked in version 0.
		ProducerID int64
		Epoch      int16
		// Missing are the partitions of a Verify that the transaction does not have.
		Missing []Partition
		// Confirm: only a leader's memory is right about this. The driver makes sure that it still leads, after it was asked, before it
		// lets the answer go.
		Confirm bool
	}
	// WriteMarker asks a partition's leader to write the marker, until Marked comes back. It may be lost.
	WriteMarker struct {
		Partition   Partition
		ProducerID  int64
		Epoch       int16
		Coordinator int32
		Commit      bool
		Version     Version
	}
	// Took says that Fresh of the event is in use now.
	Took struct{ ProducerID int64 }
	// NeedID says that the event cannot be handled without Fresh: fetch one and hand in the event again.
	NeedID struct{ Request Request }
	// SetTimer asks for a Timer event after a while; ClearTimer takes it back.
	SetTimer struct {
		Kind  TimerKind
		After time.Duration
	}
	ClearTimer struct{ Kind TimerKind }
	// Forget says that nothing is left of the transactional id: the machine can go.
	Forget struct{}
)

func (Append) effect()      {}
func (Answer) effect()      {}
func (WriteMarker) effect() {}
func (Took) effect()        {}
func (NeedID) effect()      {}
func (SetTimer) effect()    {}
func (ClearTimer) effect()  {}
func (Forget) effect()      {}

func (a Append) String() string { return "append " + a.Record.String() }

func (a Answer) String() string {
	s := fmt.Sprintf("answer %d %s", a.Request, a.Code)
	if a.ProducerID != None {
		s += fmt.Sprintf(" %d:%d", a.ProducerID, a.Epoch)
	}
	if len(a.Missing) > 0 {
		s += fmt.Sprintf(" missing %v", a.Missing)
	}
	if a.Confirm {
		s += " if still leading"
	}
	return s
}

func (w WriteMarker) String() string {
	return fmt.Sprintf("%s %d:%d on %s by %d v%d", word(w.Commit), w.ProducerID, w.Epoch, w.Partition, w.Coordinator, w.Version)
}

func word(commit bool) string {
	if commit {
		return "commit"
	}
	return "abort"
}

func (t Took) String() string       { return fmt.Sprintf("took %d", t.ProducerID) }
func (n NeedID) String() string     { return fmt.Sprintf("need id for %d", n.Request) }
func (t SetTimer) String() string   { return fmt.Sprintf("set %s %v", t.Kind, t.After) }
func (t ClearTimer) String() string { return fmt.Sprintf("clear %s", t.Kind) }
func (Forget) String() string       { return "forget" }
