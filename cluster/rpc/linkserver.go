package rpc

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"

	"gopherlog/cluster/rpc/rpcpb"
)

// service is the gRPC face of a Node.
type service struct {
	rpcpb.UnimplementedPeerServer
	node *Node
}

// Link serves a peer's control stream.
func (s *service) Link(stream grpc.BidiStreamingServer[rpcpb.Envelope, rpcpb.Envelope]) error {
	n := s.node
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	h := helloFromProto(first.GetHello())
	if err := n.admit(h); err != nil {
		return toStatus(err)
	}
	mine := n.hello(h.from)
	if err := stream.Send(&rpcpb.Envelope{Hello: mine.proto(), Cluster: mine.cluster}); err != nil {
		return err
	}
	out := newSender(stream.Send, n.cfg.ClusterID)
	ended := make(chan struct{})
	written := make(chan struct{})
	go func() {
		defer close(written)
		out.run(ended) // when it fails, Recv below fails too
	}()
	err = n.serveLink(stream, h.from, out)
	close(ended)
	<-written
	return err
}

func (n *Node) serveLink(stream grpc.BidiStreamingServer[rpcpb.Envelope, rpcpb.Envelope], from NodeID, out *sender) error {
	asm := assembler{limit: n.cfg.MaxEntryBytes + envelopeBytes}
	ctx, cancel := context.WithCancel(stream.Context())
	calls := newCallServer(ctx, n, from, linkAnswers{n, out})
	defer calls.wg.Wait()
	defer cancel()
	for {
		env, err := stream.Recv()
		if err != nil {
			return err
		}
		mine := n.cfg.ClusterID()
		if mine != "" && env.GetCluster() != "" && mine != env.GetCluster() {
			return toStatus(ErrForeignCluster)
		}
		serving := env.GetCluster() == mine
		for _, m := range env.GetMessages() {
			if f := m.GetFragment(); f != nil {
				if m, err = asm.add(f); err != nil {
					return toStatus(err)
				}
				if m == nil {
					continue
				}
			}
			if c := m.GetSmallCall(); c != nil {
				if m.GetId() == 0 {
					n.told(from, c.GetMethod(), c.GetData())
					continue
				}
				calls.take(note{m.GetId(), c.GetMethod(), c.GetData(), time.Duration(c.GetPatience())})
				continue
			}
			n.serveMessage(out, from, m, serving)
		}
	}
}

// serveMessage handles one message without waiting for anything.
func (n *Node) serveMessage(out *sender, from NodeID, m *rpcpb.Message, serving bool) {
	switch body := m.GetBody().(type) {
	case *rpcpb.Message_Ping:
		r := n.report()
		out.enqueue(&rpcpb.Message{Id: m.GetId(), Body: &rpcpb.Message_Pong{
			Pong: &rpcpb.Pong{Dead: r.dead, Incarnation: r.incarnation, Order: r.order},
		}}, true)
		if p := n.peer(from); p != nil {
			p.took(report{body.Ping.GetDead(), body.Ping.GetIncarnation(), body.Ping.GetOrder()})
		}
	case *rpcpb.Message_Heartbeats:
		n.beaten(out, body.Heartbeats, serving)
	case *rpcpb.Message_Append:
		n.answerTo(out, m.GetId(), n.appendOverLink(out, m.GetId(), body.Append, serving))
	case *rpcpb.Message_Vote:
		n.answerTo(out, m.GetId(), n.voteAsked(out, m.GetId(), body.Vote, serving))
	case *rpcpb.Message_TimeoutNow:
		n.answerTo(out, m.GetId(), n.campaignAsked(out, m.GetId(), body.TimeoutNow, serving))
	}
}

// answerTo sends a failure unless err is nil.
func (n *Node) answerTo(out *sender, id uint64, err error) {
	if err == nil {
		return
	}
	c, text := toCode(err)
	out.send(&rpcpb.Message{Id: id, Body: &rpcpb.Message_Failure{
		Failure: &rpcpb.Failure{Code: uint32(c), Text: text},
	}})
}

// receiver finds the group that a message is for.
func (n *Node) receiver(t *rpcpb.Target, serving bool) (*group, error) {
	id, ok := decodeGroupID(t.GetGroup())
	if !ok {
		return nil, ErrCorrupt
	}
	return n.receiverOf(id, []byte(t.GetTo()), serving)
}

// receiverOf never creates a group: a node that does not hold it, or holds
// another incarnation of the replica, says so.
func (n *Node) receiverOf(id GroupID, to []byte, serving bool) (*group, error) {
	if !serving {
		return nil, ErrUnknownGroup
	}
	g := n.group(id)
	switch {
	case g == nil:
		return nil, ErrUnknownGroup
	case string(g.self) != string(to):
		return nil, ErrStaleServer
	case g.stalled.Load():
		return nil, ErrStalled
	}
	return g, nil
}

func (n *Node) appendOverLink(out *sender, id uint64, m *rpcpb.Append, serving bool) error {
	g, err := n.receiver(m.GetTarget(), serving)
	if err != nil {
		return err
	}
	leader, leaderBytes := g.intern([]byte(m.GetTarget().GetFrom()))
	req := &raft.AppendEntriesRequest{
		RPCHeader:    raft.RPCHeader{ProtocolVersion: raftProtocol, ID: leaderBytes, Addr: leaderBytes},
		Term:         m.GetTerm(),
		PrevLogEntry: m.GetPrevIndex(), PrevLogTerm: m.GetPrevTerm(),
		LeaderCommitIndex: min(m.GetCommit(), m.GetPrevIndex()+uint64(len(m.GetEntries()))),
	}
	for _, e := range m.GetEntries() {
		l := &raft.Log{
			Index: e.GetIndex(), Term: e.GetTerm(), Type: raft.LogType(e.GetType()),
			Data: e.GetData(), Extensions: e.GetExtensions(), AppendedAt: fromUnixNano(e.GetAppendedAt()),
		}
		if want := m.GetPrevIndex() + uint64(len(req.Entries)) + 1; l.Index != want {
			return ErrCorrupt
		}
		if g.opts.Verify != nil && isData(l) {
			if err := g.opts.Verify(l.Data); err != nil {
				return &remoteError{ErrCorrupt, err.Error()}
			}
		}
		req.Entries = append(req.Entries, l)
	}
	if err := n.cfg.Failpoints.Hit(failReceiveAppend); err != nil {
		return err
	}
	g.followed(req.Term)
	if g.opts.LeaderEnd != nil {
		g.opts.LeaderEnd(leader, req.Term, m.GetLastIndex())
	}
	return g.deliver(req, nil, consumerDepth, answerFunc(func(r raft.RPCResponse) {
		resp, _ := r.Response.(*raft.AppendEntriesResponse)
		if r.Error != nil || resp == nil {
			n.answerTo(out, id, errOr(r.Error, ErrClosed))
			return
		}
		g.accepted(resp, req, leader)
		if err := n.cfg.Failpoints.Hit(failAnswerAppend); err != nil {
			n.answerTo(out, id, err)
			return
		}
		out.send(&rpcpb.Message{Id: id, Body: &rpcpb.Message_AppendReply{AppendReply: &rpcpb.AppendReply{
			Term: resp.Term, LastLog: resp.LastLog, Success: resp.Success, NoRetryBackoff: resp.NoRetryBackoff,
		}}})
	}))
}

func errOr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// voteAsked handles a vote or pre-vote. A suspect replica grants none.
func (n *Node) voteAsked(out *sender, id uint64, v *rpcpb.Vote, serving bool) error {
	g, err := n.receiver(v.GetTarget(), serving)
	if err != nil {
		return err
	}
	if g.suspect() {
		return ErrSuspect
	}
	from := []byte(v.GetTarget().GetFrom())
	header := raft.RPCHeader{ProtocolVersion: raftProtocol, ID: from, Addr: from}
	var cmd any = &raft.RequestVoteRequest{
		RPCHeader: header, Term: v.GetTerm(),
		LastLogIndex: v.GetLastIndex(), LastLogTerm: v.GetLastTerm(), LeadershipTransfer: v.GetLeadershipTransfer(),
	}
	if v.GetPre() {
		cmd = &raft.RequestPreVoteRequest{
			RPCHeader: header, Term: v.GetTerm(), LastLogIndex: v.GetLastIndex(), LastLogTerm: v.GetLastTerm(),
		}
	}
	return g.deliver(cmd, nil, consumerDepth, answerFunc(func(r raft.RPCResponse) {
		answer := &rpcpb.VoteReply{}
		switch resp := r.Response.(type) {
		case *raft.RequestVoteResponse:
			answer.Term, answer.Granted = resp.Term, resp.Granted
			g.raise(resp.Term)
		case *raft.RequestPreVoteResponse:
			answer.Term, answer.Granted = resp.Term, resp.Granted
		default:
			n.answerTo(out, id, errOr(r.Error, ErrClosed))
			return
		}
		if r.Error != nil {
			n.answerTo(out, id, r.Error)
			return
		}
		if err := n.cfg.Failpoints.Hit(failAnswerVote); err != nil {
			n.answerTo(out, id, err)
			return
		}
		out.send(&rpcpb.Message{Id: id, Body: &rpcpb.Message_VoteReply{VoteReply: answer}})
	}))
}
