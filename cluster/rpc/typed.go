package rpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"gopherlog/cluster/rpc/rpcpb"
)

const (
	chunkBytes   = 1 << 20
	maxCallBytes = 64 << 20    // of one body
	callGrace    = time.Second // how long a typed call waits for a peer that is down
)

// Handler answers typed calls. ctx ends with the caller's patience or with
// this node. req may be kept.
type Handler func(ctx context.Context, from NodeID, req []byte) ([]byte, error)

// Handle serves method with h; nil stops serving it. It may be called at any
// time.
func (n *Node) Handle(method string, h Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h == nil {
		delete(n.handlers, method)
		return
	}
	n.handlers[method] = h
}

func (n *Node) handler(method string) (Handler, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if h := n.handlers[method]; h != nil {
		return h, nil
	}
	return nil, &remoteError{ErrUnknownMethod, fmt.Sprintf("rpc: node %d does not serve %q", n.cfg.Node, method)}
}

// Call asks another node, or this one, and returns its answer. Errors of the
// handler come back as text, and still compare as the sentinels of this
// package. ErrDown means that the peer was not reached within a second, or
// that the connection broke: then the call may have been served. A call is
// never repeated.
func (n *Node) Call(ctx context.Context, to NodeID, method string, req []byte) ([]byte, error) {
	return n.callWithin(ctx, callGrace, to, method, req)
}

// CallUp is Call for who hears of it when another node is to be asked: it does
// not wait for a peer that is down, which is ErrDown at once.
func (n *Node) CallUp(ctx context.Context, to NodeID, method string, req []byte) ([]byte, error) {
	return n.callWithin(ctx, 0, to, method, req)
}

func (n *Node) callWithin(ctx context.Context, grace time.Duration, to NodeID, method string, req []byte) ([]byte, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, n.cfg.CallTimeout)
		defer cancel()
	}
	if to == n.cfg.Node {
		h, err := n.handler(method)
		if err != nil {
			return nil, err
		}
		return h(ctx, to, req)
	}
	p := n.peer(to)
	if p == nil {
		return nil, &remoteError{ErrUnknownPeer, fmt.Sprintf("rpc: no address for node %d", to)}
	}
	l, err := p.linkWithin(ctx, grace)
	if err != nil {
		return nil, err
	}
	if len(req) <= maxSmallCall {
		if s := p.plain(); s != nil {
			if answer, err, went := s.call(ctx, method, req); went {
				return answer, err
			}
		}
		return l.call(ctx, method, req)
	}
	return n.callInChunks(ctx, l, to, method, req)
}

// linkWithin is the link to the peer, which is waited for while it is down.
func (p *peer) linkWithin(ctx context.Context, grace time.Duration) (*link, error) {
	l, _ := p.current()
	switch {
	case l != nil:
		return l, nil
	case grace == 0:
		return nil, p.downError()
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	return p.awaitLink(ctx)
}

// callInChunks gives a call a stream of its own.
func (n *Node) callInChunks(ctx context.Context, l *link, to NodeID, method string, req []byte) ([]byte, error) {
	cctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := rpcpb.NewPeerClient(l.cc).Call(cctx)
	if err != nil {
		return nil, fromStatus(err)
	}
	first := &rpcpb.Chunk{Hello: n.hello(to).proto(), Method: method}
	err = sendChunks(stream.Send, first, req)
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil && err != io.EOF { //nolint:errorlint // io.EOF: the answer is there already
		return nil, fromStatus(err)
	}
	_, answer, err := receiveChunks(stream.Recv)
	if err != nil {
		return nil, fromStatus(err)
	}
	return answer, nil
}

// sendChunks sends body in pieces, the first inside of first.
func sendChunks(send func(*rpcpb.Chunk) error, first *rpcpb.Chunk, body []byte) error {
	if len(body) > maxCallBytes {
		return fmt.Errorf("rpc: body of %d bytes, at most %d", len(body), maxCallBytes)
	}
	for {
		n := min(len(body), chunkBytes)
		first.Data, body = body[:n], body[n:]
		if err := send(first); err != nil {
			return err
		}
		if len(body) == 0 {
			return nil
		}
		first = &rpcpb.Chunk{}
	}
}

// receiveChunks reads a body to its end.
func receiveChunks(recv func() (*rpcpb.Chunk, error)) (first *rpcpb.Chunk, body []byte, err error) {
	for {
		c, err := recv()
		if err == io.EOF && first != nil { //nolint:errorlint // gRPC returns it unwrapped
			return first, body, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if f := c.GetFailure(); f != nil {
			return nil, nil, fromCode(code(f.GetCode()), f.GetText())
		}
		if len(body)+len(c.GetData()) > maxCallBytes {
			return nil, nil, fmt.Errorf("rpc: body above %d bytes", maxCallBytes)
		}
		if first == nil {
			first, body = c, c.GetData()
			continue
		}
		body = append(body, c.GetData()...)
	}
}

// Call serves one typed call.
func (s *service) Call(stream grpc.BidiStreamingServer[rpcpb.Chunk, rpcpb.Chunk]) error {
	first, body, err := receiveChunks(stream.Recv)
	if err != nil {
		return err
	}
	from := helloFromProto(first.GetHello())
	if err := s.node.admit(from); err != nil {
		return toStatus(err)
	}
	answer, err := s.node.serveCall(stream.Context(), from.from, first.GetMethod(), body)
	if err != nil {
		c, text := toCode(err)
		return stream.Send(&rpcpb.Chunk{Failure: &rpcpb.Failure{Code: uint32(c), Text: text}})
	}
	return sendChunks(stream.Send, &rpcpb.Chunk{}, answer)
}

func (n *Node) serveCall(ctx context.Context, from NodeID, method string, req []byte) ([]byte, error) {
	h, err := n.handler(method)
	if err != nil {
		return nil, err
	}
	return h(ctx, from, req)
}

// Leadership says who leads a group as far as one node knows.
type Leadership struct {
	Group  GroupID
	Leader ServerID // "" when none is known
	Term   uint64
}

const whoLeadsMethod = "rpc.who-leads"

// absentGroup stands for the length of the leader of a group that is not held.
const absentGroup = 0xFF

// WhoLeads asks a node for the leaders of many groups at once. Groups that the
// node does not hold are missing from the answer.
func (n *Node) WhoLeads(ctx context.Context, to NodeID, groups []GroupID) ([]Leadership, error) {
	req := make([]byte, 0, len(groups)*groupIDSize)
	for _, g := range groups {
		req = g.append(req)
	}
	b, err := n.Call(ctx, to, whoLeadsMethod, req)
	if err != nil {
		return nil, err
	}
	out := make([]Leadership, 0, len(groups))
	for _, g := range groups {
		if len(b) > 0 && b[0] == absentGroup {
			b = b[1:]
			continue
		}
		if len(b) < 9 || len(b) < 9+int(b[0]) {
			return nil, fmt.Errorf("%w: answer to WhoLeads", ErrCorrupt)
		}
		end := 9 + int(b[0])
		out = append(out, Leadership{Group: g, Term: binary.BigEndian.Uint64(b[1:]), Leader: ServerID(b[9:end])})
		b = b[end:]
	}
	return out, nil
}

func (n *Node) answerWhoLeads(_ context.Context, _ NodeID, req []byte) ([]byte, error) {
	var out []byte
	for len(req) >= groupIDSize {
		id, _ := decodeGroupID(req[:groupIDSize])
		req = req[groupIDSize:]
		g := n.group(id)
		if g == nil {
			out = append(out, absentGroup)
			continue
		}
		l := g.leader()
		out = append(out, byte(len(l.Leader)))
		out = binary.BigEndian.AppendUint64(out, l.Term)
		out = append(out, l.Leader...)
	}
	return out, nil
}

// leader is what this node knows of the group's leader.
func (g *group) leader() Leadership {
	l := Leadership{Group: g.id}
	if g.opts.Leader != nil {
		l.Leader, l.Term = g.opts.Leader()
	} else {
		o := g.observation()
		l.Leader, l.Term = o.leader, o.term
	}
	if len(l.Leader) >= absentGroup {
		l.Leader = "" // no id of ours is that long
	}
	return l
}
