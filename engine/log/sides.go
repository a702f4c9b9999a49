package log

import (
	"cmp"
	"errors"
	"hash/crc32"
	"slices"
	"sync"

	"gopherlog/engine/vfs"
)

// fileSides holds side entries that follow the tier of a log which is not synced: they are written as batches are, and move to the sidecar
// together.
const fileSides = "side-journal"

const (
	magicSides    = "GLSJ"
	sidesHeader   = 20 // magic [4], version u16, zero u16, floor u64, crc32c u32
	sideHead      = 29 // length of what follows u32, crc32c of it u32, index u64, term u64, type u8, length of Ext u32
	sidesCapacity = 256 << 10
)

// sideJournal stands between a log and its sidecar. Entries that need not be synced lie in a file of the log's directory, and in memory,
// until something needs them durable or there are many; all others are behind it in the sidecar.
//
// While the file is there, a power cut may have taken side entries behind the last one that is known, and with them the count of the batches
// behind those: floor, the index up to which nothing can be missing, is durable in its head. It is made, durably, before the first such
// entry, and removed when nothing can be missing.
//
// Index order holds: entries in the journal are behind all in the sidecar. Put is called by who holds the log's turn.
type sideJournal struct {
	cfg  *Config
	base Sidecar
	busy chan struct{} // token: who holds it may use the file and move entries

	// owned by who holds busy
	file  vfs.File // nil: there is none
	size  int64
	floor uint64
	ghost bool // the file was cut short and a power cut may bring back what was in it
	used  bool // since the last checkpoint

	mu   sync.RWMutex
	kept []Entry // in the file, ascending
}

func newSideJournal(cfg *Config) *sideJournal {
	return &sideJournal{cfg: cfg, base: cfg.Sidecar, busy: newToken()}
}

func (j *sideJournal) path() string { return j.cfg.FS.PathJoin(j.cfg.Dir, fileSides) }

func (j *sideJournal) take() { <-j.busy }
func (j *sideJournal) give() { j.busy <- struct{}{} }

// open moves what a journal holds to the sidecar. floor is the index up to which no side entry is missing after a power cut; noIndex when
// there was no journal, and so none can be missing.
func (j *sideJournal) open() (floor uint64, err error) {
	j.take()
	defer j.give()
	data, ok, err := readIfThere(j.cfg.FS, j.path())
	if err != nil || !ok {
		return noIndex, err
	}
	floor, kept, err := decodeSides(data)
	if err != nil {
		return 0, err
	}
	if j.file, err = j.cfg.FS.OpenFile(j.path(), false); err != nil {
		return 0, err
	}
	j.kept, j.size, j.floor = kept, int64(len(data)), floor
	return floor, j.settle()
}

func decodeSides(data []byte) (floor uint64, kept []Entry, err error) {
	if len(data) < sidesHeader || string(data[:4]) != magicSides {
		return 0, nil, &CorruptionError{fileSides, 0, "no header"}
	}
	if err := checkVersion(fileSides, be.Uint16(data[4:])); err != nil {
		return 0, nil, err
	}
	if crc32.Checksum(data[:16], castagnoli) != be.Uint32(data[16:]) {
		return 0, nil, &CorruptionError{fileSides, 16, "checksum of the header"}
	}
	floor = be.Uint64(data[8:])
	last := uint64(0)
	for data = data[sidesHeader:]; ; {
		e, rest, ok := decodeSide(data)
		if !ok || e.Index <= last { // torn, or left from before the file was cut short
			return floor, kept, nil
		}
		kept, data, last = append(kept, e), rest, e.Index
	}
}

func sidesHead(floor uint64) []byte {
	b := append(make([]byte, 0, sidesHeader), magicSides...)
	b = be.AppendUint16(b, formatVersion)
	b = be.AppendUint16(b, 0)
	b = be.AppendUint64(b, floor)
	return be.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// encodeSide appends an entry and returns the bytes with the entry that refers to them.
func encodeSide(b []byte, e *Entry) ([]byte, Entry) {
	at := len(b)
	b = be.AppendUint32(b, uint32(sideHead-8+len(e.Ext)+len(e.Data)))
	b = be.AppendUint32(b, 0)
	b = be.AppendUint64(b, e.Index)
	b = be.AppendUint64(b, e.Term)
	b = append(b, e.Type)
	b = be.AppendUint32(b, uint32(len(e.Ext)))
	b = append(b, e.Ext...)
	b = append(b, e.Data...)
	be.PutUint32(b[at+4:], crc32.Checksum(b[at+8:], castagnoli))
	out, _, _ := decodeSide(b[at:])
	return b, out
}

// decodeSide reads the first entry; the entry's bytes are b's.
func decodeSide(b []byte) (e Entry, rest []byte, ok bool) {
	if len(b) < sideHead {
		return e, nil, false
	}
	n := int64(be.Uint32(b))
	ext := int64(be.Uint32(b[25:]))
	if n < sideHead-8 || n > int64(len(b)-8) || ext > n-(sideHead-8) || crc32.Checksum(b[8:8+n], castagnoli) != be.Uint32(b[4:]) {
		return e, nil, false
	}
	body := b[sideHead : 8+n : 8+n]
	e = Entry{Index: be.Uint64(b[8:]), Term: be.Uint64(b[16:]), Type: b[24]}
	if ext > 0 {
		e.Ext = body[:ext:ext]
	}
	if int64(len(body)) > ext {
		e.Data = body[ext:]
	}
	return e, b[8+n:], true
}

// Put stores the entries, which follow all others: durable on return, or in the page cache.
func (j *sideJournal) Put(entries []Entry, durable bool) error {
	j.take()
	defer j.give()
	if durable {
		if len(j.kept) == 0 {
			return j.base.Put(entries)
		}
		if err := j.base.Put(slices.Concat(j.kept, entries)); err != nil {
			return err
		}
		return j.clear()
	}
	if err := j.make(entries[0].Index - 1); err != nil {
		return err
	}
	n := 0
	for i := range entries {
		n += sideHead + len(entries[i].Ext) + len(entries[i].Data)
	}
	b, copies := make([]byte, 0, n), make([]Entry, len(entries)) // b is long enough: the copies refer to it
	for i := range entries {
		b, copies[i] = encodeSide(b, &entries[i])
	}
	if _, err := j.file.WriteAt(b, j.size); err != nil {
		return err
	}
	j.size += int64(len(b))
	j.used = true
	j.mu.Lock()
	j.kept = append(j.kept, copies...)
	j.mu.Unlock()
	if j.size > sidesCapacity {
		return j.settle()
	}
	return nil
}

// make makes the file, durably.
func (j *sideJournal) make(floor uint64) (err error) {
	if j.file != nil {
		return nil
	}
	if err := vfs.WriteFileAtomic(j.cfg.FS, j.path(), sidesHead(floor)); err != nil {
		return err
	}
	j.size, j.floor = sidesHeader, floor
	j.file, err = j.cfg.FS.OpenFile(j.path(), false)
	return err
}

// settle moves all entries to the sidecar, where they are durable.
func (j *sideJournal) settle() error {
	if len(j.kept) > 0 {
		if err := j.base.Put(j.kept); err != nil {
			return err
		}
	}
	return j.clear()
}

// clear forgets what the sidecar has.
func (j *sideJournal) clear() error {
	j.mu.Lock()
	j.kept = nil
	j.mu.Unlock()
	if j.file == nil || j.size <= sidesHeader {
		return nil
	}
	if err := j.file.Truncate(sidesHeader); err != nil {
		return err
	}
	j.size, j.ghost = sidesHeader, true
	return nil
}

// Settle makes durable what the journal holds, and that nothing up to floor, the log's last index, can be missing.
func (j *sideJournal) Settle(floor uint64) error {
	j.take()
	defer j.give()
	if j.file == nil {
		return nil
	}
	if err := j.settle(); err != nil {
		return err
	}
	return j.bury(floor)
}

// bury makes the file durable as it is, with that floor.
func (j *sideJournal) bury(floor uint64) error {
	if !j.ghost && floor == j.floor {
		return nil
	}
	if _, err := j.file.WriteAt(sidesHead(floor), 0); err != nil {
		return err
	}
	if err := j.file.SyncData(); err != nil {
		return err
	}
	j.floor, j.ghost = floor, false
	return nil
}

// Checkpoint is Settle without its floor, which the recovery point says; a journal that was not used since the one before goes.
func (j *sideJournal) Checkpoint() error {
	j.take()
	defer j.give()
	used := j.used
	if j.used = false; used {
		return j.settle()
	}
	return j.retire()
}

// Retire settles and removes the file: from now on no side entry is missing.
func (j *sideJournal) Retire() error {
	j.take()
	defer j.give()
	return j.retire()
}

func (j *sideJournal) retire() error {
	if j.file == nil {
		return nil
	}
	if err := j.settle(); err != nil {
		return err
	}
	err := errors.Join(j.file.Close(), j.cfg.FS.Remove(j.path()), vfs.SyncDir(j.cfg.FS, j.cfg.Dir))
	j.file, j.size, j.ghost = nil, 0, false
	return err
}

// Get returns a copy of the entry or ErrNotFound; its bytes are not to be changed.
func (j *sideJournal) Get(index uint64) (Entry, error) {
	j.mu.RLock()
	at, ok := j.find(index)
	var e Entry
	if ok {
		e = j.kept[at]
	}
	j.mu.RUnlock()
	if ok {
		return e, nil
	}
	return j.base.Get(index)
}

// find is the place of an index among those kept; mu is held.
func (j *sideJournal) find(index uint64) (at int, ok bool) {
	return slices.BinarySearchFunc(j.kept, index, func(e Entry, i uint64) int { return cmp.Compare(e.Index, i) })
}

// Scan is Sidecar's.
func (j *sideJournal) Scan(from, to uint64, fn func(Entry) error) error {
	j.mu.RLock()
	kept := j.kept
	j.mu.RUnlock()
	last, any := uint64(0), false
	err := j.base.Scan(from, to, func(e Entry) error {
		last, any = e.Index, true
		return fn(e)
	})
	for i := 0; i < len(kept) && err == nil; i++ {
		if e := kept[i]; e.Index >= from && e.Index < to && (!any || e.Index > last) { // else it has moved meanwhile
			err = fn(e)
		}
	}
	return err
}

// DeleteFrom removes the entries at index and above; durable on return.
func (j *sideJournal) DeleteFrom(index uint64) error {
	index = max(index, 1)
	j.take()
	defer j.give()
	j.mu.Lock()
	at, _ := j.find(index)
	j.kept = j.kept[:at:at]
	j.mu.Unlock()
	if j.file != nil {
		if err := j.settle(); err != nil {
			return err
		}
		if err := j.bury(min(j.floor, index-1)); err != nil {
			return err
		}
	}
	return j.base.DeleteFrom(index)
}

// DeleteBelow removes the entries below index. Those in the journal go with the next call.
func (j *sideJournal) DeleteBelow(index uint64) error { return j.base.DeleteBelow(index) }

// shut closes the file, for good.
func (j *sideJournal) shut() {
	j.take()
	defer j.give()
	if j.file != nil {
		_ = j.file.Close() // what mattered was synced
		j.file = nil
	}
}
