package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"gopherlog/cluster/rpc/rpcpb"
)

// maxSmallCall is the longest request of a typed call that goes over the plain stream or the link. Longer ones would make others wait.
const maxSmallCall = 64 << 10

// maxServing bounds the small calls of one connection that are served at a time; the peer is told ErrBusy above it.
const maxServing = 1 << 14

// call is a typed call over the link.
func (l *link) call(ctx context.Context, method string, req []byte) ([]byte, error) {
	deadline, _ := ctx.Deadline()
	patience := time.Until(deadline)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	id := l.peer.node.nextID()
	w := &waiter{done: make(chan struct{})}
	l.expect(id, w)
	m := &rpcpb.Message{Id: id, Body: &rpcpb.Message_SmallCall{
		SmallCall: &rpcpb.SmallCall{Method: method, Data: req, Patience: int64(patience)},
	}}
	if err := l.out.send(m); err != nil {
		l.unexpect(id)
		return nil, err
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		l.unexpect(id)
		return nil, ctx.Err()
	}
	switch {
	case w.err != nil:
		return nil, w.err
	case w.m.GetFailure() != nil:
		return nil, fromCode(code(w.m.GetFailure().GetCode()), w.m.GetFailure().GetText())
	}
	return w.m.GetSmallAnswer().GetData(), nil
}

// callServer serves the small calls of one link or plain stream, each on a goroutine; those that have served one wait for the next, with the
// stack that they have grown.
type callServer struct {
	n    *Node
	from NodeID
	ways answering
	ctx  context.Context
	idle chan note     // to goroutines that wait
	room chan struct{} // a token for each call that is served
	wg   sync.WaitGroup
}

// answering is where answers go.
type answering interface {
	answerCall(id uint64, answer []byte, err error)
	refuseCall(id uint64, err error) // does not block
}

func newCallServer(ctx context.Context, n *Node, from NodeID, ways answering) *callServer {
	return &callServer{n: n, from: from, ways: ways, ctx: ctx, idle: make(chan note), room: make(chan struct{}, maxServing)}
}

// take begins to serve a call. It does not block.
func (s *callServer) take(c note) {
	select {
	case s.room <- struct{}{}:
	default:
		s.ways.refuseCall(c.id, ErrBusy)
		return
	}
	select {
	case s.idle <- c:
	default:
		s.wg.Go(func() { s.run(c) })
	}
}

// idleFor is how long a goroutine waits for another call.
const idleFor = 10 * time.Second

func (s *callServer) run(c note) {
	timer := time.NewTimer(idleFor)
	defer timer.Stop()
	for {
		s.serve(c)
		<-s.room
		timer.Reset(idleFor)
		select {
		case c = <-s.idle:
		case <-timer.C:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *callServer) serve(c note) {
	ctx, cancel := context.WithTimeout(s.ctx, c.patience)
	defer cancel()
	answer, err := s.n.serveCall(ctx, s.from, c.method, c.data)
	if err == nil && len(answer) > maxCallBytes {
		err = fmt.Errorf("rpc: answer of %d bytes, at most %d", len(answer), maxCallBytes)
	}
	s.ways.answerCall(c.id, answer, err)
}

// linkAnswers answers the calls of a link.
type linkAnswers struct {
	n   *Node
	out *sender
}

// answerCall does not block. When too much waits on the link the caller hears nothing and gives up.
func (l linkAnswers) answerCall(id uint64, answer []byte, err error) {
	if err != nil {
		l.refuseCall(id, err)
		return
	}
	_ = l.out.send(&rpcpb.Message{Id: id, Body: &rpcpb.Message_SmallAnswer{SmallAnswer: &rpcpb.SmallAnswer{Data: answer}}})
}

func (l linkAnswers) refuseCall(id uint64, err error) { l.n.answerTo(l.out, id, err) }

// tell sends a message that wants no answer over the link: a call without an id.
func (l *link) tell(method string, data []byte) error {
	return l.out.send(&rpcpb.Message{Body: &rpcpb.Message_SmallCall{SmallCall: &rpcpb.SmallCall{Method: method, Data: data}}})
}
