package log

import (
	"errors"
	"fmt"
	"os"

	"gopherlog/engine/vfs"
)

const (
	indexEntry     = 8
	timeIndexEntry = 12
)

// sparse is the state of a segment's .index and .timeindex: what is in the files, what waits in memory.
// Kafka's rule: an entry is added for a batch before the batch counts itself when more than the interval
// was appended since the last entry.
type sparse struct {
	index, times         []byte // not yet in the files
	indexSize, timesSize int64  // of the files
	since                int64  // bytes since the last index entry
	maxTS                int64  // largest timestamp so far, -1: none
	maxOffset            int64  // last offset of the batch that holds it
	lastTS               int64  // of the last time-index entry
}

func newSparse() sparse { return sparse{maxTS: -1, maxOffset: -1, lastTS: -1} }

// add counts a batch at pos; base is the segment's.
func (x *sparse) add(base, lastOffset, pos int64, size int, maxTS int64, interval int) {
	if maxTS > x.maxTS {
		x.maxTS, x.maxOffset = maxTS, lastOffset
	}
	if x.since > int64(interval) {
		x.index = be.AppendUint32(x.index, uint32(lastOffset-base))
		x.index = be.AppendUint32(x.index, uint32(pos))
		x.mark(base)
		x.since = 0
	}
	x.since += int64(size)
}

// mark adds a time-index entry for the largest timestamp so far, if it rose.
func (x *sparse) mark(base int64) {
	if x.maxTS <= x.lastTS {
		return
	}
	x.times = be.AppendUint64(x.times, uint64(x.maxTS))
	x.times = be.AppendUint32(x.times, uint32(x.maxOffset-base))
	x.lastTS = x.maxTS
}

// write puts what waits into the files; written forgets it afterwards.
func (x *sparse) write(s *segment) error {
	if err := writeTo(s.fs, s.path(extIndex), x.index, x.indexSize); err != nil {
		return err
	}
	return writeTo(s.fs, s.path(extTimeIndex), x.times, x.timesSize)
}

func (x *sparse) written() {
	x.indexSize += int64(len(x.index))
	x.timesSize += int64(len(x.times))
	x.index, x.times = nil, nil
}

func writeTo(fs vfs.FS, path string, b []byte, off int64) error {
	if len(b) == 0 {
		return nil
	}
	f, err := fs.OpenFile(path, true)
	if err != nil {
		return fmt.Errorf("open index file: %w", err)
	}
	_, err = f.WriteAt(b, off)
	return errors.Join(err, f.Close())
}

// cutSparse keeps the entries of the two index files for batches before position size and offset end,
// and returns the state there but for the batches after the last kept entry, which begin at pos from:
// the caller adds them again.
func cutSparse(s *segment, size, end int64) (x sparse, from int64, err error) {
	x = newSparse()
	index, _, err := readIfThere(s.fs, s.path(extIndex))
	if err != nil {
		return x, 0, err
	}
	for before := int64(-1); len(index)-int(x.indexSize) >= indexEntry; {
		e := index[x.indexSize:]
		rel, pos := int64(be.Uint32(e)), int64(be.Uint32(e[4:]))
		if s.base+rel >= end || rel <= before || pos >= size || pos <= from && x.indexSize > 0 || pos == 0 {
			break
		}
		from, before = pos, rel
		x.indexSize += indexEntry
	}
	times, _, err := readIfThere(s.fs, s.path(extTimeIndex))
	if err != nil {
		return x, 0, err
	}
	torn := false // an entry that a power cut left in part, with whole ones behind it
	for len(times)-int(x.timesSize) >= timeIndexEntry {
		e := times[x.timesSize:]
		ts, rel := int64(be.Uint64(e)), int64(be.Uint32(e[8:]))
		if s.base+rel >= end || ts == 0 && rel == 0 {
			break
		}
		if torn = ts <= x.lastTS || s.base+rel <= x.maxOffset; torn { // both rise
			break
		}
		x.lastTS, x.maxTS, x.maxOffset = ts, ts, s.base+rel
		x.timesSize += timeIndexEntry
	}
	if torn || x.timesSize == 0 && x.indexSize > 0 { // the time index is lost, or the rest of it: both are made again
		x, from = newSparse(), 0
	}
	if err := truncateFile(s.fs, s.path(extIndex), x.indexSize); err != nil {
		return x, 0, err
	}
	return x, from, truncateFile(s.fs, s.path(extTimeIndex), x.timesSize)
}

// truncateFile cuts a file to size; one that is missing stays missing.
func truncateFile(fs vfs.FS, path string, size int64) error {
	f, err := fs.OpenFile(path, false)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != size {
		err = f.Truncate(size)
	}
	return errors.Join(err, f.Close())
}
