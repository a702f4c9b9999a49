// Package partition turns Raft groups into Kafka partitions: idempotent append, high watermark, epoch-fenced reads and
// waiting fetches for each, and a Manager that makes this node carry the replicas which the cluster's image gives it.
//
// It knows proposals, producer state, offsets, epochs, waiters, retention, succession and balance. It refuses to know the
// Kafka protocol (error codes are chosen in cluster/broker), Raft's library, and how bytes lie on disk.
package partition

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/failpoint"
	"gopherlog/engine/log"
	"gopherlog/txn/producer"
	"gopherlog/txn/twopc"
)

// group is what a partition needs of its Raft group: *replica.Group, or a fake in tests.
type group interface {
	ProposeBatch(ps []*replica.Proposal) error
	Status() replica.Status
	InSync(now time.Time) []rpc.ServerID
	Voters() []rpc.ServerID
	WaitCommittedOn(n int, index uint64, fn func(error)) (cancel func())
	Campaign() error
	StepDown()
	TransferTo(ctx context.Context, target rpc.ServerID) error
	Members() []replica.Member
	Match(peer rpc.ServerID) (index uint64, lastContact time.Time)
	AddNonvoter(ctx context.Context, id rpc.ServerID) error
	AddVoter(ctx context.Context, id rpc.ServerID) error
	RemoveServer(ctx context.Context, id rpc.ServerID) error
	Watch(fn func(replica.Status))
	Recover() error
	Tune(segmentBytes int64, syncEach bool) error
	Close(ctx context.Context) error
}

// Partition is one replica of one partition on this node. All methods may be called from any goroutine.
//
// Goroutines: raft's FSM goroutine owns Apply, Snapshot and Restore; while this replica leads, one proposer goroutine per
// term (leadership.run) owns the overlay and all proposals. Neither waits for the other. Locks are leaves, except that leadMu
// is held while the group's status is taken; none is held across I/O or a channel.
type Partition struct {
	topic  string
	id     meta.TopicID
	number int32
	label  string // "topic-number"

	log   *log.Log
	group group

	node       rpc.NodeID
	failpoints *failpoint.Set
	logger     *slog.Logger
	now        func() time.Time
	budget     *Budget          // node-wide, for produce
	own        *Budget          // this partition's, queued and in flight
	disk       *disk            // the node's
	changed    func(*Partition) // leadership here began or ended
	trimmed    func(*Partition) // the log start moved
	overfull   func(*Partition) // a segment is more than retention.bytes asks for
	kept       Kept             // what its records mean; nil: nothing is kept
	led        func(*Partition) // like changed, and at the end of the replica; set with kept
	unled      func(*Partition) // something happened while others lead, or nobody
	heard      func(*Partition) // something was heard of who leads, here or elsewhere

	coordinators Coordinators // nil: no transactions
	ballot       Ballot       // nil: none is voted on
	voted        twopc.Config
	facts        *Facts

	settings atomic.Pointer[Settings]
	assigned atomic.Pointer[meta.PartitionInfo]
	opened   time.Time
	fresh    bool // created, not reopened

	stateMu   sync.Mutex // guards producers, standings, trimmedTo
	producers *producer.State
	standings *standings
	trimmedTo int64 // log start that producers has been trimmed to

	highWatermark atomic.Int64
	stable        atomic.Int64 // last stable offset; stored before the high watermark that it belongs to
	logStart      atomic.Int64
	applied       atomic.Uint64
	room          atomic.Int64 // bytes to come until overfull; counted by Apply while this replica leads

	leadMu sync.Mutex // orders changes of lead
	lead   atomic.Pointer[leadership]
	closed bool        // by leadMu
	ailing atomic.Bool // its failure has been told
	wg     sync.WaitGroup

	waitMu  sync.Mutex // guards waiters
	waiters []place
	parked  atomic.Int32 // len(waiters), read without the lock

	marks offsetMarks
	stats counters
}

// Settings are the topic configs that a partition obeys; the Manager replaces them when the image changes.
type Settings struct {
	meta.TopicConfig
	// ProducerExpiry is for how long a silent producer id is remembered.
	ProducerExpiry time.Duration
}

// counters are read by metrics.
type counters struct {
	batches, bytes, duplicates, rejected, markers, verifications atomic.Int64
}

// Topic is the topic's name.
func (p *Partition) Topic() string { return p.topic }

// TopicID is the topic's id.
func (p *Partition) TopicID() meta.TopicID { return p.id }

// Number is the partition number within the topic.
func (p *Partition) Number() int32 { return p.number }

// Settings returns the topic configs in force.
func (p *Partition) Settings() Settings { return *p.settings.Load() }

// HighWatermark is the end of what is committed, as far as this replica knows.
func (p *Partition) HighWatermark() int64 { return p.highWatermark.Load() }

// LastStable is the end of what read_committed consumers may see: no transaction is open below it. It is never below the log start, nor
// above the high watermark.
func (p *Partition) LastStable() int64 { return p.stableBelow(p.highWatermark.Load()) }

// stableBelow is the last stable offset for a high watermark that was read before.
func (p *Partition) stableBelow(hw int64) int64 {
	return min(max(p.stable.Load(), p.logStart.Load()), hw)
}

// LogStart is the first offset that may be read.
func (p *Partition) LogStart() int64 { return p.logStart.Load() }

// EndOffset is the next offset to be written here; it may lie above the high watermark.
func (p *Partition) EndOffset() int64 { return p.log.EndOffset() }

// Size is the number of bytes on disk.
func (p *Partition) Size() int64 { return p.log.Size() }

// Leader is what this replica knows of the leadership: the node (meta.NoLeader if unknown) and its epoch (-1 if unknown).
// ready says that it is this node and that it serves; it may have been elected and not serve yet. A candidate's epoch is
// never returned.
func (p *Partition) Leader() (node rpc.NodeID, epoch int32, ready bool) {
	if l := p.lead.Load(); l != nil {
		return p.node, l.epoch, true
	}
	node, epoch = ledBy(p.group.Status())
	return node, epoch, false
}

// Status is the condition of the Raft replica.
func (p *Partition) Status() replica.Status { return p.group.Status() }

// InSyncNodes are the nodes whose replicas are in sync; only a leader knows them.
func (p *Partition) InSyncNodes() []rpc.NodeID {
	servers := p.group.InSync(p.now())
	nodes := make([]rpc.NodeID, len(servers))
	for i, s := range servers {
		nodes[i] = s.Node()
	}
	return nodes
}

// watch begins to follow the group's leadership.
func (p *Partition) watch() {
	if p.kept != nil {
		p.led(p) // it may be asked from now on: a replica that is elected first is heard of only when it serves
	}
	p.group.Watch(p.onStatus)
}

// onStatus follows the group's leadership: the group calls it after the barrier, at a loss, and from its reconcile. It does
// not block. Calls may overlap and come late, so it looks at the state as it is now.
func (p *Partition) onStatus(st replica.Status) {
	if st.Failed != nil && !p.ailing.Swap(true) {
		p.logger.Error("replica is out of service", "partition", p.label, "error", st.Failed)
	}
	if p.switchLead() {
		if p.kept != nil {
			p.led(p) // first: who is woken finds what lives on the records
		}
		p.wake()
		p.changed(p)
	} else if p.wakeLeaderless(); p.lead.Load() == nil {
		p.unled(p)
	}
	p.heard(p)
}

// switchLead ends a leadership that is over and begins one that is ready. The group's status is taken under leadMu.
func (p *Partition) switchLead() (changed bool) {
	p.leadMu.Lock()
	defer p.leadMu.Unlock()
	st := p.group.Status()
	if l := p.lead.Load(); l != nil && (!st.Ready || st.Term != l.term) {
		p.lead.Store(nil)
		l.end()
		changed = true
	}
	if st.Ready && !p.closed && p.lead.Load() == nil {
		l := p.newLeadership(st.Term)
		p.lead.Store(l)
		p.wg.Go(l.run)
		changed = true
	}
	return changed
}

// close ends the leadership and the group. The log stays open: its owner closes it.
func (p *Partition) close(ctx context.Context) error {
	p.leadMu.Lock()
	p.closed = true
	if l := p.lead.Swap(nil); l != nil {
		l.end()
	}
	p.leadMu.Unlock()
	p.wake()
	if p.kept != nil {
		p.led(p)
	}
	err := p.group.Close(ctx)
	p.wg.Wait()
	return err
}

func (p *Partition) groupID() rpc.GroupID { return rpc.GroupID{Topic: p.id, Partition: p.number} }
