package load

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// bufferSlack is what the client may buffer beyond the outstanding bound: it counts a record until after its outcome was told.
const bufferSlack = 1 << 16

type kafkaProducer struct {
	client  *kgo.Client
	blind   bool         // acks=0: nobody tells an offset, and the client makes one up
	waiting atomic.Int64 // records without outcome
	failed  atomic.Int64 // records of the open transaction that were not acknowledged
}

// NewProducer makes a client with every setting explicit, and connects it.
func (k *kafka) NewProducer(ctx context.Context, c ProducerConfig) (Producer, error) {
	opts, err := producerOptions(c)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(k.common(c.ClientID, slackFor(c.RequestTimeout)), opts...)...)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	if err := client.Ping(ctx); err != nil {
		client.Close()
		return nil, fmt.Errorf("load: %w", err)
	}
	return &kafkaProducer{client: client, blind: c.Acks == 0}, nil
}

// producerOptions are the settings of whatever sends.
func producerOptions(c ProducerConfig) ([]kgo.Opt, error) {
	compression, err := codec(c.Compression)
	if err != nil {
		return nil, err
	}
	opts := []kgo.Opt{
		kgo.ProduceRequestTimeout(c.RequestTimeout),
		kgo.RecordDeliveryTimeout(c.DeliveryTimeout),
		kgo.ProducerLinger(c.Linger),
		kgo.ProducerBatchMaxBytes(int32(c.BatchBytes)),
		kgo.ProducerBatchCompression(compression),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(c.MaxOutstanding + bufferSlack),
		kgo.UnknownTopicRetries(-1), // the topic exists: a broker that has not heard of it yet is no reason to lose a message
	}
	switch c.Acks {
	case 0:
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()))
	case 1:
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()))
	case -1:
		opts = append(opts, kgo.RequiredAcks(kgo.AllISRAcks()))
	default:
		return nil, fmt.Errorf("load: acks %d", c.Acks)
	}
	if c.Retries >= 0 {
		opts = append(opts, kgo.RecordRetries(c.Retries))
	}
	if !c.Idempotent { // with idempotence the client fixes five requests in flight itself
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(c.Inflight))
	} else if c.Inflight != inflightRequests {
		return nil, fmt.Errorf("load: %d requests in flight: idempotent producers of this client have %d", c.Inflight, inflightRequests)
	}
	if c.TransactionalID != "" {
		opts = append(opts, kgo.TransactionalID(c.TransactionalID), kgo.TransactionTimeout(c.TransactionTimeout))
	}
	return opts, nil
}

// envelope is a record's counterpart in the client, made once and used again with it.
type envelope struct {
	record  kgo.Record
	owner   *kafkaProducer // of the send at hand: a slot outlives its producer
	done    func(Ack)
	promise func(*kgo.Record, error)
}

func (p *kafkaProducer) Send(rec *Record, done func(Ack)) {
	e, ok := rec.Private.(*envelope)
	if !ok {
		e = &envelope{}
		e.promise = func(r *kgo.Record, err error) { e.owner.outcome(e, r, err) }
		rec.Private = e
	}
	e.owner, e.done = p, done
	r := &e.record
	r.Topic, r.Partition, r.Key, r.Value, r.Timestamp = rec.Topic, rec.Partition, rec.Key, rec.Value, time.Time{}
	p.waiting.Add(1)
	p.client.TryProduce(context.Background(), r, e.promise)
}

func (p *kafkaProducer) outcome(e *envelope, r *kgo.Record, err error) {
	a := Ack{Offset: r.Offset, Err: err}
	if err != nil || p.blind {
		a.Offset = -1
	}
	if err != nil {
		a.Definite = definite(err)
		p.failed.Add(1)
	}
	e.done(a)
	p.waiting.Add(-1)
}

// definite errors leave no doubt: the message was refused before it left, or is of a kind that no attempt can have appended.
// "Not leader" is none of them: an earlier attempt may have landed.
func definite(err error) bool {
	for _, e := range []error{kgo.ErrMaxBuffered, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.TopicAuthorizationFailed, kerr.InvalidRequiredAcks} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (p *kafkaProducer) Flush(ctx context.Context) error { return p.client.Flush(ctx) }

// Close fails what is left and waits until every record has its outcome: the client tells them from a goroutine of its own.
func (p *kafkaProducer) Close() {
	p.client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	wait(ctx, func() bool { return p.waiting.Load() == 0 })
}
