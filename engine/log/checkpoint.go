package log

import (
	"errors"
	"fmt"
	"os"

	"gopherlog/engine/vfs"
)

// Files of a partition's directory that belong to no segment.
const (
	filePoint    = "recovery-point"
	fileEpochs   = "leader-epoch-checkpoint"
	fileMetadata = "partition.metadata"
	fileReset    = "reset"
	extDeleted   = ".deleted"
)

func (l *Log) path(name string) string { return l.cfg.FS.PathJoin(l.cfg.Dir, name) }

func (l *Log) writeFile(name string, data []byte) error {
	return vfs.WriteFileAtomic(l.cfg.FS, l.path(name), data)
}

// syncSegment makes the segment's .log durable. A failure is latched: the kernel may have dropped the
// pages and would report success to a second try.
func (l *Log) syncSegment(s *segment) error {
	return s.data.run(func() error {
		began := l.cfg.Now()
		err := l.cfg.Failpoints.Hit(FailSync)
		if err == nil {
			err = l.cfg.Committer.Sync(s.log)
		}
		if err != nil {
			return l.fail(fmt.Errorf("sync %s: %w", s.name(extLog), err))
		}
		if l.cfg.Observer != nil {
			l.cfg.Observer.Synced(l.cfg.Now().Sub(began))
		}
		return nil
	})
}

// syncIndexes makes the index files of a segment durable as far as they are written.
func (l *Log) syncIndexes(s *segment) error {
	return s.meta.run(func() error {
		err := s.ridx.SyncData()
		for _, ext := range []string{extIndex, extTimeIndex} {
			if err == nil {
				err = syncPath(l.cfg.FS, s.path(ext))
			}
		}
		if err != nil {
			return l.fail(fmt.Errorf("sync index files of segment %d: %w", s.base, err))
		}
		return nil
	})
}

func syncPath(fs vfs.FS, path string) error {
	f, err := fs.OpenFile(path, false)
	if errors.Is(err, os.ErrNotExist) {
		return nil // retention has removed it
	}
	if err != nil {
		return err
	}
	return errors.Join(f.SyncData(), f.Close())
}

func (l *Log) syncDir() error {
	return l.names.run(func() error {
		if err := vfs.SyncDir(l.cfg.FS, l.cfg.Dir); err != nil {
			return l.fail(fmt.Errorf("sync directory: %w", err))
		}
		return nil
	})
}

// Sync makes every entry appended before the call durable.
func (l *Log) Sync() error {
	if err := l.take(); err != nil {
		return err
	}
	err := l.sidecar.Settle(l.lastIdx)
	l.give()
	if err != nil {
		return err
	}
	return l.syncFiles()
}

func (l *Log) syncFiles() error {
	segs, err := l.pinUpTo(noIndex)
	if err != nil {
		return err
	}
	defer unpinSegments(segs)
	for _, s := range segs {
		if err := l.syncSegment(s); err != nil {
			return err
		}
	}
	return l.syncDir()
}

// pinUpTo pins the segments that begin at or before index.
func (l *Log) pinUpTo(index uint64) ([]*segment, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return nil, ErrClosed
	}
	if l.failed != nil {
		return nil, l.failed
	}
	var out []*segment
	for _, s := range l.segs {
		if s.first <= index {
			s.refs.Add(1)
			out = append(out, s)
		}
	}
	return out, nil
}

func unpinSegments(segs []*segment) {
	for _, s := range segs {
		s.unpin()
	}
}

// Checkpoint makes everything up to index durable, index files included, and writes the recovery point
// there, so that the next recovery begins behind it. Indexes outside the log are clamped, and the point does
// not go back: that would forget what a power cut cannot have taken. It also lets go of
// cached bytes of a log that nobody wrote to since the last checkpoint. Appends go on meanwhile.
func (l *Log) Checkpoint(index uint64) error {
	<-l.keeper
	defer func() { l.keeper <- struct{}{} }()
	return l.checkpoint(index)
}

func (l *Log) checkpoint(index uint64) error {
	p, segs, err := l.flushUpTo(index)
	if err != nil {
		return err
	}
	defer unpinSegments(segs)
	if err := l.syncAll(segs); err != nil {
		return err
	}
	l.chunks.clear()
	if err := l.writeEpochs(); err != nil {
		return err
	}
	if p == l.point {
		l.shrinkCache(0)
		return nil
	}
	if err := l.cfg.Failpoints.Hit(FailCheckpoint); err != nil {
		return err
	}
	return l.writePoint(p)
}

// flushUpTo writes all index entries to their files and returns the recovery point of index with the
// segments that it covers, pinned.
func (l *Log) flushUpTo(index uint64) (point, []*segment, error) {
	if err := l.take(); err != nil {
		return point{}, nil, err
	}
	defer l.give()
	if err := l.sidecar.Checkpoint(); err != nil {
		return point{}, nil, err
	}
	for _, s := range l.segs {
		l.mu.Lock()
		s.sparse.mark(s.base)
		l.mu.Unlock()
		if err := l.flush(s, 0); err != nil {
			return point{}, nil, err
		}
	}
	index = max(min(index, l.lastIdx), l.firstLocked()-1, l.point.index)
	p, err := l.pointAt(index)
	if err != nil {
		return p, nil, err
	}
	segs, err := l.pinUpTo(index + 1)
	return p, segs, err
}

// pointAt is the recovery point for an index in [FirstIndex-1, LastIndex]; turn is held.
func (l *Log) pointAt(index uint64) (point, error) {
	k := len(l.segs) - 1
	for k > 0 && l.segs[k].first > index+1 {
		k--
	}
	v := l.segs[k].peekView()
	pos, offset, err := v.place(int(index + 1 - v.first))
	return point{logStart: l.start, index: index, term: l.epochs.term(index), nextOffset: offset,
		segment: v.base, position: pos}, err
}

func (l *Log) syncAll(segs []*segment) error {
	for _, s := range segs {
		if err := l.syncSegment(s); err != nil {
			return err
		}
		if err := l.syncIndexes(s); err != nil {
			return err
		}
	}
	return l.syncDir()
}

// writePoint replaces the recovery point; keeper is held.
func (l *Log) writePoint(p point) error {
	if err := l.syncDir(); err != nil {
		return err
	}
	if err := l.writeFile(filePoint, encodePoint(p)); err != nil {
		return fmt.Errorf("log: write recovery point: %w", err)
	}
	l.mu.Lock()
	l.point = p
	l.mu.Unlock()
	return nil
}

// Unsettled is how many bytes of batches lie above the recovery point: what a recovery reads.
func (l *Log) Unsettled() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var n int64
	for i := len(l.segs) - 1; i >= 0 && l.segs[i].base >= l.point.segment; i-- {
		n += l.segs[i].size
		if l.segs[i].base == l.point.segment {
			n -= l.point.position
		}
	}
	return n
}

// writeEpochs replaces leader-epoch-checkpoint if it changed; it is made from the log again when lost.
func (l *Log) writeEpochs() error {
	l.mu.RLock()
	text := l.epochs.encode(l.startLocked())
	l.mu.RUnlock()
	if string(text) == l.epochTxt {
		return nil
	}
	if err := l.writeFile(fileEpochs, text); err != nil {
		return fmt.Errorf("log: write %s: %w", fileEpochs, err)
	}
	l.epochTxt = string(text)
	return nil
}

// Close makes everything durable, writes the recovery point at the end, and closes the files but for those
// that readers still hold. After a failure (ErrFailed) it only closes, and returns that failure. A second
// Close returns nil.
func (l *Log) Close() error {
	<-l.keeper
	defer func() { l.keeper <- struct{}{} }()
	err := l.checkpoint(noIndex)
	if errors.Is(err, ErrClosed) {
		return nil
	}
	l.shut()
	return err
}

// shut closes without writing anything. keeper is held.
func (l *Log) shut() {
	<-l.turn
	defer l.give()
	l.mu.Lock()
	was := l.closed
	l.closed = true
	segs := l.segs
	l.cache.reset(l.lastIdx + 1)
	l.mu.Unlock()
	if was {
		return
	}
	l.cfg.CacheBudget.leave(l)
	l.chunks.clear()
	l.sidecar.shut()
	unpinSegments(segs)
}

// Remove closes the log and deletes its side entries, then its directory.
func (l *Log) Remove() error {
	<-l.keeper
	defer func() { l.keeper <- struct{}{} }()
	l.shut()
	return errors.Join(l.sidecar.DeleteFrom(0), l.cfg.FS.RemoveAll(l.cfg.Dir))
}
