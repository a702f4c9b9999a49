package replica

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"gopherlog/engine/log"
	"gopherlog/engine/record"
)

// fsmState is what the FSM goroutine knows about what it has applied. mu is
// held around calls of the user's FSM, so that the state can be captured from
// elsewhere while nothing is applied.
type fsmState struct {
	due    atomic.Bool   // snaps wait to be written
	copied atomic.Uint64 // index of the last restart copy

	mu        sync.Mutex
	index     uint64 // last applied, without entries that the library keeps to itself
	next      int64  // offset after it
	conf      []byte // encoded configuration at index, committed
	confIndex uint64
	segEnd    uint64 // last segment end that was captured
	snaps     []log.Base
	batch     []Committed
	results   []any // the FSM goroutine's; always nils
}

// begin forgets everything, before raft restores a snapshot or replays the log.
func (s *fsmState) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index, s.next, s.conf, s.confIndex = 0, 0, nil, 0
	s.segEnd, s.snaps = 0, nil
}

// groupFSM is the library's view of an FSM.
type groupFSM struct{ g *Group }

// ApplyBatch passes committed entries on, captures the state wherever a segment
// ends, and completes own proposals.
func (f *groupFSM) ApplyBatch(logs []*raft.Log) []any {
	s := &f.g.state
	_ = f.g.points.Hit(failApply) // stop, sleep or kill: committed entries cannot be refused
	f.apply(logs)
	f.g.complete(logs[len(logs)-1].Index)
	for len(s.results) < len(logs) {
		s.results = append(s.results, nil)
	}
	return s.results[:len(logs)]
}

func (f *groupFSM) apply(logs []*raft.Log) {
	s := &f.g.state
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range logs {
		f.capture(l.Index - 1)
		s.add(l)
	}
	f.flush()
	f.capture(s.index) // an entry that began a new segment by itself
}

// Apply is ApplyBatch of one.
func (f *groupFSM) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// add collects an entry for the FSM.
func (s *fsmState) add(l *raft.Log) {
	c := Committed{Index: l.Index, Term: l.Term, BaseOffset: s.next, NextOffset: s.next}
	switch {
	case l.Type == raft.LogConfiguration:
		c.Kind = KindConfig
		s.conf, s.confIndex = append([]byte(nil), l.Data...), l.Index
	case l.Type != raft.LogCommand:
		c.Kind = KindNoop
	case len(l.Extensions) == 0:
		c.Kind, c.Batch = KindData, record.Batch(l.Data)
		c.BaseOffset, c.NextOffset = c.Batch.BaseOffset(), c.Batch.NextOffset()
		s.next = c.NextOffset
	case l.Extensions[0]&kindMask == extCtrl:
		c.Kind, c.Ctrl = KindCtrl, l.Data
	default:
		c.Kind = KindNoop
	}
	s.index = l.Index
	s.batch = append(s.batch, c)
}

// flush hands collected entries to the FSM.
func (f *groupFSM) flush() {
	s := &f.g.state
	if len(s.batch) == 0 {
		return
	}
	f.g.cfg.FSM.Apply(s.batch)
	clear(s.batch)
	s.batch = s.batch[:0]
}

// capture takes the state if a sealed segment ends at one of the indexes from
// the last applied one up to upTo. Entries in between are the library's own and
// change nothing. Only now can the end of a segment be told: it is the next
// entry, appended but not yet applied, that began a new one.
func (f *groupFSM) capture(upTo uint64) {
	s := &f.g.state
	for i := max(s.index, s.segEnd+1); i <= upTo; i++ {
		if i == 0 || !f.g.log.SegmentEnd(i) {
			continue
		}
		s.segEnd = i
		f.flush()
		b, err := f.g.baseAt(i)
		if err != nil {
			f.g.logger.Warn("cannot capture state at a segment's end", "group", f.g.id, "index", i, "error", err)
			continue
		}
		s.snaps = append(s.snaps, b)
		s.due.Store(true)
		f.g.stir()
	}
}

// baseAt describes the state as of index, which must be the applied one or
// followed only by entries that change nothing. state.mu is held.
func (g *Group) baseAt(index uint64) (log.Base, error) {
	term, err := g.log.Term(index)
	if err != nil {
		return log.Base{}, err
	}
	_, next, err := g.log.OffsetOf(index)
	if err != nil {
		return log.Base{}, err
	}
	return log.Base{
		Index: index, Term: term, NextOffset: next, LogStart: g.log.StartOffset(),
		State: encodeState(g.state.conf, g.state.confIndex, g.cfg.FSM.Snapshot()),
	}, nil
}

// Snapshot is never called: snapshots are captured at segment ends.
func (f *groupFSM) Snapshot() (raft.FSMSnapshot, error) {
	return nil, raft.ErrNothingNewToSnapshot
}

// Restore replaces the state by a snapshot: at start, or because the leader
// sent one. In the latter case the log is wiped and adopts the snapshot as its
// base, durably, and the instance is sealed: the library goes on to believe in
// the end of the log that was wiped.
func (f *groupFSM) Restore(r io.ReadCloser) error {
	raw, err := readLimited(r, maxSnapshotBytes)
	if err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	b, err := decodeBase(raw)
	if err != nil {
		return err
	}
	st, err := decodeState(b.State)
	if err != nil {
		return err
	}
	if !f.g.booting.Load() {
		f.g.seal()
		defer f.g.stir()
		if err := f.g.adopt(b); err != nil {
			f.g.fail(err)
			return err
		}
	}
	return f.g.state.restore(f.g, b, st)
}

// adopt wipes the log to a base that a leader sent.
func (g *Group) adopt(b log.Base) error {
	if err := g.points.Hit(failAdopt); err != nil {
		return err
	}
	if err := g.cfg.KV.Delete(g.restartKey(), true); err != nil {
		return fmt.Errorf("remove restart copy: %w", err)
	}
	if err := g.log.Reset(b); err != nil {
		return fmt.Errorf("adopt snapshot at %d: %w", b.Index, err)
	}
	return nil
}

func (s *fsmState) restore(g *Group, b log.Base, st groupState) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := g.cfg.FSM.Restore(st.fsm, b); err != nil {
		return fmt.Errorf("restore state machine at %d: %w", b.Index, err)
	}
	s.index, s.next = b.Index, b.NextOffset
	s.copied.Store(b.Index)
	s.conf, s.confIndex = st.conf, st.confIndex
	s.segEnd = b.Index
	g.appliedIndex.Store(b.Index)
	return nil
}
