package load

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Client settings that no guarantee changes. A client's own defaults hide seconds of an outage: metadata at most every 5 s, retries
// after up to 2.5 s, requests given 20 s. These are small, the same for every system and guarantee, and printed.
const (
	requestTimeout = 3 * time.Second // a produce request's own limit; overrides may change it
	answerSlack    = time.Second     // what a connection gets beyond it, and for any other request
	leastSlack     = 100 * time.Millisecond
	dialTimeout    = time.Second
	metadataMinAge = 50 * time.Millisecond
	metadataMaxAge = 5 * time.Second
	retryFirst     = 10 * time.Millisecond
	retryMost      = 200 * time.Millisecond
	fetchMaxWait   = 500 * time.Millisecond
	fetchPartition = 1 << 20
	fetchBytes     = 16 << 20
	createPatience = 30 * time.Second
	closePatience  = 5 * time.Second
	endPatience    = 2 * deliveryTimeout // for the outcomes and the end of a transaction
)

// KafkaConfig says how to reach a Kafka-protocol cluster.
type KafkaConfig struct {
	Bootstrap []string
	Security  *Security    // nil: plain text, unauthenticated
	Logger    *slog.Logger // nil: quiet

	// Source names the local address from which a client dials, by its id; nil, or "": any. Encrypted connections ignore it.
	Source func(clientID string) string
}

// kafka is the Driver over franz-go. Each producer and consumer is a client with connections of its own; admin is for questions.
type kafka struct {
	cfg    KafkaConfig
	client *kgo.Client
	admin  *kadm.Client
}

// NewKafka is the driver for the Kafka protocol. It does not connect before it is used.
func NewKafka(cfg KafkaConfig) (Driver, error) {
	if len(cfg.Bootstrap) == 0 {
		return nil, errors.New("load: no bootstrap address")
	}
	k := &kafka{cfg: cfg}
	c, err := kgo.NewClient(k.common("mqbench-admin", answerSlack)...)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	k.client, k.admin = c, kadm.NewClient(c)
	return k, nil
}

// common are the settings of every client.
func (k *kafka) common(id string, overhead time.Duration) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(k.cfg.Bootstrap...),
		kgo.ClientID(id),
		kgo.DialTimeout(dialTimeout),
		kgo.RequestTimeoutOverhead(overhead),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.MetadataMaxAge(metadataMaxAge),
		kgo.RetryBackoffFn(backoff),
		kgo.RetryTimeout(deliveryTimeout),
		kgo.AlwaysRetryEOF(),
		kgo.DisableClientMetrics(),
	}
	opts = append(opts, k.cfg.Security.options()...)
	if from := k.source(id); from != "" {
		opts = append(opts, kgo.Dialer((&net.Dialer{Timeout: dialTimeout, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext))
	}
	if k.cfg.Logger != nil {
		opts = append(opts, kgo.WithLogger(quietLog{k.cfg.Logger, id}))
	}
	return opts
}

func (k *kafka) source(id string) string {
	if k.cfg.Source == nil || k.cfg.Security != nil && k.cfg.Security.TLS != nil {
		return ""
	}
	return k.cfg.Source(id)
}

// slackFor is answerSlack for producers: a scenario that shortens the request timeout wants to know soon that a broker is frozen, also
// when the broker is asked for metadata.
func slackFor(requestTimeout time.Duration) time.Duration {
	return min(max(requestTimeout/3, leastSlack), answerSlack)
}

// backoff doubles from retryFirst to retryMost, without jitter: an outage must not look longer by chance.
func backoff(tries int) time.Duration {
	return min(retryFirst<<min(max(tries-1, 0), 10), retryMost)
}

// quietLog passes on what a client warns of; its other lines would drown a terminal during faults.
type quietLog struct {
	log *slog.Logger
	id  string
}

func (q quietLog) Level() kgo.LogLevel { return kgo.LogLevelWarn }

func (q quietLog) Log(_ kgo.LogLevel, msg string, kv ...any) {
	q.log.Debug(msg, append([]any{"client", q.id}, kv...)...)
}

func (k *kafka) CreateTopics(ctx context.Context, topics []TopicSpec) error {
	ctx, cancel := context.WithTimeout(ctx, createPatience)
	defer cancel()
	for _, t := range topics {
		if err := k.createTopic(ctx, t); err != nil {
			return err
		}
	}
	for _, t := range topics {
		if err := k.awaitLeaders(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (k *kafka) createTopic(ctx context.Context, t TopicSpec) error {
	rf := int16(t.ReplicationFactor)
	if rf == 0 {
		rf = -1
	}
	config := make(map[string]*string, len(t.Config))
	for key, v := range t.Config {
		config[key] = kadm.StringPtr(v)
	}
	for tries := 0; ; tries++ {
		answer, err := k.admin.CreateTopic(ctx, int32(t.Partitions), rf, config, t.Name)
		if err == nil {
			err = answer.Err
		}
		switch {
		case err == nil, tries > 0 && errors.Is(err, kerr.TopicAlreadyExists): // an earlier try whose answer was lost
			return nil
		case !kerr.IsRetriable(err) && !isTransport(err):
			return fmt.Errorf("topic %s: %w %s", t.Name, err, answer.ErrMessage)
		case !pause(ctx, retryMost):
			return fmt.Errorf("topic %s: %w", t.Name, err)
		}
	}
}

// isTransport tells errors of the way from errors of the answer.
func isTransport(err error) bool {
	var k *kerr.Error
	return !errors.As(err, &k)
}

func (k *kafka) awaitLeaders(ctx context.Context, t TopicSpec) error {
	for {
		leaders, err := k.Leaders(ctx, t.Name)
		led := 0
		for _, node := range leaders {
			if node >= 0 {
				led++
			}
		}
		if err == nil && led == t.Partitions {
			return nil
		}
		if !pause(ctx, drainPause) {
			return fmt.Errorf("topic %s: %d of %d partitions have a leader: %w", t.Name, led, t.Partitions, errors.Join(err, ctx.Err()))
		}
	}
}

func (k *kafka) DeleteTopics(ctx context.Context, names []string) error {
	answers, err := k.admin.DeleteTopics(ctx, names...)
	if err != nil {
		return fmt.Errorf("load: delete topics: %w", err)
	}
	for _, a := range answers {
		if a.Err != nil && !errors.Is(a.Err, kerr.UnknownTopicOrPartition) {
			err = errors.Join(err, fmt.Errorf("load: delete topic %s: %w", a.Topic, a.Err))
		}
	}
	return err
}

func (k *kafka) EndOffsets(ctx context.Context, topic string) (map[int32]OffsetAnswer, error) {
	listed, err := k.admin.ListEndOffsets(ctx, topic)
	return answersOf(listed[topic], err)
}

// StableOffsets are the last stable offsets.
func (k *kafka) StableOffsets(ctx context.Context, topic string) (map[int32]OffsetAnswer, error) {
	listed, err := k.admin.ListCommittedOffsets(ctx, topic)
	return answersOf(listed[topic], err)
}

func (k *kafka) StartOffsets(ctx context.Context, topic string) (map[int32]OffsetAnswer, error) {
	listed, err := k.admin.ListStartOffsets(ctx, topic)
	return answersOf(listed[topic], err)
}

func answersOf(listed map[int32]kadm.ListedOffset, err error) (map[int32]OffsetAnswer, error) {
	out := map[int32]OffsetAnswer{}
	for p, o := range listed {
		if o.Err == nil {
			out[p] = OffsetAnswer{Offset: o.Offset, LeaderEpoch: o.LeaderEpoch}
		} else if err == nil {
			err = o.Err
		}
	}
	return out, err
}

func (k *kafka) Leaders(ctx context.Context, topic string) (map[int32]int32, error) {
	t, err := k.topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := map[int32]int32{}
	for p, d := range t.Partitions {
		out[p] = d.Leader
	}
	return out, nil
}

func (k *kafka) Replicas(ctx context.Context, topic string) (map[int32][]int32, error) {
	t, err := k.topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := map[int32][]int32{}
	for p, d := range t.Partitions {
		out[p] = d.Replicas
	}
	return out, nil
}

// InSync names the nodes that hold each partition and are in sync with its leader.
func (k *kafka) InSync(ctx context.Context, topic string) (map[int32][]int32, error) {
	t, err := k.topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := map[int32][]int32{}
	for p, d := range t.Partitions {
		out[p] = d.ISR
	}
	return out, nil
}

func (k *kafka) topic(ctx context.Context, name string) (kadm.TopicDetail, error) {
	m, err := k.admin.Metadata(ctx, name)
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	t := m.Topics[name]
	return t, t.Err
}

func (k *kafka) TopicConfig(ctx context.Context, topic string) (map[string]string, error) {
	configs, err := k.admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("load: configuration of %s: %w", topic, err)
	}
	out := map[string]string{}
	for _, c := range configs {
		if c.Err != nil {
			return nil, fmt.Errorf("load: configuration of %s: %w", topic, c.Err)
		}
		for _, kv := range c.Configs {
			out[kv.Key] = kv.MaybeValue()
		}
	}
	return out, nil
}

func (k *kafka) Settings(c ProducerConfig) []Setting {
	isolation := "read_uncommitted"
	if c.TransactionTimeout > 0 {
		isolation = "read_committed"
	}
	deviates := func(key string) bool { _, ok := c.Overrides[key]; return ok }
	acks := map[int]string{0: "0", 1: "1", -1: "all"}[c.Acks]
	retries := fmt.Sprint(c.Retries)
	if c.Retries < 0 {
		retries = fmt.Sprintf("until %v", c.DeliveryTimeout)
	}
	return []Setting{
		{Key: "client", Value: "franz-go"},
		{Key: "acks", Value: acks, Guarantee: true, Deviates: deviates("acks")},
		{Key: "idempotence", Value: fmt.Sprint(c.Idempotent), Guarantee: true},
		{Key: "retries", Value: retries, Guarantee: true, Deviates: deviates("retries")},
		{Key: "delivery timeout", Value: c.DeliveryTimeout.String(), Guarantee: true, Deviates: deviates("delivery_timeout")},
		{Key: "requests in flight per broker", Value: fmt.Sprint(c.Inflight), Guarantee: true, Deviates: deviates("max_in_flight")},
		{Key: "isolation", Value: isolation, Guarantee: true},
		{Key: "linger", Value: c.Linger.String()},
		{Key: "batch bytes", Value: fmt.Sprint(c.BatchBytes)},
		{Key: "compression", Value: c.Compression},
		{Key: "request timeout", Value: fmt.Sprintf("%v + %v", c.RequestTimeout, slackFor(c.RequestTimeout)), Deviates: deviates("request_timeout")},
		{Key: "metadata min age", Value: metadataMinAge.String()},
		{Key: "metadata max age", Value: metadataMaxAge.String()},
		{Key: "retry backoff", Value: fmt.Sprintf("%v doubling to %v", retryFirst, retryMost)},
		{Key: "fetch max wait", Value: fetchMaxWait.String()},
		{Key: "fetch bytes", Value: fmt.Sprintf("%d per partition, %d in all", fetchPartition, fetchBytes)},
	}
}

func (k *kafka) Close() { k.client.Close() }

// codec names a compression as the client wants it.
func codec(name string) (kgo.CompressionCodec, error) {
	switch name {
	case "none", "":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.NoCompression(), fmt.Errorf("load: compression %q is not one of %s", name, strings.Join([]string{"none", "gzip", "snappy", "lz4", "zstd"}, ", "))
}
