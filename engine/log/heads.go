package log

import (
	"errors"
	"fmt"
)

// openSegment opens a segment's files and finds out where it starts.
func (r *recovery) openSegment(base int64, first bool) error {
	s := &segment{fs: r.cfg.FS, dir: r.cfg.Dir}
	s.base = base
	s.sparse = newSparse()
	s.refs.Store(1)
	r.segs = append(r.segs, s)
	var err error
	if s.log, err = r.cfg.FS.OpenFile(s.path(extLog), false); err != nil {
		return err
	}
	if s.ridx, err = r.cfg.FS.OpenFile(s.path(extRidx), true); err != nil {
		return err
	}
	head, headErr := r.readHead(s)
	if errors.Is(headErr, ErrVersion) {
		return headErr
	}
	want := ridxHead{first: r.lastIdx + 1, base: base, prevTerm: r.lastTerm}
	switch {
	case first:
		if want, err = r.firstHead(s, head, headErr); err != nil {
			return err
		}
		r.lastIdx, r.lastTerm, r.end = want.first-1, want.prevTerm, base
		r.epochs = epochs{{term: want.prevTerm, first: want.first - 1, start: base}}
		if err := r.loadSides(); err != nil {
			return err
		}
	case base != r.end:
		return r.gap(s)
	}
	s.ridxHead = want
	s.end = base
	switch {
	case headErr != nil:
		return r.rebuildHead(s)
	case head.first > want.first && r.lastIdx >= r.sure: // after side entries that were lost
		return r.gap(s)
	case head != want:
		return &CorruptionError{s.name(extRidx), 8, fmt.Sprintf("segment starts at %+v, the log before it ends at %+v", head, want)}
	}
	return nil
}

func (r *recovery) readHead(s *segment) (ridxHead, error) {
	b := make([]byte, ridxHeader)
	if err := readFull(s.ridx, b, 0, s.name(extRidx)); err != nil {
		return ridxHead{}, err
	}
	return decodeRidxHead(s.name(extRidx), b)
}

// firstHead is where the oldest segment starts: its .ridx says so, or its .snap, or it starts the log.
func (r *recovery) firstHead(s *segment, head ridxHead, headErr error) (ridxHead, error) {
	if headErr == nil && head.base == s.base && head.first > 0 {
		return head, nil
	}
	s.ridxHead.base = s.base
	data, ok, err := readIfThere(r.cfg.FS, s.path(extSnap))
	if err != nil {
		return head, err
	}
	if ok {
		if b, err := decodeBase(magicSnap, s.name(extSnap), data); err == nil && b.NextOffset == s.base {
			return ridxHead{first: b.Index + 1, base: s.base, prevTerm: b.Term}, nil
		}
	}
	if s.base == 0 && !ok {
		return ridxHead{first: 1}, nil
	}
	return head, &CorruptionError{s.name(extRidx), 0, "neither the .ridx nor a .snap says which index the segment starts with"}
}

// gap handles a segment that does not begin where the one before ends.
func (r *recovery) gap(s *segment) error {
	if r.cfg.SameBoot || r.hasPoint && s.base <= r.point.segment || s.base < r.end {
		return &CorruptionError{s.name(extLog), 0, fmt.Sprintf("the segment before ends at offset %d", r.end)}
	}
	r.cut = true
	r.names.wrote()
	r.segs = r.segs[:len(r.segs)-1]
	size, err := fileSize(s)
	s.unpin()
	r.report.CutBytes += size
	return errors.Join(err, removeSegmentFiles(r.cfg.FS, r.cfg.Dir, s.base))
}

// rebuildHead starts the .ridx anew: its entries cannot be trusted without the header.
func (r *recovery) rebuildHead(s *segment) error {
	r.report.Rebuilt = append(r.report.Rebuilt, s.name(extRidx))
	if err := s.ridx.Truncate(0); err != nil {
		return err
	}
	s.meta.wrote()
	_, err := s.ridx.WriteAt(s.ridxHead.encode(), 0)
	return err
}
