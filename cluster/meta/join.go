package meta

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"gopherlog/cluster/meta/metapb"
	"gopherlog/cluster/rpc"

	"google.golang.org/protobuf/proto"
)

const methodHello = "meta.hello"

// helloTimeout bounds how long a silent peer holds up one round of questions.
const helloTimeout = time.Second

// handleHello answers what this data directory knows, also before the control group is open.
func (c *Controller) handleHello(context.Context, NodeID, []byte) ([]byte, error) {
	id := c.cfg.Identity
	a := &metapb.HelloResponse{
		Node: int32(id.Node()), ServerId: string(id.ServerID()), ClusterId: id.ClusterID(), Founders: serversToPB(id.Founders()),
	}
	if ctl := c.controlGroup(); ctl != nil {
		a.ControlLeader = string(ctl.Leader())
	}
	return proto.Marshal(a)
}

func (c *Controller) hello(ctx context.Context, to NodeID) (*metapb.HelloResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	raw, err := proto.Marshal(&metapb.HelloRequest{Node: int32(c.self.ID), ServerId: string(c.self.ServerID())})
	if err != nil {
		return nil, err
	}
	raw, err = c.cfg.Node.Call(ctx, to, methodHello, raw)
	if err != nil {
		return nil, err
	}
	var a metapb.HelloResponse
	if err := proto.Unmarshal(raw, &a); err != nil {
		return nil, fmt.Errorf("decode hello of node %d: %w", to, err)
	}
	if NodeID(a.Node) != to {
		return nil, fmt.Errorf("node %d answers at the address of node %d: check -peers", a.Node, to)
	}
	return &a, nil
}

// settle asks the peers until the node belongs to a cluster: the one that some peer knows, or, if all answer and none knows any, a
// new one that the lowest id founds and the others then learn of from it. Whether a peer is a member is not asked: -peers only says
// where to dial. The error is that the controller closed.
func (c *Controller) settle() error {
	for {
		answers := c.askAll()
		found, err := decide(c.self.ServerID(), len(c.cfg.Node.Peers()), answers)
		switch {
		case err != nil:
			c.note(err)
		case found.cluster != "":
			err = c.cfg.Identity.Adopt(found.cluster, found.founders)
		case found.founders != nil:
			err = c.found(found.founders)
		}
		if err == nil && c.cfg.Identity.ClusterID() != "" {
			return nil
		}
		if !c.pause(retryPause) {
			return ErrClosed
		}
	}
}

func (c *Controller) askAll() []*metapb.HelloResponse {
	peers := slices.Sorted(maps.Keys(c.cfg.Node.Peers()))
	answers := make([]*metapb.HelloResponse, len(peers))
	var wg sync.WaitGroup
	for i, id := range peers {
		wg.Go(func() {
			a, err := c.hello(c.ctx, id)
			if err != nil {
				c.log.Debug("peer does not answer", "peer", id, "error", err)
			}
			answers[i] = a
		})
	}
	wg.Wait()
	return slices.DeleteFunc(answers, func(a *metapb.HelloResponse) bool { return a == nil })
}

// finding is what a fresh node makes of its peers' answers: a cluster to join, founders to found one with, or nothing yet.
type finding struct {
	cluster  string
	founders []rpc.ServerID
}

// decide is the rule by which three empty disks become one cluster and a wiped disk never becomes a second one.
func decide(self rpc.ServerID, peers int, answers []*metapb.HelloResponse) (finding, error) {
	founders := []rpc.ServerID{self}
	var f finding
	for _, a := range answers {
		founders = append(founders, rpc.ServerID(a.ServerId))
		if a.ClusterId == "" {
			continue
		}
		if f.cluster != "" && f.cluster != a.ClusterId {
			return finding{}, fmt.Errorf("%w: peers belong to clusters %s and %s: check -peers", ErrForeignCluster, f.cluster, a.ClusterId)
		}
		f = finding{cluster: a.ClusterId, founders: serversFromPB(a.Founders)}
	}
	slices.SortFunc(founders, func(a, b rpc.ServerID) int { return cmp.Compare(a.Node(), b.Node()) })
	switch {
	case f.cluster != "":
		return f, nil
	case len(answers) < peers || founders[0] != self:
		return finding{}, nil
	default:
		return finding{founders: founders}, nil
	}
}

// found makes a new cluster of these servers; nil: of this node alone.
func (c *Controller) found(founders []rpc.ServerID) error {
	if founders == nil {
		founders = []rpc.ServerID{c.self.ServerID()}
	}
	cluster := newUUID()
	id := base64.RawURLEncoding.EncodeToString(cluster[:])
	c.log.Info("founding a cluster", "cluster", id, "founders", founders)
	return c.cfg.Identity.Adopt(id, founders)
}

// newUUID makes a random UUID. One whose printed form begins with '-' would read as an option on command lines.
func newUUID() (u [16]byte) {
	for {
		rand.Read(u[:])
		u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
		if u[0]>>2 != 62 {
			return u
		}
	}
}
