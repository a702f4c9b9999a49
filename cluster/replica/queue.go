package replica

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"gopherlog/engine/log"
	"gopherlog/engine/record"
)

// Extensions of a raft entry as they are stored: one byte, the kind; nothing
// means a record batch. Values must stay below the log's own flags (0x80).
const (
	extCtrl    = 1 // control entry of the FSM
	extVoid    = 2 // a proposal of another term: nothing
	extBarrier = 3 // an entry that only has to be applied
)

// Extensions of a proposal between ApplyLog and StoreLogs: a mark that no
// stored entry has, the kind, the proposal's number. StoreLogs recognises its
// own proposals by it and strips it before anybody else sees the entry.
const (
	extMark = 0xff
	extLen  = 10
)

// kindMask separates the kind from log.RollFlag.
const kindMask = log.RollFlag - 1

// storedExt returns what is stored for a kind. The bytes are shared.
func storedExt(kind byte) []byte {
	if kind == 0 {
		return nil
	}
	return extTable[kind : kind+1 : kind+1]
}

// extTable holds every byte at its own place.
var extTable = func() (t [256]byte) {
	for i := range t {
		t[i] = byte(i)
	}
	return t
}()

type proposalState uint8

const (
	stateQueued proposalState = 1 + iota // handed to raft, may wait in its channel
	stateStored                          // in the log at index and term
	stateDone
)

// queue knows the fate of this replica's own proposals. Raft's futures are not
// read: a proposal is recognised when it is stored, completed when its index is
// applied, and failed when the term in which it was proposed ends, wherever it
// waits by then. What still comes out of raft's channel afterwards finds no
// entry here and is stored as void.
//
// All fields are guarded by mu, which is held for a few instructions only.
type queue struct {
	mu     sync.Mutex
	term   uint64 // term that this replica leads; 0: none
	ready  bool   // everything before the term is applied
	closed error  // no proposals any more
	seq    uint64
	queued map[uint64]*Proposal
	stored []*Proposal // by index
	pause  chan struct{}
}

func (q *queue) init() { q.queued = make(map[uint64]*Proposal) }

// enter registers proposals for this term. It returns those that were checked
// in another term, or a channel to wait on before another attempt, or an error
// that holds for all.
func (q *queue) enter(ps []*Proposal, now time.Time) (stale []*Proposal, wait chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed != nil:
		return nil, nil, q.closed
	case q.term == 0, !q.ready:
		return nil, nil, ErrNotLeader
	case q.pause != nil:
		return nil, q.pause, nil
	}
	for _, p := range ps {
		if p.Term != q.term {
			stale = append(stale, p)
			p.state = stateDone
			continue
		}
		q.seq++
		p.seq, p.state, p.begun, p.base = q.seq, stateQueued, now, -1
		p.mark()
		q.queued[p.seq] = p
	}
	return stale, nil, nil
}

// mark writes the extension under which StoreLogs recognises the proposal.
func (p *Proposal) mark() {
	kind := byte(0)
	switch {
	case p.barrier:
		kind = extBarrier
	case p.Data == nil:
		kind = extCtrl
		if p.Roll {
			kind |= log.RollFlag
		}
	}
	p.ext[0], p.ext[1] = extMark, kind
	binary.BigEndian.PutUint64(p.ext[2:], p.seq)
}

// payload is what raft carries for the proposal.
func (p *Proposal) payload() raft.Log {
	data := p.Data
	if data == nil {
		data = p.Ctrl
	}
	return raft.Log{Data: data, Extensions: p.ext[:]}
}

// isOwn reports whether an entry is a proposal of this replica that has not
// been stored yet.
func isOwn(l *raft.Log) bool {
	return len(l.Extensions) == extLen && l.Extensions[0] == extMark
}

// claim prepares own proposals among the entries that are about to be stored:
// marks are replaced by what is stored; a proposal that was given up, or was
// checked in another term, becomes a void entry. It returns the proposals that
// are stored as themselves and those that must be failed.
func (q *queue) claim(logs []*raft.Log, own []*Proposal) (stored, lost []*Proposal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range logs {
		if !isOwn(l) {
			continue
		}
		kind, seq := l.Extensions[1], binary.BigEndian.Uint64(l.Extensions[2:])
		p := q.queued[seq]
		delete(q.queued, seq)
		if p == nil || p.Term != l.Term {
			l.Data, l.Extensions = nil, storedExt(extVoid)
			if p != nil {
				p.state = stateDone
				lost = append(lost, p)
			}
			continue
		}
		l.Extensions = storedExt(kind)
		if p.Owner != nil {
			p.Owner.Hold() // p is not done, so the proposer holds it too
		}
		p.index, p.state = l.Index, stateStored
		q.stored = append(q.stored, p)
		own = append(own, p)
	}
	return own, lost
}

// dropOwners ends the holds that claim took.
func dropOwners(own []*Proposal) {
	for _, p := range own {
		if p.Owner != nil {
			p.Owner.Drop()
		}
	}
}

// unclaim takes back proposals whose append failed without a trace.
func (q *queue) unclaim(own []*Proposal) (failed []*Proposal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range own {
		if p.state == stateStored {
			p.state = stateDone
			failed = append(failed, p)
		}
	}
	q.compact()
	return failed
}

// appended notes the offsets that the log gave to own proposals.
func (q *queue) appended(own []*Proposal, end int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := len(own) - 1; i >= 0; i-- {
		p := own[i]
		if p.Data == nil {
			p.base = end
			continue
		}
		p.base = record.Batch(p.Data).BaseOffset()
		end = p.base
	}
}

// applied takes the proposals stored at or below index off the queue. Their
// entries are the ones applied: while this replica leads a term nobody else
// writes its log, and when the term ends the rest of the queue is failed.
func (q *queue) applied(index uint64, out []*Proposal) []*Proposal {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(q.stored) && q.stored[n].index <= index {
		p := q.stored[n]
		if p.state == stateStored {
			p.state = stateDone
			out = append(out, p)
		}
		n++
	}
	q.drop(n)
	return out
}

// drop removes the first n stored proposals.
func (q *queue) drop(n int) {
	if n == 0 {
		return
	}
	rest := copy(q.stored, q.stored[n:])
	clear(q.stored[rest:])
	q.stored = q.stored[:rest]
}

// compact removes finished proposals from the stored ones.
func (q *queue) compact() {
	kept := q.stored[:0]
	for _, p := range q.stored {
		if p.state == stateStored {
			kept = append(kept, p)
		}
	}
	clear(q.stored[len(kept):])
	q.stored = kept
}

// lead opens the queue for a term.
func (q *queue) lead(term uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.term, q.ready = term, false
}

// serve lets proposals of the term in.
func (q *queue) serve(term uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.term != term || q.closed != nil {
		return false
	}
	q.ready = true
	return true
}

// sweep ends the term: queued proposals will not be stored (never), stored
// ones above the commit index may or may not survive (unknown). Those at or
// below it are on their way to the FSM and complete there.
func (q *queue) sweep(commit uint64) (never, unknown []*Proposal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sweepLocked(commit)
}

func (q *queue) sweepLocked(commit uint64) (never, unknown []*Proposal) {
	q.term, q.ready = 0, false
	q.resumeLocked()
	for seq, p := range q.queued {
		p.state = stateDone
		never = append(never, p)
		delete(q.queued, seq)
	}
	for _, p := range q.stored {
		if p.index > commit && p.state == stateStored {
			p.state = stateDone
			unknown = append(unknown, p)
		}
	}
	q.compact()
	return never, unknown
}

// close refuses proposals from now on and gives up all that are under way.
func (q *queue) close(why error) (never, unknown []*Proposal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed == nil {
		q.closed = why
	}
	return q.sweepLocked(0)
}

// hold makes proposers wait for the returned channel until resume or the end of
// the term; nil if somebody holds already or this replica does not lead.
func (q *queue) hold() chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pause != nil || q.term == 0 || !q.ready {
		return nil
	}
	q.pause = make(chan struct{})
	return q.pause
}

// resume ends a hold, if it still is that one.
func (q *queue) resume(held chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pause == held {
		q.resumeLocked()
	}
}

func (q *queue) resumeLocked() {
	if q.pause != nil {
		close(q.pause)
		q.pause = nil
	}
}

// leading returns the term that this replica leads and whether it serves.
func (q *queue) leading() (term uint64, ready bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.term, q.ready
}
