package partition

import (
	"encoding/binary"
	"fmt"

	"gopherlog/cluster/replica"
	"gopherlog/engine/log"
	"gopherlog/txn/producer"
)

// machine is the partition as its Raft group sees it. Raft's FSM goroutine calls it; it waits for nobody.
type machine struct{ p *Partition }

// Apply takes committed entries into the producer state and moves the high watermark.
func (m machine) Apply(entries []replica.Committed) {
	if len(entries) == 0 {
		return
	}
	p := m.p
	start, trim, bytes := p.logStart.Load(), false, 0
	p.stateMu.Lock()
	for i := range entries {
		switch e := &entries[i]; e.Kind {
		case replica.KindData:
			p.producers.Apply(e.Batch)
			p.marked(e)
			bytes += e.Batch.Length()
		case replica.KindCtrl:
			if to, ok := p.command(e); ok && to > start {
				start, trim = to, true
			}
		}
	}
	last := &entries[len(entries)-1]
	stable := p.producers.LastStable(last.NextOffset)
	p.stateMu.Unlock()
	m.keep(entries)
	p.logStart.Store(start)
	p.applied.Store(last.Index)
	moved := p.stable.Swap(stable) != stable
	if old := p.highWatermark.Load(); last.NextOffset > old {
		p.highWatermark.Store(last.NextOffset)
		p.wakeReaders(moved)
	}
	if trim {
		p.trimmed(p)
	}
	p.grown(int64(bytes))
}

// keep hands what was committed to who keeps its meaning.
func (m machine) keep(entries []replica.Committed) {
	if m.p.kept == nil {
		return
	}
	for i := range entries {
		if entries[i].Kind == replica.KindData {
			m.p.kept.Apply(entries[i].Batch)
		}
	}
}

// grown counts what the log gained and says when retention.bytes is exceeded by a whole segment. A leader does: the
// others are told by its trim entry.
func (p *Partition) grown(bytes int64) {
	if bytes > 0 && p.lead.Load() != nil && p.room.Add(-bytes) <= 0 {
		p.room.Store(retentionStep)
		p.overfull(p)
	}
}

// command applies a control entry; ok says that the log shall start at trimTo. stateMu is held. An entry that this version
// cannot read was written by a newer one or is damage: going on would make replicas differ.
func (p *Partition) command(e *replica.Committed) (trimTo int64, ok bool) {
	if len(e.Ctrl) > 0 && commandKind(e.Ctrl[0]) == commandVoted {
		p.stood(e)
		return 0, false
	}
	kind, offset, err := decodeCommand(e.Ctrl)
	if err != nil {
		panic(fmt.Sprintf("partition %s: control entry %d: %v", p.label, e.Index, err))
	}
	if kind == commandExpire {
		p.producers.Expire(offset)
		p.standings.expire(offset)
		return 0, false
	}
	trimTo = min(offset, e.NextOffset)
	p.producers.Trim(trimTo)
	p.trimmedTo = max(p.trimmedTo, trimTo)
	return trimTo, true
}

// The snapshot: version u8 | log start i64 | producer state | in version 3: standings of voted transactions | from version 2 on: what is kept
// of the records. Version 1 is written where nothing is kept, version 3 where there are standings. Offsets and membership are in the log's
// own base.
const (
	snapshotVersion      = 1
	snapshotVersionKept  = 2
	snapshotVersionVoted = 3
)

// Snapshot returns the state after the last applied entry.
func (m machine) Snapshot() []byte {
	dst := []byte{snapshotVersion}
	if m.p.kept != nil {
		dst[0] = snapshotVersionKept
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.p.logStart.Load()))
	m.p.stateMu.Lock()
	dst = m.p.producers.Encode(dst)
	if len(m.p.standings.of) > 0 {
		dst[0] = snapshotVersionVoted
		dst = m.p.standings.encode(dst)
	}
	m.p.stateMu.Unlock()
	if m.p.kept != nil {
		dst = m.p.kept.Snapshot(dst)
	}
	return dst
}

// Restore replaces the state. A nil state is that of an empty log starting at b.
func (m machine) Restore(state []byte, b log.Base) error {
	start, producers, standings, kept, err := b.LogStart, producer.New(), newStandings(), []byte(nil), error(nil)
	if len(state) > 0 {
		if v := state[0]; v != snapshotVersion && v != snapshotVersionVoted && (v != snapshotVersionKept || m.p.kept == nil) {
			return fmt.Errorf("partition %s: snapshot version %d is not supported, want %d", m.p.label, v, snapshotVersion)
		}
		if len(state) < 9 {
			return fmt.Errorf("partition %s: snapshot of %d bytes", m.p.label, len(state))
		}
		start = max(start, int64(binary.BigEndian.Uint64(state[1:])))
		if producers, kept, err = producer.Decode(state[9:]); err != nil {
			return fmt.Errorf("partition %s: %w", m.p.label, err)
		}
		if state[0] == snapshotVersionVoted {
			if standings, kept, err = decodeStandings(kept); err != nil {
				return fmt.Errorf("partition %s: %w", m.p.label, err)
			}
		}
		if state[0] == snapshotVersion || m.p.kept == nil {
			kept = nil
		}
	}
	if m.p.kept != nil {
		if err := m.p.kept.Restore(kept); err != nil {
			return fmt.Errorf("partition %s: %w", m.p.label, err)
		}
	}
	m.p.stateMu.Lock()
	m.p.producers, m.p.standings, m.p.trimmedTo = producers, standings, start
	m.p.stateMu.Unlock()
	m.p.logStart.Store(start)
	m.p.stable.Store(producers.LastStable(b.NextOffset))
	m.p.highWatermark.Store(b.NextOffset)
	m.p.applied.Store(b.Index)
	return nil
}
