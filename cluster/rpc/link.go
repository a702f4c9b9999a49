package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"gopherlog/cluster/rpc/rpcpb"
)

const grpcWindow = 1 << 20

// expecter takes the reply to one message on a link, or the reason why none
// will come. Called once, on the link's reading goroutine or its closer's.
type expecter interface {
	reply(*rpcpb.Message, error)
}

// link is one gRPC connection to a peer with its control stream.
type link struct {
	peer   *peer
	cc     *grpc.ClientConn
	stream rpcpb.Peer_LinkClient
	cancel context.CancelFunc
	out    *sender
	wg     sync.WaitGroup
	closed chan struct{}

	mu       sync.Mutex
	expected map[uint64]expecter
	pings    map[uint64]time.Time
	beats    []sentBeat // in order of sending
	err      error
}

// dialLink connects and exchanges hellos.
func (p *peer) dialLink(ctx context.Context) (*link, error) {
	n := p.node
	p.mu.Lock()
	addr := p.addr
	p.mu.Unlock()
	dctx, cancelDial := context.WithTimeout(ctx, n.cfg.DialTimeout)
	defer cancelDial()
	conn, err := n.dial(dctx, p.id, addr)
	if err != nil {
		return nil, err
	}
	cc, err := clientConn(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	lctx, cancel := context.WithCancel(ctx)
	stopDial := context.AfterFunc(dctx, cancel) // ends the handshake, too
	stream, err := p.greet(lctx, cc, addr)
	if !stopDial() && err == nil {
		err = dctx.Err()
	}
	if err != nil {
		cancel()
		cc.Close()
		conn.Close()
		return nil, err
	}
	return p.newLink(cc, stream, cancel), nil
}

// greet opens the stream and exchanges hellos on it. Who answers must be the peer, and one that this node admits.
func (p *peer) greet(ctx context.Context, cc *grpc.ClientConn, addr string) (rpcpb.Peer_LinkClient, error) {
	stream, err := rpcpb.NewPeerClient(cc).Link(ctx)
	if err != nil {
		return nil, fromStatus(err)
	}
	h := p.node.hello(p.id)
	if err := stream.Send(&rpcpb.Envelope{Hello: h.proto(), Cluster: h.cluster}); err != nil {
		_, err = stream.Recv() // says why
		return nil, fromStatus(err)
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, fromStatus(err)
	}
	answer := helloFromProto(first.GetHello())
	if answer.from != p.id {
		return nil, &remoteError{errWrongNode, fmt.Sprintf("rpc: node %d answers at %s, want node %d: check the addresses in -peers", answer.from, addr, p.id)}
	}
	return stream, p.node.admit(answer)
}

// newLink takes over a stream on which hellos were exchanged; cancel ends it.
func (p *peer) newLink(cc *grpc.ClientConn, stream rpcpb.Peer_LinkClient, cancel context.CancelFunc) *link {
	l := &link{
		peer: p, cc: cc, stream: stream, cancel: cancel, closed: make(chan struct{}),
		expected: make(map[uint64]expecter), pings: make(map[uint64]time.Time),
	}
	l.out = newSender(stream.Send, p.node.cfg.ClusterID)
	l.wg.Go(l.read)
	l.wg.Go(func() {
		if err := l.out.run(l.closed); err != nil {
			l.close(fromStatus(err))
		}
	})
	return l
}

func (n *Node) dial(ctx context.Context, to NodeID, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.ConnectTimeout)
	defer cancel()
	return n.cfg.Dial(ctx, to, addr)
}

// clientConn speaks gRPC over a connection that is dialled already; it never
// dials again.
func clientConn(conn net.Conn) (*grpc.ClientConn, error) {
	var once sync.Once
	return grpc.NewClient("passthrough:///peer",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (c net.Conn, err error) {
			err = errors.New("the connection is gone")
			once.Do(func() { c, err = conn, nil })
			return c, err
		}),
		grpc.WithIdleTimeout(0),
		grpc.WithInitialWindowSize(grpcWindow),
		grpc.WithInitialConnWindowSize(4*grpcWindow),
		grpc.WithDisableServiceConfig(),
	)
}

// fromStatus turns a gRPC status into our errors; the refusals of a handshake
// travel as codes in its message.
func fromStatus(err error) error {
	st, ok := status.FromError(err)
	if !ok || err == nil {
		return err
	}
	var c int
	var text string
	if st.Code() == codes.FailedPrecondition {
		if n, _ := fmt.Sscanf(st.Message(), "code %d: ", &c); n == 1 {
			text = st.Message()[len(fmt.Sprintf("code %d: ", c)):]
			return fromCode(code(c), text)
		}
	}
	if st.Code() == codes.Unavailable {
		return &remoteError{ErrDown, "rpc: peer is down: " + st.Message()}
	}
	return err
}

// toStatus is the other direction.
func toStatus(err error) error {
	c, _ := toCode(err)
	return status.Error(codes.FailedPrecondition, fmt.Sprintf("code %d: %s", c, err.Error()))
}

func (l *link) close(err error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	if err == nil {
		err = ErrDown
	}
	l.err = err
	left := l.expected
	l.expected = nil
	close(l.closed)
	l.mu.Unlock()
	l.cancel()
	for _, e := range left {
		e.reply(nil, ErrDown)
	}
}

// wait returns when the link's goroutines have ended.
func (l *link) wait() {
	l.cc.Close()
	l.wg.Wait()
}

func (l *link) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// expect registers who takes the reply with this id.
func (l *link) expect(id uint64, e expecter) {
	l.mu.Lock()
	if l.err == nil {
		l.expected[id] = e
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	e.reply(nil, ErrDown)
}

// unexpect withdraws; false when the reply is being delivered.
func (l *link) unexpect(id uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.expected[id]
	delete(l.expected, id)
	return ok
}

func (l *link) send(m *rpcpb.Message) {
	if err := l.out.send(m); err != nil {
		l.close(err)
	}
}

// ping sends one ping with the list of whom we take for dead.
func (l *link) ping() {
	l.sweepBeats()
	id := l.peer.node.nextID()
	now := time.Now()
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	for old, at := range l.pings {
		if now.Sub(at) > 10*l.peer.node.cfg.HangUpAfter {
			delete(l.pings, old)
		}
	}
	l.pings[id] = now
	l.mu.Unlock()
	r := l.peer.node.report()
	l.out.enqueue(&rpcpb.Message{Id: id, Body: &rpcpb.Message_Ping{
		Ping: &rpcpb.Ping{Dead: r.dead, Incarnation: r.incarnation, Order: r.order},
	}}, true)
}

// read dispatches replies until the stream ends.
func (l *link) read() {
	asm := assembler{limit: l.peer.node.cfg.MaxEntryBytes + envelopeBytes}
	for {
		env, err := l.stream.Recv()
		if err != nil {
			l.close(fromStatus(err))
			return
		}
		for _, m := range env.GetMessages() {
			if f := m.GetFragment(); f != nil {
				if m, err = asm.add(f); err != nil {
					l.close(err)
					return
				}
				if m == nil {
					continue
				}
			}
			l.dispatch(m)
		}
	}
}

func (l *link) dispatch(m *rpcpb.Message) {
	if pong := m.GetPong(); pong != nil {
		l.mu.Lock()
		at, ok := l.pings[m.GetId()]
		delete(l.pings, m.GetId())
		l.mu.Unlock()
		if ok {
			l.peer.ponged(time.Since(at), report{pong.GetDead(), pong.GetIncarnation(), pong.GetOrder()})
		}
		return
	}
	if rs := m.GetHeartbeatReplies(); rs != nil {
		for _, r := range rs.GetReplies() {
			if e := l.taken(r.GetId()); e != nil {
				e.reply(&rpcpb.Message{Body: &rpcpb.Message_HeartbeatReplies{
					HeartbeatReplies: &rpcpb.HeartbeatReplies{Replies: []*rpcpb.HeartbeatReply{r}},
				}}, nil)
			}
		}
		return
	}
	if e := l.taken(m.GetId()); e != nil {
		e.reply(m, nil)
	}
}

func (l *link) taken(id uint64) expecter {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.expected[id]
	delete(l.expected, id)
	return e
}
