package log

import (
	"errors"
	"fmt"
)

// TruncateSuffix removes the entries [from, LastIndex]; it is durable on return. Nothing happens when from
// lies behind LastIndex. The order is: readers stop seeing the entries, recovery point lowered, files cut
// newest first and synced, side entries deleted. After a crash inside it the log ends anywhere from from-1
// to its old end. An error leaves a log that takes no more writes.
func (l *Log) TruncateSuffix(from uint64) error {
	if err := l.keep(); err != nil {
		return err
	}
	defer l.unkeep()
	switch {
	case from > l.lastIdx:
		return nil
	case from < l.firstLocked():
		return fmt.Errorf("%w: truncate from %d, first index is %d", ErrNotFound, from, l.firstLocked())
	}
	if err := l.cfg.Failpoints.Hit(FailBeforeTruncate); err != nil {
		return err
	}
	if err := l.truncate(from); err != nil {
		return l.fail(fmt.Errorf("truncate from index %d: %w", from, err))
	}
	return nil
}

func (l *Log) truncate(from uint64) error {
	k, err := l.newActive(from)
	if err != nil {
		return err
	}
	s := l.segs[k]
	if err := l.flush(s, 0); err != nil {
		return err
	}
	v := s.peekView()
	n := int(from - s.first)
	size, end, err := v.place(n)
	if err != nil {
		return err
	}
	gone := l.segs[k+1:]
	l.hide(k, n, size, end)
	if err := l.lowerPoint(); err != nil {
		return err
	}
	if err := l.removeNewestFirst(gone); err != nil {
		return err
	}
	if err := l.cutFiles(s); err != nil {
		return err
	}
	if err := l.cfg.Failpoints.Hit(FailAfterTruncate); err != nil {
		return err
	}
	return l.sidecar.DeleteFrom(from)
}

// newActive returns the position of the segment that will be the newest when the entries from index from
// on are gone. A segment left without entries goes too, unless the entry before began it by its roll flag:
// so that segments keep beginning where the entries say.
func (l *Log) newActive(from uint64) (int, error) {
	k := len(l.segs) - 1
	for l.segs[k].first > from {
		k--
	}
	if k == 0 || l.segs[k].first < from {
		return k, nil
	}
	rolled, err := l.rolledBy(from-1, l.segs[k-1])
	if err != nil || rolled {
		return k, err
	}
	return k - 1, nil
}

// rolledBy reports whether index, the last of s, is a side entry that starts a new segment behind it.
func (l *Log) rolledBy(index uint64, s *segment) (bool, error) {
	v := s.peekView()
	row, err := v.entry(int(index - s.first))
	if err != nil || row.length > 0 {
		return false, err
	}
	e, err := l.sidecar.Get(index)
	if err != nil {
		return false, fmt.Errorf("side entry %d: %w", index, err)
	}
	return rolls(&e) && s.size > 0, nil
}

// hide makes segment k, cut to n entries, the end of the log for readers.
func (l *Log) hide(k, n int, size, end int64) {
	l.cuts.Add(1)
	l.mu.Lock()
	s := l.segs[k]
	l.segs = l.segs[: k+1 : k+1]
	s.n, s.size, s.end = n, size, end
	s.tail, s.tailAt = nil, n
	s.cuts++
	s.hot.Store(nil)
	l.lastIdx = s.first + uint64(n) - 1
	l.epochs.cut(l.lastIdx + 1)
	l.lastTerm = l.epochs.term(l.lastIdx)
	l.end = end
	l.cache.cut(l.lastIdx + 1)
	l.mu.Unlock()
	l.cuts.Add(1)
	l.chunks.clear()
}

func (l *Log) removeNewestFirst(gone []*segment) error {
	for i := len(gone) - 1; i >= 0; i-- {
		if err := l.cfg.Failpoints.Hit(FailTruncateSegment); err != nil {
			return err
		}
		if err := gone[i].removeFiles(); err != nil {
			return err
		}
		gone[i].unpin()
		l.names.wrote()
	}
	return nil
}

// cutFiles makes the files of the newest segment as long as it is, durably.
func (l *Log) cutFiles(s *segment) error {
	if err := s.ridx.Truncate(ridxHeader + int64(s.n)*ridxSize); err != nil {
		return err
	}
	x, _, err := l.reindex(s)
	if err != nil {
		return err
	}
	l.mu.Lock()
	s.sparse = x
	l.mu.Unlock()
	if err := s.log.Truncate(s.size); err != nil {
		return err
	}
	s.data.wrote()
	s.meta.wrote()
	if err := l.syncSegment(s); err != nil {
		return err
	}
	if err := l.syncIndexes(s); err != nil {
		return err
	}
	return l.syncDir()
}

// lowerPoint keeps the recovery point within the log. keeper and turn are held.
func (l *Log) lowerPoint() error {
	if l.point.index <= l.lastIdx && l.point.segment <= l.active().base {
		return nil
	}
	p := point{logStart: l.start, index: l.lastIdx, term: l.lastTerm, nextOffset: l.end,
		segment: l.active().base, position: l.active().size}
	return l.writePoint(p)
}

// TrimTo moves the log start to offset (never back, never beyond the end) and removes whole segments below
// it: those whose indexes are all at most limitIndex, up to the last boundary with a usable .snap. Readers
// that hold slices keep them. It returns the log start, which is durable. An error before anything was
// removed leaves the log as it was.
func (l *Log) TrimTo(offset int64, limitIndex uint64) (newStart int64, err error) {
	gone, newStart, err := l.trim(offset, limitIndex)
	for _, path := range gone {
		err = errors.Join(err, removeIfThere(l.cfg.FS, path))
	}
	return min(newStart, l.EndOffset()), err
}

// trim does all of TrimTo but the unlinking of the large files. Appends wait only while it publishes.
func (l *Log) trim(offset int64, limitIndex uint64) (gone []string, newStart int64, err error) {
	<-l.keeper
	defer func() { l.keeper <- struct{}{} }()
	if err := l.writable(); err != nil {
		return nil, 0, err
	}
	old, newStart, p := l.planTrim(offset, limitIndex)
	if p == l.point {
		return nil, newStart, nil
	}
	if err := l.writePoint(p); err != nil {
		return nil, 0, err
	}
	if err := l.cfg.Failpoints.Hit(FailTrim); err != nil {
		return nil, 0, err
	}
	<-l.turn
	l.mu.Lock()
	l.start = newStart
	if l.segs = l.segs[len(old):]; len(old) > 0 {
		l.epochs.trim(l.segs[0].first-1, l.segs[0].base)
	}
	first := l.segs[0].first
	l.cache.trim(first)
	l.mu.Unlock()
	l.give()
	l.chunks.clear()
	for _, s := range old {
		path, err := l.putAside(s)
		if err != nil {
			return gone, newStart, err
		}
		gone = append(gone, path)
		s.unpin()
	}
	if len(old) == 0 {
		return nil, newStart, nil
	}
	// A segment that comes back after a power cut would need its side entries.
	l.names.wrote()
	if err := l.syncDir(); err != nil {
		return gone, newStart, err
	}
	return gone, newStart, l.sidecar.DeleteBelow(first)
}

// planTrim says which segments go and what the recovery point is then. keeper is held.
func (l *Log) planTrim(offset int64, limitIndex uint64) (old []*segment, newStart int64, p point) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	newStart = max(l.start, min(offset, l.end))
	k := l.trimmable(newStart, limitIndex)
	p = l.point
	p.logStart = newStart
	if first := l.segs[k]; k > 0 && p.index+1 < first.first {
		p = point{logStart: newStart, index: first.first - 1, term: first.prevTerm, nextOffset: first.base, segment: first.base}
	} else if k > 0 && p.segment < first.base {
		p.segment, p.position = first.base, 0
	}
	return l.segs[:k], newStart, p
}

// trimmable is how many of the oldest segments lie below start and limitIndex, up to a .snap.
func (l *Log) trimmable(start int64, limitIndex uint64) int {
	k := 0
	for i := 1; i < len(l.segs) && l.segs[i].base <= start && l.segs[i].first-1 <= limitIndex; i++ {
		if l.segs[i].hasSnap {
			k = i
		}
	}
	return k
}

// putAside removes the segment's small files and renames the .log, which may be slow to unlink.
func (l *Log) putAside(s *segment) (string, error) {
	aside := s.path(extLog) + extDeleted
	if err := l.cfg.FS.Rename(s.path(extLog), aside); err != nil {
		return "", err
	}
	return aside, s.removeFiles()
}

// Reset wipes the log and durably adopts a base: the next entry is b.Index+1 at b.NextOffset, and b is the
// .snap there. It is atomic: after a crash inside it the log is the old one, or the base.
func (l *Log) Reset(b Base) error {
	if b.Index == 0 {
		return errors.New("log: reset to a base without an index")
	}
	if err := l.keep(); err != nil {
		return err
	}
	defer l.unkeep()
	if err := l.syncDir(); err != nil {
		return err
	}
	if err := l.writeFile(fileReset, encodeBase(magicReset, b)); err != nil {
		return fmt.Errorf("log: reset to index %d: %w", b.Index, err)
	}
	if err := l.reset(b); err != nil {
		return l.fail(fmt.Errorf("reset to index %d: %w", b.Index, err))
	}
	return nil
}

func (l *Log) reset(b Base) error {
	if err := l.cfg.Failpoints.Hit(FailReset); err != nil {
		return err
	}
	old := l.segs
	s, err := l.wipeTo(b)
	if err != nil {
		return err
	}
	l.cuts.Add(1)
	l.mu.Lock()
	l.adopt(s, b)
	l.mu.Unlock()
	l.cuts.Add(1)
	l.chunks.clear()
	for _, s := range old {
		s.unpin()
	}
	if err := l.writePoint(l.point); err != nil {
		return err
	}
	if err := l.cfg.Failpoints.Hit(FailResetDone); err != nil {
		return err
	}
	if err := removeIfThere(l.cfg.FS, l.path(fileReset)); err != nil {
		return err
	}
	l.names.wrote()
	return l.syncDir()
}

// wipeTo removes every segment's files and all side entries and creates the base's first segment.
func (l *Log) wipeTo(b Base) (*segment, error) {
	names, err := l.cfg.FS.List(l.cfg.Dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, _, ok := parseSegmentName(name); ok || name == fileEpochs || name == filePoint {
			if err := removeIfThere(l.cfg.FS, l.path(name)); err != nil {
				return nil, err
			}
		}
	}
	if err := l.sidecar.DeleteFrom(0); err != nil {
		return nil, err
	}
	s, err := createSegment(l.cfg.FS, l.cfg.Dir, ridxHead{first: b.Index + 1, base: b.NextOffset, prevTerm: b.Term})
	if err != nil {
		return nil, err
	}
	s.hasSnap = true
	if err := s.ridx.Sync(); err != nil {
		return nil, err
	}
	return s, l.writeFile(s.name(extSnap), encodeBase(magicSnap, b))
}

// adopt makes s, which is empty, the whole log.
func (l *Log) adopt(s *segment, b Base) {
	l.segs = []*segment{s}
	l.lastIdx, l.lastTerm, l.end = b.Index, b.Term, b.NextOffset
	l.start = max(b.LogStart, b.NextOffset)
	l.epochs = epochs{{term: b.Term, first: b.Index, start: b.NextOffset}}
	l.cache.reset(b.Index + 1)
	l.epochTxt = ""
	l.point = point{logStart: l.start, index: b.Index, term: b.Term, nextOffset: b.NextOffset, segment: s.base}
}
