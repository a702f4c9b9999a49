package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"gopherlog/cluster/replica"
	"gopherlog/cluster/rpc"
	"gopherlog/engine/kv"
	"gopherlog/engine/log"
	"gopherlog/engine/vfs"
	"gopherlog/engine/wire"
)

// electing bounds the wait for leaders.
const electing = 20 * time.Second

// trio is three nodes in this process that talk over loopback TCP, with groups of three replicas; group p is led by node p%3.
type trio struct {
	nodes  [3]trioNode
	groups []*replica.Group // the leaders, by partition
	pool   wire.Pool
}

type trioNode struct {
	db     *kv.DB
	node   *rpc.Node
	logs   []*log.Log
	groups []*replica.Group
}

// silent is a state machine that keeps nothing.
type silent struct{}

func (silent) Apply([]replica.Committed)      {}
func (silent) Snapshot() []byte               { return nil }
func (silent) Restore([]byte, log.Base) error { return nil }

// openTrio returns when every group is led by the node that should lead it. close it, also after an error.
func openTrio(ctx context.Context, dir string, groups int) (*trio, error) {
	t := &trio{}
	var listeners [3]net.Listener
	var servers []rpc.ServerID
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return t, err
		}
		listeners[i], servers = l, append(servers, rpc.MakeServerID(rpc.NodeID(i+1), 1))
	}
	for i := range t.nodes {
		peers := map[rpc.NodeID]string{}
		for j, l := range listeners {
			if j != i {
				peers[rpc.NodeID(j+1)] = l.Addr().String()
			}
		}
		n := &t.nodes[i]
		home := filepath.Join(dir, fmt.Sprint(i+1))
		var err error
		if n.db, err = kv.Open(kv.Config{Dir: filepath.Join(home, "kv")}); err != nil {
			return t, err
		}
		if n.node, err = rpc.New(rpc.Config{Node: rpc.NodeID(i + 1), Listen: listeners[i], Peers: peers}); err != nil {
			return t, err
		}
		n.node.Start()
		for p := range groups {
			if err := n.openGroup(home, p, servers[i], servers); err != nil {
				return t, err
			}
		}
	}
	return t, t.elect(ctx, groups)
}

func (n *trioNode) openGroup(home string, p int, self rpc.ServerID, all []rpc.ServerID) error {
	id := rpc.GroupID{Topic: [16]byte{1}, Partition: int32(p)}
	l, _, err := log.Open(log.Config{
		FS: vfs.OS(), Dir: filepath.Join(home, fmt.Sprintf("t-%d", p)), Sidecar: replica.Sidecar(n.db, id),
		TopicID: id.Topic, Partition: id.Partition, SameBoot: true,
	})
	if err != nil {
		return err
	}
	n.logs = append(n.logs, l)
	g, err := replica.Open(replica.Config{ID: id, Self: self, Bootstrap: all, Log: l, KV: n.db, Node: n.node, FSM: silent{}, BootID: "one"})
	if err != nil {
		return err
	}
	n.groups = append(n.groups, g)
	return nil
}

func (t *trio) elect(ctx context.Context, groups int) error {
	ctx, cancel := context.WithTimeout(ctx, electing)
	defer cancel()
	for p := range groups {
		g := t.nodes[p%3].groups[p]
		for i := 0; !g.Status().Ready; i++ {
			if i%100 == 0 {
				_ = g.Campaign() // refused while the links come up: asked again
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("partition %d found no leader: %w", p, ctx.Err())
			case <-time.After(2 * time.Millisecond):
			}
		}
		t.groups = append(t.groups, g)
	}
	return nil
}

func (t *trio) close() {
	ctx, cancel := context.WithTimeout(context.Background(), electing)
	defer cancel()
	for i := range t.nodes {
		for _, g := range t.nodes[i].groups {
			_ = g.Close(ctx) // the directory is removed next
		}
	}
	for i := range t.nodes {
		n := &t.nodes[i]
		for _, l := range n.logs {
			_ = l.Close()
		}
		if n.node != nil {
			n.node.Close()
		}
		if n.db != nil {
			_ = n.db.Close()
		}
	}
}

// replicate commits ops copies of chunk, spread over all groups, with at most window under way in each.
func (t *trio) replicate(ctx context.Context, chunk []byte, window, ops int) error {
	var left atomic.Int64
	left.Store(int64(ops))
	work, ctx := errgroup.WithContext(ctx)
	for _, g := range t.groups {
		work.Go(func() error { return t.pump(ctx, g, chunk, window, &left) })
	}
	return work.Wait()
}

// pump proposes what fits at once, as the broker's proposer does with what waits. Every batch lies in a pooled buffer of its own, as in
// the broker it lies in its request's; that it is copied there stands for the read of the request.
func (t *trio) pump(ctx context.Context, g *replica.Group, chunk []byte, window int, left *atomic.Int64) error {
	slots := make(chan struct{}, window)
	failed := make(chan error, 1)
	propose := func(term uint64) *replica.Proposal {
		buf := t.pool.Get(len(chunk))
		copy(buf.Bytes(), chunk)
		return &replica.Proposal{Data: buf.Bytes(), Owner: buf, Term: term, Done: func(_ int64, err error) {
			buf.Release()
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
			<-slots
		}}
	}
	term := g.Status().Term
	for more := true; more; {
		var ps []*replica.Proposal
		for len(ps) < window && more {
			if len(ps) == 0 {
				select {
				case slots <- struct{}{}:
				case <-ctx.Done():
					return ctx.Err()
				}
			} else if !tryTake(slots) {
				break
			}
			if left.Add(-1) < 0 {
				<-slots
				more = false
				break
			}
			ps = append(ps, propose(term))
		}
		if len(ps) > 0 {
			if err := g.ProposeBatch(ps); err != nil {
				return err
			}
		}
	}
	for range window {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func tryTake(slots chan struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	default:
		return false
	}
}
