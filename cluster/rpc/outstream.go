package rpc

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"

	"github.com/hashicorp/raft"
)

const (
	streamQueue  = 8 << 20 // bytes that wait on one plain stream before senders do
	replyBuffer  = 16 << 10
	streamBuffer = 64 << 10
)

// outStream is the plain stream to one peer: our requests and short calls, its
// answers.
type outStream struct {
	node   *Node
	conn   net.Conn
	box    *outbox
	closed chan struct{}
	wg     sync.WaitGroup

	mu      sync.Mutex
	pending map[uint64]*call
	asked   map[uint64]*noteWaiter
	err     error
}

// dialStream opens the plain stream that goes with l.
func (p *peer) dialStream(l *link) (*outStream, error) {
	n := p.node
	p.mu.Lock()
	addr := p.addr
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), n.cfg.DialTimeout)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-l.closed:
			cancel()
		case <-stop:
		}
	}()
	conn, err := n.dial(ctx, p.id, addr)
	if err != nil {
		return nil, err
	}
	release := context.AfterFunc(ctx, func() { conn.Close() })
	err = n.greet(conn, p.id)
	if !release() && err == nil {
		err = ErrDown
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	s := &outStream{
		node: n, conn: conn, box: newOutbox(conn, &n.pool, streamQueue, 0),
		closed: make(chan struct{}), pending: make(map[uint64]*call), asked: make(map[uint64]*noteWaiter),
	}
	s.wg.Go(s.read)
	s.wg.Go(s.box.run)
	return s, nil
}

func (s *outStream) close(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	left, asked := s.pending, s.asked
	s.pending, s.asked = nil, nil
	close(s.closed)
	s.mu.Unlock()
	s.box.close(err)
	for _, c := range left {
		c.fail(ErrDown)
	}
	for _, w := range asked {
		w.end(nil, ErrDown)
	}
}

func (s *outStream) wait() { s.wg.Wait() }

// post sends the call in parts. The pieces of one part stay together; parts of
// other calls may come between.
func (s *outStream) post(c *call) error {
	c.id = s.node.nextID()
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return ErrDown
	}
	s.pending[c.id] = c
	s.mu.Unlock()
	// From here on the call may complete at any time, and the library may
	// reuse what c points to: only copies are touched below.
	g, args, loan := c.group, *c.args, c.loan
	err := s.node.cfg.Failpoints.Hit(failSendAppend)
	if err == nil {
		err = s.sendParts(g, string(c.peer), c.id, &args, loan)
	}
	if err != nil {
		s.close(err)
	}
	return nil
}

func (s *outStream) sendParts(g *group, to string, id uint64, args *raft.AppendEntriesRequest, loan *Loan) error {
	h := partHead{
		sums: g.opts.Verify == nil, id: id, group: g.id, term: args.Term,
		prevIndex: args.PrevLogEntry, prevTerm: args.PrevLogTerm,
		commit: args.LeaderCommitIndex, leaderLast: g.lastIndex(),
	}
	entries := args.Entries
	var room [16][]byte
	for {
		n, bodies := cutPart(entries)
		h.last = n == len(entries)
		bufs, head, size := encodePart(&s.node.pool, room[:0], h, string(g.self), to, entries[:n], bodies)
		if err := s.box.send(bufs, head, size, loan); err != nil {
			return err
		}
		s.node.counts.sentParts.Add(1)
		s.node.counts.sentBytes.Add(int64(size))
		if h.last {
			return nil
		}
		h.prevIndex, h.prevTerm = entries[n-1].Index, entries[n-1].Term
		entries = entries[n:]
	}
}

func (s *outStream) take(id uint64) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.pending[id]
	delete(s.pending, id)
	return c
}

func (s *outStream) forget(c *call) bool { return s.take(c.id) != nil }

// read completes calls with the answers that come.
func (s *outStream) read() {
	r := bufio.NewReaderSize(s.conn, replyBuffer)
	var head [replyHeadSize]byte
	for {
		var a reply
		if _, err := io.ReadFull(r, head[:]); err != nil {
			s.close(err)
			return
		}
		if head[0] == 'C' {
			if err := s.answered(head[:], r); err != nil {
				s.close(err)
				return
			}
			continue
		}
		n, err := a.decode(head[:])
		if err == nil && n > 0 {
			text := make([]byte, n)
			_, err = io.ReadFull(r, text)
			a.text = string(text)
		}
		if err != nil {
			s.close(err)
			return
		}
		if c := s.take(a.id); c != nil {
			c.succeed(a)
		}
	}
}
