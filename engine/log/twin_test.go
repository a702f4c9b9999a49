package log

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"gopherlog/engine/record"
	"gopherlog/engine/vfs"
)

// memSidecar is a sidecar whose changes are durable at once, as the real one promises.
type memSidecar struct {
	mu      sync.Mutex
	entries map[uint64]Entry
	putErr  error
	delErr  error
}

func newMemSidecar() *memSidecar { return &memSidecar{entries: map[uint64]Entry{}} }

func (m *memSidecar) Put(entries []Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.putErr != nil {
		return m.putErr
	}
	for _, e := range entries {
		e.Data, e.Ext = bytes.Clone(e.Data), bytes.Clone(e.Ext)
		m.entries[e.Index] = e
	}
	return nil
}

func (m *memSidecar) Get(index uint64) (Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[index]
	if !ok {
		return Entry{}, ErrNotFound
	}
	return e, nil
}

func (m *memSidecar) Scan(from, to uint64, fn func(Entry) error) error {
	m.mu.Lock()
	var found []Entry
	for i, e := range m.entries {
		if i >= from && i < to {
			found = append(found, e)
		}
	}
	m.mu.Unlock()
	slices.SortFunc(found, func(a, b Entry) int { return cmp.Compare(a.Index, b.Index) })
	for _, e := range found {
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

func (m *memSidecar) DeleteFrom(index uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.delErr != nil {
		return m.delErr
	}
	for i := range m.entries {
		if i >= index {
			delete(m.entries, i)
		}
	}
	return nil
}

func (m *memSidecar) DeleteBelow(index uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.entries {
		if i < index {
			delete(m.entries, i)
		}
	}
	return nil
}

func (m *memSidecar) clone() *memSidecar {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := newMemSidecar()
	for i, e := range m.entries {
		out.entries[i] = e
	}
	return out
}

// batch builds an unstamped batch of n records with values of the given size.
func batch(n, size int, ts int64) []byte {
	b := record.Builder{BaseTimestamp: ts}
	for i := range n {
		b.Append(record.Record{TimestampDelta: int64(i), Value: bytes.Repeat([]byte{byte(i)}, size)})
	}
	out := b.Finish()
	out.SetBaseOffset(-1)
	out.SetLeaderEpoch(-1)
	return out
}

func data(index, term uint64, n, size int) Entry {
	return Entry{Index: index, Term: term, Data: batch(n, size, int64(1000+index))}
}

// command is a side entry that follows the tier.
func command(index, term uint64) Entry {
	return Entry{Index: index, Term: term, Ext: []byte{1}, Data: fmt.Appendf(nil, "command %d", index)}
}

func side(index, term uint64) Entry {
	return Entry{Index: index, Term: term, Type: 1, Data: []byte("no-op")}
}

func rollSide(index, term uint64) Entry {
	return Entry{Index: index, Term: term, Ext: []byte{RollFlag | 1}, Data: []byte("trim")}
}

// twin is what the log must be: the entries in memory.
type twin struct {
	base    Base
	entries []Entry // entries[i].Index = base.Index+1+i; data stamped
	offsets []int64 // offset of entries[i]
	end     int64
}

func newTwin() *twin { return &twin{} }

func (w *twin) last() uint64 { return w.base.Index + uint64(len(w.entries)) }

func (w *twin) lastTerm() uint64 {
	if n := len(w.entries); n > 0 {
		return w.entries[n-1].Term
	}
	return w.base.Term
}

func (w *twin) append(entries []Entry) {
	for _, e := range entries {
		w.offsets = append(w.offsets, w.end)
		e.Data, e.Ext = bytes.Clone(e.Data), bytes.Clone(e.Ext)
		if e.IsData() {
			b := record.Batch(e.Data)
			b.SetBaseOffset(w.end)
			b.SetLeaderEpoch(int32(e.Term))
			w.end += int64(b.Count())
		}
		w.entries = append(w.entries, e)
	}
}

func (w *twin) truncate(from uint64) {
	n := int(from - w.base.Index - 1)
	if n >= len(w.entries) {
		return
	}
	w.end = w.offsets[n]
	w.entries, w.offsets = w.entries[:n:n], w.offsets[:n:n]
}

// trimBelow forgets the entries before index first.
func (w *twin) trimBelow(first uint64) {
	n := int(first - w.base.Index - 1)
	if n == 0 {
		return
	}
	b := Base{Index: first - 1, Term: w.entries[n-1].Term, NextOffset: w.end}
	if n < len(w.entries) {
		b.NextOffset = w.offsets[n]
	}
	w.base = b
	w.entries, w.offsets = w.entries[n:], w.offsets[n:]
}

func (w *twin) clone() *twin {
	c := *w
	c.entries, c.offsets = slices.Clone(w.entries), slices.Clone(w.offsets)
	return &c
}

// compare checks every entry, term and offset of l against the twin.
func (w *twin) compare(l *Log) error {
	if l.FirstIndex() != w.base.Index+1 || l.LastIndex() != w.last() || l.LastTerm() != w.lastTerm() {
		return fmt.Errorf("log [%d, %d] term %d, want [%d, %d] term %d", l.FirstIndex(), l.LastIndex(), l.LastTerm(), w.base.Index+1, w.last(), w.lastTerm())
	}
	if l.EndOffset() != w.end {
		return fmt.Errorf("end offset %d, want %d", l.EndOffset(), w.end)
	}
	if term, err := l.Term(w.base.Index); err != nil || term != w.base.Term {
		return fmt.Errorf("term of base %d: %d %v, want %d", w.base.Index, term, err, w.base.Term)
	}
	for i, want := range w.entries {
		if err := w.compareOne(l, i, want); err != nil {
			return fmt.Errorf("index %d: %w", want.Index, err)
		}
	}
	return w.compareSlices(l)
}

func (w *twin) compareOne(l *Log, i int, want Entry) error {
	got, err := l.Entry(want.Index)
	if err != nil {
		return err
	}
	if got.Index != want.Index || got.Term != want.Term || got.Type != want.Type || !bytes.Equal(got.Data, want.Data) || !bytes.Equal(got.Ext, want.Ext) {
		return fmt.Errorf("entry %+.40v, want %+.40v", got, want)
	}
	if term, err := l.Term(want.Index); err != nil || term != want.Term {
		return fmt.Errorf("term %d %v, want %d", term, err, want.Term)
	}
	next := w.end
	if i+1 < len(w.offsets) {
		next = w.offsets[i+1]
	}
	if a, b, err := l.OffsetOf(want.Index); err != nil || a != w.offsets[i] || b != next {
		return fmt.Errorf("offsets [%d, %d) %v, want [%d, %d)", a, b, err, w.offsets[i], next)
	}
	h, err := l.EntryHeader(want.Index)
	if err != nil || h.Term != want.Term || want.IsData() && !bytes.Equal(h.Data, want.Data[:record.HeaderSize]) {
		return fmt.Errorf("header %+.40v %v", h, err)
	}
	return nil
}

// compareSlices reads the log through Slice and compares with the twin's batches.
func (w *twin) compareSlices(l *Log) error {
	at := l.StartOffset()
	for i, e := range w.entries {
		if !e.IsData() || w.offsets[i]+int64(record.Batch(e.Data).Count()) <= at {
			continue
		}
		s, err := l.Slice(max(at, w.offsets[i]), w.end, 1, true)
		if err != nil {
			return err
		}
		got, err := s.ReadAll(nil)
		first, next := s.First, s.Next
		s.Release()
		if err != nil {
			return err
		}
		if !bytes.Equal(got, e.Data) || first != w.offsets[i] || next != record.Batch(e.Data).NextOffset() {
			return fmt.Errorf("slice at offset %d: [%d, %d) %d bytes, want %d", w.offsets[i], first, next, len(got), len(e.Data))
		}
	}
	return nil
}

// rig is a log on a crashable file system.
type rig struct {
	t    testing.TB
	fs   *vfs.CrashFS
	side *memSidecar
	cfg  Config
	log  *Log
}

func newRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, fs: vfs.NewCrashable(), side: newMemSidecar()}
	r.cfg = Config{Dir: "/data/orders-0", SegmentBytes: 4096, IndexIntervalBytes: 256, TopicID: [16]byte{1}, SameBoot: true}
	if change != nil {
		change(&r.cfg)
	}
	r.open()
	return r
}

func (r *rig) open() Recovery {
	r.t.Helper()
	rec, err := r.tryOpen()
	if err != nil {
		r.t.Fatalf("open: %v", err)
	}
	return rec
}

func (r *rig) tryOpen() (Recovery, error) {
	if r.cfg.FS == nil {
		r.cfg.FS = r.fs
	}
	r.cfg.Sidecar = r.side
	l, rec, err := Open(r.cfg)
	if err == nil {
		r.log = l
		r.t.Cleanup(func() { _ = l.Close() })
	}
	return rec, err
}

// kill reopens the log as after a SIGKILL: what was written is there, what was only in memory is not.
func (r *rig) kill() Recovery {
	r.t.Helper()
	r.fs, r.side = r.fs.Clone(), r.side.clone()
	r.cfg.FS, r.cfg.SameBoot = nil, true
	return r.open()
}

// cutPower reopens the log as after a power cut.
func (r *rig) cutPower(seed uint64, keep int) Recovery {
	r.t.Helper()
	r.fs, r.side = r.fs.CrashClone(vfs.CrashConfig{Seed: seed, UnsyncedPercent: keep}), r.side.clone()
	r.cfg.FS, r.cfg.SameBoot = nil, false
	return r.open()
}

func (r *rig) append(entries ...Entry) {
	r.t.Helper()
	if err := r.log.Append(entries); err != nil {
		r.t.Fatalf("append: %v", err)
	}
}

func (r *rig) same(w *twin) {
	r.t.Helper()
	if err := w.compare(r.log); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) fill(w *twin, entries ...Entry) {
	r.t.Helper()
	w.append(entries)
	r.append(entries...)
}

func isDamage(err error) bool {
	var d *CorruptionError
	return errors.As(err, &d)
}
