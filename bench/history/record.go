// Package history keeps what was sent, what came of it, what was read and what groups and transactions did, in binary files of at most
// 24 bytes a record, and reads them back.
// It knows records, files and bounded buffers; it knows nothing of clients or verdicts, and never makes a sender wait.
package history

import "time"

// A Kind says what a record reports.
type Kind uint8

// Kinds of records.
const (
	Sent      Kind = 1 // a message was handed to the client: intent
	Outcome   Kind = 2 // the client reported what came of it
	Delivered Kind = 3 // a consumer read it
	EndAnswer Kind = 4 // a broker told the end offset of a partition

	StartAnswer Kind = 5 // a broker told the first offset that retention left in a partition

	StableAnswer Kind = 6 // a broker told the last stable offset of a partition

	Origin      Kind = 7 // the Sent or Delivered right before it in the file was made from the message at Partition, Offset
	Transaction Kind = 8 // a step of a producer's transaction
	Group       Kind = 9 // a step of a member of a consumer group
)

// A Step says what happened to a transaction or to a member of a group.
type Step uint8

// Steps of transactions. A transaction is named by Producer, Session and Txn.
const (
	Inited    Step = 1 // the session got its producer id and Epoch (-1 unknown): every earlier session of the producer is fenced. Txn is 0
	Begun     Step = 2
	AskCommit Step = 3 // the end was asked for
	AskAbort  Step = 4
	Committed Step = 5 // the broker answered so
	Aborted   Step = 6 // certainly: the broker answered so, or the commit was never asked
	InDoubt   Step = 7 // may be either; Class says why
)

// Steps of members of groups. A member is named by Producer, an incarnation of it by Session.
const (
	Assigned       Step = 16 // Partition is the member's in generation Epoch
	Revoked        Step = 17 // it gave Partition back
	Lost           Step = 18 // it learned that Partition is no longer its own
	Position       Step = 19 // the group told its committed position Offset of Partition; -1: none. In a file of role positions: at the end
	PollEnd        Step = 20 // all Delivered since the last PollEnd were one poll, from Asked to At
	Processed      Step = 21 // the messages of Partition up to Offset, it included, were processed
	CommitAsked    Step = 22 // the position Offset of Partition, in generation Epoch; in transaction Txn, if that is not 0
	CommitAnswered Step = 23 // Result and Class; a commit in a transaction has none, the transaction's outcome decides
	Left           Step = 24 // how an incarnation ended
	Crashed        Step = 25 // it ended without a word to the broker
	Frozen         Step = 26 // nothing that it sends leaves, nothing arrives
	Thawed         Step = 27
)

// A Result is what is known of a send.
type Result uint8

// Results of sends.
const (
	OK      Result = 1 // acknowledged
	Failed  Result = 2 // certainly never visible
	Unknown Result = 3 // may or may not be in the log
)

// Flags of a delivery.
const (
	BadChecksum    uint8 = 1 << 0 // the value does not match its checksum; nothing else of it is trusted
	WrongPartition uint8 = 1 << 1 // read from another partition than it was sent to
	Foreign        uint8 = 1 << 2 // not a message of this run
)

// Limits of what a record can hold. A longer run, more producers or more partitions need a new format version.
const (
	MaxProducer  = 1<<10 - 1
	MaxSession   = 1<<11 - 1
	MaxPartition = 1<<14 - 1
	MaxSequence  = 1<<34 - 1
	MaxOffset    = 1<<34 - 1
	MaxTxn       = 1<<20 - 1
	MaxTime      = (1<<34 - 1) * time.Microsecond // 4.7 hours
)

// MaxRecordBytes is the longest encoding of a record within the limits.
const MaxRecordBytes = 24

// A Record is one line of a history. Which fields count depends on Kind. Times are kept to the microsecond.
type Record struct {
	Kind      Kind
	Step      Step          // Transaction, Group
	Result    Result        // Outcome, CommitAnswered
	Flags     uint8         // Delivered
	Class     uint8         // Outcome and CommitAnswered that are not OK, InDoubt, Aborted: a number the writer gave to the error, 0 none
	Producer  uint16        // Sent, Outcome, Delivered, Transaction; Group: the member
	Session   uint16        // same: incarnation of that producer
	Partition uint32        // index into Header.Partitions; Delivered: where it was read; Origin: of the input
	Sequence  uint64        // Sent, Outcome, Delivered: position in its lane (producer, session, partition)
	Txn       uint32        // Sent, Delivered, Transaction, CommitAsked: number of the transaction in its session, from 1; 0: none
	Offset    int64         // Outcome that is OK (-1 unknown), Delivered, Origin, answers, Group
	Epoch     int32         // answers: leader epoch; Inited: producer epoch; Group: generation; -1 unknown
	Asked     time.Duration // answers, PollEnd, CommitAnswered: when it was asked
	At        time.Duration // Sent: intended time; else when it was known. Origin: none
}

// Roles of history files.
const (
	RoleSends = "sends" // Sent records of one producer
	RoleAcks  = "acks"  // Outcome records of one producer
	RoleReads = "reads" // Delivered records of a consumer during the run
	RoleDrain = "drain" // Delivered records of the fresh client that reads everything at the end
	RoleEnds  = "ends"  // EndAnswer, StartAnswer and StableAnswer records

	RoleTxns        = "txns"        // Transaction records of one producer
	RoleGroup       = "group"       // Delivered and Group records of one member, in the order in which it saw them
	RolePositions   = "positions"   // Group records of step Position: where a group stands at the end
	RoleUncommitted = "uncommitted" // Delivered records of a second fresh client, which also reads what was never committed
)

// A Header begins each file.
type Header struct {
	Run        uint64      `json:"run"`
	Role       string      `json:"role"`
	Name       string      `json:"name"`            // file name without extension
	Group      string      `json:"group,omitempty"` // of roles group and positions
	Partitions []Partition `json:"partitions"`      // what Record.Partition counts
}

// A Partition is one partition of one topic.
type Partition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// Stats are the totals of a writer.
type Stats struct {
	Files   int   `json:"files"`
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
	Dropped int64 `json:"dropped"` // records lost because the disk fell behind: any makes the run invalid
}
