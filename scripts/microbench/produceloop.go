package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The produce loop: the least that a replicated broker does for a produce request. One read of the request into a pooled buffer,
// CRC-32C, stamp, batch queued to both followers, one pwrite; followers check the CRC, write and acknowledge; the client is answered when
// the leader and one follower have written. No Raft, no index, no duplicate check, no recovery, and whatever goes wrong ends the process.

const (
	loopHeader    = 8       // in front of a batch between nodes: partition, length
	loopQueue     = 1024    // batches on the way to a follower
	loopPipeline  = 64      // requests of a connection without an answer
	loopFrame     = 8 << 20 // largest request
	loopReceive   = 4 << 20 // a follower's buffer
	batchMinimum  = 61
	batchCRC      = 17
	batchChecked  = 21
	batchLastDiff = 23
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type loopNode struct {
	id             int
	clients, peers []string
	parts          [producePartitions]loopPart
	links          [3]*loopLink // to the other nodes
	pool           sync.Pool
}

// loopPart is this node's copy of a partition; node partition%3 leads it. turn is held while a batch is stamped, queued and written, so
// that files and followers see one order.
type loopPart struct {
	turn chan struct{}
	next int64
	file rolling
}

// rolling is a file that is replaced by an empty one when it is full. The full one stays until the next is full too, as
// retention.bytes of one segment keeps it: so that both sides have the same bytes in the page cache.
type rolling struct {
	path    string
	f, full *os.File
	pos     int64
	n       int
}

func (r *rolling) write(b []byte) {
	if r.f == nil || r.pos+int64(len(b)) > segmentBytes {
		name := fmt.Sprintf("%s-%d", r.path, r.n)
		f, err := os.Create(name)
		must(err)
		if r.full != nil {
			must(os.Remove(r.full.Name()))
			r.full.Close()
		}
		r.f, r.full, r.pos, r.n = f, r.f, 0, r.n+1
	}
	n, err := r.f.WriteAt(b, r.pos)
	must(err)
	r.pos += int64(n)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "produce loop:", err)
		os.Exit(1)
	}
}

func newLoopNode(id int, clients, peers []string, dir string) *loopNode {
	n := &loopNode{id: id, clients: clients, peers: peers}
	for p := range n.parts {
		n.parts[p] = loopPart{turn: make(chan struct{}, 1), file: rolling{path: filepath.Join(dir, fmt.Sprintf("loop-%d-%d", id, p))}}
	}
	return n
}

func (n *loopNode) serve(clients, peers net.Listener) error {
	go accept(peers, n.follow)
	for i, addr := range n.peers {
		if i == n.id {
			continue
		}
		c, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err != nil {
			return err
		}
		l := &loopLink{c: c, queue: make(chan *loopBatch, loopQueue), sent: make(chan *loopBatch, 2*loopQueue)}
		n.links[i] = l
		go l.send()
		go l.acks()
	}
	accept(clients, n.client)
	return errors.New("no more clients")
}

func accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		must(err)
		go serve(c)
	}
}

// loopBuf is a request's bytes; it goes back to the pool when leader and links have written what they hold of it.
type loopBuf struct {
	b    []byte
	refs atomic.Int32
	pool *sync.Pool
}

func (b *loopBuf) release() {
	if b.refs.Add(-1) == 0 {
		b.pool.Put(b)
	}
}

func (n *loopNode) buffer(size int) *loopBuf {
	b, _ := n.pool.Get().(*loopBuf)
	if b == nil || cap(b.b) < size {
		b = &loopBuf{pool: &n.pool, b: make([]byte, max(size, 1<<20+64<<10))}
	}
	b.b = b.b[:size]
	b.refs.Store(1)
	return b
}

// loopAnswer is a response that waits for its batches: for each the leader's write and the first acknowledgement.
type loopAnswer struct {
	open  atomic.Int32
	ready chan struct{}
	resp  kmsg.Response
	corr  int32
}

func (a *loopAnswer) done() {
	if a.open.Add(-1) == 0 {
		a.ready <- struct{}{}
	}
}

// client reads requests; another goroutine answers them in order.
func (n *loopNode) client(c net.Conn) {
	defer c.Close()
	answers := make(chan *loopAnswer, loopPipeline)
	defer close(answers)
	go writeAnswers(c, answers)
	for {
		var head [4]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		size := int(binary.BigEndian.Uint32(head[:]))
		if size > loopFrame {
			return
		}
		buf := n.buffer(size)
		if _, err := io.ReadFull(c, buf.b); err != nil {
			return
		}
		a, err := n.request(buf)
		buf.release()
		if err != nil {
			fmt.Fprintln(os.Stderr, "produce loop:", err)
			return
		}
		answers <- a
	}
}

func writeAnswers(c net.Conn, answers <-chan *loopAnswer) {
	var out []byte
	for a := range answers {
		<-a.ready
		out = binary.BigEndian.AppendUint32(append(out[:0], 0, 0, 0, 0), uint32(a.corr))
		if a.resp.IsFlexible() && a.resp.Key() != 18 {
			out = append(out, 0)
		}
		out = a.resp.AppendTo(out)
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := c.Write(out); err != nil {
			c.Close() // the reader sees it
		}
	}
}

// request takes one request apart and starts what it asks for.
func (n *loopNode) request(buf *loopBuf) (*loopAnswer, error) {
	b := buf.b
	key, version := int16(binary.BigEndian.Uint16(b)), int16(binary.BigEndian.Uint16(b[2:]))
	a := &loopAnswer{corr: int32(binary.BigEndian.Uint32(b[4:])), ready: make(chan struct{}, 1)}
	req := kmsg.RequestForKey(key)
	if req == nil {
		return nil, fmt.Errorf("request with key %d", key)
	}
	req.SetVersion(version)
	name := int(int16(binary.BigEndian.Uint16(b[8:])))
	body := b[10+max(0, name):]
	if req.IsFlexible() {
		body = body[1:] // no tags
	}
	if err := req.ReadFrom(body); err != nil {
		return nil, err
	}
	if r, ok := req.(*kmsg.ProduceRequest); ok {
		return a, n.produce(r, buf, a)
	}
	var err error
	a.resp, err = n.small(req)
	a.ready <- struct{}{}
	return a, err
}

// small answers what a client asks before it produces.
func (n *loopNode) small(req kmsg.Request) (kmsg.Response, error) {
	resp := req.ResponseKind()
	switch r := resp.(type) {
	case *kmsg.ApiVersionsResponse:
		for _, v := range [][3]int16{{0, 3, 9}, {3, 0, 9}, {18, 0, 4}, {22, 0, 4}} {
			r.ApiKeys = append(r.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: v[0], MinVersion: v[1], MaxVersion: v[2]})
		}
	case *kmsg.InitProducerIDResponse:
		r.ProducerID = time.Now().UnixNano() // nobody checks it
	case *kmsg.MetadataResponse:
		for i, addr := range n.clients {
			a, err := net.ResolveTCPAddr("tcp", addr)
			if err != nil {
				return nil, err
			}
			r.Brokers = append(r.Brokers, kmsg.MetadataResponseBroker{NodeID: int32(i), Host: a.IP.String(), Port: int32(a.Port)})
		}
		for _, t := range req.(*kmsg.MetadataRequest).Topics {
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic = t.Topic
			for p := range int32(producePartitions) {
				part := kmsg.NewMetadataResponseTopicPartition()
				part.Partition, part.Leader, part.Replicas, part.ISR = p, p%3, []int32{0, 1, 2}, []int32{0, 1, 2}
				topic.Partitions = append(topic.Partitions, part)
			}
			r.Topics = append(r.Topics, topic)
		}
	default:
		return nil, fmt.Errorf("request with key %d", req.Key())
	}
	return resp, nil
}

// loopBatch is a batch on its way to the followers.
type loopBatch struct {
	part   int
	data   []byte
	buf    *loopBuf
	answer *loopAnswer
	acked  atomic.Bool
}

func (n *loopNode) produce(r *kmsg.ProduceRequest, buf *loopBuf, a *loopAnswer) error {
	resp := r.ResponseKind().(*kmsg.ProduceResponse)
	a.resp = resp
	a.open.Store(1)
	for _, t := range r.Topics {
		topic := kmsg.ProduceResponseTopic{Topic: t.Topic, Partitions: make([]kmsg.ProduceResponseTopicPartition, len(t.Partitions))}
		for i, p := range t.Partitions {
			if int(p.Partition) >= len(n.parts) || checkBatch(p.Records) != nil {
				return fmt.Errorf("partition %d: %w", p.Partition, checkBatch(p.Records))
			}
			out := &topic.Partitions[i]
			out.Default()
			out.Partition = p.Partition
			a.open.Add(2)
			out.BaseOffset = n.parts[p.Partition].append(n, &loopBatch{part: int(p.Partition), data: p.Records, buf: buf, answer: a})
		}
		resp.Topics = append(resp.Topics, topic)
	}
	a.done()
	return nil
}

func checkBatch(b []byte) error {
	if len(b) < batchMinimum {
		return io.ErrUnexpectedEOF
	}
	if got, want := crc32.Checksum(b[batchChecked:], castagnoli), binary.BigEndian.Uint32(b[batchCRC:]); got != want {
		return fmt.Errorf("checksum %08x, want %08x", got, want)
	}
	return nil
}

// append stamps the batch, queues it to both followers and writes it.
func (p *loopPart) append(n *loopNode, b *loopBatch) int64 {
	p.turn <- struct{}{}
	base := p.next
	p.next += int64(binary.BigEndian.Uint32(b.data[batchLastDiff:])) + 1
	binary.BigEndian.PutUint64(b.data, uint64(base))
	binary.BigEndian.PutUint32(b.data[12:], 1)
	b.buf.refs.Add(2)
	for _, l := range n.links {
		if l != nil {
			l.queue <- b
		}
	}
	p.file.write(b.data)
	<-p.turn
	b.answer.done()
	return base
}

// loopLink carries batches to one follower.
type loopLink struct {
	c     net.Conn
	queue chan *loopBatch
	sent  chan *loopBatch // without acknowledgement, in order
}

const loopTogether = 16 // batches in one write

func (l *loopLink) send() {
	var heads [loopTogether][loopHeader]byte
	take := make([]*loopBatch, 0, loopTogether)
	pieces := make([][]byte, 2*loopTogether)
	for b := range l.queue {
		take = append(take[:0], b)
		for more := true; more && len(take) < loopTogether; {
			select {
			case b := <-l.queue:
				take = append(take, b)
			default:
				more = false
			}
		}
		bufs := net.Buffers(pieces[:0])
		for i, b := range take {
			binary.BigEndian.PutUint32(heads[i][:], uint32(b.part))
			binary.BigEndian.PutUint32(heads[i][4:], uint32(len(b.data)))
			bufs = append(bufs, heads[i][:], b.data)
			l.sent <- b
		}
		_, err := bufs.WriteTo(l.c)
		must(err)
		for _, b := range take {
			b.buf.release()
		}
	}
}

// acks reads how many batches the follower has written so far.
func (l *loopLink) acks() {
	var buf [8]byte
	for done := uint64(0); ; {
		_, err := io.ReadFull(l.c, buf[:])
		must(err)
		for n := binary.BigEndian.Uint64(buf[:]); done < n; done++ {
			if b := <-l.sent; !b.acked.Swap(true) {
				b.answer.done()
			}
		}
	}
}

// follow reads batches into one buffer, checks and writes each whole one, and acknowledges when none is left.
func (n *loopNode) follow(c net.Conn) {
	buf := make([]byte, loopReceive)
	var written uint64
	for lo, hi := 0, 0; ; {
		before := written
		for hi-lo >= loopHeader {
			part, size := binary.BigEndian.Uint32(buf[lo:]), int(binary.BigEndian.Uint32(buf[lo+4:]))
			if hi-lo < loopHeader+size {
				break
			}
			b := buf[lo+loopHeader : lo+loopHeader+size]
			must(checkBatch(b))
			n.parts[part].file.write(b)
			lo += loopHeader + size
			written++
		}
		if written != before {
			var ack [8]byte
			binary.BigEndian.PutUint64(ack[:], written)
			_, err := c.Write(ack[:])
			must(err)
		}
		if len(buf)-hi < 1<<20+loopHeader || lo == hi {
			hi, lo = copy(buf, buf[lo:hi]), 0
		}
		k, err := c.Read(buf[hi:])
		must(err)
		hi += k
	}
}
