package rpc

import (
	"sync"

	"google.golang.org/protobuf/proto"

	"gopherlog/cluster/rpc/rpcpb"
)

const (
	envelopeBytes  = 1 << 20 // target size of one envelope, and of one fragment
	envelopeCount  = 4096
	senderMaxQueue = 128 << 20 // bytes that may wait on one link
	senderOverhead = 64        // charged per message beside its size
)

// sender merges the messages of many goroutines into envelopes on one gRPC
// stream. Urgent ones (pings) pass the others.
type sender struct {
	put     func(*rpcpb.Envelope) error // the stream's Send
	cluster func() string

	mu     sync.Mutex
	urgent []*rpcpb.Message
	queue  []*rpcpb.Message
	bytes  int
	closed bool
	wake   chan struct{}
}

func newSender(put func(*rpcpb.Envelope) error, cluster func() string) *sender {
	return &sender{put: put, cluster: cluster, wake: make(chan struct{}, 1)}
}

// send queues m; ErrBusy when too much waits. It never blocks.
func (s *sender) send(m *rpcpb.Message) error { return s.enqueue(m, false) }

func (s *sender) enqueue(m *rpcpb.Message, urgent bool) error {
	size := proto.Size(m) + senderOverhead
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return ErrClosed
	case s.bytes > 0 && s.bytes+size > senderMaxQueue:
		s.mu.Unlock()
		return ErrBusy
	case urgent:
		s.urgent = append(s.urgent, m)
	default:
		s.queue = append(s.queue, m)
	}
	s.bytes += size
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

func (s *sender) take() (urgent, queue []*rpcpb.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	urgent, queue = s.urgent, s.queue
	s.urgent, s.queue, s.bytes = nil, nil, 0
	return urgent, queue
}

// run writes until stop or an error of the stream.
func (s *sender) run(stop <-chan struct{}) error {
	defer func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
	}()
	for {
		select {
		case <-s.wake:
		case <-stop:
			return nil
		}
		urgent, queue := s.take()
		if len(urgent) > 0 {
			if err := s.write(urgent); err != nil {
				return err
			}
		}
		if err := s.writeAll(queue); err != nil {
			return err
		}
	}
}

// writeAll sends messages in envelopes of about envelopeBytes, urgent ones
// that come meanwhile between them, large ones in fragments.
func (s *sender) writeAll(queue []*rpcpb.Message) error {
	start, bytes := 0, 0
	for i, m := range queue {
		size := proto.Size(m)
		if size <= envelopeBytes && bytes+size <= envelopeBytes && i-start < envelopeCount {
			bytes += size
			continue
		}
		if err := s.write(queue[start:i]); err != nil {
			return err
		}
		start, bytes = i, size
		if size > envelopeBytes {
			if err := s.writeFragments(m); err != nil {
				return err
			}
			start, bytes = i+1, 0
		}
	}
	return s.write(queue[start:])
}

func (s *sender) write(ms []*rpcpb.Message) error {
	if len(ms) == 0 {
		return nil
	}
	return s.put(&rpcpb.Envelope{Cluster: s.cluster(), Messages: ms})
}

func (s *sender) writeFragments(m *rpcpb.Message) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	for len(b) > 0 {
		n := min(len(b), envelopeBytes)
		f := &rpcpb.Message{Id: m.GetId(), Body: &rpcpb.Message_Fragment{
			Fragment: &rpcpb.Fragment{Data: b[:n], Last: n == len(b)},
		}}
		b = b[n:]
		s.mu.Lock()
		urgent := s.urgent
		s.urgent = nil
		s.mu.Unlock()
		if err := s.write(append(urgent, f)); err != nil {
			return err
		}
	}
	return nil
}

// assembler puts fragments together again. Fragments of one message come in
// order and, since one goroutine writes them, one message at a time.
type assembler struct {
	limit int
	buf   []byte
}

// add returns the whole message once its last fragment is in.
func (a *assembler) add(f *rpcpb.Fragment) (*rpcpb.Message, error) {
	if len(a.buf)+len(f.GetData()) > a.limit {
		return nil, ErrCorrupt
	}
	a.buf = append(a.buf, f.GetData()...)
	if !f.GetLast() {
		return nil, nil
	}
	m := &rpcpb.Message{}
	err := proto.Unmarshal(a.buf, m)
	a.buf = nil
	return m, err
}
