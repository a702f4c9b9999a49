package rpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

const (
	budgetWait   = time.Second      // how long a stream waits for the receive budget before it refuses a part
	bodyDeadline = 10 * time.Second // from a frame's head to its end
	replyTimeout = 5 * time.Second  // of one write of answers
	// firstBodyBytes is reserved at once: a part of usual size, or one entry of
	// 1 MiB with its batch header, must not be copied when it grows.
	firstBodyBytes = 2 << 20
)

// inStream is the receiving end of a peer's plain stream.
type inStream struct {
	node   *Node
	from   NodeID
	conn   net.Conn
	r      *bufio.Reader
	box    *outbox
	closed chan struct{}
	calls  *callServer

	head [partHeadSize]byte
	rest []byte // ids and table of the part that is being read
}

// arrived is one part on its way through its group. It is the request that the
// library sees, and knows where the answer goes.
type arrived struct {
	raft.AppendEntriesRequest
	group   *group
	leader  ServerID
	stream  *inStream
	id      uint64
	last    bool
	charged int64
	pooled  []byte // goes back to the pool with the answer; nil if the group keeps it
}

// serveStream reads parts until the connection ends.
func (n *Node) serveStream(conn net.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(n.cfg.DialTimeout))
	h, err := readHello(conn)
	if err != nil {
		return
	}
	err = n.admit(h)
	if err == nil && h.cluster != n.cfg.ClusterID() {
		err = &remoteError{ErrForeignCluster, fmt.Sprintf("rpc: node %d does not know yet that it belongs to cluster %q", n.cfg.Node, h.cluster)}
	}
	if _, werr := conn.Write(encodeWelcome(err)); werr != nil || err != nil {
		return
	}
	conn.SetDeadline(time.Time{})
	s := &inStream{
		node: n, from: h.from, conn: conn, r: bufio.NewReaderSize(conn, streamBuffer),
		box: newOutbox(conn, &n.pool, 0, replyTimeout), closed: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(n.ctx)
	s.calls = newCallServer(ctx, n, s.from, s)
	n.wg.Go(s.box.run)
	err = s.read()
	close(s.closed)
	s.box.close(ErrDown)
	cancel()
	s.calls.wg.Wait()
	if !errors.Is(err, io.EOF) && !n.isClosed() {
		n.cfg.Logger.Info("plain stream ended", "peer", s.from, "error", err)
	}
}

func (s *inStream) read() error {
	for {
		kind, err := s.r.Peek(1)
		if err != nil {
			return err
		}
		if kind[0] == 'M' {
			if err := s.take(); err != nil {
				return err
			}
			continue
		}
		if _, err := io.ReadFull(s.r, s.head[:]); err != nil {
			return err
		}
		var h partHead
		if err := h.decode(s.head[:], s.node.cfg.MaxEntryBytes); err != nil {
			return err
		}
		if err := s.readPart(&h); err != nil {
			return err
		}
	}
}

// readPart reads what follows a head. An error ends the stream; whatever only
// this part suffers is answered.
func (s *inStream) readPart(h *partHead) error {
	if need := h.restSize() + h.bodies; s.r.Buffered() < need {
		s.conn.SetReadDeadline(time.Now().Add(bodyDeadline))
		defer s.conn.SetReadDeadline(time.Time{})
	}
	if cap(s.rest) < h.restSize() {
		s.rest = make([]byte, h.restSize(), 2*h.restSize())
	}
	rest := s.rest[:h.restSize()]
	if _, err := io.ReadFull(s.r, rest); err != nil {
		return err
	}
	if crc32.Checksum(rest, castagnoli) != h.restSum {
		return fmt.Errorf("%w: table checksum", ErrCorrupt)
	}
	table := rest[h.fromLen+h.toLen:]
	if total := tableBytes(table); total != h.bodies {
		return fmt.Errorf("%w: table names %d bytes, head %d", ErrCorrupt, total, h.bodies)
	}
	g, err := s.node.receiverOf(h.group, rest[h.fromLen:h.fromLen+h.toLen], true)
	if err != nil {
		return s.refuse(h, err)
	}
	charged, ok := s.node.received.acquire(int64(h.bodies), s.closed, budgetWait)
	if !ok {
		return s.refuse(h, ErrBusy)
	}
	a, err := s.readBodies(g, h, rest[:h.fromLen], table)
	if err != nil {
		s.node.received.release(charged)
		return err
	}
	a.charged = charged
	s.node.counts.receivedParts.Add(1)
	s.node.counts.receivedBytes.Add(int64(partHeadSize + h.restSize() + h.bodies))
	if err := s.node.cfg.Failpoints.Hit(failReceiveAppend); err != nil {
		a.free()
		return err
	}
	g.followed(h.term)
	if g.opts.LeaderEnd != nil {
		g.opts.LeaderEnd(a.leader, h.term, h.leaderLast)
	}
	if err := g.deliverWaiting(&a.AppendEntriesRequest, a, s.node.closing); err != nil {
		a.free()
		s.node.counts.refusedParts.Add(1)
		s.reply(&reply{id: h.id}, err)
	}
	return nil
}

func tableBytes(table []byte) (total int) {
	for ; len(table) > 0; table = table[partRowSize:] {
		r := decodeRow(table)
		total += r.data + r.ext
	}
	return total
}

// readBodies reads the entries into one slice and builds the request. It costs
// four allocations whatever the number of entries.
func (s *inStream) readBodies(g *group, h *partHead, from, table []byte) (*arrived, error) {
	leader, leaderBytes := g.intern(from)
	a := &arrived{group: g, leader: leader, stream: s, id: h.id, last: h.last}
	a.RPCHeader = raft.RPCHeader{ProtocolVersion: raftProtocol, ID: leaderBytes, Addr: leaderBytes}
	a.Term = h.term
	a.PrevLogEntry, a.PrevLogTerm = h.prevIndex, h.prevTerm
	// The group takes min(this, its last index) for committed, though only the
	// entries up to here were compared with the leader's.
	a.LeaderCommitIndex = min(h.commit, h.prevIndex+uint64(h.entries))
	if h.entries == 0 {
		return a, nil
	}
	body, err := s.readBody(g, h.bodies)
	if err != nil {
		return nil, err
	}
	if g.opts.Recycle {
		a.pooled = body
	}
	logs := make([]raft.Log, h.entries)
	a.Entries = make([]*raft.Log, h.entries)
	for i := range logs {
		r, l := decodeRow(table[i*partRowSize:]), &logs[i]
		body = r.entryOf(l, h.prevIndex+uint64(i)+1, body)
		a.Entries[i] = l
		if err := g.check(l, h.sums, r.sum); err != nil {
			return nil, fmt.Errorf("%w: entry %d of group %s: %w", ErrCorrupt, l.Index, g.id, err)
		}
	}
	return a, nil
}

// readBody reads n bytes. Large bodies grow as they come, so that a head alone
// reserves little.
func (s *inStream) readBody(g *group, n int) ([]byte, error) {
	var b []byte
	switch {
	case g.opts.Recycle:
		b = s.node.pool.get(min(n, firstBodyBytes))
	default:
		b = make([]byte, min(n, firstBodyBytes))
	}
	at := 0
	for {
		if _, err := io.ReadFull(s.r, b[at:]); err != nil {
			return nil, err
		}
		if len(b) == n {
			return b, nil
		}
		at = len(b)
		grown := make([]byte, min(n, 2*at))
		copy(grown, b)
		b = grown
	}
}

// check verifies one received entry before anybody sees it.
func (g *group) check(l *raft.Log, sums bool, sum uint32) error {
	if sums || !isData(l) {
		if got := entrySum(l); got != sum {
			return fmt.Errorf("checksum %08x, want %08x", got, sum)
		}
		return nil
	}
	if g.opts.Verify != nil {
		return g.opts.Verify(l.Data)
	}
	return nil
}

// refuse skips the bodies of a part that its group cannot take.
func (s *inStream) refuse(h *partHead, err error) error {
	s.node.counts.refusedParts.Add(1)
	if _, derr := s.r.Discard(h.bodies); derr != nil {
		return derr
	}
	s.reply(&reply{id: h.id}, err)
	return nil
}

// answer passes the group's answer on; parts before the last are answered only
// when they failed.
func (a *arrived) answer(r raft.RPCResponse) {
	resp, _ := r.Response.(*raft.AppendEntriesResponse)
	id, last, stream := a.id, a.last, a.stream
	if r.Error == nil && resp != nil {
		a.group.accepted(resp, &a.AppendEntriesRequest, a.leader)
	}
	if resp == nil {
		// A group that was closed may still be storing the entries: their
		// bytes belong to the garbage collector then.
		a.pooled = nil
	}
	a.free()
	if err := stream.node.cfg.Failpoints.Hit(failAnswerAppend); err != nil {
		stream.box.close(err)
		return
	}
	switch {
	case r.Error != nil:
		stream.reply(&reply{id: id}, r.Error)
	case resp == nil:
		stream.reply(&reply{id: id}, fmt.Errorf("rpc: answer of type %T to AppendEntries", r.Response))
	case resp.Success && !last:
	default:
		stream.reply(&reply{
			id: id, term: resp.Term, lastLog: resp.LastLog,
			success: resp.Success, noBackoff: resp.NoRetryBackoff,
		}, nil)
	}
}

// free gives back what the request held of the node's budget and pool.
func (a *arrived) free() {
	n := a.stream.node
	if a.pooled != nil {
		n.pool.put(a.pooled)
		a.pooled = nil
	}
	n.received.release(a.charged)
	a.charged = 0
}

func (s *inStream) reply(r *reply, err error) {
	if err != nil {
		r.code, r.text = toCode(err)
	}
	head := s.node.pool.get(replyHeadSize + maxReplyText)[:0]
	b := r.encode(head)
	one := [1][]byte{b}
	s.box.send(one[:], b, len(b), nil) // a broken connection fails the sender's calls
}
