package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fake starts a cluster in memory, and a session that speaks to it.
func fake(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, *session) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, &session{ctx: t.Context(), addr: c.ListenAddrs(), timeout: time.Minute}
}

// A leader that does not answer may be one that there is none of.
func TestSilentLeadersAreExplainedByThePartitionsThatNobodyLeads(t *testing.T) {
	c, s := fake(t, kfake.SeedTopics(2, "orders"))
	admin, err := s.admin()
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "orders", Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1})
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	s.timeout = 0 // no election is waited for
	for name, ctx := range map[string]context.Context{"the time is over": late, "the partition says so": t.Context()} {
		_, err := s.listOffsets(ctx, admin, "orders", func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return kadm.ListedOffsets{"orders": {1: {Topic: "orders", Partition: 1, Err: kerr.LeaderNotAvailable}}}, nil
		})
		if err == nil || !strings.HasPrefix(err.Error(), "ask for the offsets of orders: nobody leads orders[1]") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A coordinator that does not answer within the time may be one that there is none of: then the shard that nobody leads is named.
func TestASilentGroupCoordinatorIsExplainedByTheShardsThatNobodyLeads(t *testing.T) {
	c, s := fake(t, kfake.SeedTopics(2, "orders", groupShards[0]))
	admin, err := s.admin()
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: groupShards[0], Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1})
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	set := kadm.TopicsSet{}
	set.Add("orders", 0)
	for doing, ask := range map[string]func() error{
		"ask for the offsets of group billing": func() error { _, err := s.offsetsOf(late, admin, "billing"); return err },
		"delete offsets of group billing":      func() error { return s.deleteOffsets(late, admin, "billing", set) },
		"reset group billing":                  func() error { return s.commit(late, admin, "billing", []offsetMove{{Topic: "orders"}}) },
	} {
		if err := ask(); err == nil || !strings.HasPrefix(err.Error(), doing+": nobody leads __consumer_offsets[1]") {
			t.Errorf("%s: %v", doing, err)
		}
	}
}
