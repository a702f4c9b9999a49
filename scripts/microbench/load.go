package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"gopherlog/scripts/internal/child"
)

// inFlight is what the client holds without an acknowledgement, at most.
const inFlight = 32 << 20

// blast is a closed loop: an idempotent client with acks=all, no linger and all the records that fit under way.
type blast struct {
	topic      string
	partitions int32
	size       int
	warm, run  time.Duration
}

func (b blast) client(addrs []string) (*kgo.Client, error) {
	return kgo.NewClient(
		kgo.SeedBrokers(addrs...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(1<<20), kgo.MaxBufferedBytes(inFlight),
		kgo.RecordDeliveryTimeout(starting), kgo.UnknownTopicRetries(-1),
	)
}

// against measures records acknowledged in a second after the warm-up, and the brokers' processor time for one.
func (b blast) against(ctx context.Context, addrs []string, brokers []*child.Process) (sample, error) {
	cl, err := b.client(addrs)
	if err != nil {
		return sample{}, err
	}
	defer cl.Close()
	var acked atomic.Int64
	failed := make(chan error, 1)
	promise := func(_ *kgo.Record, err error) {
		if err == nil {
			acked.Add(1)
			return
		}
		select {
		case failed <- err:
		default:
		}
	}
	producing, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.produce(producing, cl, promise)
	}()
	s, err := b.window(ctx, &acked, failed, brokers)
	stop()
	<-ended
	drain, cancel := context.WithTimeout(ctx, starting)
	defer cancel()
	return s, errors.Join(err, cl.Flush(drain))
}

// fill produces until n bytes of records were acknowledged.
func (b blast) fill(ctx context.Context, s *servers, n int64) error {
	for n > 0 {
		got, err := b.against(ctx, s.addrs, s.all)
		if err != nil {
			return fmt.Errorf("fill: %w", err)
		}
		n -= got.bytes
	}
	return nil
}

func (b blast) produce(ctx context.Context, cl *kgo.Client, promise func(*kgo.Record, error)) {
	value := make([]byte, b.size)
	for i := range value {
		value[i] = byte(i * 131)
	}
	var slab []kgo.Record
	for i := int32(0); ctx.Err() == nil; i++ {
		if len(slab) == 0 {
			slab = make([]kgo.Record, 256)
		}
		r := &slab[0]
		slab = slab[1:]
		r.Topic, r.Partition, r.Value = b.topic, i%b.partitions, value
		cl.Produce(context.Background(), r, promise) // waits while too much is under way; the window's end is never far
		if i == 1<<30 {
			i = 0
		}
	}
}

func (b blast) window(ctx context.Context, acked *atomic.Int64, failed <-chan error, brokers []*child.Process) (sample, error) {
	pause := func(d time.Duration) error {
		select {
		case err := <-failed:
			return fmt.Errorf("produce: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}
	for acked.Load() == 0 { // connected, and leaders found
		if err := pause(5 * time.Millisecond); err != nil {
			return sample{}, err
		}
	}
	if err := pause(b.warm); err != nil {
		return sample{}, err
	}
	cpu, err := spent(brokers)
	if err != nil {
		return sample{}, err
	}
	n, began := acked.Load(), time.Now()
	if err := pause(b.run); err != nil {
		return sample{}, err
	}
	for acked.Load() == n { // a tiny window on a busy machine
		if err := pause(5 * time.Millisecond); err != nil {
			return sample{}, err
		}
	}
	s := sample{ops: acked.Load() - n, wall: time.Since(began), heap: notCounted}
	s.bytes = s.ops * int64(b.size)
	after, err := spent(brokers)
	s.cpu = after - cpu
	return s, err
}

// createTopic waits until every partition has a leader. With pages in mind: small segments, and little of them kept.
func createTopic(ctx context.Context, addrs []string, topic string, partitions int32, replicas int16, segment string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.DisableClientMetrics())
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, starting)
	defer cancel()
	adm := kadm.NewClient(cl)
	keep := "-1"
	if replicas > 1 {
		keep = segment
	}
	if _, err := adm.CreateTopic(ctx, partitions, replicas, map[string]*string{"segment.bytes": &segment, "retention.bytes": &keep}, topic); err != nil {
		return err
	}
	for {
		meta, err := adm.Metadata(ctx, topic)
		if err == nil && led(meta.Topics[topic], int(partitions)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("topic %s has no leaders: %w", topic, errors.Join(err, ctx.Err()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func led(t kadm.TopicDetail, partitions int) bool {
	for _, p := range t.Partitions {
		if p.Leader < 0 || p.Err != nil {
			return false
		}
	}
	return len(t.Partitions) == partitions
}
