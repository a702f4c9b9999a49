package replicas

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The head of a record batch, version 2, as Kafka documents it.
const (
	headBytes = 61
	atLength  = 8
	atEpoch   = 12
	atMagic   = 16
	atCRC     = 17
	atSummed  = 21 // the checksum covers from here to the end
	atDelta   = 23
	magic     = 2

	segmentDigits = 20
	segmentSuffix = ".log"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// head is a batch without its records.
type head [headBytes]byte

func (h *head) base() int64  { return int64(binary.BigEndian.Uint64(h[:])) }
func (h *head) size() int64  { return int64(int32(binary.BigEndian.Uint32(h[atLength:]))) + atEpoch }
func (h *head) epoch() int32 { return int32(binary.BigEndian.Uint32(h[atEpoch:])) }
func (h *head) crc() uint32  { return binary.BigEndian.Uint32(h[atCRC:]) }
func (h *head) next() int64  { return h.base() + int64(int32(binary.BigEndian.Uint32(h[atDelta:]))) + 1 }
func (h *head) zeros() bool  { return *h == head{} }
func (h *head) valid() bool {
	return h.size() >= headBytes && h[atMagic] == magic && h.next() > h.base()
}
func (h *head) tells() string {
	return fmt.Sprintf("epoch %d, %d bytes, checksum %08x", h.epoch(), h.size(), h.crc())
}

// errDamaged says that a file does not go on with a batch.
var errDamaged = errors.New("no record batch")

// How much is read ahead: of records that are looked at, and of heads alone.
const (
	aheadWhole = 256 << 10
	aheadHeads = 4 << 10
)

// reader goes through the batches of one partition's directory in the order of their offsets. It reads what was there when it was opened.
type reader struct {
	dir      string
	segments []int64 // base offsets of those not opened yet
	file     *os.File
	size     int64
	pos      int64 // of the next batch in file
	buf      []byte
	at       int64 // position of buf in file

	start  int64 // base of the first segment; -1: there is none
	head   head
	stands bool   // at head
	sum    uint32 // computed over the batch; only if it was read whole
	whole  bool
	end    int64 // behind the last batch that was seen
	over   bool
	bytes  int64 // read so far
}

// open lists the segments. A directory without one is an empty log.
func open(dir string) (*reader, error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	r := &reader{dir: dir, start: -1}
	for _, n := range names {
		digits, ok := strings.CutSuffix(n.Name(), segmentSuffix)
		if !ok || len(digits) != segmentDigits {
			continue
		}
		if base, err := strconv.ParseInt(digits, 10, 64); err == nil {
			r.segments = append(r.segments, base)
		}
	}
	slices.Sort(r.segments)
	if len(r.segments) > 0 {
		r.start = r.segments[0]
		r.end = r.start
	}
	return r, nil
}

func (r *reader) close() {
	if r.file != nil {
		_ = r.file.Close() // nothing was written
		r.file = nil
	}
}

// seek leaves out the segments that end at or before offset.
func (r *reader) seek(offset int64) {
	for len(r.segments) > 1 && r.segments[1] <= offset {
		r.segments = r.segments[1:]
	}
	if len(r.segments) > 0 {
		r.end = max(r.end, r.segments[0])
	}
}

// next goes to the next batch and sums it up if it is to be looked at whole. over says that there is none; a batch that is not all there
// yet is none.
func (r *reader) next(whole bool) error {
	for {
		if r.file == nil {
			if len(r.segments) == 0 {
				r.over = true
				return nil
			}
			if err := r.segment(); err != nil {
				return err
			}
		}
		switch err := r.batch(whole); {
		case err == nil:
			return nil
		case !errors.Is(err, io.EOF):
			return err
		}
		r.close()
	}
}

func (r *reader) segment() error {
	name := fmt.Sprintf("%0*d%s", segmentDigits, r.segments[0], segmentSuffix)
	f, err := os.Open(filepath.Join(r.dir, name))
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}
	r.file, r.size, r.pos, r.buf, r.at = f, info.Size(), 0, r.buf[:0], 0
	r.segments = r.segments[1:]
	return nil
}

// batch reads the batch at pos. io.EOF: the segment has no more.
func (r *reader) batch(whole bool) error {
	if r.pos+headBytes > r.size {
		return io.EOF
	}
	ahead := int64(aheadHeads)
	if whole {
		ahead = aheadWhole
	}
	b, err := r.bytesAt(r.pos, headBytes, ahead)
	if err != nil {
		return err
	}
	copy(r.head[:], b)
	switch {
	case r.head.zeros(): // made long in advance
		return io.EOF
	case !r.head.valid():
		return fmt.Errorf("%w at byte %d of %s", errDamaged, r.pos, filepath.Base(r.file.Name()))
	case r.pos+r.head.size() > r.size:
		return io.EOF
	}
	r.sum, r.whole = 0, whole
	if whole {
		for at, end := r.pos+atSummed, r.pos+r.head.size(); at < end; {
			b, err := r.bytesAt(at, min(end-at, aheadWhole), ahead)
			if err != nil {
				return err
			}
			r.sum = crc32.Update(r.sum, castagnoli, b)
			at += int64(len(b))
		}
	}
	r.pos += r.head.size()
	r.stands = true
	r.end = r.head.next()
	return nil
}

// bytesAt returns n bytes of the file, until the next call.
func (r *reader) bytesAt(pos, n, ahead int64) ([]byte, error) {
	if pos < r.at || pos+n > r.at+int64(len(r.buf)) {
		want := min(max(n, ahead), r.size-pos)
		if int64(cap(r.buf)) < want {
			r.buf = make([]byte, want)
		}
		r.buf, r.at = r.buf[:want], pos
		got, err := r.file.ReadAt(r.buf, pos)
		r.bytes += int64(got)
		if int64(got) < n {
			r.buf = r.buf[:0]
			if err == nil || errors.Is(err, io.EOF) { // cut off meanwhile
				return nil, io.EOF
			}
			return nil, err
		}
		r.buf = r.buf[:got]
	}
	return r.buf[pos-r.at:][:n], nil
}
