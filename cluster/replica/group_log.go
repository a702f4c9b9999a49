package replica

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"gopherlog/engine/log"
)

type raftLog = raft.Log

// groupLog is the library's view of a partition's log.
type groupLog struct {
	g       *Group
	entries []log.Entry // scratch of raft's main goroutine
}

// IsMonotonic says that the log cannot have gaps.
func (l *groupLog) IsMonotonic() bool { return true }

// FirstIndex answers 0, "no entries". The library asks for it to compact, which
// it never may, and to read the oldest entry of every led group every ten
// seconds for a metric, which would pull cold batches from the disk.
func (l *groupLog) FirstIndex() (uint64, error) { return 0, nil }

// LastIndex returns 0 for a log that holds nothing behind its base: the
// snapshot stands for the base.
func (l *groupLog) LastIndex() (uint64, error) {
	last := l.g.log.LastIndex()
	if last < l.g.log.FirstIndex() {
		return 0, nil
	}
	return last, nil
}

func toRaft(e *log.Entry, out *raft.Log) {
	*out = raft.Log{Index: e.Index, Term: e.Term, Type: raft.LogType(e.Type), Data: e.Data, Extensions: e.Ext}
}

// GetLog returns an entry; of the index before the first only the term, which
// the library needs to send the first. Exactly raft.ErrLogNotFound makes the
// leader send a snapshot instead. Damage ends this group's raft.
//
// Everybody looks at terms, kinds and headers only, so of a batch they get the
// header; what is sent to peers the transport reads anew (groupView.Lend).
func (l *groupLog) GetLog(index uint64, out *raft.Log) error {
	if index < l.g.log.FirstIndex() {
		return l.base(index, out)
	}
	var e log.Entry
	var err error
	if l.g.cfg.NeedData {
		e, err = l.g.log.Entry(index)
	} else {
		e, err = l.g.log.EntryHeader(index)
	}
	switch {
	case err == nil:
		toRaft(&e, out)
		return nil
	case errors.Is(err, log.ErrNotFound):
		return l.base(index, out)
	case errors.Is(err, log.ErrTruncated): // a deposed leader's reader; nobody else can meet one
		return err
	}
	l.g.failAndExit(fmt.Errorf("read entry %d: %w", index, err))
	return err
}

func (l *groupLog) base(index uint64, out *raft.Log) error {
	if index == 0 || index+1 != l.g.log.FirstIndex() {
		return raft.ErrLogNotFound
	}
	term, err := l.g.log.Term(index)
	if err != nil {
		return raft.ErrLogNotFound
	}
	*out = raft.Log{Index: index, Term: term, Type: raft.LogNoop}
	return nil
}

// StoreLog appends the founding configuration, before raft runs.
func (l *groupLog) StoreLog(e *raft.Log) error { return l.append([]*raft.Log{e}) }

// StoreLogs appends what raft dispatches as leader or accepts as follower. A
// failure leaves no trace, as the library goes on to use the same indexes.
func (l *groupLog) StoreLogs(logs []*raft.Log) error {
	err := l.g.store(logs, func() error { return l.append(logs) }, l.g.log.EndOffset)
	if err == nil {
		l.g.onStored(logs[len(logs)-1].Index)
		return nil
	}
	if cause := l.g.log.Failed(); cause != nil {
		l.g.fail(cause) // never tried again
	} else if errors.Is(err, log.ErrDivergent) {
		// The leader's log and this one agree about the entry before, and not about what follows: one of them is not what it was. Sent
		// again it would be the same.
		l.g.fail(fmt.Errorf("the log is not the leader's although their entries before agree: %w", err))
	}
	return err
}

func (l *groupLog) append(logs []*raft.Log) error {
	l.entries = l.entries[:0]
	own := l.g.own // by index
	for _, e := range logs {
		if len(e.Extensions) > 0 && e.Extensions[0] == extMark {
			return fmt.Errorf("entry %d carries a proposal's mark", e.Index)
		}
		entry := log.Entry{Index: e.Index, Term: e.Term, Type: uint8(e.Type), Data: e.Data, Ext: e.Extensions}
		if len(own) > 0 && own[0].index == e.Index {
			entry.Owner, own = own[0].Owner, own[1:]
		}
		l.entries = append(l.entries, entry)
	}
	// What a leader appends stays in memory for its peers. What a leader sent
	// goes back to the transport's pool when the request is answered.
	write := l.g.log.AppendBorrowed
	if l.g.isLeader() {
		write = l.g.log.Append
	} else {
		for i := range l.entries {
			l.diverge(&l.entries[i])
		}
	}
	err := write(l.entries)
	for i := range l.entries {
		// The library keeps what it was given until the entry is applied, and
		// says to nobody when it lets go. Of pooled bytes it gets the header.
		if e := &l.entries[i]; err == nil && e.Owner != nil {
			logs[i].Data = e.Header()
		}
	}
	clear(l.entries)
	if err == nil && l.g.alone.Load() {
		l.g.log.Replicated(logs[len(logs)-1].Index)
	}
	return err
}

// DeleteRange removes a suffix that contradicts the leader. The only other use
// is to empty the log after an installed snapshot, which Restore has done.
func (l *groupLog) DeleteRange(from, to uint64) error {
	l.g.wait()
	if l.g.sealed.Load() {
		return nil
	}
	if last := l.g.log.LastIndex(); to != last {
		return fmt.Errorf("delete entries %d to %d of a log that ends at %d: not a suffix", from, to, last)
	}
	if err := l.g.log.TruncateSuffix(from); err != nil {
		err = fmt.Errorf("truncate log from %d: %w", from, err)
		l.g.fail(err)
		return err
	}
	return nil
}
