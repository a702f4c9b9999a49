package log

import (
	"errors"
	"fmt"
	"os"

	"gopherlog/engine/record"
)

// recovery opens an existing log. What it trusts, and what it may do:
//
//   - Below the recovery point everything was synced: segments are taken as their .ridx says, without
//     reading the batches; a file that is shorter than it was there is damage on any boot.
//   - Above it, the .log is read and every batch checked. Which index a batch has follows from the side
//     entries: none is missing before the batches behind it, but for those of the journal after a power cut
//     (makeSure), behind which the log is cut.
//   - On the same boot the page cache survived, so only the incomplete last write may be cut: fewer bytes
//     than the last batch's header asks for, at the end of the newest .log, with no batch behind. Anything
//     else is a *CorruptionError.
//   - After another boot the log is cut at the first batch that does not check out; bytes behind a segment
//     that ends where the next one begins are cut alone.
//   - .ridx, .index and .timeindex are made again from the .log when they are missing, short or do not fit;
//     a segment's first index comes from its .ridx, its predecessor or its .snap. What is made again below the
//     recovery point is durable before it is believed: the next recovery does not look at it.
//   - Side entries behind the last index belong to an append that did not happen and are deleted.
type recovery struct {
	*Log
	report   Recovery
	hasPoint bool
	sides    []sideMark
	cut      bool   // the log ends before the files do
	sure     uint64 // no side entry up to here is missing
}

// makeSure finds out up to which index no side entry is missing: after a power cut, what the journal of side entries says, or the recovery
// point, or the last side entry that there is, since they are lost from the end.
func (r *recovery) makeSure(floor uint64) error {
	r.sure = noIndex
	if r.cfg.SameBoot || floor == noIndex {
		return nil
	}
	r.sure = floor
	if r.hasPoint {
		r.sure = max(r.sure, r.point.index)
	}
	return r.sidecar.Scan(r.sure+1, noIndex, func(e Entry) error {
		r.sure = e.Index
		return nil
	})
}

// sideMark is a side entry as far as recovery needs it.
type sideMark struct {
	index, term uint64
	rolls       bool
}

func (r *recovery) recover(bases []int64) error {
	for i, base := range bases {
		if r.cut {
			if err := r.dropSegments(bases[i:]); err != nil {
				return err
			}
			break
		}
		if err := r.openSegment(base, i == 0); err != nil {
			return err
		}
		if r.cut {
			continue // it was dropped itself
		}
		var next int64 = -1
		if i+1 < len(bases) {
			next = bases[i+1]
		}
		if err := r.recoverSegment(r.active(), next); err != nil {
			return err
		}
	}
	return r.finish()
}

// loadSides reads which indexes above the recovery point are side entries, and those of the whole log
// when a segment below has to be rebuilt (see sideAt).
func (r *recovery) loadSides() error {
	from := r.lastIdx + 1
	if r.hasPoint && r.point.index > r.lastIdx {
		from = r.point.index + 1
	}
	r.sides = r.sides[:0]
	return r.sidecar.Scan(from, noIndex, func(e Entry) error {
		r.sides = append(r.sides, sideMark{e.Index, e.Term, rolls(&e)})
		return nil
	})
}

// sideAt returns the side entry at index, if there is one.
func (r *recovery) sideAt(index uint64) (m sideMark, ok bool, err error) {
	if r.hasPoint && index <= r.point.index {
		err = r.sidecar.Scan(index, index+1, func(e Entry) error {
			m, ok = sideMark{e.Index, e.Term, rolls(&e)}, true
			return nil
		})
		return m, ok, err
	}
	for len(r.sides) > 0 && r.sides[0].index < index {
		r.sides = r.sides[1:]
	}
	if len(r.sides) > 0 && r.sides[0].index == index {
		return r.sides[0], true, nil
	}
	return sideMark{}, false, nil
}

// recoverSegment finds the segment's entries; next is the base offset of the one after it, -1 for none.
func (r *recovery) recoverSegment(s *segment, next int64) error {
	size, err := fileSize(s)
	if err != nil {
		return err
	}
	entries, err := ridxEntries(s)
	if err != nil {
		return err
	}
	from, err := r.trusted(s, size, entries, next)
	if err != nil {
		return err
	}
	s.n, s.tailAt, s.size, s.end = from.n, from.n, from.pos, from.offset
	if s.n > 0 {
		if err := r.trustEntries(s); err != nil {
			return err
		}
	}
	sparse, missing, err := r.reindex(s)
	if err != nil {
		return err
	}
	s.sparse = sparse
	if missing {
		r.report.Rebuilt = append(r.report.Rebuilt, s.name(extIndex))
	}
	if from.whole {
		return nil
	}
	v := view{segment: s, n: entries, tailAt: entries}
	old, err := v.read(s.n, max(entries, s.n))
	if err != nil {
		return err
	}
	return r.recoverRest(s, size, next, old)
}

// recoverRest scans the segment behind its trusted entries and makes their rows again; old are the rows that were there.
func (r *recovery) recoverRest(s *segment, size, next int64, old []ridxEntry) error {
	again := s.n == 0 && r.hasPoint && r.point.index >= s.first
	var err error
	if again {
		err = r.disown(s)
	} else {
		err = s.ridx.Truncate(ridxHeader + int64(s.n)*ridxSize)
	}
	if err != nil {
		return err
	}
	if err := r.scan(s, size, next, old); err != nil {
		return err
	}
	if err := r.flush(s, 0); err != nil {
		return err
	}
	if again {
		return r.own(s)
	}
	if r.cfg.SameBoot {
		return nil
	}
	// Rows that a power cut left of entries which are gone must not come back with the next one: they would say that the sidecar lacks these.
	return s.ridx.Sync()
}

// disown durably takes the header of a .ridx away whose rows are made again below the recovery point: until own nobody believes any of
// the segment's index files, so a power cut may keep what it likes of them.
func (r *recovery) disown(s *segment) error {
	return errors.Join(s.ridx.Truncate(0), s.ridx.Sync())
}

// own makes the index files of a segment durable that was disowned, its header last.
func (r *recovery) own(s *segment) error {
	s.meta.wrote()
	if err := errors.Join(r.syncIndexes(s), r.syncDir()); err != nil {
		return err
	}
	if _, err := s.ridx.WriteAt(s.ridxHead.encode(), 0); err != nil {
		return err
	}
	return s.ridx.Sync()
}

// start is where the trusted part of a segment ends.
type start struct {
	n           int
	pos, offset int64
	whole       bool
}

// trusted returns how much of a segment lies below the recovery point and has the .ridx entries for it.
func (r *recovery) trusted(s *segment, size int64, entries int, next int64) (start, error) {
	none := start{offset: s.base}
	if !r.hasPoint || r.point.segment < s.base || r.point.index < s.first {
		return none, nil
	}
	st := start{n: entries, pos: size, offset: next, whole: true}
	if r.point.segment == s.base {
		if size < r.point.position {
			return none, &CorruptionError{s.name(extLog), size, fmt.Sprintf("file ends, %d bytes were synced", r.point.position)}
		}
		st = start{n: int(r.point.index - s.first + 1), pos: r.point.position, offset: r.point.nextOffset}
	} else if next < 0 {
		return none, &CorruptionError{filePoint, 0, fmt.Sprintf("names segment %d, the newest is %d", r.point.segment, s.base)}
	}
	if st.whole && !r.endsAt(s, entries, next) {
		return r.rebuild(s, none)
	}
	if st.n == 0 || entries < st.n {
		return r.rebuild(s, none)
	}
	v := view{segment: s, n: st.n, tailAt: st.n, size: st.pos}
	last, err := v.entry(st.n - 1)
	var damage *CorruptionError
	if err != nil && !errors.As(err, &damage) {
		return none, err
	}
	if err != nil || last.end() != st.pos || s.base+int64(last.rel) > st.offset || uint64(last.term) < s.prevTerm {
		return r.rebuild(s, none)
	}
	return st, nil
}

// endsAt reports whether the next segment confirms how many entries this one has.
func (r *recovery) endsAt(s *segment, entries int, next int64) bool {
	name := segmentName(next, extRidx)
	data := make([]byte, ridxHeader)
	f, err := r.cfg.FS.OpenFile(r.path(name), false)
	if err != nil {
		return false
	}
	defer f.Close()
	if readFull(f, data, 0, name) != nil {
		return false
	}
	head, err := decodeRidxHead(name, data)
	return err == nil && head.first == s.first+uint64(entries)
}

// rebuild has the whole segment read because its .ridx does not fit.
func (r *recovery) rebuild(s *segment, none start) (start, error) {
	r.report.Rebuilt = append(r.report.Rebuilt, s.name(extRidx))
	return none, nil
}

// trustEntries learns last index, term and epochs from the .ridx entries that count.
func (r *recovery) trustEntries(s *segment) error {
	v := s.peekView()
	last, err := v.entry(s.n - 1)
	if err != nil {
		return err
	}
	for i := 0; uint64(last.term) > r.lastTerm; {
		i, err = v.find(i, func(e ridxEntry) bool { return uint64(e.term) > r.lastTerm })
		if err != nil {
			return err
		}
		if i == s.n {
			return &CorruptionError{s.name(extRidx), ridxHeader, "terms out of order"}
		}
		e, err := v.entry(i)
		if err != nil {
			return err
		}
		r.epochs.note(uint64(e.term), s.first+uint64(i), s.base+int64(e.rel))
		r.lastTerm = uint64(e.term)
	}
	r.lastIdx, r.end = s.last(), s.end
	return nil
}

func fileSize(s *segment) (int64, error) {
	info, err := s.log.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func ridxEntries(s *segment) (int, error) {
	info, err := s.ridx.Stat()
	if err != nil {
		return 0, err
	}
	return int(max(info.Size()-ridxHeader, 0) / ridxSize), nil
}

// dropSegments removes segments behind a cut.
func (r *recovery) dropSegments(bases []int64) error {
	for i := len(bases) - 1; i >= 0; i-- {
		path := r.path(segmentName(bases[i], extLog))
		info, err := r.cfg.FS.Stat(path)
		if err == nil {
			r.report.CutBytes += info.Size()
			err = removeSegmentFiles(r.cfg.FS, r.cfg.Dir, bases[i])
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	r.names.wrote()
	return nil
}

// finish settles what lies behind the last index and computes the rest.
func (r *recovery) finish() error {
	if err := r.dropEmpty(); err != nil {
		return err
	}
	if err := r.rollFlagged(); err != nil {
		return err
	}
	behind := 0
	if err := r.sidecar.Scan(r.lastIdx+1, noIndex, func(Entry) error { behind++; return nil }); err != nil {
		return err
	}
	if behind > 0 {
		r.report.CutEntries = behind
		if err := r.sidecar.DeleteFrom(r.lastIdx + 1); err != nil {
			return err
		}
	}
	r.start = r.segs[0].base
	if r.hasPoint {
		r.start = max(r.start, r.point.logStart)
	}
	for _, s := range r.segs {
		_, err := r.readSnap(s)
		s.hasSnap = err == nil
		if errors.Is(err, ErrVersion) {
			return err
		}
	}
	if first := r.segs[0]; first.first > 1 && !first.hasSnap {
		return &CorruptionError{first.name(extSnap), 0, fmt.Sprintf("missing or damaged, and the log starts at index %d", first.first)}
	}
	r.cache.reset(r.lastIdx + 1)
	if err := r.lowerPoint(); err != nil {
		return err
	}
	return r.settleAll()
}

// settleAll makes what recovery changed durable. Names and bytes from before may be in the page cache only:
// the next sync covers them too, and with SyncEach none may be pending behind a later append.
func (r *recovery) settleAll() error {
	if r.cfg.SyncEach {
		r.names.wrote()
		for _, s := range r.segs {
			if err := r.syncSegment(s); err != nil {
				return err
			}
		}
	}
	if err := r.syncDir(); err != nil {
		return err
	}
	r.names.wrote()
	return nil
}

// dropEmpty removes a newest segment without entries, unless a roll flag began it: the append that created
// it did not happen, and another entry may come that belongs to the segment before.
func (r *recovery) dropEmpty() error {
	s := r.active()
	if s.n > 0 || len(r.segs) == 1 {
		return nil
	}
	before := r.segs[len(r.segs)-2]
	rolled, err := r.rolledBy(s.first-1, before)
	if err != nil || rolled {
		return err
	}
	r.segs = r.segs[:len(r.segs)-1]
	s.unpin()
	r.names.wrote()
	return s.removeFiles()
}

// rollFlagged creates the segment behind a last entry with the roll flag, if the append did not get that far.
func (r *recovery) rollFlagged() error {
	s := r.active()
	if s.n == 0 {
		return nil
	}
	rolled, err := r.rolledBy(r.lastIdx, s)
	if err != nil || !rolled {
		return err
	}
	next, err := createSegment(r.cfg.FS, r.cfg.Dir, ridxHead{first: r.lastIdx + 1, base: r.end, prevTerm: r.lastTerm})
	if err != nil {
		return err
	}
	r.segs = append(r.segs, next)
	r.names.wrote()
	return nil
}

// checkBatch checks a whole batch that recovery read at pos.
func (r *recovery) checkBatch(b record.Batch, pos int64) error {
	switch {
	case pos > maxRelative:
		return errors.New("position beyond what an index can hold")
	case b.BaseOffset() != r.end:
		return fmt.Errorf("base offset %d, want %d", b.BaseOffset(), r.end)
	case b.LeaderEpoch() < 0 || uint64(b.LeaderEpoch()) < r.lastTerm:
		return fmt.Errorf("leader epoch %d after %d", b.LeaderEpoch(), r.lastTerm)
	case b.LastOffsetDelta() < 0 || b.LastOffset()-r.active().base > maxRelative:
		return fmt.Errorf("last offset delta %d in a segment that starts at %d", b.LastOffsetDelta(), r.active().base)
	}
	return b.CheckCRC()
}
