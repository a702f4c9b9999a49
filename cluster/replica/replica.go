// Package replica runs one Raft group: it joins hashicorp/raft, unmodified, to
// the partition's segment files, the node's key-value store and the node's
// transport.
//
// It knows terms, indexes, votes, snapshots, who leads, and which proposal a
// committed entry belongs to. It refuses to know topics, producers, sequences,
// consumers and the Kafka protocol: those live in the FSM that it is given.
package replica

import (
	"errors"
	"log/slog"
	"time"

	"gopherlog/cluster/rpc"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/kv"
	"gopherlog/engine/log"
	"gopherlog/engine/record"
)

var (
	// ErrNotLeader says that the proposal was definitely not replicated: this
	// replica does not lead, or leads in another term than the proposal's.
	ErrNotLeader = errors.New("replica: not the leader of this term")
	// ErrLost says that leadership ended while the entry was stored but not
	// yet known to be committed: it may survive or vanish.
	ErrLost = errors.New("replica: leadership lost, outcome unknown")
	// ErrStalled says that the log has not finished a write for two seconds.
	ErrStalled = errors.New("replica: log write stalled")
	// ErrClosed says that the group was closed.
	ErrClosed = errors.New("replica: closed")
	// ErrSuspect says that the replica may have forgotten acknowledged entries
	// in a power loss and must first hear from a leader.
	ErrSuspect = errors.New("replica: log may have lost its tail in a power loss; " +
		"waiting for a leader (or: mqclient cluster recover -after-power-loss)")
	// ErrFailed says that storage failed and the replica took itself out.
	ErrFailed = errors.New("replica: storage failed")
)

// Defaults of Config's zero values.
const (
	// DefaultInflightBytes bounds what the transport has under way per peer
	// and what one burst may hold.
	DefaultInflightBytes = 16 << 20
	// checkpointBytes, checkpointEntries and checkpointEvery bound what a
	// restart reads and applies again. Lone records are small, but each is an
	// entry to apply, and a follower takes nothing new until it is through.
	// Retention moves the point from which it reads too, so that a topic which
	// keeps less than this is synced by the clock only.
	checkpointBytes   = 256 << 20
	checkpointEntries = 16 << 10
	checkpointEvery   = 30 * time.Second
	// reconcileEvery is how often a group looks at its own state although no
	// event told it to.
	reconcileEvery = time.Second
	// reconcileIdle is the same when nothing was appended for long.
	reconcileIdle = 5 * time.Second
	// stallAfter is how long one StoreLogs call may take before the group
	// stops claiming to be alive.
	stallAfter = 2 * time.Second
	// inSyncWindow: a replica is in sync if it has everything that the leader
	// had so long ago.
	inSyncWindow = 10 * time.Second
	// maxSnapshotBytes bounds the state accepted in one installed snapshot.
	maxSnapshotBytes = 256 << 20
	// maxAppendEntries is raft's own batch limit; the transport tops requests
	// up to InflightBytes, so a larger one only costs allocations.
	maxAppendEntries = 64
)

// Timers are raft's timeouts. The defaults are calm because failures are
// detected per node by the transport, which then asks a replica to campaign.
type Timers struct {
	Heartbeat time.Duration // 6 s: follower without contact becomes a candidate after one to two of these
	Election  time.Duration // 6 s
	Lease     time.Duration // 5 s: a leader without a majority steps down; idle groups let requests rest for a third of it
	Commit    time.Duration // 1 s: how late an idle follower may learn the commit index
}

// Config describes one replica of one partition.
type Config struct {
	ID   rpc.GroupID
	Self rpc.ServerID
	// Bootstrap is the founding membership. It is written once, on an empty
	// replica, and only if it names Self; every founder passes the same list.
	Bootstrap []rpc.ServerID

	// Log is the partition's log, opened with Sidecar(KV, ID). The group uses
	// it alone for appending and truncating; it does not close it.
	Log *log.Log
	KV  *kv.DB
	// Node carries the group's messages.
	Node *rpc.Node
	FSM  FSM

	// BootID changes when the kernel restarts, and with it the page cache.
	BootID string
	// SyncEach says that the log is durable on every append, so a power loss
	// cannot make this replica forget.
	SyncEach bool
	// NeedData asks for whole batches in Committed.Batch even while entries
	// are replayed after a start; otherwise a replay may carry headers only.
	NeedData bool

	InflightBytes int    // default DefaultInflightBytes
	Timers        Timers // zero fields take the defaults

	Logger     *slog.Logger   // nil: silent
	Sampler    *Sampler       // shared by all groups of a node; nil: one per group
	Failpoints *failpoint.Set // nil: none
	Observer   Observer       // nil: none
	Now        func() time.Time
}

// Observer is told of durations; its methods must not block.
type Observer interface {
	// Committed is called per own proposal: from ProposeBatch to Done.
	Committed(d time.Duration)
	// Elected is called when a replica begins to lead (ready) and stops.
	Elected(ready bool)
}

// Kind says what a committed entry is.
type Kind uint8

// Kinds of committed entries.
const (
	KindData   Kind = iota // one record batch; takes offsets
	KindCtrl               // a control entry of the FSM; takes no offset
	KindNoop               // a void entry; takes no offset
	KindConfig             // a membership change; takes no offset
)

// Committed is one committed entry. It and its bytes are valid during Apply
// only, unless the FSM copies them.
type Committed struct {
	Index, Term uint64
	Kind        Kind
	// Batch is set for KindData. Its header is always whole; while entries are
	// replayed after a start the records may be missing (see Config.NeedData):
	// then len(Batch) < Batch.Length().
	Batch record.Batch
	// Ctrl is set for KindCtrl.
	Ctrl []byte
	// BaseOffset is the entry's first offset; NextOffset the log end after it.
	// They are equal for entries that take no offset.
	BaseOffset, NextOffset int64
}

// FSM is what the group's entries are applied to. Calls never overlap. Apply
// and Snapshot must not block on I/O, on the log or on a proposal: raft's main
// goroutine waits behind them.
type FSM interface {
	// Apply takes committed entries in order, without gaps except for entries
	// that carry nothing (no-ops).
	Apply(entries []Committed)
	// Snapshot returns the state after the last applied entry, in bytes that
	// the caller owns.
	Snapshot() []byte
	// Restore replaces the state: at start, and when a leader sent a snapshot
	// because this replica lacked the beginning of the log. A nil state is the
	// empty state.
	Restore(state []byte, b log.Base) error
}

// Role is the part that a replica plays.
type Role uint8

// Roles.
const (
	Follower Role = iota
	Candidate
	Leader
	Stopped
)

func (r Role) String() string {
	return [...]string{"follower", "candidate", "leader", "stopped"}[r]
}

// Status is a snapshot of a replica's condition.
type Status struct {
	Role   Role
	Term   uint64
	Leader rpc.ServerID // "" = unknown

	LastIndex, CommitIndex, AppliedIndex uint64

	// Ready: leads, and everything committed before its term is applied. Only
	// then are proposals taken.
	Ready bool
	// Suspect: neither votes nor campaigns until it heard from a leader.
	Suspect bool
	// Stalled: a log write has not returned for two seconds.
	Stalled bool
	// Failed: storage failed; the replica is out of service until reopened.
	Failed error
}

// Proposal is one entry to replicate: either a record batch or a control entry.
//
// Ownership: from ProposeBatch on the bytes belong to the log, the transport
// and the FSM, which may look at them long after Done (a slow peer is sent the
// same bytes). They must never be written by the caller, nor reused but as Owner
// allows. Data is stamped in place (base offset, leader epoch) when it is
// appended.
type Proposal struct {
	Data []byte // one unstamped v2 batch (base offset negative); or
	// Owner is the pooled memory that Data lies in. The caller holds it until
	// Done; whoever needs the bytes longer holds it too. nil: the memory is the
	// garbage collector's.
	Owner log.Owner
	Ctrl  []byte // a control entry
	// Roll, with Ctrl, makes the log start a new segment behind the entry.
	Roll bool

	// Term is the term in which the caller checked the proposal. It is stored
	// in that term or not at all.
	Term uint64

	// Appended, if set, is called when the batch is written here (and synced,
	// if the log syncs every append). It must not block.
	Appended func(baseOffset int64)
	// Done is called exactly once: with nil after the entry is committed and
	// applied here, with ErrNotLeader if it is certainly not in the log, with
	// ErrLost if that is unknown. It must not block. For control entries
	// baseOffset is the log end at the entry.
	Done func(baseOffset int64, err error)

	// User is the caller's.
	User any

	barrier bool

	index uint64 // set when stored
	state proposalState
	seq   uint64
	base  int64
	begun time.Time
	ext   [extLen]byte
}

// Index returns the raft index at which the proposal was stored; 0 before.
// It may be read in Appended and Done.
func (p *Proposal) Index() uint64 { return p.index }

// Member is one server of a group.
type Member struct {
	ID    rpc.ServerID
	Voter bool
}
