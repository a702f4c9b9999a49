package rpc_test

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
)

func snapshotRequest(index, term uint64, data []byte) *raft.InstallSnapshotRequest {
	return &raft.InstallSnapshotRequest{
		RPCHeader:       raft.RPCHeader{ProtocolVersion: 3, ID: []byte(server1), Addr: []byte(server1)},
		SnapshotVersion: 1, Term: 5, Leader: []byte(server1), LastLogIndex: index, LastLogTerm: term,
		Configuration: []byte("configuration"), ConfigurationIndex: 1, Size: int64(len(data)),
	}
}

func TestSnapshotArrivesWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		g1 := n[1].Group(testTopic, server1, nil, rpc.GroupOptions{})
		g2 := n[2].Group(testTopic, server2, memoryLog{raft.NewInmemStore()}, rpc.GroupOptions{})
		data := payload(1, 3<<20+77)
		got := make(chan []byte, 1)
		go func() {
			r := <-g2.Consumer()
			req := r.Command.(*raft.InstallSnapshotRequest)
			b, err := io.ReadAll(r.Reader)
			if err != nil || req.LastLogIndex != 7 || req.LastLogTerm != 4 || string(req.Configuration) != "configuration" {
				t.Errorf("request %+v, %v", req, err)
			}
			got <- b
			r.Respond(&raft.InstallSnapshotResponse{Term: 5, Success: true}, nil)
		}()
		resp := &raft.InstallSnapshotResponse{}
		if err := g1.InstallSnapshot(server2.Raft(), server2.Address(), snapshotRequest(7, 4, data), resp, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		if !resp.Success || resp.Term != 5 || !bytes.Equal(<-got, data) {
			t.Errorf("answer %+v", resp)
		}
		if match, _ := n[1].Match(testTopic, server2); match != 7 {
			t.Errorf("match %d, want the snapshot's index", match)
		}
	})
}

// The library would wipe a log that goes on behind the snapshot, and with it
// entries that were counted for a majority.
func TestSnapshotOfWhatTheLogHoldsIsAnsweredAndNotInstalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := nodes(t, 2, nil)
		store := raft.NewInmemStore()
		if err := store.StoreLogs([]*raft.Log{{Index: 1, Term: 3}, {Index: 2, Term: 4}, {Index: 3, Term: 4}}); err != nil {
			t.Fatal(err)
		}
		g1 := n[1].Group(testTopic, server1, nil, rpc.GroupOptions{})
		g2 := n[2].Group(testTopic, server2, memoryLog{store}, rpc.GroupOptions{})
		delivered := make(chan uint64, 1)
		go func() {
			r := <-g2.Consumer()
			delivered <- r.Command.(*raft.InstallSnapshotRequest).LastLogTerm
			r.Respond(&raft.InstallSnapshotResponse{Term: 5}, nil)
		}()
		data := payload(1, 3<<20)
		resp := &raft.InstallSnapshotResponse{}
		err := g1.InstallSnapshot(server2.Raft(), server2.Address(), snapshotRequest(2, 4, data), resp, bytes.NewReader(data))
		if err != nil || !resp.Success || len(delivered) != 0 {
			t.Errorf("snapshot of entries that are held: %+v, %v, delivered %d", resp, err, len(delivered))
		}
		err = g1.InstallSnapshot(server2.Raft(), server2.Address(), snapshotRequest(2, 5, data), resp, bytes.NewReader(data))
		if err != nil || resp.Success {
			t.Errorf("snapshot of another history: %+v, %v", resp, err)
		}
		if term := <-delivered; term != 5 {
			t.Errorf("delivered the snapshot of term %d", term)
		}
	})
}
