package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"gopherlog/engine/failpoint"
)

// Config says who this node is and how it reaches the world.
type Config struct {
	// Node is this node's id; must be positive.
	Node NodeID
	// ClusterID returns the cluster that this node belongs to, "" while it
	// belongs to none yet. Nil means always "". Two nodes whose ids are both
	// known and differ refuse each other. Called often; must not block.
	ClusterID func() string
	// Listen is the one listener between nodes; the Node closes it. Nil means
	// that nobody can dial this node.
	Listen net.Listener
	// Dial opens a connection to a peer; nil dials TCP. A source address or a
	// proxy is set here.
	Dial func(ctx context.Context, to NodeID, addr string) (net.Conn, error)
	// Peers maps the other nodes to the addresses where this node dials them.
	Peers map[NodeID]string
	// Now is the clock for ages that Match reports; nil means time.Now.
	Now func() time.Time
	// Logger is quiet when nil.
	Logger *slog.Logger
	// Registerer takes the node's metrics; nil drops them.
	Registerer prometheus.Registerer
	// Failpoints is this node's set; nil never fires.
	Failpoints *failpoint.Set

	PingInterval   time.Duration // default 100 ms
	DeadAfter      time.Duration // floor of the silence after which a peer counts as dead; default 300 ms
	HangUpAfter    time.Duration // silence after which connections are closed and dialled anew; default 1 s
	RedialEvery    time.Duration // longest pause between two dials; default 200 ms
	ConnectTimeout time.Duration // one dial; default 400 ms
	DialTimeout    time.Duration // one dial and its handshake; default 1 s
	BeatEvery      time.Duration // window in which heartbeats to one peer are merged; default 50 ms
	CallTimeout    time.Duration // a typed call whose context has no deadline; default 10 s
	AppendTimeout  time.Duration // an AppendEntries outside of a pipeline, once sent; default 10 s
	VoteTimeout    time.Duration // a vote, parking included, and a heartbeat, once sent; default 2 s
	ReceiveBudget  int64         // bytes of received entries that wait for their groups, node-wide; default 256 MiB
	MaxEntryBytes  int           // one entry on the wire; default 64 MiB + 64 KiB
	Poison         bool          // tests: overwrite buffers when they go back to the pool
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.PingInterval, 100*time.Millisecond)
	def(&c.DeadAfter, 300*time.Millisecond)
	def(&c.HangUpAfter, time.Second)
	def(&c.RedialEvery, 200*time.Millisecond)
	def(&c.ConnectTimeout, 400*time.Millisecond)
	def(&c.DialTimeout, time.Second)
	def(&c.BeatEvery, 50*time.Millisecond)
	def(&c.CallTimeout, 10*time.Second)
	def(&c.AppendTimeout, 10*time.Second)
	def(&c.VoteTimeout, 2*time.Second)
	if c.ReceiveBudget <= 0 {
		c.ReceiveBudget = 256 << 20
	}
	if c.MaxEntryBytes <= 0 {
		c.MaxEntryBytes = 64<<20 + 64<<10
	}
	if c.ClusterID == nil {
		c.ClusterID = func() string { return "" }
	}
	if c.Dial == nil {
		var d net.Dialer
		c.Dial = func(ctx context.Context, _ NodeID, addr string) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Node <= 0 {
		errs = append(errs, fmt.Errorf("node id is %d, want a positive number", c.Node))
	}
	for id, addr := range c.Peers {
		if id <= 0 || addr == "" {
			errs = append(errs, fmt.Errorf("peer %d at %q: want a positive id and an address", id, addr))
		}
	}
	return errors.Join(errs...)
}

// GroupLog is what the transport reads of a group's log. All methods may be
// called from any goroutine.
type GroupLog interface {
	// Entries returns whole entries of [lo, hi) up to maxBytes of data, at
	// least one if lo is held, read while no truncation happens in between.
	// Their bytes stay unchanged until the entries are garbage.
	Entries(lo, hi uint64, maxBytes int) ([]*raft.Log, error)
	// Term answers for every held entry and for the base before the first.
	Term(index uint64) (uint64, error)
	LastIndex() uint64
	EndOffset() int64
	// Contains says whether the log holds exactly this entry, or has it as its base.
	Contains(index, term uint64) bool
}

// GroupOptions are the switches of one group's transport.
type GroupOptions struct {
	// Bulk sends AppendEntries over the plain stream instead of gRPC.
	Bulk bool
	// Suppress answers empty AppendEntries locally while the peer's pings are
	// fresh. It also refreshes the leader lease: never set it where leases or
	// VerifyLeader matter.
	Suppress bool
	// Rest is, with Suppress, how long such an answer waits, and a heartbeat to a
	// peer that follows: an idle group then has that much less to do. A leader's
	// lease and a follower's patience must be a good deal longer. What is
	// appended meanwhile is not delayed, see GroupTransport.Appended.
	Rest time.Duration
	// InflightBytes is the size to which a request is filled from the log, and
	// cut; it must not be less than what the group admits uncommitted.
	// Default 16 MiB.
	InflightBytes int
	// Suspect, while true, makes the replica refuse votes, pre-votes and
	// campaigns: it may have lost entries that it acknowledged. May be nil.
	Suspect func() bool
	// MayCampaign, when false, refuses TimeoutNow (a draining node, a leader).
	// May be nil.
	MayCampaign func() bool
	// LeaderEnd is told the last index of the leader's log with each
	// AppendEntries or heartbeat that arrives, before the group sees it. Must
	// not block.
	LeaderEnd func(leader ServerID, term, lastIndex uint64)
	// Matched is told when a peer's match index advances. Must not block.
	Matched func(peer ServerID, index uint64)
	// Everywhere is told how much of the log every peer holds that has answered
	// in this term and within two seconds, when that advances. Must not block.
	Everywhere func(index uint64)
	// Accepted is told, on a follower, up to where its log equals that of the
	// leader of term, whenever it answered an AppendEntries with success;
	// heartbeats say nothing about logs. Must not block.
	Accepted func(term, index uint64)
	// Verify checks a received data entry (a command without extensions)
	// before it is handed on. When nil the frame carries a checksum instead;
	// all nodes must agree on whether it is set.
	Verify func(data []byte) error
	// Partial says that an entry which the library read from the log lacks
	// data: the log may hand out heads only where it knows that nobody needs
	// more. Such entries are read again through GroupLog.Entries before they
	// are sent. May be nil.
	Partial func(l *raft.Log) bool
	// Recycle returns receive buffers to the pool once a request has been
	// answered: set it only if the log keeps copies of what it stores.
	Recycle bool
	// Leader answers WhoLeads for this group; nil means the leader last heard
	// of through this transport.
	Leader func() (leader ServerID, term uint64)
}

// GroupTransport is one group's handle. Close detaches that group only.
type GroupTransport interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
	// Abort fails every call of the group that is under way, parked or yet to
	// come. Call it between Raft.Shutdown() and waiting for its future, since
	// that waits for calls.
	Abort()
	// Appended says that the log has grown: nothing rests any more. It must be
	// called once LastIndex answers with the new entry; it is cheap.
	Appended()
	// Resign fails the requests of a term that this replica led and gives up,
	// parked ones too. What it sends in a higher term is not affected.
	Resign(term uint64)
}

// Errors that callers branch on.
var (
	ErrClosed         = errors.New("rpc: closed")
	ErrDown           = errors.New("rpc: peer is down")
	ErrTimeout        = errors.New("rpc: peer does not answer")
	ErrUnknownPeer    = errors.New("rpc: unknown peer")
	ErrUnknownGroup   = errors.New("rpc: peer does not hold this group")
	ErrStaleServer    = errors.New("rpc: peer holds another incarnation of this replica")
	ErrUnknownMethod  = errors.New("rpc: unknown method")
	ErrForeignCluster = errors.New("rpc: peer belongs to another cluster")
	ErrVersion        = errors.New("rpc: peer speaks another version")
	ErrStalled        = errors.New("rpc: group is stalled")
	ErrSuspect        = errors.New("rpc: replica may have lost entries and must not campaign")
	ErrStaleTerm      = errors.New("rpc: a newer leader is known")
	ErrMayNotCampaign = errors.New("rpc: replica may not campaign now")
	ErrBusy           = errors.New("rpc: group does not keep up")
	ErrAborted        = errors.New("rpc: group is shutting down")
	ErrCorrupt        = errors.New("rpc: damaged frame")
)
