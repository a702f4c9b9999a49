package load

import (
	"context"
	"sync"
)

// null is a target that acknowledges everything at once and keeps nothing.
type null struct {
	mu     sync.Mutex
	topics map[string]int // partitions
}

// NewNull is a target that acknowledges everything at once: what is measured on it is the harness.
func NewNull() Driver { return &null{topics: map[string]int{}} }

func (n *null) CreateTopics(_ context.Context, topics []TopicSpec) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range topics {
		n.topics[t.Name] = t.Partitions
	}
	return nil
}

func (*null) DeleteTopics(context.Context, []string) error { return nil }

func (*null) NewProducer(context.Context, ProducerConfig) (Producer, error) {
	return &nullProducer{}, nil
}

func (*null) NewConsumer(context.Context, ConsumerConfig) (Consumer, error) {
	return &nullConsumer{closed: make(chan struct{})}, nil
}

// EndOffsets answers zero everywhere: there is nothing to read back.
func (n *null) EndOffsets(_ context.Context, topic string) (map[int32]OffsetAnswer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[int32]OffsetAnswer{}
	for p := range int32(n.topics[topic]) {
		out[p] = OffsetAnswer{LeaderEpoch: -1}
	}
	return out, nil
}

// StartOffsets are zero, too.
func (n *null) StartOffsets(ctx context.Context, topic string) (map[int32]OffsetAnswer, error) {
	return n.EndOffsets(ctx, topic)
}

func (*null) Replicas(context.Context, string) (map[int32][]int32, error) {
	return map[int32][]int32{}, nil
}

func (*null) Leaders(context.Context, string) (map[int32]int32, error) { return map[int32]int32{}, nil }

func (*null) TopicConfig(context.Context, string) (map[string]string, error) {
	return map[string]string{}, nil
}

func (*null) Settings(ProducerConfig) []Setting { return nil }

func (*null) Close() {}

type nullProducer struct{}

func (p *nullProducer) Send(_ *Record, done func(Ack)) { done(Ack{Offset: -1}) }

func (p *nullProducer) Flush(context.Context) error { return nil }

func (p *nullProducer) Close() {}

type nullConsumer struct {
	once   sync.Once
	closed chan struct{}
}

func (c *nullConsumer) Poll(ctx context.Context, _ func(Delivery)) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed:
		return ErrClosed
	}
}

func (c *nullConsumer) Close() { c.once.Do(func() { close(c.closed) }) }
