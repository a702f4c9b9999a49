package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// nodeStatus is what GET /status answers.
type nodeStatus struct {
	Node    int32             `json:"node"`
	Server  string            `json:"server"`
	Cluster string            `json:"cluster"`
	Version string            `json:"version"`
	Ready   bool              `json:"ready"`
	Reasons []string          `json:"reasons,omitempty"`
	Failed  map[string]string `json:"failed,omitempty"`  // replicas out of service, by directory, and why
	Suspect []string          `json:"suspect,omitempty"` // replicas that may have lost data in a power loss and do not vote
	Dead    []int32           `json:"dead,omitempty"`    // nodes that this one does not hear
}

func (n *node) status() any {
	s := nodeStatus{Node: n.cfg.flags.ID, Server: string(n.data.identity.ServerID()), Cluster: n.data.identity.ClusterID(), Version: version, Reasons: n.notReady()}
	s.Ready = len(s.Reasons) == 0
	partitions := n.opened.Load()
	if partitions == nil {
		return s
	}
	s.Failed = map[string]string{}
	for dir, err := range partitions.Failed() {
		s.Failed[dir] = err.Error()
	}
	for _, p := range partitions.All() {
		if p.Status().Suspect {
			s.Suspect = append(s.Suspect, partitions.DirName(p.Topic(), p.Number()))
		}
	}
	slices.Sort(s.Suspect)
	for _, id := range slices.Sorted(maps.Keys(n.net.Peers())) {
		if !n.net.Alive(id) {
			s.Dead = append(s.Dead, int32(id))
		}
	}
	return s
}

// maxDegraded bounds what one answer of the admin port lists.
const maxDegraded = 20

// degraded lists replicas that are out of service; the others of this node serve.
func (n *node) degraded() (what []string) {
	partitions := n.opened.Load()
	if partitions == nil {
		return nil
	}
	failed := partitions.Failed()
	for _, dir := range slices.Sorted(maps.Keys(failed)) {
		if len(what) == maxDegraded {
			return append(what, fmt.Sprintf("and %d others", len(failed)-maxDegraded))
		}
		what = append(what, fmt.Sprintf("replica %s is out of service: %v", dir, failed[dir]))
	}
	return what
}

// recover lets the replicas vote again that may have lost data in a power loss, by the operator's decision.
func (n *node) recover() (int, error) {
	partitions := n.opened.Load()
	if partitions == nil {
		return 0, errors.New("the node is starting: try again")
	}
	return partitions.Recover()
}
