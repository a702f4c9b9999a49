// Package twopc decides the voted two-phase commit: presumed abort, votes and decision replicated, behind Kafka's transactional client API.
//
// It knows one coordinator per transactional id and one participant per partition and transactional id, as functions from a state and an
// event to a new state and effects. It refuses to know clocks, goroutines, the network, Raft and disks: whoever runs a machine replicates
// what it appends, carries what it sends, and hands back what happened, one event at a time.
//
// Safety rests on four rules. A yes, a decision and an acknowledgement are said only after the record behind them is replicated. A
// transaction is named by the term and number that its coordinator gave it, never by the producer's epoch alone. What a coordinator held
// in memory dies with its term: an epoch under which something may have been forgotten commits nothing more. And a participant may end
// alone what it did not promise, never what it did.
package twopc

import (
	"cmp"
	"fmt"
	"time"
)

// Identity is what a client shows with every request: Kafka's producer id and epoch.
type Identity struct {
	Producer int64
	Epoch    int16
}

// Nobody is the identity of a client that has none.
var Nobody = Identity{Producer: -1, Epoch: -1}

func (i Identity) String() string { return fmt.Sprintf("%d:%d", i.Producer, i.Epoch) }

// Txn names one transaction of a transactional id for ever. The zero value names none.
type Txn struct {
	Term   uint64   // of the coordinator that began it
	Number uint32   // counted by that coordinator within its term, from 1
	Owner  Identity // of the client that began it
}

// Compare orders the transactions of one transactional id by when they began: by term, then by number.
func (t Txn) Compare(o Txn) int {
	return cmp.Or(cmp.Compare(t.Term, o.Term), cmp.Compare(t.Number, o.Number))
}

// None says that t names no transaction.
func (t Txn) None() bool { return t.Number == 0 }

func (t Txn) String() string {
	if t.None() {
		return "none"
	}
	return fmt.Sprintf("t%d.%d/%s", t.Term, t.Number, t.Owner)
}

// Member names a participant: a partition as the shard's records spell it. The machines only compare it.
type Member string

// Request stands for a client's request that waits for an answer; the driver chooses it. Zero is nobody.
type Request uint64

// Config is what both machines are told once.
type Config struct {
	VoteTimeout time.Duration // from the first PREPARE to giving up
	ResendAfter time.Duration // PREPARE and outcomes are repeated after this long, doubled MaxDoubling times at most
	AskAfter    time.Duration // a prepared participant asks after this long, doubled likewise
	MaxDoubling uint8
	MaxEpoch    int16 // an epoch that no client is given: a producer id is used up before it
}

// Defaults are the settings of a server.
func Defaults() Config {
	return Config{VoteTimeout: 5 * time.Second, ResendAfter: 200 * time.Millisecond, AskAfter: 100 * time.Millisecond, MaxDoubling: 3, MaxEpoch: 32766}
}

// backoff is base, doubled tries times.
func (c Config) backoff(base time.Duration, tries uint8) time.Duration {
	return base << min(tries, c.MaxDoubling)
}

// next counts a try; the count stops where the back-off does, so that a machine that waits has finitely many states.
func (c Config) next(tries uint8) uint8 { return min(tries+1, c.MaxDoubling) }

// TimerKind names a timer of a machine. Setting one again replaces it.
type TimerKind uint8

const (
	TimerTransaction TimerKind = iota + 1 // coordinator: the client's transaction timeout. Participant: the same, counted from the first batch
	TimerVotes                            // coordinator: votes are missing for too long
	TimerResend                           // coordinator: say again what was not answered
	TimerAsk                              // participant: ask for the outcome. It may be said to be due at any time
)

func (k TimerKind) String() string {
	return [...]string{"", "transaction timeout", "vote timeout", "resend", "ask"}[k]
}

// Effect is what a machine wants done, in order. Append: replicate the record; when it is committed, and not before, hand back a Durable
// event. The other effects of the same step do not wait for it.
type Effect interface{ effect() }

type (
	// Append replicates a record after all that were appended before it.
	Append struct{ Record Record }
	// Tell sends a message to a participant. It may be lost.
	Tell struct {
		To      Member
		Message Message
	}
	// Report sends a participant's message to the coordinator of the transactional id. It may be lost.
	Report struct{ Message Message }
	// Answer ends a client's request. Confirm: ask a quorum first whether this node leads still, and if it does not, send the client on
	// to the next coordinator. So it is with everything that a client cannot go on from: a deposed coordinator does not know the newest.
	Answer struct {
		Request Request
		Result  Result
		Confirm bool
		Owner   Identity      // Done: the producer id and epoch to use from now on
		Txn     Txn           // Done of Add and Verify: the transaction, for the participant's first batch
		Timeout time.Duration // likewise
	}
	// SetTimer asks for a Timer event after a while.
	SetTimer struct {
		Kind  TimerKind
		After time.Duration
	}
	// ClearTimer takes a timer back; one that fires nevertheless does no harm.
	ClearTimer struct{ Kind TimerKind }
)

func (Append) effect()     {}
func (Tell) effect()       {}
func (Report) effect()     {}
func (Answer) effect()     {}
func (SetTimer) effect()   {}
func (ClearTimer) effect() {}

// Result is what a client's request comes to. The broker chooses Kafka's code.
type Result uint8

const (
	Done       Result = iota + 1 // it is so, durably
	Busy                         // a transaction is still beginning or ending: ask again when the machine's phase has changed (Kafka: 51)
	Aborted                      // the transaction cannot commit; end it by aborting (Kafka: 59)
	Stale                        // the epoch is of an older term and the client too old to be given another here: it must initialise again (Kafka: 47)
	Fenced                       // a newer epoch exists (Kafka: 90, or 47 for old clients)
	BadState                     // the request does not fit what is known of the epoch (Kafka: 48)
	BadID                        // the producer id is not the one of the transactional id (Kafka: 49)
	Admitted                     // participant: append the batch, after the records of the same step
	Unverified                   // participant: ask the coordinator whether the transaction is open, and offer the batch again
)

func (r Result) String() string {
	return [...]string{"", "done", "busy", "aborted", "stale", "fenced", "bad state", "bad id", "admitted", "unverified"}[r]
}

// Message is what coordinator and participants say to each other. All name their transaction.
type Message interface {
	fmt.Stringer
	message()
}

type (
	// Prepare asks for a vote.
	Prepare struct{ Txn Txn }
	// Vote answers Prepare. A yes is a promise that is replicated already.
	Vote struct {
		Txn  Txn
		From Member
		Yes  bool
	}
	// Outcome tells what became of a transaction. Epoch is the producer's from now on: the marker carries it.
	Outcome struct {
		Txn    Txn
		Commit bool
		Epoch  int16
	}
	// Ended acknowledges Outcome: the marker, or the fact that nothing is to be marked, is replicated.
	Ended struct {
		Txn  Txn
		From Member
	}
	// Query asks for the outcome of a transaction that is open here, most often one that the participant promised to commit.
	Query struct {
		Txn  Txn
		From Member
	}
)

func (Prepare) message() {}
func (Vote) message()    {}
func (Outcome) message() {}
func (Ended) message()   {}
func (Query) message()   {}

func (m Prepare) String() string { return "PREPARE " + m.Txn.String() }
func (m Vote) String() string {
	if m.Yes {
		return "YES " + m.Txn.String()
	}
	return "NO " + m.Txn.String()
}
func (m Outcome) String() string { return verb(m.Commit) + " " + m.Txn.String() }
func (m Ended) String() string   { return "ENDED " + m.Txn.String() }
func (m Query) String() string   { return "QUERY " + m.Txn.String() }

func verb(commit bool) string {
	if commit {
		return "COMMIT"
	}
	return "ABORT"
}

// Event is what happens to a machine: one of the following, a Record that is durable, or a message.
type Event interface{ event() }

type (
	// Init asks the coordinator for an epoch (InitProducerId). Claim is what the client says it holds; Nobody if it is new. Fresh is an
	// unused producer id, needed if NeedsProducerID says so.
	Init struct {
		Request Request
		Claim   Identity
		Timeout time.Duration
		Fresh   int64
	}
	// Add registers participants: from the client (version 0) or from the partition's leader on the first batch (version 2).
	Add struct {
		Request Request
		Owner   Identity
		Members []Member
		Version int8 // transaction.version of the client: 0 or 2
	}
	// Verify asks, for a partition's leader, whether the client registered the partition (version 0).
	Verify struct {
		Request Request
		Owner   Identity
		Member  Member
	}
	// End asks for the end of the transaction. Fresh as in Init.
	End struct {
		Request Request
		Owner   Identity
		Commit  bool
		Version int8
		Fresh   int64
	}
	// Gone tells the coordinator that a participant was deleted: nothing will ever come from it. It counts while an answer is
	// awaited and is not remembered, so the driver hands it in after every Tell to such a member.
	Gone struct{ Member Member }
	// Batch offers a transactional batch to the participant. Verified is the transaction that the coordinator named after Unverified, with
	// its timeout; none at first.
	Batch struct {
		Request  Request
		Owner    Identity
		Verified Txn
		Timeout  time.Duration
	}
	// Decree is an operator's word about a promise of the owner whose coordinator will not come back: it ends what only the coordinator may.
	// Whoever hands it in knows that other participants may have been told otherwise.
	Decree struct {
		Owner  Identity
		Commit bool
	}
	// Durable says that the oldest record that was appended and not reported yet is committed.
	Durable struct{ Record Record }
	// Timer says that a timer that was set is due.
	Timer struct{ Kind TimerKind }
	// Lost says that leadership is gone. What was appended may be committed or not: the machine falls silent.
	Lost struct{}
)

func (Init) event()    {}
func (Add) event()     {}
func (Verify) event()  {}
func (End) event()     {}
func (Gone) event()    {}
func (Batch) event()   {}
func (Decree) event()  {}
func (Durable) event() {}
func (Timer) event()   {}
func (Lost) event()    {}
func (Vote) event()    {}
func (Ended) event()   {}
func (Query) event()   {}
func (Prepare) event() {}
func (Outcome) event() {}
