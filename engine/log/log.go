// Package log keeps one partition's entries in Kafka-format segment files: append, cut the tail, trim
// the head, find, slice for sendfile, recover.
//
// It knows entries, offsets, segments, index files and leader epochs. It refuses to know Raft's library
// (an entry is an index, a term and bytes), the network, and what the bytes mean beyond a batch's header.
//
// An entry is a data entry when Type is 0 and Ext is empty: Data is then exactly one v2 record batch and
// takes offsets. Everything else is a side entry: it lives in the Sidecar and takes no offset. See
// docs/FORMATS.md for every file.
package log

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"gopherlog/engine/failpoint"
	"gopherlog/engine/record"
	"gopherlog/engine/vfs"
)

// Errors that callers branch on. Damage is a *CorruptionError.
var (
	ErrNotFound   = errors.New("log: entry not found")            // index outside [FirstIndex, LastIndex]
	ErrOutOfRange = errors.New("log: offset out of range")        // offset outside [StartOffset, EndOffset]
	ErrDivergent  = errors.New("log: entry differs from the log") // stamped otherwise than this log would stamp it
	ErrTruncated  = errors.New("log: cut again and again while it was read")
	ErrClosed     = errors.New("log: closed")
	ErrFailed     = errors.New("log: closed after a failed write or sync")
	ErrNoSnap     = errors.New("log: no usable snapshot")
	ErrVersion    = errors.New("log: format version not supported")
)

// CorruptionError says which byte of which file is not what was written. The replica must leave service.
type CorruptionError struct {
	File string // base name within the partition's directory
	Pos  int64
	Msg  string
}

// Error implements error.
func (e *CorruptionError) Error() string {
	return fmt.Sprintf("log: corrupt: %s at byte %d: %s", e.File, e.Pos, e.Msg)
}

// RollFlag in the first byte of a side entry's Ext starts a new segment behind the entry (unless the
// active one holds no data yet). It makes an idle partition's expired segment trimmable, and because it
// is part of the entry every replica rolls at the same place.
const RollFlag = 0x80

// Entry is one numbered entry. The bytes of a returned entry must not be changed.
type Entry struct {
	Index, Term uint64
	Type        uint8
	Data, Ext   []byte

	// Owner, if not nil, owns the memory of Data; otherwise the garbage collector does. See Append and Lend.
	Owner Owner
	head  []byte // copy of the batch's header when there is an owner; set by Append
}

// Owner is pooled memory that is counted: it stays as it is until every Hold has its Drop. Drop takes no lock and
// does not block. *wire.Buf is one.
type Owner interface {
	Hold()
	Drop()
	Cap() int
}

// Header returns the header of a data entry in memory that is the garbage collector's.
func (e *Entry) Header() []byte {
	switch {
	case e.head != nil:
		return e.head
	case e.Owner != nil:
		return append([]byte(nil), e.Data[:record.HeaderSize]...)
	}
	return e.Data[:record.HeaderSize:record.HeaderSize]
}

// IsData reports whether the entry is one record batch with offsets.
func (e *Entry) IsData() bool { return e.Type == 0 && len(e.Ext) == 0 }

// Sidecar holds the side entries of one log, but for those that follow the tier of a log which is not synced: these reach it together, later
// (see sideJournal). Put and DeleteFrom are durable when they return. Scan calls
// fn in index order for [from, to). Methods are called by one goroutine at a time, but Get and Scan may
// overlap with the others.
type Sidecar interface {
	Put(entries []Entry) error
	Get(index uint64) (Entry, error)
	Scan(from, to uint64, fn func(Entry) error) error
	DeleteFrom(index uint64) error
	DeleteBelow(index uint64) error
}

// Observer is told about finished work; it must not block.
type Observer interface {
	Appended(bytes int, d time.Duration)
	Synced(d time.Duration)
}

// Config says where a log lives and how it behaves. FS, Dir and Sidecar are required.
type Config struct {
	FS      vfs.FS
	Dir     string
	Sidecar Sidecar

	TopicID   [16]byte
	Partition int32

	SegmentBytes       int64 // a data entry that would grow a segment beyond this starts a new one; 1 GiB
	IndexIntervalBytes int   // distance of entries in .index and .timeindex; 4096
	SyncEach           bool  // tier T2: Append returns after fdatasync

	// SameBoot says that the machine has not lost its page cache since the log was last open: recovery
	// may then cut nothing but the incomplete last write.
	SameBoot bool

	Committer   *Committer     // shared by all logs of a node: groups and bounds their fsyncs; nil: direct
	CacheBytes  int64          // tail cache of this log; 8 MiB
	CacheBudget *Budget        // shared by all logs of a node; nil: only CacheBytes binds
	Failpoints  *failpoint.Set // nil never fires
	Observer    Observer
	// Beside makes what Kafka's tools look for beside a segment, of the state before offset to: the .snapshot there, and the .txnindex of
	// the segment [from, to). Empty: no such file. nil: never. It is called by WriteSnap, and must not keep or change state.
	Beside func(state []byte, from, to int64) (snapshot, txnIndex []byte, err error)
	Logger *slog.Logger
	Now    func() time.Time
}

// Base is a place in the log from which it can start: everything up to Index is known from State.
type Base struct {
	Index, Term uint64
	NextOffset  int64 // offset of the first data entry after Index
	LogStart    int64
	State       []byte // opaque
}

// Recovery says what Open found and did.
type Recovery struct {
	CutBytes   int64    // bytes removed from the end of .log files
	CutEntries int      // side entries removed behind the cut
	Rebuilt    []string // files written anew from others
	Scanned    int64    // bytes of .log files whose checksums were verified
}

// SegmentInfo describes one segment.
type SegmentInfo struct {
	BaseOffset   int64
	FirstIndex   uint64
	Bytes        int64
	MaxTimestamp int64 // -1 when it holds no data
	Sealed       bool
	HasSnap      bool // a usable .snap at its start
}
