package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The tries below do once, and with one record, what a run does all the time. Each returns the cluster's own refusal, which
// DeniedResource understands, and waits no longer than tryPatience.
const tryPatience = 20 * time.Second

// tryTransaction is the time after which a cluster ends a tried transaction whose client went away.
const tryTransaction = 10 * time.Second

// CreateTopic makes a topic; with checkOnly it asks whether it would be made, and makes none.
func (i *Inspector) CreateTopic(ctx context.Context, t TopicSpec, checkOnly bool) error {
	ctx, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	copies := int16(t.ReplicationFactor)
	if copies == 0 {
		copies = -1
	}
	config := make(map[string]*string, len(t.Config))
	for k, v := range t.Config {
		config[k] = kadm.StringPtr(v)
	}
	create := i.admin.CreateTopics
	if checkOnly {
		create = i.admin.ValidateCreateTopics
	}
	answers, err := create(ctx, int32(t.Partitions), copies, config, t.Name)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if a.Err != nil && a.ErrMessage != "" {
			return fmt.Errorf("%w (%s)", a.Err, a.ErrMessage)
		}
		err = errors.Join(err, a.Err)
	}
	return err
}

// DescribeTopic waits until the topic is known and each of its partitions has a leader, and tells how many copies a partition has.
func (i *Inspector) DescribeTopic(ctx context.Context, name string) (copies int, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	for {
		m, err := i.admin.Metadata(ctx, name)
		if err == nil {
			err = m.Topics[name].Err
		}
		for _, p := range m.Topics[name].Partitions {
			copies = len(p.Replicas)
			if err == nil && (p.Err != nil || p.Leader < 0) {
				err = errors.Join(kerr.LeaderNotAvailable, p.Err)
			}
		}
		if err == nil || DeniedResource(err) != "" {
			return copies, err
		}
		if !pause(ctx, drainPause) {
			return copies, err
		}
	}
}

// TopicConfigs asks for the topic's configuration.
func (i *Inspector) TopicConfigs(ctx context.Context, name string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	configs, err := i.admin.DescribeTopicConfigs(ctx, name)
	out := map[string]string{}
	for _, c := range configs {
		err = errors.Join(err, c.Err)
		for _, kv := range c.Configs {
			out[kv.Key] = kv.MaybeValue()
		}
	}
	return out, err
}

// Write appends one record to the topic's first partition.
func (i *Inspector) Write(ctx context.Context, topic string) error {
	return i.produce(ctx, topic, kgo.DisableIdempotentWrite())
}

// WriteIdempotent appends one record as an idempotent producer.
func (i *Inspector) WriteIdempotent(ctx context.Context, topic string) error {
	return i.produce(ctx, topic)
}

func (i *Inspector) produce(ctx context.Context, topic string, more ...kgo.Opt) error {
	ctx, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	c, err := i.producer(more...)
	if err != nil {
		return err
	}
	defer c.Close()
	return told(c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("mqbench")}).FirstErr(), c)
}

// producer is a client whose records fail rather than wait.
func (i *Inspector) producer(more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(i.options("mqbench-inspector-producer", append([]kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordDeliveryTimeout(tryPatience),
		kgo.ProduceRequestTimeout(inspectOverhead),
		kgo.UnknownTopicRetries(-1),
	}, more...)...)...)
}

// told prefers the refusal that a client keeps to itself: one whose producer id was refused fails records for what followed from it.
func told(err error, c *kgo.Client) error {
	if err == nil || DeniedResource(err) != "" {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), inspectOverhead)
	defer cancel()
	if _, _, first := c.ProducerID(ctx); first != nil && DeniedResource(first) != "" {
		return first
	}
	return err
}

// Transact writes one record in a transaction and commits it. On a cluster that has seen no transaction this makes its transaction log,
// and waits for it.
func (i *Inspector) Transact(ctx context.Context, id, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	for {
		err := i.transact(ctx, id, topic)
		if !stillComing(err) || !pause(ctx, retryMost) {
			return err
		}
	}
}

// stillComing says that a coordinator is being made or elected.
func stillComing(err error) bool {
	return errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.NotCoordinator) || errors.Is(err, kerr.CoordinatorLoadInProgress)
}

func (i *Inspector) transact(ctx context.Context, id, topic string) error {
	c, err := i.producer(kgo.TransactionalID(id), kgo.TransactionTimeout(tryTransaction))
	if err != nil {
		return err
	}
	defer c.Close()
	if _, _, err := c.ProducerID(ctx); err != nil {
		return err
	}
	if err := c.BeginTransaction(); err != nil {
		return err
	}
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("mqbench")}).FirstErr(); err != nil {
		_ = c.EndTransaction(ctx, kgo.TryAbort) // the refusal is what is told; what stays open ends after tryTransaction
		return told(err, c)
	}
	return c.EndTransaction(ctx, kgo.TryCommit)
}

// Read waits for the first record of the topic's first partition, without a group.
func (i *Inspector) Read(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	c, err := kgo.NewClient(i.options("mqbench-inspector-reader",
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchMaxWait(fetchMaxWait))...)
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		fetches := c.PollFetches(ctx)
		for _, e := range fetches.Errors() {
			if DeniedResource(e.Err) != "" || ctx.Err() != nil {
				return e.Err
			}
		}
		if !fetches.Empty() {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("no record came back: %w", ctx.Err())
		}
	}
}

// CommitOffset commits a position of a group that has no members.
func (i *Inspector) CommitOffset(ctx context.Context, group, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	var at kadm.Offsets
	at.AddOffset(topic, 0, 0, -1)
	for {
		answers, err := i.admin.CommitOffsets(ctx, group, at)
		if err == nil {
			err = answers.Error()
		}
		if !stillComing(err) || !pause(ctx, retryMost) {
			return err
		}
	}
}

// DeleteTopic removes a topic; one that is not there is no error.
func (i *Inspector) DeleteTopic(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	answers, err := i.admin.DeleteTopics(ctx, name)
	if err != nil {
		return err
	}
	if err := answers.Error(); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return err
	}
	return nil
}

// DeleteGroup removes a group without members; one that is not there is no error.
func (i *Inspector) DeleteGroup(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	answers, err := i.admin.DeleteGroups(ctx, name)
	if err != nil {
		return err
	}
	if err := answers.Error(); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return err
	}
	return nil
}

// TakeProducerID asks for a producer id, without an effect on any partition: "" as an idempotent producer does, else as the
// transactional id's next producer, which ends what the one before has left open.
func (i *Inspector) TakeProducerID(ctx context.Context, transactionalID string) error {
	ctx, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	req := kmsg.NewPtrInitProducerIDRequest()
	if transactionalID != "" {
		req.TransactionalID = kmsg.StringPtr(transactionalID)
	}
	req.TransactionTimeoutMillis = int32(tryTransaction.Milliseconds())
	req.ProducerID, req.ProducerEpoch = -1, -1
	for {
		resp, err := req.RequestWith(ctx, i.client)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if !errors.Is(err, kerr.ConcurrentTransactions) && !stillComing(err) { // the former: what was open is still ending
			return err
		}
		if !pause(ctx, retryMost) {
			return err
		}
	}
}
