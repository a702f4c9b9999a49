package history

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// File layout, little endian; drawn in docs/FORMATS.md.
//
//	magic "GLHI", version u16, header length u32, header (JSON), CRC-32C of all before u32
//	then blocks: payload length u32, records u32, CRC-32C of payload u32, payload
//	then a footer: end mark u32, records u64, dropped u64, CRC-32C of all block heads u32, CRC-32C of the footer u32
const (
	magic          = "GLHI"
	formatVersion  = 3
	preambleBytes  = 10
	blockHead      = 12
	blockBytes     = 64 << 10
	endMark        = 1<<32 - 1 // in the place of a block's payload length
	footerBytes    = 28
	maxHeaderBytes = 4 << 20
	extension      = ".hist"
)

var (
	castagnoli     = crc32.MakeTable(crc32.Castagnoli)
	errShortRecord = errors.New("record runs past its block")
)

// ErrVersion is returned for a file of a format version that this build does not read.
var ErrVersion = errors.New("history: format version not supported")

// A CorruptError is damage at a place in a file, or the place where a file ends that is not whole.
type CorruptError struct {
	File string
	Pos  int64
	What string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("history: %s: byte %d: %s", e.File, e.Pos, e.What)
}

// A footer ends a file that its writer closed.
type footer struct {
	records, dropped uint64
	heads            uint32 // CRC-32C over all block heads: no block is missing, doubled or in another's place
}

func (f *footer) encode() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, footerBytes), endMark)
	b = binary.LittleEndian.AppendUint64(b, f.records)
	b = binary.LittleEndian.AppendUint64(b, f.dropped)
	b = binary.LittleEndian.AppendUint32(b, f.heads)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// add counts a block.
func (f *footer) add(head []byte, records uint32) {
	f.records += uint64(records)
	f.heads = crc32.Update(f.heads, castagnoli, head)
}

func encodeHeader(h Header) ([]byte, error) {
	body, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	b := append([]byte(magic), 0, 0)
	binary.LittleEndian.PutUint16(b[4:], formatVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	b = append(b, body...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// Files lists the history files in dir by role, sorted by name. A directory without any is os.ErrNotExist.
func Files(dir string) (map[string][]string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+extension))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("history: no %s files in %s: %w", extension, dir, os.ErrNotExist)
	}
	byRole := map[string][]string{}
	for _, name := range names {
		r, err := OpenReader(name)
		if err != nil {
			return nil, err
		}
		role := r.Header().Role
		byRole[role] = append(byRole[role], name)
		if err := r.Close(); err != nil {
			return nil, err
		}
	}
	return byRole, nil
}

// A Reader reads one file. One goroutine at a time.
type Reader struct {
	name    string
	f       io.ReadCloser
	header  Header
	pos     int64 // of the next block
	block   []byte
	payload []byte
	left    uint32 // records not yet read of the block
	coder   *coder
	seen    footer // of the blocks so far
	ended   bool
	err     error
}

// OpenReader opens one file and checks its header.
func OpenReader(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	r, err := newReader(filepath.Base(path), f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

func newReader(name string, f io.ReadCloser) (*Reader, error) {
	r := &Reader{name: name, f: f, block: make([]byte, blockBytes)}
	head := make([]byte, preambleBytes)
	if _, err := io.ReadFull(f, head); err != nil {
		return nil, r.corrupt("shorter than a header")
	}
	if string(head[:4]) != magic {
		return nil, r.corrupt("not a history file")
	}
	if v := binary.LittleEndian.Uint16(head[4:]); v != formatVersion {
		return nil, fmt.Errorf("%w: %s has version %d, this build reads %d", ErrVersion, name, v, formatVersion)
	}
	n := binary.LittleEndian.Uint32(head[6:])
	if n > maxHeaderBytes {
		return nil, r.corrupt(fmt.Sprintf("header of %d bytes", n))
	}
	var body bytes.Buffer
	if m, err := io.CopyN(&body, f, int64(n)+4); err != nil {
		return nil, r.corrupt(fmt.Sprintf("header of %d bytes is cut at %d", n, m))
	}
	b := body.Bytes()
	sum := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, b[:n])
	if sum != binary.LittleEndian.Uint32(b[n:]) {
		return nil, r.corrupt("header checksum")
	}
	if err := json.Unmarshal(b[:n], &r.header); err != nil {
		return nil, r.corrupt("header: " + err.Error())
	}
	if len(r.header.Partitions) > MaxPartition+1 {
		return nil, r.corrupt(fmt.Sprintf("%d partitions", len(r.header.Partitions)))
	}
	r.pos = preambleBytes + int64(n) + 4
	r.coder = newCoder(len(r.header.Partitions))
	return r, nil
}

// Header is what the file begins with.
func (r *Reader) Header() Header { return r.header }

// Next fills rec with the next record; false at the end of the file or of what is readable, see Err. A file that was cut is read up to
// the cut.
func (r *Reader) Next(rec *Record) bool {
	for r.left == 0 {
		if r.err != nil || r.ended || !r.nextBlock() {
			return false
		}
	}
	rest, err := r.coder.next(r.payload, rec)
	if err != nil {
		r.err, r.left = r.corrupt(err.Error()), 0
		return false
	}
	r.payload = rest
	if r.left--; r.left == 0 && len(rest) != 0 {
		r.err = r.corrupt(fmt.Sprintf("%d bytes after the last record of a block", len(rest)))
	}
	return true
}

func (r *Reader) nextBlock() bool {
	var head [blockHead]byte
	if n, err := io.ReadFull(r.f, head[:]); err != nil {
		r.err = r.cut(fmt.Sprintf("no footer after %d records and %d bytes", r.seen.records, n))
		return false
	}
	n := binary.LittleEndian.Uint32(head[0:])
	if n == endMark {
		r.end(head)
		return false
	}
	if n > blockBytes {
		r.err = r.corrupt(fmt.Sprintf("block of %d bytes", n))
		return false
	}
	if m, err := io.ReadFull(r.f, r.block[:n]); err != nil {
		r.err = r.cut(fmt.Sprintf("the block of %d bytes after %d records ends after %d", n, r.seen.records, m))
		return false
	}
	if crc32.Checksum(r.block[:n], castagnoli) != binary.LittleEndian.Uint32(head[8:]) {
		r.err = r.corrupt("block checksum")
		return false
	}
	r.pos += blockHead + int64(n)
	r.payload, r.left = r.block[:n], binary.LittleEndian.Uint32(head[4:])
	r.seen.add(head[:], r.left)
	r.coder.reset()
	return true
}

// end reads the footer, of which head is the beginning, and holds it against what was read.
func (r *Reader) end(head [blockHead]byte) {
	b := r.block[:footerBytes+1]
	n, err := io.ReadFull(r.f, b[copy(b, head[:]):])
	if n += blockHead; n > footerBytes {
		r.err = r.corrupt("bytes follow the footer")
		return
	}
	if err != nil && n < footerBytes {
		r.err = r.cut(fmt.Sprintf("the footer after %d records ends after %d bytes", r.seen.records, n))
		return
	}
	dropped := binary.LittleEndian.Uint64(b[12:])
	r.seen.dropped = dropped
	switch {
	case crc32.Checksum(b[:footerBytes-4], castagnoli) != binary.LittleEndian.Uint32(b[footerBytes-4:]):
		r.err = r.corrupt("footer checksum")
	case r.seen.records == binary.LittleEndian.Uint64(b[4:]) && r.seen.heads != binary.LittleEndian.Uint32(b[20:]):
		r.err = r.corrupt("the blocks are not those that the footer ends")
	case r.seen.records != binary.LittleEndian.Uint64(b[4:]):
		r.err = r.cut(fmt.Sprintf("blocks are missing: %d of %d records are there", r.seen.records, binary.LittleEndian.Uint64(b[4:])))
	case dropped > 0:
		r.err = r.cut(fmt.Sprintf("%d records were not written, the disk fell behind", dropped))
	}
	r.ended = true
}

func (r *Reader) cut(what string) error { return r.corrupt("history is incomplete: " + what) }

func (r *Reader) corrupt(what string) error {
	return &CorruptError{File: r.name, Pos: r.pos, What: what}
}

// Err is nil after the last record of a whole file; a *CorruptError where the file is damaged, was cut, was never closed, or lacks records
// that its writer dropped.
func (r *Reader) Err() error { return r.err }

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }
