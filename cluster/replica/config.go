package replica

import (
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

// or fills zero fields from d.
func (t Timers) or(d Timers) Timers {
	pick := func(v *time.Duration, def time.Duration) {
		if *v <= 0 {
			*v = def
		}
	}
	pick(&t.Heartbeat, d.Heartbeat)
	pick(&t.Election, d.Election)
	pick(&t.Lease, d.Lease)
	pick(&t.Commit, d.Commit)
	return t
}

// never is a number of entries that no log reaches.
const never = 1 << 62

// baseConfig is what all groups have in common. RestoreCommittedLogs stays off:
// with it the library skips configuration entries at start.
func baseConfig(self rpc.ServerID, t Timers, logger hclog.Logger) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = self.Raft()
	c.HeartbeatTimeout, c.ElectionTimeout = t.Heartbeat, t.Election
	c.LeaderLeaseTimeout, c.CommitTimeout = t.Lease, t.Commit
	c.MaxAppendEntries, c.BatchApplyCh = maxAppendEntries, true
	c.ShutdownOnRemove = false
	c.NoLegacyTelemetry = true
	c.Logger = logger
	return c
}

// calm are the timers of a partition's group. Whoever has failed is found per
// node, and a replica that cannot lead has another campaign, so they are only
// what remains when a leader's group falls silent for no reason that anybody
// knows. Commit is how soon an idle follower learns the last commit index, and
// how long replication to a peer that was away may wait for the next entry.
var calm = Timers{Heartbeat: 6 * time.Second, Election: 6 * time.Second, Lease: 5 * time.Second, Commit: time.Second}

// rest is how long requests of an idle group may wait: a third of the lease, so
// that a leader hears of its peers twice within it. Followers are as patient.
func (t Timers) rest() time.Duration { return t.Lease / 3 }

// partitionConfig never snapshots or compacts by itself: the group writes
// snapshots at segment ends, and trimming is the partition's.
func partitionConfig(self rpc.ServerID, t Timers, logger hclog.Logger) *raft.Config {
	c := baseConfig(self, t.or(calm), logger)
	c.TrailingLogs, c.SnapshotThreshold = never, never
	c.SnapshotInterval = 24 * time.Hour
	return c
}

// configuration is the founding membership: voters only.
func configuration(ids []rpc.ServerID) raft.Configuration {
	var c raft.Configuration
	for _, id := range ids {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: id.Raft(), Address: id.Address()})
	}
	return c
}

// decodeConfiguration is the library's, without its panic.
func decodeConfiguration(b []byte) (c raft.Configuration, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("undecodable configuration: %v", r)
		}
	}()
	return raft.DecodeConfiguration(b), nil
}
