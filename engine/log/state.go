package log

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"gopherlog/engine/failpoint"
)

// Defaults of Config.
const (
	DefaultSegmentBytes  = 1 << 30
	DefaultIndexInterval = 4096
	DefaultCacheBytes    = 8 << 20
)

// Failpoints of the log, in the order in which an operation passes them.
var (
	FailBeforeSidecar   = failpoint.Register("log/before-sidecar", "the side entries of an append become durable")
	FailAfterSidecar    = failpoint.Register("log/after-sidecar-before-write", "the batches of an append are written")
	FailRoll            = failpoint.Register("log/roll", "a new segment's files are created")
	FailSync            = failpoint.Register("log/sync", "a .log file is synced")
	FailAfterWrite      = failpoint.Register("log/after-write-before-publish", "readers see what was appended")
	FailBeforeTruncate  = failpoint.Register("log/before-truncate", "a suffix is cut from the files")
	FailTruncateSegment = failpoint.Register("log/truncate-next-segment", "the next segment of a suffix is removed")
	FailAfterTruncate   = failpoint.Register("log/after-truncate-before-sidecar", "the side entries of a cut suffix are deleted")
	FailReset           = failpoint.Register("log/reset-after-marker", "a log that adopts a base is wiped")
	FailResetDone       = failpoint.Register("log/reset-before-done", "the marker of a finished reset is removed")
	FailTrim            = failpoint.Register("log/trim-before-remove", "trimmed segments are removed")
	FailCheckpoint      = failpoint.Register("log/before-recovery-point", "the recovery point is written")
)

// Log is one partition's log. Append, TruncateSuffix and Reset are called by one goroutine at a time;
// everything else may be called by any goroutine at any time.
//
// Order of locks: keeper, turn, mu; chunks.mu and Budget.mu are taken alone. keeper and turn are tokens,
// not mutexes, because they are held across I/O; mu never is.
type Log struct {
	cfg    Config
	keeper chan struct{} // who holds it may change recovery-point, .snap and reset files and remove segments
	turn   chan struct{} // who holds it may change the newest segments

	// Changed under turn and mu, read under either.
	mu       sync.RWMutex
	segs     []*segment // oldest first, never empty; the slice is replaced, never changed
	lastIdx  uint64
	lastTerm uint64
	end      int64 // next offset
	start    int64 // log start as asked for; may exceed end after a power cut
	epochs   epochs
	cache    cache
	closed   bool
	failed   error // the first failed sync or roll-back: nothing is written any more

	cuts   atomic.Uint64 // counts suffix cuts and resets: a read that spans one is repeated
	chunks chunks

	point    point    // changed under keeper and mu, read under either
	epochTxt string   // last written leader-epoch-checkpoint; guarded by keeper
	names    syncMark // of the directory

	staged appendStage // of the append that holds the turn

	sidecar *sideJournal
}

func (c *Config) setDefaults() error {
	switch {
	case c.FS == nil:
		return errors.New("log: Config.FS is missing")
	case c.Dir == "":
		return errors.New("log: Config.Dir is missing")
	case c.Sidecar == nil:
		return errors.New("log: Config.Sidecar is missing")
	case c.SegmentBytes > maxRelative:
		return fmt.Errorf("log: SegmentBytes %d, want at most %d", c.SegmentBytes, maxRelative)
	}
	if c.SegmentBytes <= 0 {
		c.SegmentBytes = DefaultSegmentBytes
	}
	if c.IndexIntervalBytes <= 0 {
		c.IndexIntervalBytes = DefaultIndexInterval
	}
	if c.CacheBytes <= 0 {
		c.CacheBytes = DefaultCacheBytes
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return nil
}

func newToken() chan struct{} {
	t := make(chan struct{}, 1)
	t <- struct{}{}
	return t
}

// take waits for the write turn and fails when the log takes no more writes.
func (l *Log) take() error {
	<-l.turn
	if err := l.writable(); err != nil {
		l.give()
		return err
	}
	return nil
}

func (l *Log) give() { l.turn <- struct{}{} }

// keep takes keeper and turn.
func (l *Log) keep() error {
	<-l.keeper
	if err := l.take(); err != nil {
		l.keeper <- struct{}{}
		return err
	}
	return nil
}

func (l *Log) unkeep() {
	l.give()
	l.keeper <- struct{}{}
}

func (l *Log) writable() error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return ErrClosed
	}
	return l.failed
}

// fail latches the first error after which files and memory may differ: the log takes no more writes,
// and what failed is never tried again. It returns the error for the caller.
func (l *Log) fail(err error) error {
	err = fmt.Errorf("%w: %w", ErrFailed, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = err
		l.cfg.Logger.Error("log takes no more writes", "dir", l.cfg.Dir, "err", err)
	}
	return err
}

// Failed returns the error that closed the log for writes, nil while there is none.
func (l *Log) Failed() error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.failed
}

// active is the newest segment; mu or turn is held.
func (l *Log) active() *segment { return l.segs[len(l.segs)-1] }

func (l *Log) firstLocked() uint64 { return l.segs[0].first }

func (l *Log) startLocked() int64 { return min(l.start, l.end) }

// FirstIndex is the first index in the log; FirstIndex = LastIndex + 1 when it holds none.
func (l *Log) FirstIndex() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.firstLocked()
}

// LastIndex is the last index in the log, or the base's.
func (l *Log) LastIndex() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.lastIdx
}

// LastTerm is the term of LastIndex.
func (l *Log) LastTerm() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.lastTerm
}

// StartOffset is the first offset that clients may read.
func (l *Log) StartOffset() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.startLocked()
}

// EndOffset is the offset that the next data entry takes.
func (l *Log) EndOffset() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.end
}

// Term answers for FirstIndex-1 (the base) up to LastIndex, from memory; else ErrNotFound.
func (l *Log) Term(index uint64) (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if index+1 < l.firstLocked() || index > l.lastIdx {
		return 0, fmt.Errorf("%w: term of %d in [%d, %d]", ErrNotFound, index, l.firstLocked(), l.lastIdx)
	}
	return l.epochs.term(index), nil
}

// SegmentEnd reports that index is the last one of a sealed segment. Where a segment ends is known once
// the next one exists, so a state machine asks for i-1 right before it applies i.
func (l *Log) SegmentEnd(index uint64) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for i := len(l.segs) - 1; i > 0 && l.segs[i].first > index; i-- {
		if l.segs[i].first == index+1 {
			return true
		}
	}
	return false
}

// Size is the number of bytes in all .log files.
func (l *Log) Size() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var n int64
	for _, s := range l.segs {
		n += s.size
	}
	return n
}

// Segments describes the segments, oldest first.
func (l *Log) Segments() []SegmentInfo {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := make([]SegmentInfo, len(l.segs))
	for i, s := range l.segs {
		out[i] = SegmentInfo{BaseOffset: s.base, FirstIndex: s.first, Bytes: s.size,
			MaxTimestamp: s.sparse.maxTS, Sealed: i+1 < len(l.segs), HasSnap: s.hasSnap}
	}
	return out
}

// OldestSegmentMaxTimestamp is the largest timestamp in the oldest segment, for retention by time; ok is
// false while it holds no batch.
func (l *Log) OldestSegmentMaxTimestamp() (ts int64, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := l.segs[0]
	return s.sparse.maxTS, s.size > 0
}

// segmentOf returns the segment that index is in; index is in the log and mu or turn is held.
func (l *Log) segmentOf(index uint64) *segment {
	for i := len(l.segs) - 1; ; i-- {
		if l.segs[i].first <= index {
			return l.segs[i]
		}
	}
}

const noIndex = math.MaxUint64
