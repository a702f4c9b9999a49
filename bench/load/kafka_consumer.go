package load

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

type kafkaConsumer struct{ client *kgo.Client }

// NewConsumer reads every partition from offset 0, without a group.
func (k *kafka) NewConsumer(_ context.Context, c ConsumerConfig) (Consumer, error) {
	assigned := map[string]map[int32]kgo.Offset{}
	for _, t := range c.Topics {
		assigned[t.Name] = map[int32]kgo.Offset{}
		for p := range int32(t.Partitions) {
			assigned[t.Name][p] = kgo.NewOffset().At(0)
		}
	}
	isolation := kgo.ReadUncommitted()
	if c.ReadCommitted {
		isolation = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(append(k.common(c.ClientID, answerSlack),
		kgo.ConsumePartitions(assigned),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), // a log that lost its tail is read from the start again, not skipped
		kgo.FetchIsolationLevel(isolation),
		kgo.KeepControlRecords(), // they tell how far a log was read that ends in markers
		kgo.FetchMaxWait(fetchMaxWait),
		kgo.FetchMinBytes(1),
		kgo.FetchMaxBytes(fetchBytes),
		kgo.FetchMaxPartitionBytes(fetchPartition),
	)...)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	return &kafkaConsumer{client}, nil
}

// ErrClosed is what Poll returns after Close.
var ErrClosed = errors.New("load: consumer is closed")

func (c *kafkaConsumer) Poll(ctx context.Context, fn func(Delivery)) error {
	fetches := c.client.PollFetches(ctx)
	if fetches.IsClientClosed() {
		return ErrClosed
	}
	var err error
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		for _, r := range p.Records {
			fn(Delivery{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Time: r.Timestamp, Control: r.Attrs.IsControl()})
		}
		if p.Err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%s/%d: %w", p.Topic, p.Partition, p.Err)
		}
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (c *kafkaConsumer) Close() { c.client.Close() }
