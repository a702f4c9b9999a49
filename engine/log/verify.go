package log

import (
	"errors"
	"fmt"
	"slices"

	"gopherlog/engine/record"
	"gopherlog/engine/vfs"
)

// Report is what Verify found in one partition's directory.
type Report struct {
	Segments, Batches, Messages int
	Bytes                       int64 // of .log files
	Problems                    []Problem
}

// Problem is one place that is not as it should be.
type Problem struct {
	File   string
	Offset int64 // Kafka offset where known, else -1
	Byte   int64
	What   string
}

// String is one line for people.
func (p Problem) String() string {
	if p.Offset < 0 {
		return fmt.Sprintf("%s: byte %d: %s", p.File, p.Byte, p.What)
	}
	return fmt.Sprintf("%s: offset %d, byte %d: %s", p.File, p.Offset, p.Byte, p.What)
}

// verifier walks over a directory without changing it. It goes on after a problem, in the next file.
type verifier struct {
	Report
	fs  vfs.FS
	dir string

	end       int64 // offset behind what was seen; -1 at first
	damaged   bool  // the segment's .log is
	sound     int64 // bytes of the segment's .log that hold right batches
	epoch     int32
	nextIndex uint64 // behind the last .ridx; 0: unknown
}

// Verify checks every file of a partition's directory, reading only: every batch, the index files against
// the batches, and our own files. On a directory that a broker has open, what it has not written to the index
// files yet is no problem. The error is for a directory that cannot be read at all.
func Verify(fs vfs.FS, dir string) (Report, error) {
	names, err := fs.List(dir)
	if err != nil {
		return Report{}, err
	}
	v := &verifier{fs: fs, dir: dir, end: -1}
	slices.Sort(names)
	for _, name := range names {
		if base, ext, ok := parseSegmentName(name); ok && ext == extLog {
			v.segment(base)
		}
	}
	for _, name := range names {
		v.small(name)
	}
	return v.Report, nil
}

func (v *verifier) problem(file string, offset, at int64, format string, args ...any) {
	v.Problems = append(v.Problems, Problem{file, offset, at, fmt.Sprintf(format, args...)})
}

// failed turns an error into a problem; damage keeps its own place.
func (v *verifier) failed(file string, err error) {
	var damage *CorruptionError
	if errors.As(err, &damage) {
		v.problem(damage.File, -1, damage.Pos, "%s", damage.Msg)
		return
	}
	v.problem(file, -1, 0, "%v", err)
}

// placed is a batch that was seen, for the index files.
type placed struct {
	last, pos, size int64
	maxTS           int64
	maxTSAt         int64 // last offset of the batch that holds maxTS
}

func (v *verifier) segment(base int64) {
	v.Segments++
	name := segmentName(base, extLog)
	if v.end >= 0 && base != v.end {
		v.problem(name, base, 0, "segment starts at offset %d, the one before ends at %d", base, v.end)
	}
	s := &segment{fs: v.fs, dir: v.dir}
	s.base = base
	f, err := v.fs.Open(s.path(extLog))
	if err != nil {
		v.failed(name, err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		v.failed(name, err)
		return
	}
	size := info.Size()
	v.Bytes += size
	in := &batchReader{f: f, name: name, size: size}
	batches := v.batches(s, in)
	v.sound, v.damaged = in.pos, in.pos < size
	v.ridx(s, batches, size)
	v.index(s, batches)
	v.timeIndex(s, batches)
}

// batches checks the .log and returns what it holds.
func (v *verifier) batches(s *segment, in *batchReader) []placed {
	out := []placed{}
	v.end = s.base
	maxTS, maxAt := int64(-1), int64(-1)
	for in.pos < in.size {
		b, err := in.next()
		if err == nil {
			err = v.checkBatch(b)
		}
		if err != nil {
			v.problem(in.name, v.end, in.pos, "%v", err)
			break
		}
		v.Batches++
		if !b.IsControl() {
			v.Messages += int(b.Count())
		}
		if b.MaxTimestamp() > maxTS {
			maxTS, maxAt = b.MaxTimestamp(), b.LastOffset()
		}
		out = append(out, placed{b.LastOffset(), in.pos, int64(len(b)), maxTS, maxAt})
		v.end, v.epoch = b.NextOffset(), b.LeaderEpoch()
		in.pos += int64(len(b))
	}
	return out
}

func (v *verifier) checkBatch(b record.Batch) error {
	switch {
	case b.BaseOffset() != v.end:
		return fmt.Errorf("base offset %d, want %d", b.BaseOffset(), v.end)
	case b.LeaderEpoch() < v.epoch:
		return fmt.Errorf("leader epoch %d after %d", b.LeaderEpoch(), v.epoch)
	}
	if err := b.Validate(); err != nil {
		return err
	}
	return checkContents(b)
}

// checkContents decodes the records as a consumer would. The broker stores compressed records without looking into them, so that only
// here their producer's mistakes show.
func checkContents(b record.Batch) error {
	if b.Codec() == record.None {
		return b.CheckRecords()
	}
	for _, err := range record.Records(b) {
		if err != nil {
			return fmt.Errorf("consumers cannot read this batch: %w", err)
		}
	}
	return nil
}

// ridx compares the .ridx with the batches; it may end before them.
func (v *verifier) ridx(s *segment, batches []placed, size int64) {
	name := s.name(extRidx)
	data, err := vfs.ReadFile(v.fs, s.path(extRidx))
	if err != nil {
		v.failed(name, err)
		return
	}
	head, err := decodeRidxHead(name, data)
	if err != nil {
		v.failed(name, err)
		return
	}
	if head.base != s.base || v.nextIndex > 0 && head.first != v.nextIndex {
		v.problem(name, s.base, 8, "starts at index %d and offset %d, want index %d and offset %d", head.first, head.base, v.nextIndex, s.base)
	}
	rows := data[ridxHeader:]
	for at := int64(ridxHeader); len(rows) >= ridxSize; at, rows = at+ridxSize, rows[ridxSize:] {
		e := decodeRidx(rows)
		if e.length == 0 {
			continue
		}
		if v.damaged && int64(e.pos) >= v.sound {
			break // behind damage that was reported
		}
		if len(batches) == 0 {
			v.problem(name, s.base+int64(e.rel), at, "entry for position %d, the .log has %d bytes", e.pos, size)
			return
		}
		b := batches[0]
		if int64(e.pos) != b.pos || int64(e.length) != b.size {
			v.problem(name, s.base+int64(e.rel), at, "entry says position %d length %d, the batch has %d and %d", e.pos, e.length, b.pos, b.size)
			return
		}
		batches = batches[1:]
	}
	v.nextIndex = 0
	if len(batches) == 0 {
		v.nextIndex = head.first + uint64((len(data)-ridxHeader)/ridxSize)
	}
}

func (v *verifier) index(s *segment, batches []placed) {
	name := s.name(extIndex)
	data, _, err := readIfThere(v.fs, s.path(extIndex)) // missing while it is empty
	if err != nil {
		v.failed(name, err)
		return
	}
	for at := 0; at+indexEntry <= len(data); at += indexEntry {
		last, pos := s.base+int64(be.Uint32(data[at:])), int64(be.Uint32(data[at+4:]))
		if pos == 0 || v.damaged && pos >= v.sound {
			break
		}
		i, ok := slices.BinarySearchFunc(batches, pos, func(b placed, pos int64) int { return int(b.pos - pos) })
		if !ok {
			v.problem(name, last, int64(at), "entry for position %d, where no batch begins", pos)
			return
		}
		if batches[i].last != last {
			v.problem(name, last, int64(at), "entry says last offset %d, the batch at %d ends with %d", last, pos, batches[i].last)
			return
		}
	}
}

func (v *verifier) timeIndex(s *segment, batches []placed) {
	name := s.name(extTimeIndex)
	data, _, err := readIfThere(v.fs, s.path(extTimeIndex)) // missing while it is empty
	if err != nil {
		v.failed(name, err)
		return
	}
	before := int64(-1)
	for at := 0; at+timeIndexEntry <= len(data); at += timeIndexEntry {
		ts, last := int64(be.Uint64(data[at:])), s.base+int64(be.Uint32(data[at+8:]))
		if ts == 0 && last == s.base || last >= v.end && v.damaged {
			break
		}
		i, ok := slices.BinarySearchFunc(batches, last, func(b placed, last int64) int { return int(b.last - last) })
		switch {
		case ts <= before:
			v.problem(name, last, int64(at), "timestamp %d after %d", ts, before)
			return
		case !ok || batches[i].maxTS != ts || batches[i].maxTSAt != last:
			v.problem(name, last, int64(at), "no batch ends with offset %d and holds the largest timestamp so far, %d", last, ts)
			return
		}
		before = ts
	}
}

// small checks the files that stand alone.
func (v *verifier) small(name string) {
	base, ext, isSegment := parseSegmentName(name)
	path := v.fs.PathJoin(v.dir, name)
	var check func([]byte) error
	switch {
	case isSegment && ext == extSnap:
		check = func(b []byte) error {
			s, err := decodeBase(magicSnap, name, b)
			if err == nil && s.NextOffset != base {
				err = &CorruptionError{name, envelopeHeader, fmt.Sprintf("next offset %d, want %d", s.NextOffset, base)}
			}
			return err
		}
	case isSegment && ext == extSnapshot:
		check = func(b []byte) error { return checkSnapshot(name, b) }
	case isSegment && ext == extTxnIndex:
		check = func(b []byte) error { return checkTxnIndex(name, base, b) }
	case name == filePoint:
		check = func(b []byte) error { _, err := decodePoint(name, b); return err }
	case name == fileReset:
		check = func(b []byte) error { _, err := decodeBase(magicReset, name, b); return err }
	default:
		return
	}
	data, ok, err := readIfThere(v.fs, path)
	if err == nil && ok {
		err = check(data)
	}
	if err != nil {
		v.failed(name, err)
	}
}
