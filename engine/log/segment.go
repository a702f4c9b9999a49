package log

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"

	"gopherlog/engine/vfs"
)

// Extensions of a segment's files.
const (
	extLog       = ".log"
	extRidx      = ".ridx"
	extIndex     = ".index"
	extTimeIndex = ".timeindex"
	extTxnIndex  = ".txnindex"
	extSnapshot  = ".snapshot"
	extSnap      = ".snap"
)

// segmentExts in the order of removal: the .ridx may never hold more than the .log, and a directory
// without a .log has no segment.
var segmentExts = []string{extRidx, extLog, extIndex, extTimeIndex, extTxnIndex, extSnapshot, extSnap}

// maxRelative bounds offsets within a segment: Kafka's index files hold them in 31 bits.
const maxRelative = 1<<31 - 1

// segment is one base offset's files. The identity never changes; the rest says who guards it.
type segment struct {
	ridxHead
	fs   vfs.FS
	dir  string
	log  vfs.File
	ridx vfs.File

	// refs counts the log's own hold and every reader; the files close with the last.
	refs atomic.Int32
	hot  atomic.Pointer[block]
	data syncMark // of .log
	meta syncMark // of .ridx, .index and .timeindex

	// Guarded by Log.mu, changed only under the write turn.
	size    int64
	end     int64 // next offset
	n       int   // entries
	tail    []ridxEntry
	tailAt  int
	cuts    uint64
	sparse  sparse
	hasSnap bool
}

func segmentName(base int64, ext string) string { return fmt.Sprintf("%020d%s", base, ext) }

// parseSegmentName splits a file name into base offset and extension.
func parseSegmentName(name string) (base int64, ext string, ok bool) {
	if len(name) < 21 || name[20] != '.' {
		return 0, "", false
	}
	base, err := strconv.ParseInt(name[:20], 10, 64)
	return base, name[20:], err == nil && base >= 0
}

func (s *segment) name(ext string) string { return segmentName(s.base, ext) }
func (s *segment) path(ext string) string { return s.fs.PathJoin(s.dir, s.name(ext)) }

// last is the segment's last index; Log.mu is held.
func (s *segment) last() uint64 { return s.first + uint64(s.n) - 1 }

// view pins the segment and returns it as it is now; Log.mu is held.
func (s *segment) view() view {
	s.refs.Add(1)
	return s.peekView()
}

// peekView is view without the pin, for the holder of the write turn.
func (s *segment) peekView() view {
	return view{segment: s, n: s.n, tail: s.tail, tailAt: s.tailAt, size: s.size, end: s.end, cuts: s.cuts}
}

// unpin gives one hold back; the last one closes the files.
func (s *segment) unpin() {
	if n := s.refs.Add(-1); n > 0 {
		return
	} else if n < 0 {
		panic(fmt.Sprintf("log: segment %d released once too often", s.base))
	}
	s.closeFiles()
}

func (s *segment) closeFiles() error {
	var errs []error
	for _, f := range []vfs.File{s.log, s.ridx} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// createSegment makes the files of an empty segment; the sparse index files follow when they hold something.
// Their names are durable after a sync of the directory.
func createSegment(fs vfs.FS, dir string, h ridxHead) (_ *segment, err error) {
	s := &segment{ridxHead: h, fs: fs, dir: dir, end: h.base}
	s.sparse = newSparse()
	s.refs.Store(1)
	s.meta.wrote()
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("create segment %d: %w", h.base, err), s.closeFiles(), s.removeFiles())
		}
	}()
	if s.log, err = createEmpty(fs, s.path(extLog)); err != nil {
		return nil, err
	}
	if s.ridx, err = createEmpty(fs, s.path(extRidx)); err != nil {
		return nil, err
	}
	if _, err = s.ridx.WriteAt(h.encode(), 0); err != nil {
		return nil, err
	}
	return s, nil
}

// createEmpty opens a file that holds nothing, whatever it held before.
func createEmpty(fs vfs.FS, path string) (vfs.File, error) {
	f, err := fs.OpenFile(path, true)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// removeFiles unlinks all files of the segment; readers keep the open ones.
func (s *segment) removeFiles() error { return removeSegmentFiles(s.fs, s.dir, s.base) }

func removeSegmentFiles(fs vfs.FS, dir string, base int64) error {
	var errs []error
	for _, ext := range segmentExts {
		errs = append(errs, removeIfThere(fs, fs.PathJoin(dir, segmentName(base, ext))))
	}
	return errors.Join(errs...)
}

// add counts one entry that was written; Log.mu is held.
func (s *segment) add(e ridxEntry, end int64) {
	s.tail = append(s.tail, e)
	s.n++
	s.size = e.end()
	s.end = end
}

// flush writes entries that are only in memory to the index files, all but the newest keep of them.
// The write turn is held. On error nothing is forgotten and flush may be called again.
func (l *Log) flush(s *segment, keep int) error {
	k := max(len(s.tail)-keep, 0)
	if k == 0 && len(s.sparse.index)+len(s.sparse.times) == 0 {
		return nil
	}
	if k > 0 {
		buf := make([]byte, 0, k*ridxSize)
		for _, e := range s.tail[:k] {
			buf = e.append(buf)
		}
		if _, err := s.ridx.WriteAt(buf, ridxHeader+int64(s.tailAt)*ridxSize); err != nil {
			return fmt.Errorf("write %s: %w", s.name(extRidx), err)
		}
	}
	if err := s.sparse.write(s); err != nil {
		return err
	}
	var rest []ridxEntry
	if keep > 0 {
		rest = append(make([]ridxEntry, 0, ridxTailCap+64), s.tail[k:]...)
	}
	if s.sparse.indexSize+s.sparse.timesSize == 0 {
		l.names.wrote() // they may be new
	}
	s.meta.wrote()
	l.mu.Lock()
	s.tail, s.tailAt = rest, s.tailAt+k
	s.sparse.written()
	l.mu.Unlock()
	return nil
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
