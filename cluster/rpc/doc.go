// Package rpc carries everything that nodes say to each other over one port.
//
// It knows connections, the failure detector, the frames of Raft messages and
// typed calls by name. It refuses to know what a group decides, what an entry
// means, or where a log is stored: those it reaches only through GroupLog and
// the hooks of GroupOptions.
//
// A connection shows by its first bytes what it is. gRPC carries votes,
// pre-votes, heartbeats, pings, TimeoutNow, snapshots, long typed calls and
// all of the control group; one plain TCP stream per peer carries the
// partitions' AppendEntries in frames of its own, with short calls and
// messages between them.
package rpc
