// Package history keeps what was sent, what came of it and what was read, in binary files of at most 24 bytes a record, and reads them back.
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
	MaxProducer  = 1<<14 - 1
	MaxSession   = 1<<14 - 1
	MaxPartition = 1<<14 - 1
	MaxSequence  = 1<<41 - 1
	MaxOffset    = 1<<41 - 1
	MaxTime      = (1<<34 - 1) * time.Microsecond // 4.7 hours
)

// MaxRecordBytes is the longest encoding of a record within the limits.
const MaxRecordBytes = 24

// A Record is one line of a history. Which fields count depends on Kind. Times are kept to the microsecond.
type Record struct {
	Kind      Kind
	Result    Result        // Outcome
	Flags     uint8         // Delivered
	Class     uint8         // Outcome that is not OK: a number the writer gave to the error
	Producer  uint16        // Sent, Outcome, Delivered
	Session   uint16        // same: incarnation of that producer
	Partition uint32        // index into Header.Partitions; Delivered: where it was read
	Sequence  uint64        // Sent, Outcome, Delivered: position in its lane (producer, session, partition)
	Offset    int64         // Outcome that is OK (-1 unknown), Delivered, answers
	Epoch     int32         // answers: leader epoch, -1 unknown
	Asked     time.Duration // answers: when it was asked
	At        time.Duration // Sent: intended time; else when it was known
}

// Roles of history files.
const (
	RoleSends = "sends" // Sent records of one producer
	RoleAcks  = "acks"  // Outcome records of one producer
	RoleReads = "reads" // Delivered records of a consumer during the run
	RoleDrain = "drain" // Delivered records of the fresh client that reads everything at the end
	RoleEnds  = "ends"  // EndAnswer and StartAnswer records
)

// A Header begins each file.
type Header struct {
	Run        uint64      `json:"run"`
	Role       string      `json:"role"`
	Name       string      `json:"name"`       // file name without extension
	Partitions []Partition `json:"partitions"` // what Record.Partition counts
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
