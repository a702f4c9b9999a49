package log

import (
	"fmt"
)

// WriteSnap stores b as the .snap of the segment that starts at b.Index+1 (see SegmentEnd), after everything
// up to b.Index was synced. It may run beside appends; a boundary that is gone meanwhile is ErrNotFound.
func (l *Log) WriteSnap(b Base) error {
	s, segs, err := l.boundary(b.Index)
	if err != nil {
		return err
	}
	defer unpinSegments(segs)
	for _, old := range segs {
		if err := l.settle(old); err != nil {
			return err
		}
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
	return nil
}

// boundary finds the segment that starts after index and pins those before it.
func (l *Log) boundary(index uint64) (*segment, []*segment, error) {
	segs, err := l.pinUpTo(index + 1)
	if err != nil {
		return nil, nil, err
	}
	if n := len(segs); n > 0 && segs[n-1].first == index+1 {
		s := segs[n-1]
		s.unpin()
		return s, segs[:n-1], nil
	}
	unpinSegments(segs)
	return nil, nil, fmt.Errorf("%w: no segment starts after index %d", ErrNotFound, index)
}

// settle makes a sealed segment durable, index files included.
func (l *Log) settle(s *segment) error {
	if err := l.take(); err != nil {
		return err
	}
	err := l.flush(s, 0)
	l.give()
	if err != nil {
		return err
	}
	if err := l.syncSegment(s); err != nil {
		return err
	}
	return l.syncIndexes(s)
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
