package log

import (
	"fmt"
)

// WriteSnap stores b as the .snap of the segment that starts at b.Index+1 (see SegmentEnd); the .snap is durable
// on return. It may run beside appends; a boundary that is gone meanwhile is ErrNotFound.
//
// The batches before the boundary are not synced for it: segments that retention removes within a minute are
// then never written to the disk at all. If a power cut takes some of them, recovery drops all segments behind
// the gap with their .snap files, so that none counts which lies ahead of the log.
func (l *Log) WriteSnap(b Base) error {
	s, err := l.boundary(b.Index)
	if err != nil {
		return err
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	<-l.keeper
	defer func() { l.keeper <- struct{}{} }()
	if err := l.writable(); err != nil {
		return err
	}
	if !l.holds(s) {
		return fmt.Errorf("%w: segment boundary after index %d", ErrNotFound, b.Index)
	}
	if b.NextOffset != s.base || b.Term != s.prevTerm {
		return fmt.Errorf("%w: snapshot at index %d has term %d and next offset %d, the log %d and %d",
			ErrDivergent, b.Index, b.Term, b.NextOffset, s.prevTerm, s.base)
	}
	if err := l.writeFile(s.name(extSnap), encodeBase(magicSnap, b)); err != nil {
		return fmt.Errorf("log: write %s: %w", s.name(extSnap), err)
	}
	l.mu.Lock()
	s.hasSnap = true
	l.mu.Unlock()
	l.writeBeside(s, b)
	return nil
}

// boundary finds the segment that starts after index.
func (l *Log) boundary(index uint64) (*segment, error) {
	if err := l.writable(); err != nil {
		return nil, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range l.segs {
		if s.first == index+1 {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%w: no segment starts after index %d", ErrNotFound, index)
}

func (l *Log) holds(s *segment) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, x := range l.segs {
		if x == s {
			return true
		}
	}
	return false
}

// OldestSnap returns the state before FirstIndex: what a peer needs that has nothing. ErrNoSnap when the
// log starts from nothing.
func (l *Log) OldestSnap() (Base, error) {
	l.mu.RLock()
	s, has := l.segs[0], l.segs[0].hasSnap
	l.mu.RUnlock()
	if !has {
		return Base{}, ErrNoSnap
	}
	return l.readSnap(s)
}

// NewestSnap returns the newest usable state: one whose .snap can be read and whose index is in the log.
func (l *Log) NewestSnap() (Base, error) {
	l.mu.RLock()
	segs := l.segs
	l.mu.RUnlock()
	for i := len(segs) - 1; i >= 0; i-- {
		l.mu.RLock()
		has := segs[i].hasSnap
		l.mu.RUnlock()
		if !has {
			continue
		}
		if b, err := l.readSnap(segs[i]); err == nil {
			return b, nil
		}
	}
	return Base{}, ErrNoSnap
}

// readSnap reads and checks a segment's .snap.
func (l *Log) readSnap(s *segment) (Base, error) {
	data, ok, err := readIfThere(l.cfg.FS, s.path(extSnap))
	if err != nil {
		return Base{}, err
	}
	if !ok {
		return Base{}, ErrNoSnap
	}
	b, err := decodeBase(magicSnap, s.name(extSnap), data)
	if err != nil {
		return Base{}, err
	}
	if b.Index+1 != s.first || b.NextOffset != s.base {
		return Base{}, &CorruptionError{s.name(extSnap), envelopeHeader,
			fmt.Sprintf("index %d and next offset %d, segment starts at %d and %d", b.Index, b.NextOffset, s.first, s.base)}
	}
	return b, nil
}
