package log

import "gopherlog/engine/vfs"

type Log struct{}

func Open(cfg Config) (*Log, Recovery, error) { panic("log: being built") }

func (l *Log) Append(entries []Entry) error                          { panic("log: being built") }
func (l *Log) FirstIndex() uint64                                    { panic("log: being built") }
func (l *Log) LastIndex() uint64                                     { panic("log: being built") }
func (l *Log) LastTerm() uint64                                      { panic("log: being built") }
func (l *Log) Term(index uint64) (uint64, error)                     { panic("log: being built") }
func (l *Log) Entry(index uint64) (Entry, error)                     { panic("log: being built") }
func (l *Log) Entries(lo, hi uint64, maxBytes int) ([]Entry, error)  { panic("log: being built") }
func (l *Log) EntryHeader(index uint64) (Entry, error)               { panic("log: being built") }
func (l *Log) TruncateSuffix(from uint64) error                      { panic("log: being built") }
func (l *Log) TrimTo(offset int64, limitIndex uint64) (int64, error) { panic("log: being built") }
func (l *Log) Reset(b Base) error                                    { panic("log: being built") }
func (l *Log) WriteSnap(b Base) error                                { panic("log: being built") }
func (l *Log) OldestSnap() (Base, error)                             { panic("log: being built") }
func (l *Log) NewestSnap() (Base, error)                             { panic("log: being built") }
func (l *Log) SegmentEnd(index uint64) bool                          { panic("log: being built") }
func (l *Log) StartOffset() int64                                    { panic("log: being built") }
func (l *Log) EndOffset() int64                                      { panic("log: being built") }
func (l *Log) OffsetOf(index uint64) (first, next int64, err error)  { panic("log: being built") }
func (l *Log) Slice(from, limit int64, maxBytes int, minOne bool) (*Slice, error) {
	panic("log: being built")
}
func (l *Log) OffsetForTimestamp(ts, limit int64) (offset, timestamp int64, epoch int32, ok bool, err error) {
	panic("log: being built")
}
func (l *Log) MaxTimestamp(limit int64) (offset, ts int64, err error) { panic("log: being built") }
func (l *Log) RecordEpoch(epoch int32, start int64) error             { panic("log: being built") }
func (l *Log) EpochEnd(epoch int32) (int32, int64)                    { panic("log: being built") }
func (l *Log) LastEpoch() int32                                       { panic("log: being built") }
func (l *Log) Sync() error                                            { panic("log: being built") }
func (l *Log) Checkpoint(index uint64) error                          { panic("log: being built") }
func (l *Log) Close() error                                           { panic("log: being built") }
func (l *Log) Remove() error                                          { panic("log: being built") }
func (l *Log) Size() int64                                            { panic("log: being built") }
func (l *Log) Segments() []SegmentInfo                                { panic("log: being built") }
func (l *Log) OldestSegmentMaxTimestamp() (ts int64, ok bool)         { panic("log: being built") }

// Slice is whole batches in pinned files: [First, Next) of offsets.
type Slice struct {
	Ranges      []FileRange
	Bytes       int
	First, Next int64
}

func (s *Slice) Release()                           { panic("log: being built") }
func (s *Slice) ReadAll(dst []byte) ([]byte, error) { panic("log: being built") }

// FileRange is Len bytes of File at Pos.
type FileRange struct {
	File     vfs.File
	Pos, Len int64
}

// Report is what Verify found in one partition directory.
type Report struct {
	Segments, Batches, Messages int
	Bytes                       int64
	Problems                    []Problem
}

// Problem is one place that is not as it should be.
type Problem struct {
	File   string
	Offset int64 // Kafka offset where known, else -1
	Byte   int64
	What   string
}

func Verify(fs vfs.FS, dir string) (Report, error) { panic("log: being built") }

// Budget is a number of bytes that the tail caches of a node share.
type Budget struct{}

func NewBudget(limit int64) *Budget { panic("log: being built") }
func (b *Budget) Used() int64       { panic("log: being built") }

// Committer groups the fsyncs of a node's logs.
type Committer struct{}

func NewCommitter(n int) *Committer        { panic("log: being built") }
func (c *Committer) Sync(f vfs.File) error { panic("log: being built") }
