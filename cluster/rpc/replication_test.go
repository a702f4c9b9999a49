package rpc_test

import (
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

func TestThreeNodesReplicate(t *testing.T) {
	for name, opts := range map[string]rpc.GroupOptions{
		"over gRPC":         {},
		"over plain stream": {Bulk: true, Suppress: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, testTopic, opts, nil)
				defer c.stop()
				l := c.leader()
				for i, size := range []int{1, 100, 16 << 10, 70 << 10, 1 << 20, 3 << 20} {
					c.apply(l, payload(i, size))
				}
				c.converge()
				for _, r := range c.replicas {
					if r == l {
						continue
					}
					if got, _ := c.nodes[l.id.Node()].Match(testTopic, r.id); got != l.raft.LastIndex() {
						t.Errorf("match of %s is %d, want %d", r.id, got, l.raft.LastIndex())
					}
				}
				_ = raft.Leader
			})
		})
	}
}
