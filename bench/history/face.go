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
	BadChecksum    uint8 = 1 << 0 // the value does not match its checksum
	WrongPartition uint8 = 1 << 1 // read from another partition than it was sent to
	Foreign        uint8 = 1 << 2 // not a message of this run
)

// A Record is one line of a history. Which fields count depends on Kind.
type Record struct {
	Kind      Kind
	Result    Result        // Outcome
	Flags     uint8         // Delivered
	Class     uint8         // Outcome: index into the file's error classes
	Producer  uint16        // Sent, Outcome, Delivered
	Session   uint16        // same: incarnation of that producer
	Partition uint32        // index into Header.Partitions; Delivered: where it was read
	Sequence  uint64        // Sent, Outcome, Delivered: position in its lane (producer, session, partition)
	Offset    int64         // Outcome (-1 unknown), Delivered, EndAnswer
	Epoch     int32         // EndAnswer: leader epoch, -1 unknown
	Asked     time.Duration // Sent: intended time; EndAnswer: when it was asked
	At        time.Duration // Outcome, Delivered, EndAnswer: when it was known
}

// Roles of history files; the role is in the header, and rules read the files of the roles they need.
const (
	RoleSends = "sends" // Sent records of one producer session
	RoleAcks  = "acks"  // Outcome records of one producer session
	RoleReads = "reads" // Delivered records of a consumer during the run
	RoleDrain = "drain" // Delivered records of the fresh client that reads everything at the end
	RoleEnds  = "ends"  // EndAnswer records
)

// A Header begins each file.
type Header struct {
	Run        uint64
	Role       string
	Name       string      // file name without extension
	Partitions []Partition // what Record.Partition counts
}

// A Partition is one partition of one topic.
type Partition struct {
	Topic     string
	Partition int32
}

// Stats are the totals of a writer.
type Stats struct {
	Files   int
	Records int64
	Bytes   int64
	Dropped int64 // records lost because the disk fell behind: any makes the run invalid
}

// A Writer writes the files of one trial from a goroutine of its own.
type Writer struct{ soon int }

// Create begins a history in dir, which it makes.
func Create(dir string, run uint64, partitions []Partition) (*Writer, error) { panic("soon") }

// Stream opens a file of the given role. A stream belongs to the writer.
func (w *Writer) Stream(role, name string) (*Stream, error) { panic("soon") }

// Stats may be asked at any time.
func (w *Writer) Stats() Stats { panic("soon") }

// Close flushes every stream and closes all files; it returns the first write error.
func (w *Writer) Close() error { panic("soon") }

// A Stream is one file being written.
type Stream struct{ soon int }

// Append adds a record. It never blocks: where the disk fell behind, the record is counted as dropped. Safe for concurrent use.
func (s *Stream) Append(r Record) { panic("soon") }

// A Reader reads one file.
type Reader struct{ soon int }

// Files lists the history files in dir by role.
func Files(dir string) (map[string][]string, error) { panic("soon") }

// OpenReader opens one file.
func OpenReader(path string) (*Reader, error) { panic("soon") }

// Header is what the file begins with.
func (r *Reader) Header() Header { panic("soon") }

// Next fills rec with the next record; false at the end of the file or of what is readable, see Err.
func (r *Reader) Next(rec *Record) bool { panic("soon") }

// Err is nil at a clean end; a *CorruptError where the file is damaged or was cut.
func (r *Reader) Err() error { panic("soon") }

// Close closes the file.
func (r *Reader) Close() error { panic("soon") }
