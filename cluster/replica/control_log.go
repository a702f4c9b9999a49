package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"

	"gopherlog/engine/kv"
)

// controlLog is the control group's log in the key-value store, synced with
// every append. It is small, so its bounds are the only thing kept in memory.
// Raft's main goroutine writes; any goroutine reads.
type controlLog struct {
	db   *kv.DB
	core *core

	mu         sync.Mutex
	first, end uint64 // [first, end); equal: empty
}

func openControlLog(db *kv.DB, c *core) (*controlLog, error) {
	l := &controlLog{db: db, core: c}
	lo, hi := kv.ControlLogAll()
	k, _, err := db.First(lo, hi)
	if errors.Is(err, kv.ErrNotFound) {
		return l, nil
	}
	if err == nil {
		l.first, err = kv.ControlLogIndex(k)
	}
	if err == nil {
		k, _, err = db.Last(lo, hi)
	}
	if err == nil {
		l.end, err = kv.ControlLogIndex(k)
		l.end++
	}
	if err != nil {
		return nil, fmt.Errorf("read bounds of the control log: %w", err)
	}
	return l, nil
}

func (l *controlLog) bounds() (first, end uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first, l.end
}

func (l *controlLog) last() uint64 {
	first, end := l.bounds()
	if first == end {
		return 0
	}
	return end - 1
}

// FirstIndex implements raft.LogStore.
func (l *controlLog) FirstIndex() (uint64, error) {
	first, end := l.bounds()
	if first == end {
		return 0, nil
	}
	return first, nil
}

// LastIndex implements raft.LogStore.
func (l *controlLog) LastIndex() (uint64, error) { return l.last(), nil }

// GetLog implements raft.LogStore.
func (l *controlLog) GetLog(index uint64, out *raft.Log) error {
	err := l.read(index, out)
	if err != nil && !errors.Is(err, raft.ErrLogNotFound) {
		l.core.failAndExit(err)
	}
	return err
}

// read returns exactly raft.ErrLogNotFound for an entry that is not held: the
// library compares.
func (l *controlLog) read(index uint64, out *raft.Log) error {
	if first, end := l.bounds(); index < first || index >= end {
		return raft.ErrLogNotFound
	}
	v, err := l.db.Get(kv.ControlLogKey(index))
	if errors.Is(err, kv.ErrNotFound) {
		return raft.ErrLogNotFound
	}
	if err == nil {
		err = decodeControlEntry(index, v, out)
	}
	if err != nil {
		return fmt.Errorf("read control log entry %d: %w", index, err)
	}
	return nil
}

// StoreLog appends the founding configuration, before raft runs.
func (l *controlLog) StoreLog(e *raft.Log) error { return l.write([]*raft.Log{e}) }

// StoreLogs implements raft.LogStore: durable on return.
func (l *controlLog) StoreLogs(logs []*raft.Log) error {
	return l.core.store(logs, func() error { return l.write(logs) }, func() int64 { return 0 })
}

func (l *controlLog) write(logs []*raft.Log) error {
	b := l.db.NewBatch()
	defer b.Close()
	for _, e := range logs {
		b.Set(kv.ControlLogKey(e.Index), encodeControlEntry(e))
	}
	if err := b.Commit(true); err != nil {
		return fmt.Errorf("write control log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == l.end {
		l.first = logs[0].Index
	}
	l.end = logs[len(logs)-1].Index + 1
	return nil
}

// DeleteRange removes [from, to], a prefix or a suffix; durable on return.
func (l *controlLog) DeleteRange(from, to uint64) error {
	l.core.wait()
	if l.core.sealed.Load() {
		return nil // Restore has wiped the log already
	}
	first, end := l.bounds()
	if first == end {
		return nil
	}
	b := l.db.NewBatch()
	defer b.Close()
	b.DeleteRange(kv.ControlLogRange(from, to+1))
	if err := b.Commit(true); err != nil {
		return fmt.Errorf("delete control log entries %d to %d: %w", from, to, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case from <= first && to+1 >= end:
		l.first, l.end = 0, 0
	case from <= first:
		l.first = to + 1
	default:
		l.end = from
	}
	return nil
}

// wipe removes everything, since an installed snapshot stands for it.
func (l *controlLog) wipe() error {
	b := l.db.NewBatch()
	defer b.Close()
	b.DeleteRange(kv.ControlLogAll())
	if err := b.Commit(true); err != nil {
		return fmt.Errorf("wipe control log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first, l.end = 0, 0
	return nil
}

// controlView is what the transport sees of the log and the newest snapshot.
type controlView struct {
	log  *controlLog
	snap *fileSnapshots
}

// Entries returns entries of [lo, hi) up to maxBytes, at least one.
func (v controlView) Entries(lo, hi uint64, maxBytes int) ([]*raft.Log, error) {
	var out []*raft.Log
	size := 0
	for i := lo; i < hi && (len(out) == 0 || size < maxBytes); i++ {
		e := new(raft.Log)
		if err := v.log.read(i, e); err != nil {
			return out, err
		}
		out, size = append(out, e), size+len(e.Data)
	}
	return out, nil
}

// Term returns the term of an entry, or of the newest snapshot's last one.
func (v controlView) Term(index uint64) (uint64, error) {
	var e raft.Log
	err := v.log.read(index, &e)
	if m := v.snap.newest.Load(); errors.Is(err, raft.ErrLogNotFound) && m != nil && m.Index == index {
		return m.Term, nil
	}
	return e.Term, err
}

// LastIndex returns the log's last index.
func (v controlView) LastIndex() uint64 { return v.log.last() }

// EndOffset is 0: the control group has no offsets.
func (v controlView) EndOffset() int64 { return 0 }

// Contains reports whether exactly this entry is held, or stands for the log
// as the newest snapshot's last one.
func (v controlView) Contains(index, term uint64) bool {
	t, err := v.Term(index)
	return err == nil && t == term
}

// controlEntryVersion starts an entry: version, type, term (8), length of the
// extensions (uvarint), extensions, data.
const controlEntryVersion = 1

func encodeControlEntry(e *raft.Log) []byte {
	b := append(make([]byte, 0, 16+len(e.Extensions)+len(e.Data)), controlEntryVersion, byte(e.Type))
	b = binary.BigEndian.AppendUint64(b, e.Term)
	b = binary.AppendUvarint(b, uint64(len(e.Extensions)))
	b = append(b, e.Extensions...)
	return append(b, e.Data...)
}

func decodeControlEntry(index uint64, b []byte, out *raft.Log) error {
	if len(b) < 11 {
		return fmt.Errorf("%d bytes, want at least 11", len(b))
	}
	if b[0] != controlEntryVersion {
		return fmt.Errorf("format version %d, this program reads %d", b[0], controlEntryVersion)
	}
	n, k := binary.Uvarint(b[10:])
	rest := b[10:]
	if k <= 0 || n > uint64(len(rest)-k) {
		return fmt.Errorf("extensions of %d bytes in %d", n, len(rest))
	}
	*out = raft.Log{Index: index, Term: binary.BigEndian.Uint64(b[2:]), Type: raft.LogType(b[1])}
	if n > 0 {
		out.Extensions = rest[k : k+int(n) : k+int(n)]
	}
	out.Data = rest[k+int(n):]
	return nil
}
