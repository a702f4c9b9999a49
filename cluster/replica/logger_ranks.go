package replica

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
	"gopherlog/engine/log"
)

// ranks are the levels of messages that mean less to an operator than the
// library's warning or error says. What is in neither list keeps its level, and
// is what somebody should look at: a disk that fails, a snapshot that cannot be
// taken or read, a request that makes no sense.
var ranks = map[string]slog.Level{
	// A peer is down, slow or cut off. The transport says so once per node ("peer not reached"), not once per group.
	"failed to heartbeat to":                  slog.LevelDebug,
	"failed to appendEntries to":              slog.LevelDebug,
	"failed to pipeline appendEntries":        slog.LevelDebug,
	"failed to start pipeline replication to": slog.LevelDebug,
	"failed to make requestVote RPC":          slog.LevelDebug,
	"failed to contact":                       slog.LevelDebug,

	// Elections, and what a peer is told that is behind, newer or no member any more.
	"heartbeat timeout reached, starting election":                                                                   slog.LevelDebug,
	"Election timeout reached, restarting election":                                                                  slog.LevelDebug,
	"duplicate requestVote from":                                                                                     slog.LevelDebug,
	"rejecting vote request since we have a leader":                                                                  slog.LevelDebug,
	"rejecting vote request since our last index is greater":                                                         slog.LevelDebug,
	"rejecting vote request since our last term is greater":                                                          slog.LevelDebug,
	"rejecting vote request since node is not in configuration":                                                      slog.LevelDebug,
	"rejecting vote request since node is not a voter":                                                               slog.LevelDebug,
	"rejecting pre-vote request since we have a leader":                                                              slog.LevelDebug,
	"rejecting pre-vote request since our last index is greater":                                                     slog.LevelDebug,
	"rejecting pre-vote request since our last term is greater":                                                      slog.LevelDebug,
	"rejecting pre-vote request since node is not in configuration":                                                  slog.LevelDebug,
	"rejecting pre-vote request since node is not a voter":                                                           slog.LevelDebug,
	"no known peers, aborting election":                                                                              slog.LevelDebug,
	"not part of stable configuration, aborting election":                                                            slog.LevelDebug,
	"heartbeat timeout reached, not part of a stable configuration or a non-voter, not triggering a leader election": slog.LevelDebug,

	// A leadership ends: the node that leads next serves what this one did.
	"peer has newer term, stopping replication":        slog.LevelInfo,
	"failed to contact quorum of nodes, stepping down": slog.LevelInfo,
	"new leader elected, stepping down":                slog.LevelInfo,

	// A follower catches up, and what a deposed leader had is replaced.
	"appendEntries rejected, sending older logs": slog.LevelDebug,
	"previous log term mis-match":                slog.LevelDebug,
	"failed to get previous log":                 slog.LevelDebug,
	"clearing log suffix":                        slog.LevelDebug,
	"skipping application of old log":            slog.LevelDebug,

	// Told by the group itself, when it begins and when it ends, and with its name.
	"failed to get log":        slog.LevelDebug,
	"failed to append to logs": slog.LevelDebug,
	"failed to commit logs":    slog.LevelDebug,

	// Tried again until it works; where the peer's disk is at fault, the peer says so at its own level. A deposed leader has
	// no snapshot for a moment.
	"failed to send snapshot to":  slog.LevelWarn,
	"failed to install snapshot":  slog.LevelWarn,
	"installSnapshot rejected to": slog.LevelWarn,
}

// passing are errors that end by themselves: a peer is away or behind, a
// leadership ended, this replica or its node closes. A message about one of
// them is no matter for an operator, whatever the message says.
var passing = []error{
	raft.ErrRaftShutdown, raft.ErrTransportShutdown, raft.ErrPipelineShutdown, raft.ErrPipelineReplicationNotSupported,
	raft.ErrLeadershipLost, raft.ErrNotLeader, raft.ErrLeadershipTransferInProgress, raft.ErrNothingNewToSnapshot,
	rpc.ErrClosed, rpc.ErrDown, rpc.ErrTimeout, rpc.ErrUnknownPeer, rpc.ErrUnknownGroup, rpc.ErrStaleServer, rpc.ErrStalled,
	rpc.ErrSuspect, rpc.ErrStaleTerm, rpc.ErrMayNotCampaign, rpc.ErrBusy, rpc.ErrAborted,
	ErrClosed, errSealed, errDefers, log.ErrClosed, context.Canceled, context.DeadlineExceeded, net.ErrClosed,
}

// rank is the level at which a message of the library is told.
func rank(level slog.Level, msg string, args []any) slog.Level {
	if level < slog.LevelWarn {
		return slog.LevelDebug
	}
	if r, ok := ranks[msg]; ok {
		level = r
	}
	if level > slog.LevelInfo && passes(errorIn(args)) {
		return slog.LevelDebug
	}
	return level
}

// errorIn is the error that a message is about, nil if it names none.
func errorIn(args []any) error {
	for i := 0; i+1 < len(args); i += 2 {
		if err, ok := args[i+1].(error); ok && args[i] == "error" {
			return err
		}
	}
	return nil
}

// passes says whether an error ends by itself. One that another node answered
// has come as a sentence.
func passes(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	for _, p := range passing {
		if errors.Is(err, p) || strings.HasSuffix(text, p.Error()) {
			return true
		}
	}
	return false
}
