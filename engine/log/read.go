package log

import (
	"errors"
	"fmt"

	"gopherlog/engine/record"
)

const (
	chunkBytes   = 1 << 20 // read-ahead of a reader that goes through cold entries
	chunkEntries = 4096
)

// readTries bounds how often a read that a suffix cut fell into is repeated.
const readTries = 16

// stable runs read until no suffix cut or reset fell into it, so that what it returns belongs together.
func (l *Log) stable(read func() error) error {
	for range readTries {
		before := l.cuts.Load()
		err := read()
		if l.cuts.Load() == before {
			return err
		}
	}
	return ErrTruncated
}

// viewOf pins the segment of an index in the log, with the index's term.
func (l *Log) viewOf(index uint64) (v view, i int, term uint64, err error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return view{}, 0, 0, ErrClosed
	}
	if index < l.firstLocked() || index > l.lastIdx {
		return view{}, 0, 0, fmt.Errorf("%w: %d in [%d, %d]", ErrNotFound, index, l.firstLocked(), l.lastIdx)
	}
	s := l.segmentOf(index)
	return s.view(), int(index - s.first), l.epochs.term(index), nil
}

// cached answers from the tail cache, without bytes that have an owner. An entry of which there is only the header
// then counts if header is set.
func (l *Log) cached(index uint64, header bool) (Entry, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return Entry{}, false
	}
	e, ok := l.cache.get(index)
	if ok && e.Owner != nil {
		e.Data, e.Owner, e.head = e.head, nil, nil
	}
	return e, ok && (header || whole(&e))
}

// whole reports that an entry has all of its bytes, not a batch's header only.
func whole(e *Entry) bool {
	return !e.IsData() || record.Batch(e.Data).Length() == len(e.Data)
}

// Entry returns one entry: from the tail cache without a copy, else from the file, where a data entry's
// checksum is verified. The bytes must not be changed; they stay valid as long as they are referenced.
// ErrNotFound outside [FirstIndex, LastIndex]; *CorruptionError for damage.
func (l *Log) Entry(index uint64) (Entry, error) {
	if e, ok := l.cached(index, false); ok {
		return e, nil
	}
	if e, ok := l.chunks.get(index, l.cuts.Load()); ok && index >= l.FirstIndex() {
		return e, nil
	}
	if l.chunks.sequential(index) {
		return l.readAhead(index)
	}
	return l.readOne(index, false)
}

// EntryHeader is Entry, but of a data entry it returns the batch's header only, unchecked: what a scan
// for kinds and terms needs, and a state machine that reads headers. Control batches come whole: what
// kind of marker one is stands in its record.
func (l *Log) EntryHeader(index uint64) (Entry, error) {
	e, ok := l.cached(index, true)
	if !ok {
		var err error
		if e, err = l.readOne(index, true); err != nil {
			return Entry{}, err
		}
	}
	switch {
	case !e.IsData():
	case record.Batch(e.Data).IsControl():
		if !whole(&e) {
			return l.readOne(index, false)
		}
	default:
		e.Data = e.Data[:record.HeaderSize:record.HeaderSize]
	}
	return e, nil
}

func (l *Log) readOne(index uint64, header bool) (e Entry, err error) {
	err = l.stable(func() error {
		v, i, term, err := l.viewOf(index)
		if err != nil {
			return err
		}
		defer v.unpin()
		row, err := v.entry(i)
		switch {
		case err != nil:
			return err
		case row.length == 0:
			e, err = l.side(index, term, &v)
			return err
		case header:
			row.length = record.HeaderSize
		}
		buf := make([]byte, row.length)
		if err := readFull(v.log, buf, int64(row.pos), v.name(extLog)); err != nil {
			return err
		}
		e = Entry{Index: index, Term: term, Data: buf}
		if header {
			return nil
		}
		return checkStored(&v, row, buf)
	})
	return e, err
}

// side fetches a side entry; one that is missing is damage of the sidecar.
func (l *Log) side(index, term uint64, v *view) (Entry, error) {
	e, err := l.sidecar.Get(index)
	if err != nil {
		return Entry{}, fmt.Errorf("log: side entry %d of %s: %w", index, v.name(extRidx), err)
	}
	if e.Term != term {
		return Entry{}, &CorruptionError{v.name(extRidx), ridxHeader, fmt.Sprintf("side entry %d has term %d, want %d", index, e.Term, term)}
	}
	return e, nil
}

// checkStored verifies a batch that was read against its index entry and its checksum.
func checkStored(v *view, row ridxEntry, b record.Batch) error {
	bad := func(err error) error {
		return &CorruptionError{v.name(extLog), int64(row.pos), err.Error()}
	}
	if err := checkFrame(b); err != nil {
		return bad(err)
	}
	if want := v.base + int64(row.rel); b.BaseOffset() != want || uint32(b.LeaderEpoch()) != row.term {
		return bad(fmt.Errorf("batch at offset %d epoch %d, index says %d and %d", b.BaseOffset(), b.LeaderEpoch(), want, row.term))
	}
	if err := b.CheckCRC(); err != nil {
		return bad(err)
	}
	return nil
}

// Entries returns entries from lo on, before hi and before maxBytes of data are exceeded, but at least one
// if lo is in the log. Cold entries are read in chunks and share their buffers. Errors as Entry.
func (l *Log) Entries(lo, hi uint64, maxBytes int) (out []Entry, err error) {
	return l.read(lo, hi, maxBytes, false)
}

// Lend is Entries without a copy of what lies in pooled memory: every returned entry that has an Owner is held for
// the caller, who drops it after the last look at the bytes.
func (l *Log) Lend(lo, hi uint64, maxBytes int) (out []Entry, err error) {
	return l.read(lo, hi, maxBytes, true)
}

func (l *Log) read(lo, hi uint64, maxBytes int, lend bool) (out []Entry, err error) {
	err = l.stable(func() error {
		giveBack(out)
		out = nil
		return l.collect(lo, hi, maxBytes, lend, &out)
	})
	if len(out) > 0 && !errors.Is(err, ErrTruncated) {
		return out, nil
	}
	giveBack(out)
	return nil, err
}

func giveBack(lent []Entry) {
	for i := range lent {
		if lent[i].Owner != nil {
			lent[i].Owner.Drop()
		}
	}
}

func (l *Log) collect(lo, hi uint64, maxBytes int, lend bool, out *[]Entry) error {
	bytes, first := 0, len(*out)
	for lo < hi {
		if n := l.collectCached(lo, hi, maxBytes, lend, &bytes, out, first); n > 0 {
			lo += uint64(n)
			continue
		}
		if len(*out) > first && bytes >= maxBytes {
			return nil
		}
		if l.hot(lo, lend) {
			return nil // the next one does not fit
		}
		v, i, _, err := l.viewOf(lo)
		if err != nil {
			return err
		}
		part, err := l.readChunk(&v, i, hi, min(maxBytes-bytes, chunkBytes), len(*out) == first)
		v.unpin()
		if err != nil {
			return err
		}
		if len(part) == 0 {
			return nil
		}
		for k := range part {
			bytes += len(part[k].Data)
		}
		*out = append(*out, part...)
		lo += uint64(len(part))
	}
	return nil
}

// collectCached appends entries from the tail cache while they fit.
func (l *Log) collectCached(lo, hi uint64, maxBytes int, lend bool, bytes *int, out *[]Entry, first int) (n int) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for ; lo < hi && !l.closed; lo++ {
		e, ok := l.cache.get(lo)
		if !ok || !serves(&e, lend) || len(*out) > first && *bytes+len(e.Data) > maxBytes {
			return n
		}
		if e.Owner != nil {
			e.Owner.Hold()
		}
		*bytes += len(e.Data)
		*out = append(*out, e)
		n++
	}
	return n
}

// serves reports that a cached entry has all its bytes, and may be handed out as far as these have an owner.
func serves(e *Entry, lend bool) bool { return whole(e) && (lend || e.Owner == nil) }

func (l *Log) hot(index uint64, lend bool) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	e, ok := l.cache.get(index)
	return ok && !l.closed && serves(&e, lend)
}

// readChunk reads entries of one segment from i on in one read of the .log: before index hi, at most
// maxBytes; one even if it is larger when atLeastOne.
func (l *Log) readChunk(v *view, i int, hi uint64, maxBytes int, atLeastOne bool) ([]Entry, error) {
	stop := min(v.n, i+chunkEntries)
	if hi < v.first+uint64(stop) {
		stop = int(hi - v.first)
	}
	rows, err := v.load(i, min(stop, i+ridxBlock))
	if err == nil && i+len(rows) < stop && rows[len(rows)-1].end()-int64(rows[0].pos) < int64(maxBytes) {
		rows, err = v.load(i, stop)
	}
	if err != nil {
		return nil, err
	}
	from, n := int64(rows[0].pos), 0
	for n < len(rows) && (rows[n].end()-from <= int64(maxBytes) || n == 0 && atLeastOne) {
		n++
	}
	if n == 0 {
		return nil, nil
	}
	rows = rows[:n]
	buf := make([]byte, rows[n-1].end()-from)
	if err := readFull(v.log, buf, from, v.name(extLog)); err != nil {
		return nil, err
	}
	return l.split(v, v.first+uint64(i), rows, buf)
}

// split makes entries of index rows and the bytes from the first row's position on.
func (l *Log) split(v *view, index uint64, rows []ridxEntry, buf []byte) ([]Entry, error) {
	out := make([]Entry, len(rows))
	sides := false
	from := int64(rows[0].pos)
	for k, row := range rows {
		out[k] = Entry{Index: index + uint64(k), Term: uint64(row.term)}
		if row.length == 0 {
			sides = true
			continue
		}
		at := int64(row.pos) - from
		if at < 0 || row.end()-from > int64(len(buf)) {
			return nil, &CorruptionError{v.name(extRidx), ridxHeader + int64(index-v.first+uint64(k))*ridxSize, "position out of order"}
		}
		out[k].Data = buf[at : row.end()-from : row.end()-from]
		if err := checkStored(v, row, out[k].Data); err != nil {
			return nil, err
		}
	}
	if !sides {
		return out, nil
	}
	for k, row := range rows {
		if row.length > 0 {
			continue
		}
		e, err := l.side(out[k].Index, out[k].Term, v)
		if err != nil {
			return nil, err
		}
		out[k] = e
	}
	return out, nil
}

// readAhead serves a cold entry with a chunk of those that follow, which stays for the next calls.
func (l *Log) readAhead(index uint64) (Entry, error) {
	cuts := l.cuts.Load()
	entries, err := l.Entries(index, index+chunkEntries, chunkBytes)
	if err != nil {
		return Entry{}, err
	}
	l.chunks.keep(entries, cuts, l.cfg.CacheBudget)
	return entries[0], nil
}

// OffsetOf returns the offsets that index covers, [first, next): equal for a side entry. For the base it
// is where the log begins.
func (l *Log) OffsetOf(index uint64) (first, next int64, err error) {
	err = l.stable(func() error {
		v, i, _, err := l.viewOf(index)
		if errors.Is(err, ErrNotFound) {
			if base, ok := l.baseOffset(index); ok {
				first, next = base, base
				return nil
			}
		}
		if err != nil {
			return err
		}
		defer v.unpin()
		if _, first, err = v.place(i); err != nil {
			return err
		}
		_, next, err = v.place(i + 1)
		return err
	})
	return first, next, err
}

func (l *Log) baseOffset(index uint64) (int64, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.segs[0].base, index+1 == l.firstLocked()
}
