package log

import (
	"errors"
	"fmt"
	"io"
	"math"

	"gopherlog/engine/record"
)

// scanChunk is how much of a .log recovery reads at once; scanKeep bounds the index entries it holds.
const (
	scanChunk = 1 << 20
	scanKeep  = 64 << 10
)

// batchReader walks over the batches of a .log.
type batchReader struct {
	f    io.ReaderAt
	name string
	size int64 // of the file
	pos  int64 // of the next batch
	buf  []byte
	at   int64 // position of buf
}

// tornError says that the bytes up to the end of the file are fewer than a batch needs.
type tornError struct{ have, want int64 }

func (e *tornError) Error() string {
	return fmt.Sprintf("batch has %d of %d bytes", e.have, e.want)
}

// badBatch wraps what is wrong with the bytes at the reader's position.
type badBatch struct{ err error }

func (e *badBatch) Error() string { return e.err.Error() }

// next returns the batch at pos without moving on: *badBatch for bytes that are none, with a *tornError in it
// at an incomplete end; another error when the file cannot be read.
func (r *batchReader) next() (record.Batch, error) {
	left := r.size - r.pos
	if left < record.HeaderSize {
		return nil, &badBatch{&tornError{left, record.HeaderSize}}
	}
	head, err := r.bytes(record.HeaderSize)
	if err != nil {
		return nil, err
	}
	h, err := record.PeekHeader(head)
	switch {
	case err != nil:
		return nil, &badBatch{err}
	case h.Length > maxBatchBytes:
		return nil, &badBatch{fmt.Errorf("batch of %d bytes", h.Length)}
	case int64(h.Length) > left:
		return nil, &badBatch{&tornError{left, int64(h.Length)}}
	}
	b, err := r.bytes(h.Length)
	return record.Batch(b), err
}

// bytes returns n bytes from pos on, valid until the next call; they are in the file.
func (r *batchReader) bytes(n int) ([]byte, error) {
	if r.pos < r.at || r.pos+int64(n) > r.at+int64(len(r.buf)) {
		want := max(n, int(min(scanChunk, r.size-r.pos)))
		if cap(r.buf) < want {
			r.buf = make([]byte, want)
		}
		r.buf, r.at = r.buf[:want], r.pos
		if err := readFull(r.f, r.buf, r.at, r.name); err != nil {
			return nil, err
		}
	}
	return r.buf[r.pos-r.at:][:n], nil
}

// scan reads the segment from s.size on and adds what it finds. size is the file's, next the base offset of the
// segment that follows or -1, old is what the .ridx held from there on.
func (r *recovery) scan(s *segment, size, next int64, old []ridxEntry) error {
	in := &batchReader{f: s.log, name: s.name(extLog), size: size, pos: s.size}
	from := s.n
	for {
		more, err := r.scanOne(in, s, old, from)
		var stop *badBatch
		if errors.As(err, &stop) {
			return r.cutAt(in, s, stop.err, next)
		}
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if len(s.tail) > scanKeep {
			if err := r.flush(s, 0); err != nil {
				return err
			}
		}
	}
	return r.checkEnd(s, from+len(old))
}

// scanOne adds the next index of the segment: a side entry, or the next batch.
func (r *recovery) scanOne(in *batchReader, s *segment, old []ridxEntry, from int) (more bool, err error) {
	side, ok, err := r.sideAt(r.lastIdx + 1)
	if err != nil {
		return false, err
	}
	row := ridxEntry{pos: uint32(in.pos), rel: uint32(r.end - s.base)}
	if ok {
		if side.term < r.lastTerm || side.term > maxRelative {
			return false, &CorruptionError{s.name(extRidx), ridxHeader, fmt.Sprintf("side entry %d has term %d after %d", side.index, side.term, r.lastTerm)}
		}
		row.term = uint32(side.term)
		r.take(s, row, r.end)
		if ends := side.rolls && s.size > 0; ends && in.pos < in.size {
			return false, &badBatch{errors.New("bytes behind the entry that ends the segment")}
		} else if ends {
			return false, nil
		}
		return true, nil
	}
	if r.lastIdx >= r.sure {
		if in.pos < in.size {
			return false, &badBatch{fmt.Errorf("side entries behind index %d may be lost, and with them the batch's place", r.lastIdx)}
		}
		return false, nil
	}
	var was ridxEntry // what the .ridx said, if that fits here
	if k := s.n - from; k < len(old) && old[k].pos == row.pos && old[k].rel == row.rel && uint64(old[k].term) >= max(r.lastTerm, 1) {
		was = old[k]
	}
	if was.term > 0 && was.length == 0 {
		return false, &CorruptionError{s.name(extRidx), ridxHeader + int64(s.n)*ridxSize, fmt.Sprintf("side entry %d is missing from the sidecar", r.lastIdx+1)}
	}
	if in.pos == in.size {
		return false, nil
	}
	b, err := in.next()
	if err != nil {
		return false, err
	}
	if err := r.checkBatch(b, in.pos); err != nil {
		return false, &badBatch{err}
	}
	row.length, row.term = uint32(len(b)), uint32(b.LeaderEpoch())
	if was.length == row.length && was.term != row.term { // no checksum covers the epoch
		return false, &CorruptionError{s.name(extLog), in.pos, fmt.Sprintf("leader epoch %d, the .ridx says %d", row.term, was.term)}
	}
	r.take(s, row, b.NextOffset())
	s.sparse.add(s.base, b.LastOffset(), in.pos, len(b), b.MaxTimestamp(), r.cfg.IndexIntervalBytes)
	r.report.Scanned += int64(len(b))
	in.pos += int64(len(b))
	s.data.wrote() // it may be in the page cache only
	return true, nil
}

// take adds one recovered entry.
func (r *recovery) take(s *segment, e ridxEntry, end int64) {
	r.lastIdx++
	r.epochs.note(uint64(e.term), r.lastIdx, r.end)
	r.lastTerm = uint64(e.term)
	r.end = end
	s.add(e, end)
}

// checkEnd refuses, on the same boot, a .log that ends before its own .ridx does: bytes that were written
// are gone.
func (r *recovery) checkEnd(s *segment, entries int) error {
	if !r.cfg.SameBoot || entries <= s.n {
		return nil
	}
	return &CorruptionError{s.name(extLog), s.size, fmt.Sprintf("file ends after %d entries, %s has %d", s.n, s.name(extRidx), entries)}
}

// cutAt handles bytes at in.pos that are no whole, right batch: cut there, or refuse.
func (r *recovery) cutAt(in *batchReader, s *segment, bad error, next int64) error {
	damage := &CorruptionError{s.name(extLog), in.pos, bad.Error()}
	var torn *tornError
	switch {
	case !r.cfg.SameBoot && next >= 0 && r.end == next:
		// A failed append's bytes, cut before the power was but not durably: the segment is complete.
	case r.hasPoint && (r.point.segment > s.base || r.point.segment == s.base && in.pos < r.point.position):
		return damage // it was synced once
	case !r.cfg.SameBoot:
		r.cut = true
	case next >= 0 || !errors.As(bad, &torn):
		return damage
	default:
		if whole, err := in.batchBehind(r.end); err != nil || whole {
			return errors.Join(damage, err)
		}
	}
	r.report.CutBytes += in.size - in.pos
	if err := s.log.Truncate(in.pos); err != nil {
		return err
	}
	s.data.wrote()
	return r.syncSegment(s)
}

// batchBehind looks for a whole batch with a right checksum anywhere behind pos: then the bytes at pos are
// not the last write but a damaged one.
func (r *batchReader) batchBehind(after int64) (bool, error) {
	if r.size-r.pos > maxBatchBytes {
		return true, nil
	}
	b, err := r.bytes(int(r.size - r.pos))
	if err != nil {
		return false, err
	}
	for i := 1; i+record.HeaderSize <= len(b); i++ {
		if b[i+16] != record.Magic2 || b[i] != 0 {
			continue
		}
		x, _, err := record.Parse(b[i:])
		if err != nil || x.BaseOffset() <= after || x.BaseOffset()-after > math.MaxInt32 {
			continue
		}
		if x.CheckCRC() == nil {
			return true, nil
		}
	}
	return false, nil
}

// reindex keeps what is right in the segment's .index and .timeindex and adds what is missing by reading batch headers. It returns their
// state and whether anything was missing; the files are durable then. All of the segment's .ridx is in its file.
func (l *Log) reindex(s *segment) (sparse, bool, error) {
	x, from, err := keptSparse(s, s.size, s.end)
	if err != nil {
		return x, false, err
	}
	v := s.peekView()
	err = v.eachHeader(from, s.end, func(h record.Header, pos int64) error {
		x.add(s.base, h.LastOffset(), pos, h.Length, h.MaxTimestamp, l.cfg.IndexIntervalBytes)
		return nil
	})
	switch {
	case err != nil:
		return x, false, err
	case len(x.index)+len(x.times) == 0:
		return x, false, x.cut(s)
	}
	return x, true, x.replace(s)
}
