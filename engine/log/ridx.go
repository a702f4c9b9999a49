package log

import (
	"fmt"
	"hash/crc32"
	"io"
)

const (
	magicRidx   = "GLRX"
	ridxHeader  = 64
	ridxSize    = 16
	ridxBlock   = 256 // entries read at once by a look-up
	ridxTailCap = 512 // entries kept in memory before a block of them goes to the file
)

// ridxEntry is one Raft index of a segment. length 0: a side entry; pos and rel are the next batch's.
type ridxEntry struct {
	pos, length uint32
	rel         uint32 // offset - segment's base offset
	term        uint32
}

func (e ridxEntry) end() int64 { return int64(e.pos) + int64(e.length) }

func (e ridxEntry) append(b []byte) []byte {
	b = be.AppendUint32(b, e.pos)
	b = be.AppendUint32(b, e.length)
	b = be.AppendUint32(b, e.rel)
	return be.AppendUint32(b, e.term)
}

func decodeRidx(b []byte) ridxEntry {
	return ridxEntry{be.Uint32(b), be.Uint32(b[4:]), be.Uint32(b[8:]), be.Uint32(b[12:])}
}

// ridxHead is the header of a .ridx file: where the segment starts.
type ridxHead struct {
	first    uint64
	base     int64
	prevTerm uint64
}

func (h ridxHead) encode() []byte {
	b := make([]byte, ridxHeader)
	copy(b, magicRidx)
	be.PutUint16(b[4:], formatVersion)
	be.PutUint64(b[8:], h.first)
	be.PutUint64(b[16:], uint64(h.base))
	be.PutUint64(b[24:], h.prevTerm)
	be.PutUint32(b[32:], crc32.Checksum(b[:32], castagnoli))
	return b
}

func decodeRidxHead(file string, b []byte) (ridxHead, error) {
	if len(b) < ridxHeader {
		return ridxHead{}, &CorruptionError{file, 0, fmt.Sprintf("%d bytes, want a header of %d", len(b), ridxHeader)}
	}
	if string(b[:4]) != magicRidx {
		return ridxHead{}, &CorruptionError{file, 0, fmt.Sprintf("magic %q, want %q", b[:4], magicRidx)}
	}
	if err := checkVersion(file, be.Uint16(b[4:])); err != nil {
		return ridxHead{}, err
	}
	if got, want := crc32.Checksum(b[:32], castagnoli), be.Uint32(b[32:]); got != want {
		return ridxHead{}, &CorruptionError{file, 32, fmt.Sprintf("checksum %08x, want %08x", got, want)}
	}
	return ridxHead{first: be.Uint64(b[8:]), base: int64(be.Uint64(b[16:])), prevTerm: be.Uint64(b[24:])}, nil
}

// block is a run of entries read from a .ridx file.
type block struct {
	at      int
	entries []ridxEntry
	cuts    uint64
}

// view is a segment as a reader saw it under the log's lock: look-ups in it need no lock. The segment
// must stay pinned. Entries from tailAt on are in memory, the others in the file.
type view struct {
	*segment
	n      int
	tail   []ridxEntry
	tailAt int
	size   int64
	end    int64
	cuts   uint64 // how often the segment was cut before: entries read under another number are void
	buf    []byte
}

// entry returns entry i, which must be in [0, n).
func (v *view) entry(i int) (ridxEntry, error) {
	if i >= v.tailAt {
		return v.tail[i-v.tailAt], nil
	}
	b, err := v.block(i)
	if err != nil {
		return ridxEntry{}, err
	}
	return b.entries[i-b.at], nil
}

// place returns where index n would begin as well: position and offset of entry i in [0, n].
func (v *view) place(i int) (pos, offset int64, err error) {
	if i == v.n {
		return v.size, v.end, nil
	}
	e, err := v.entry(i)
	return int64(e.pos), v.base + int64(e.rel), err
}

// block returns a run of entries that holds i < tailAt: the one read last, or the one in the file.
func (v *view) block(i int) (*block, error) {
	at := i - i%ridxBlock
	stop := min(at+ridxBlock, v.tailAt)
	if b := v.hot.Load(); b != nil && b.cuts == v.cuts && b.at == at && at+len(b.entries) >= stop {
		return b, nil
	}
	entries, err := v.load(at, stop)
	if err != nil {
		return nil, err
	}
	b := &block{at: at, entries: entries, cuts: v.cuts}
	v.hot.Store(b)
	return b, nil
}

// load reads entries [lo, hi), those in the file in one read, and checks that they can be: in order, and
// within the .log.
func (v *view) load(lo, hi int) ([]ridxEntry, error) {
	out, err := v.read(lo, hi)
	if err != nil {
		return nil, err
	}
	before := ridxEntry{}
	for i, e := range out {
		if e.pos < before.pos || int64(e.pos) < before.end() || e.end() > v.size || e.rel < before.rel {
			return nil, &CorruptionError{v.name(extRidx), ridxHeader + int64(lo+i)*ridxSize,
				fmt.Sprintf("position %d length %d in a .log of %d bytes, behind position %d length %d", e.pos, e.length, v.size, before.pos, before.length)}
		}
		before = e
	}
	return out, nil
}

// read is load without the checks.
func (v *view) read(lo, hi int) ([]ridxEntry, error) {
	out := make([]ridxEntry, 0, hi-lo)
	if file := min(hi, v.tailAt); lo < file {
		buf := make([]byte, (file-lo)*ridxSize)
		if err := readFull(v.ridx, buf, ridxHeader+int64(lo)*ridxSize, v.name(extRidx)); err != nil {
			return nil, err
		}
		for len(buf) > 0 {
			out = append(out, decodeRidx(buf))
			buf = buf[ridxSize:]
		}
		lo = file
	}
	if lo < hi {
		out = append(out, v.tail[lo-v.tailAt:hi-v.tailAt]...)
	}
	return out, nil
}

// find returns the smallest i in [lo, n] for which above holds; above must be false, then true.
func (v *view) find(lo int, above func(ridxEntry) bool) (int, error) {
	if lo >= v.tailAt || v.tailAt == 0 || len(v.tail) > 0 && !above(v.tail[0]) {
		return v.findTail(max(lo, v.tailAt), above), nil
	}
	if b := v.hot.Load(); b != nil && b.cuts == v.cuts && len(b.entries) > 0 {
		from := max(0, lo-b.at)
		if from < len(b.entries) && (from > 0 || !above(b.entries[0])) && above(b.entries[len(b.entries)-1]) {
			return b.find(from, above), nil
		}
	}
	// Blocks [first, last): find the last one whose first entry is not above.
	first, last := lo/ridxBlock, (v.tailAt+ridxBlock-1)/ridxBlock
	for last-first > 1 {
		mid := (first + last) / 2
		e, err := v.peek(mid * ridxBlock)
		if err != nil {
			return 0, err
		}
		if above(e) {
			last = mid
		} else {
			first = mid
		}
	}
	b, err := v.block(max(lo, first*ridxBlock))
	if err != nil {
		return 0, err
	}
	return b.find(max(0, lo-b.at), above), nil
}

func (v *view) findTail(lo int, above func(ridxEntry) bool) int {
	hi := v.n
	for lo < hi {
		mid := (lo + hi) / 2
		if above(v.tail[mid-v.tailAt]) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

func (b *block) find(lo int, above func(ridxEntry) bool) int {
	hi := len(b.entries)
	for lo < hi {
		mid := (lo + hi) / 2
		if above(b.entries[mid]) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return b.at + lo
}

// peek reads one entry from the file without keeping its block.
func (v *view) peek(i int) (ridxEntry, error) {
	if v.buf == nil {
		v.buf = make([]byte, ridxSize)
	}
	err := readFull(v.ridx, v.buf, ridxHeader+int64(i)*ridxSize, v.name(extRidx))
	if err != nil {
		return ridxEntry{}, err
	}
	return decodeRidx(v.buf), nil
}

// readFull fills buf from the file's bytes at off; a file that ends before is damaged.
func readFull(f io.ReaderAt, buf []byte, off int64, name string) error {
	n, err := f.ReadAt(buf, off)
	if n == len(buf) {
		return nil
	}
	if isEOF(err) {
		return &CorruptionError{name, off + int64(n), fmt.Sprintf("file ends, want %d more bytes", len(buf)-n)}
	}
	return fmt.Errorf("read %s at %d: %w", name, off, err)
}
