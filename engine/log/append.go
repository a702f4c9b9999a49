package log

import (
	"errors"
	"fmt"
	"time"

	"gopherlog/engine/record"
)

// maxBatchBytes bounds one batch; a longer length field is damage.
const maxBatchBytes = 80 << 20

// appendStage is what one append is going to write. Its slices are reused by the next append.
type appendStage struct {
	runs    []run
	rows    []staged
	sides   []Entry
	bufs    [][]byte
	stamped []record.Batch // stamped by this append: unstamped again if it fails

	last     uint64
	lastTerm uint64
	end      int64
	bytes    int
}

// run is a part of an append that goes to one segment: rows [from, to).
type run struct {
	seg      *segment // nil until created
	head     ridxHead // of the segment to create
	pos      int64    // where its bytes go
	size     int64    // of the segment with what is staged
	from, to int
}

// staged is one entry with its place.
type staged struct {
	ridxEntry
	end   int64 // next offset after it
	maxTS int64
}

// Append writes contiguous entries that follow LastIndex and makes them visible to readers. Data that is
// not stamped yet (base offset or leader epoch below zero) is stamped in place; stamped data must carry the
// stamps that this log would give (else ErrDivergent) and a right checksum. On success the log owns the
// bytes of entries without an Owner: the caller may read but not change or recycle them. Of data with an Owner,
// which the caller holds during the call, the log takes a hold of its own for as long as its tail cache needs the
// bytes. It returns with everything durable if SyncEach is set, else with Raft's own entries durable, and commands and batches
// in the page cache. On an error nothing was appended; ErrFailed means that the log takes no more writes.
//
// The order is: side entries stored, one write per segment touched, sync, visible.
func (l *Log) Append(entries []Entry) error { return l.appendAll(entries, false) }

// AppendBorrowed is Append, but the entries' bytes stay the caller's: nothing refers to them on return. The
// tail cache holds copies of the batches' headers, which is what a follower reads back; Entry and Entries go
// to the file.
func (l *Log) AppendBorrowed(entries []Entry) error { return l.appendAll(entries, true) }

func (l *Log) appendAll(entries []Entry, borrowed bool) error {
	if len(entries) == 0 {
		return nil
	}
	if err := l.take(); err != nil {
		return err
	}
	defer l.give()
	var began time.Time
	if l.cfg.Observer != nil {
		began = l.cfg.Now()
	}
	if err := l.flushFull(); err != nil {
		return err
	}
	err := l.stage(entries)
	if err == nil {
		err = l.writeStage()
	}
	if err != nil {
		l.unstamp()
		return err
	}
	if borrowed {
		l.publish(borrow(entries))
		l.Replicated(entries[0].Index - 1) // who borrows leads nobody
	} else {
		copyHeads(entries)
		l.publish(entries)
	}
	if l.cfg.Observer != nil {
		l.cfg.Observer.Appended(l.staged.bytes, l.cfg.Now().Sub(began))
	}
	return nil
}

// copyHeads gives entries with an owner a header that outlives it.
func copyHeads(entries []Entry) {
	n := 0
	for i := range entries {
		if entries[i].Owner != nil {
			n++
		}
	}
	if n == 0 {
		return
	}
	slab := make([]byte, 0, n*record.HeaderSize)
	for i := range entries {
		if e := &entries[i]; e.Owner != nil {
			at := len(slab)
			slab = append(slab, e.Data[:record.HeaderSize]...)
			e.head = slab[at:len(slab):len(slab)]
		}
	}
}

// borrow returns entries for the tail cache that do not refer to the caller's bytes: headers of batches, copies
// of the rest.
func borrow(entries []Entry) []Entry {
	n := 0
	for i := range entries {
		n += min(len(entries[i].Data), borrowedBytes(&entries[i])) + len(entries[i].Ext)
	}
	slab := make([]byte, 0, n)
	clone := func(b []byte) []byte {
		at := len(slab)
		slab = append(slab, b...)
		return slab[at:len(slab):len(slab)]
	}
	out := make([]Entry, len(entries))
	for i := range entries {
		out[i] = entries[i]
		out[i].Owner = nil
		out[i].Data = clone(out[i].Data[:min(len(out[i].Data), borrowedBytes(&entries[i]))])
		if len(out[i].Ext) > 0 {
			out[i].Ext = clone(out[i].Ext)
		}
	}
	return out
}

func borrowedBytes(e *Entry) int {
	if e.IsData() {
		return record.HeaderSize
	}
	return len(e.Data)
}

// flushFull moves index entries to their files before too many wait in memory.
func (l *Log) flushFull() error {
	s := l.active()
	if len(s.tail) < ridxTailCap {
		return nil
	}
	return l.flush(s, ridxBlock)
}

// stage checks the entries, stamps the data and decides where everything goes.
func (l *Log) stage(entries []Entry) error {
	st := &l.staged
	st.reset(l)
	for i := range entries {
		e := &entries[i]
		if e.Index != st.last+1 {
			return fmt.Errorf("log: append of index %d after %d", e.Index, st.last)
		}
		if e.Term < st.lastTerm || e.Term > maxRelative {
			return fmt.Errorf("%w: index %d has term %d after term %d", ErrDivergent, e.Index, e.Term, st.lastTerm)
		}
		var err error
		if e.IsData() {
			err = l.stageData(e)
		} else {
			l.stageSide(e)
		}
		if err != nil {
			return err
		}
		st.last, st.lastTerm = e.Index, e.Term
	}
	return nil
}

func (st *appendStage) reset(l *Log) {
	s := l.active()
	st.runs = append(st.runs[:0], run{seg: s, head: s.ridxHead, pos: s.size, size: s.size})
	st.rows, st.sides, st.bufs, st.stamped = st.rows[:0], st.sides[:0], st.bufs[:0], st.stamped[:0]
	st.last, st.lastTerm, st.end, st.bytes = l.lastIdx, l.lastTerm, l.end, 0
}

func (st *appendStage) run() *run { return &st.runs[len(st.runs)-1] }

// roll lets what follows go to a new segment.
func (st *appendStage) roll(prevTerm uint64) {
	n := len(st.rows)
	st.runs = append(st.runs, run{
		head: ridxHead{first: st.runs[0].head.first, base: st.end, prevTerm: prevTerm}, from: n, to: n,
	})
}

func (st *appendStage) row(e staged) {
	st.rows = append(st.rows, e)
	st.run().to++
}

func (l *Log) stageSide(e *Entry) {
	st := &l.staged
	st.sides = append(st.sides, *e)
	r := st.run()
	st.row(staged{ridxEntry: ridxEntry{pos: uint32(r.size), rel: uint32(st.end - r.head.base), term: uint32(e.Term)}, end: st.end, maxTS: -1})
	if rolls(e) && r.size > 0 {
		st.roll(e.Term)
		st.run().head.first = e.Index + 1
	}
}

func rolls(e *Entry) bool { return len(e.Ext) > 0 && e.Ext[0]&RollFlag != 0 }

func (l *Log) stageData(e *Entry) error {
	st := &l.staged
	b := record.Batch(e.Data)
	if err := checkFrame(b); err != nil {
		return fmt.Errorf("log: append of index %d: %w", e.Index, err)
	}
	if err := st.stamp(b, e); err != nil {
		return err
	}
	next := st.end + int64(b.LastOffsetDelta()) + 1
	r := st.run()
	if r.size > 0 && (r.size+int64(len(b)) > l.cfg.SegmentBytes || next-r.head.base > maxRelative) {
		st.roll(st.lastTerm)
		r = st.run()
		r.head.first = e.Index
	}
	st.row(staged{
		ridxEntry: ridxEntry{pos: uint32(r.size), length: uint32(len(b)), rel: uint32(st.end - r.head.base), term: uint32(e.Term)},
		end:       next, maxTS: b.MaxTimestamp(),
	})
	r.size += int64(len(b))
	st.end = next
	st.bytes += len(b)
	st.bufs = append(st.bufs, b)
	return nil
}

// checkFrame checks that b is exactly one batch as far as its frame tells.
func checkFrame(b record.Batch) error {
	h, err := record.PeekHeader(b)
	switch {
	case err != nil:
		return err
	case h.Length != len(b):
		return fmt.Errorf("%w: %d bytes hold a batch of %d", record.ErrInvalid, len(b), h.Length)
	case h.LastOffsetDelta < 0 || len(b) > maxBatchBytes:
		return fmt.Errorf("%w: %d bytes, last offset delta %d", record.ErrInvalid, len(b), h.LastOffsetDelta)
	}
	return nil
}

// stamp gives the batch its offset and epoch, or checks those it has.
func (st *appendStage) stamp(b record.Batch, e *Entry) error {
	if b.BaseOffset() < 0 || b.LeaderEpoch() < 0 {
		b.SetBaseOffset(st.end)
		b.SetLeaderEpoch(int32(e.Term))
		st.stamped = append(st.stamped, b)
		return nil
	}
	if b.BaseOffset() != st.end || b.LeaderEpoch() != int32(e.Term) {
		return fmt.Errorf("%w: index %d is stamped offset %d epoch %d, want %d and %d",
			ErrDivergent, e.Index, b.BaseOffset(), b.LeaderEpoch(), st.end, e.Term)
	}
	if err := b.CheckCRC(); err != nil {
		return fmt.Errorf("log: append of index %d: %w", e.Index, err)
	}
	return nil
}

// unstamp makes the batches of a failed append look as they came, for the next attempt.
func (l *Log) unstamp() {
	for _, b := range l.staged.stamped {
		b.SetBaseOffset(-1)
		b.SetLeaderEpoch(-1)
	}
	l.staged.release()
}

// writeStage performs the staged append up to, but without, publishing; on error all is as before.
func (l *Log) writeStage() error {
	st := &l.staged
	if err := l.cfg.Failpoints.Hit(FailBeforeSidecar); err != nil {
		return err
	}
	if len(st.sides) > 0 {
		if err := l.sidecar.Put(st.sides, l.cfg.SyncEach || st.mustSync()); err != nil {
			return l.rollback(fmt.Errorf("log: store side entries: %w", err))
		}
	}
	if err := l.cfg.Failpoints.Hit(FailAfterSidecar); err != nil {
		return l.rollback(err)
	}
	bufs := st.bufs
	for i := range st.runs {
		n, err := l.writeRun(&st.runs[i], bufs)
		if err != nil {
			return l.rollback(err)
		}
		bufs = bufs[n:]
	}
	if l.cfg.SyncEach {
		if err := l.syncStage(); err != nil {
			return l.fail(err)
		}
	}
	if err := l.cfg.Failpoints.Hit(FailAfterWrite); err != nil {
		return l.rollback(err)
	}
	return nil
}

// mustSync says that a side entry is to be durable in every tier: one of Raft's own, or one by which segments begin.
func (st *appendStage) mustSync() bool {
	for i := range st.sides {
		if e := &st.sides[i]; e.Type != 0 || rolls(e) {
			return true
		}
	}
	return false
}

// writeRun writes the first buffers, those of the run, and returns how many they are.
func (l *Log) writeRun(r *run, bufs [][]byte) (int, error) {
	if r.seg == nil {
		if err := l.cfg.Failpoints.Hit(FailRoll); err != nil {
			return 0, err
		}
		s, err := createSegment(l.cfg.FS, l.cfg.Dir, r.head)
		if err != nil {
			return 0, err
		}
		r.seg = s
		l.names.wrote()
	}
	n := 0
	for _, e := range l.staged.rows[r.from:r.to] {
		if e.length > 0 {
			n++
		}
	}
	if n == 0 {
		return 0, nil
	}
	_, err := r.seg.log.WriteVAt(bufs[:n], r.pos)
	r.seg.data.wrote()
	if err != nil {
		return n, fmt.Errorf("log: write %s at %d: %w", r.seg.name(extLog), r.pos, err)
	}
	return n, nil
}

// syncStage makes the files that the append wrote durable.
func (l *Log) syncStage() error {
	for i := range l.staged.runs {
		if err := l.syncSegment(l.staged.runs[i].seg); err != nil {
			return err
		}
	}
	return l.syncDir()
}

// rollback undoes what a failed append did to files and sidecar and returns cause. If that fails too,
// files and memory differ and the log takes no more writes.
func (l *Log) rollback(cause error) error {
	st := &l.staged
	var errs []error
	for i := len(st.runs) - 1; i >= 0; i-- {
		r := &st.runs[i]
		switch {
		case r.seg == nil:
		case i > 0:
			errs = append(errs, r.seg.closeFiles(), r.seg.removeFiles())
		case r.to > r.from:
			errs = append(errs, r.seg.log.Truncate(r.seg.size))
		}
	}
	if len(st.sides) > 0 {
		errs = append(errs, l.sidecar.DeleteFrom(st.sides[0].Index))
	}
	if err := errors.Join(errs...); err != nil {
		return l.fail(fmt.Errorf("%w; roll-back: %w", cause, err))
	}
	return cause
}

// publish makes a written append visible.
func (l *Log) publish(entries []Entry) {
	st := &l.staged
	room := true
	l.mu.Lock()
	for i := range st.runs {
		r := &st.runs[i]
		s := r.seg
		if i > 0 {
			old := l.active()
			old.sparse.mark(old.base)
			l.segs = append(l.segs[:len(l.segs):len(l.segs)], s)
		}
		for j := r.from; j < r.to; j++ {
			e, row := &entries[j], &st.rows[j]
			if row.length > 0 {
				s.sparse.add(s.base, row.end-1, int64(row.pos), int(row.length), row.maxTS, l.cfg.IndexIntervalBytes)
			}
			l.epochs.note(e.Term, e.Index, s.base+int64(row.rel))
			s.add(row.ridxEntry, row.end)
			room = l.cache.put(owned(*e)) && room
		}
	}
	l.lastIdx, l.lastTerm, l.end = st.last, st.lastTerm, st.end
	l.mu.Unlock()

	for i := range st.runs[:len(st.runs)-1] {
		if err := l.flush(st.runs[i].seg, 0); err != nil {
			l.cfg.Logger.Warn("index of a sealed segment stays in memory until the next checkpoint", "dir", l.cfg.Dir, "err", err)
		}
	}
	if !room {
		l.cfg.CacheBudget.reclaim(l)
	}
	st.release()
}

// release lets go of the entries' bytes.
func (st *appendStage) release() {
	clear(st.bufs)
	clear(st.sides)
	clear(st.stamped)
	clear(st.runs)
}
