package rpc

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"

	"gopherlog/cluster/rpc/rpcpb"
)

const (
	snapshotChunk = 256 << 10
	// snapshotTimeout bounds one installation: a base of its own plus the time
	// that its bytes need at snapshotRate.
	snapshotTimeout = 30 * time.Second
	snapshotRate    = 1 << 20 // bytes a second, at least
)

// InstallSnapshot sends a snapshot and waits until the peer has restored it.
func (g *group) InstallSnapshot(_ raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	to := ServerID(target)
	p := g.node.peer(to.Node())
	if p == nil {
		return &remoteError{ErrUnknownPeer, "rpc: no address for " + string(to)}
	}
	if err := g.mayLead(args.Term); err != nil {
		return err
	}
	if err := g.node.cfg.Failpoints.Hit(failSendSnapshot); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), snapshotTimeout+time.Duration(args.Size/snapshotRate)*time.Second)
	defer cancel()
	release := g.cancelOnAbort(cancel)
	defer release()
	l, err := p.awaitLink(ctx)
	if err != nil {
		return err
	}
	stream, err := rpcpb.NewPeerClient(l.cc).InstallSnapshot(ctx)
	if err != nil {
		return fromStatus(err)
	}
	err = stream.Send(&rpcpb.SnapshotChunk{Header: &rpcpb.SnapshotHeader{
		Hello: g.node.hello(p.id).proto(), Target: g.target(to),
		SnapshotVersion: uint32(args.SnapshotVersion), Term: args.Term,
		LastIndex: args.LastLogIndex, LastTerm: args.LastLogTerm, Peers: args.Peers,
		Configuration: args.Configuration, ConfigurationIndex: args.ConfigurationIndex, Size: args.Size,
	}})
	for err == nil {
		chunk := make([]byte, snapshotChunk)
		var n int
		n, err = io.ReadFull(data, chunk)
		if n > 0 {
			if serr := stream.Send(&rpcpb.SnapshotChunk{Data: chunk[:n]}); serr != nil {
				err = serr
			}
		}
	}
	if err != io.EOF && err != io.ErrUnexpectedEOF { //nolint:errorlint // both come unwrapped
		return fromStatus(err)
	}
	r, err := stream.CloseAndRecv() // io.EOF of Send means: the answer is there already
	if err != nil {
		return fromStatus(err)
	}
	if r.GetSuccess() { // it holds everything up to the snapshot's index
		g.acked(to, &raft.AppendEntriesRequest{Term: args.Term, PrevLogEntry: args.LastLogIndex})
	} else {
		g.refused(to, args.Term)
	}
	*resp = raft.InstallSnapshotResponse{Term: r.GetTerm(), Success: r.GetSuccess()}
	return nil
}

// cancelOnAbort calls cancel when the group is aborted; the returned function
// ends the watch.
func (g *group) cancelOnAbort(cancel context.CancelFunc) (release func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-g.aborted:
			cancel()
		case <-g.node.closing:
			cancel()
		case <-done:
		}
	}()
	return func() { close(done) }
}

// awaitLink waits until p is up or ctx ends.
func (p *peer) awaitLink(ctx context.Context) (*link, error) {
	for {
		l, up := p.current()
		if l != nil {
			return l, nil
		}
		select {
		case <-up:
		case <-p.node.closing:
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, p.downError()
		}
	}
}

// downError is ErrDown with the reason, if the last attempt told one.
func (p *peer) downError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusal == nil {
		return ErrDown
	}
	if errors.Is(p.refusal, ErrForeignCluster) || errors.Is(p.refusal, ErrVersion) || errors.Is(p.refusal, errWrongNode) {
		return p.refusal
	}
	return &remoteError{ErrDown, "rpc: node " + p.id.String() + " is down: " + p.refusal.Error()}
}

// InstallSnapshot receives a snapshot. If our log holds the snapshot's last
// entry already, the leader is told so and nothing is installed: restoring an
// old state would wipe entries that were counted for the leader's majority.
func (s *service) InstallSnapshot(stream grpc.ClientStreamingServer[rpcpb.SnapshotChunk, rpcpb.SnapshotReply]) error {
	n := s.node
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	h := first.GetHeader()
	sender := helloFromProto(h.GetHello())
	if err := n.admit(sender); err != nil {
		return toStatus(err)
	}
	g, err := n.receiver(h.GetTarget(), sender.cluster == n.cfg.ClusterID())
	if err != nil {
		return toStatus(err)
	}
	if g.log != nil && g.log.Contains(h.GetLastIndex(), h.GetLastTerm()) {
		return stream.SendAndClose(&rpcpb.SnapshotReply{Term: h.GetTerm(), Success: true})
	}
	leader, leaderBytes := g.intern([]byte(h.GetTarget().GetFrom()))
	req := &raft.InstallSnapshotRequest{
		RPCHeader:       raft.RPCHeader{ProtocolVersion: raftProtocol, ID: leaderBytes, Addr: leaderBytes},
		SnapshotVersion: raft.SnapshotVersion(h.GetSnapshotVersion()), Term: h.GetTerm(), Leader: leaderBytes,
		LastLogIndex: h.GetLastIndex(), LastLogTerm: h.GetLastTerm(), Peers: h.GetPeers(),
		Configuration: h.GetConfiguration(), ConfigurationIndex: h.GetConfigurationIndex(), Size: h.GetSize(),
	}
	g.followed(req.Term)
	done := make(chan raft.RPCResponse, 1)
	body := &snapshotReader{stream: stream}
	if err := g.deliver(req, body, consumerDepth, answerFunc(func(r raft.RPCResponse) { done <- r })); err != nil {
		return toStatus(err)
	}
	r := <-done // the group reads body, which ends with the stream at the latest
	resp, _ := r.Response.(*raft.InstallSnapshotResponse)
	if r.Error != nil || resp == nil {
		return toStatus(errOr(r.Error, ErrClosed))
	}
	if resp.Success {
		g.observe(req.Term, leader)
	} else {
		g.raise(resp.Term)
	}
	return stream.SendAndClose(&rpcpb.SnapshotReply{Term: resp.Term, Success: resp.Success})
}

// snapshotReader is the data of a snapshot stream.
type snapshotReader struct {
	stream grpc.ClientStreamingServer[rpcpb.SnapshotChunk, rpcpb.SnapshotReply]
	rest   []byte
	err    error
}

func (r *snapshotReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		m, err := r.stream.Recv()
		if err != nil {
			r.err = err // io.EOF at the regular end
			continue
		}
		r.rest = m.GetData()
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
