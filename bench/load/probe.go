package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/bench/history"
)

// A ProbeConfig says what a prober probes.
type ProbeConfig struct {
	Nodes      []string // host:port of every broker
	Partitions []history.Partition
	RunID      uint64
	Acks       int
	Interval   time.Duration // default 5 ms
	Timeout    time.Duration // of an answer and of a connection attempt; default 200 ms
	Clock      *Clock
}

const (
	probeVersion  = 7        // of Produce: spoken by every system that we drive
	maxProbes     = 1 << 10  // unanswered on one connection
	maxProbeFrame = 1 << 20  // longest answer
	maxAccepted   = 10 << 20 // moments kept per partition: 14 hours of probes
)

// A Prober measures when a partition accepts writes, with connections of its own to every node, apart from the load: every interval it
// asks each node to append one marked message to each partition, and waits for no answer before it asks again.
type Prober struct {
	cfg    ProbeConfig
	cancel context.CancelFunc
	done   sync.WaitGroup
	sent   atomic.Int64

	mu       sync.Mutex // guards accepted
	accepted map[history.Partition][]time.Duration
}

// StartProber begins to probe when the clock starts. ctx or Stop ends it.
func StartProber(ctx context.Context, cfg ProbeConfig) (*Prober, error) {
	if len(cfg.Nodes) == 0 || len(cfg.Partitions) == 0 || cfg.Clock == nil {
		return nil, fmt.Errorf("load: a prober needs nodes, partitions and a clock, got %d, %d, %v", len(cfg.Nodes), len(cfg.Partitions), cfg.Clock != nil)
	}
	if cfg.Interval == 0 {
		cfg.Interval = 5 * time.Millisecond
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 200 * time.Millisecond
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &Prober{cfg: cfg, cancel: cancel, accepted: map[history.Partition][]time.Duration{}}
	for _, node := range cfg.Nodes {
		p.done.Go(func() { p.probe(ctx, node) })
	}
	return p, nil
}

// probe keeps one node under questions.
func (p *Prober) probe(ctx context.Context, node string) {
	select {
	case <-p.cfg.Clock.Started():
	case <-ctx.Done():
		return
	}
	for ctx.Err() == nil {
		dialer := net.Dialer{Timeout: p.cfg.Timeout}
		if conn, err := dialer.DialContext(ctx, "tcp", node); err == nil {
			c := &probeConn{prober: p, conn: conn}
			c.run(ctx)
		}
		pause(ctx, p.cfg.Interval)
	}
}

// Stop ends the probing and tells the spans of each partition without an accepted probe that lasted at least min, in order of time.
// A partition that never accepted one has a single span, from zero to now.
func (p *Prober) Stop(min time.Duration) []Outage {
	p.cancel()
	p.done.Wait()
	end := p.cfg.Clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Outage
	for _, q := range p.cfg.Partitions {
		var last time.Duration
		for _, at := range p.accepted[q] {
			if at-last >= min && last > 0 {
				out = append(out, Outage{Topic: q.Topic, Partition: q.Partition, Start: last, End: at})
			}
			last = max(last, at) // two nodes' answers may overtake each other
		}
		if end-last >= min {
			out = append(out, Outage{Topic: q.Topic, Partition: q.Partition, Start: last, End: end, Open: true})
		}
	}
	return out
}

// Counts is the number of probes sent (per node and partition) and accepted.
func (p *Prober) Counts() (sent, accepted int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.accepted {
		accepted += int64(len(at))
	}
	return p.sent.Load(), accepted
}

func (p *Prober) accept(q history.Partition, at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.accepted[q]) < maxAccepted {
		p.accepted[q] = append(p.accepted[q], at)
	}
}

// probeConn is one connection: a writing goroutine paces, a reading one matches answers. It ends at the first error or timeout.
type probeConn struct {
	prober *Prober
	conn   net.Conn

	mu      sync.Mutex // guards pending
	pending []time.Time
}

func (c *probeConn) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.read() // whatever ended it, a new connection is made
		c.conn.Close()
	}()
	_ = c.write(ended)
	c.conn.Close()
	<-ended
}

var errProbeTimeout = errors.New("probe timed out")

func (c *probeConn) write(ended <-chan struct{}) error {
	tick := time.NewTicker(c.prober.cfg.Interval)
	defer tick.Stop()
	for id := int32(0); ; id++ {
		if !c.pend() {
			return errProbeTimeout
		}
		if err := c.conn.SetWriteDeadline(time.Now().Add(c.prober.cfg.Timeout)); err != nil {
			return err
		}
		if _, err := c.conn.Write(c.prober.request(id)); err != nil {
			return err
		}
		c.prober.sent.Add(int64(len(c.prober.cfg.Partitions)))
		select {
		case <-tick.C:
		case <-ended:
			return io.EOF
		}
	}
}

// pend notes a question; false where the oldest unanswered one is too old.
func (c *probeConn) pend() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if len(c.pending) > 0 && now.Sub(c.pending[0]) > c.prober.cfg.Timeout || len(c.pending) >= maxProbes {
		return false
	}
	c.pending = append(c.pending, now)
	return true
}

func (c *probeConn) read() error {
	var head [4]byte
	for {
		if _, err := io.ReadFull(c.conn, head[:]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(head[:])
		if n < 4 || n > maxProbeFrame {
			return fmt.Errorf("answer of %d bytes", n)
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(c.conn, body); err != nil {
			return err
		}
		c.mu.Lock()
		if len(c.pending) > 0 {
			c.pending = c.pending[1:]
		}
		c.mu.Unlock()
		answer := kmsg.NewPtrProduceResponse()
		answer.SetVersion(probeVersion)
		if err := answer.ReadFrom(body[4:]); err != nil {
			return err
		}
		now := c.prober.cfg.Clock.Now()
		for _, t := range answer.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode == 0 {
					c.prober.accept(history.Partition{Topic: t.Topic, Partition: p.Partition}, now)
				}
			}
		}
	}
}

// request is a whole produce frame with one marked message for each partition.
func (p *Prober) request(id int32) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(probeVersion)
	req.Acks = int16(p.cfg.Acks)
	req.TimeoutMillis = int32(p.cfg.Timeout.Milliseconds())
	batch := probeBatch(p.cfg.RunID, p.cfg.Clock.Now())
	for _, q := range p.cfg.Partitions {
		i := -1
		for j := range req.Topics {
			if req.Topics[j].Topic == q.Topic {
				i = j
			}
		}
		if i < 0 {
			t := kmsg.NewProduceRequestTopic()
			t.Topic = q.Topic
			req.Topics = append(req.Topics, t)
			i = len(req.Topics) - 1
		}
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = q.Partition, batch
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("mqbench-prober")).AppendRequest(nil, req, id)
}

// probeBatch is a record batch with one message that carries the probe flag.
func probeBatch(run uint64, at time.Duration) []byte {
	value := make([]byte, HeaderBytes)
	h := header{Flags: flagProbe, Run: run, Intended: at}
	h.seal(value)
	rec := kmsg.NewRecord()
	rec.Value = value
	rec.Length = int32(len(rec.AppendTo(nil)) - 1) // its own length field is one byte while it is zero
	now := time.Now().UnixMilli()
	batch := kmsg.NewRecordBatch()
	batch.PartitionLeaderEpoch, batch.Magic = -1, 2
	batch.FirstTimestamp, batch.MaxTimestamp = now, now
	batch.ProducerID, batch.ProducerEpoch, batch.FirstSequence = -1, -1, -1
	batch.NumRecords, batch.Records = 1, rec.AppendTo(nil)
	const beforeLength, crcAt, crcEnd = 12, 17, 21
	raw := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[beforeLength-4:], uint32(len(raw)-beforeLength))
	binary.BigEndian.PutUint32(raw[crcAt:], crc32.Checksum(raw[crcEnd:], castagnoli))
	return raw
}
