package log

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

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

// keptSparse is what can be kept of the two index files for batches before position size and offset end: the state there but for the
// batches after the last kept entry, which begin at pos from. The caller adds them again. Nothing is kept of files that a lost or torn
// entry shows to be damaged.
func keptSparse(s *segment, size, end int64) (x sparse, from int64, err error) {
	x = newSparse()
	index, _, err := readIfThere(s.fs, s.path(extIndex))
	if err != nil {
		return x, 0, err
	}
	before, last := int64(-1), func(b []byte) int64 { return s.base + int64(be.Uint32(b)) }
	for ; len(index) >= indexEntry; index = index[indexEntry:] {
		pos := int64(be.Uint32(index[4:]))
		if last(index) >= end || last(index) <= before || pos >= size || pos <= from && x.indexSize > 0 || pos == 0 {
			break
		}
		from, before = pos, last(index)
		x.indexSize += indexEntry
	}
	torn := goesOn(index, indexEntry, func(e []byte) bool { return last(e) < end && int64(be.Uint32(e[4:])) < size })
	times, _, err := readIfThere(s.fs, s.path(extTimeIndex))
	if err != nil {
		return x, 0, err
	}
	for ; len(times) >= timeIndexEntry; times = times[timeIndexEntry:] {
		ts, at := int64(be.Uint64(times)), last(times[8:])
		if at >= end || ts <= x.lastTS || at <= x.maxOffset || ts == 0 && at == s.base {
			break
		}
		x.lastTS, x.maxTS, x.maxOffset = ts, ts, at
		x.timesSize += timeIndexEntry
	}
	torn = torn || goesOn(times, timeIndexEntry, func(e []byte) bool { return last(e[8:]) < end })
	if torn || x.timesSize == 0 && x.indexSize > 0 { // lost, or a part of it: both are made again
		return newSparse(), 0, nil
	}
	return x, from, nil
}

// goesOn reports whether entries of batches that count stand behind the place where the entries stopped to rise. Zeros are no entry.
func goesOn(b []byte, size int, counts func(e []byte) bool) bool {
	for ; len(b) >= size; b = b[size:] {
		if e := b[:size]; counts(e) && bytes.ContainsFunc(e, func(r rune) bool { return r != 0 }) {
			return true
		}
	}
	return false
}

// cut ends the two files behind the kept entries.
func (x *sparse) cut(s *segment) error {
	return errors.Join(truncateFile(s.fs, s.path(extIndex), x.indexSize), truncateFile(s.fs, s.path(extTimeIndex), x.timesSize))
}

// replace makes the two files what was kept of them and what waits, durably, each at once: what lies below a recovery point must not
// be half there after a power cut, since nobody would look at it again.
func (x *sparse) replace(s *segment) error {
	for _, f := range []struct {
		ext  string
		kept int64
		more []byte
	}{{extIndex, x.indexSize, x.index}, {extTimeIndex, x.timesSize, x.times}} {
		have, _, err := readIfThere(s.fs, s.path(f.ext))
		if err != nil {
			return err
		}
		if want := slices.Concat(have[:f.kept], f.more); !bytes.Equal(have, want) {
			if err := vfs.WriteFileAtomic(s.fs, s.path(f.ext), want); err != nil {
				return err
			}
		}
	}
	x.written()
	return nil
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
