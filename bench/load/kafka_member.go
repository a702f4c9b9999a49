package load

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkaMember is a client of its own, behind a gate. Exactly one of session and client alone is used to end what was polled.
type kafkaMember struct {
	client     *kgo.Client
	session    *kgo.GroupTransactSession // nil: no transactions
	gate       *gate
	membership *membership
	holding    int                // in which the last poll was
	end        context.CancelFunc // of everything that the client does
	failed     atomic.Int64       // messages of the open transaction that were not acknowledged
}

// heartbeats is how many a member sends within its session timeout.
const heartbeats = 10

// NewMember joins a group in the background: partitions come with polls.
func (k *kafka) NewMember(ctx context.Context, c MemberConfig) (Member, error) {
	m := &kafkaMember{gate: newGate(), membership: newMembership()}
	m.gate.source = k.source(c.ClientID)
	life, end := context.WithCancel(context.Background())
	m.end = end
	producing, err := producerOptions(c.Producer)
	if err != nil {
		end()
		return nil, err
	}
	isolation := kgo.ReadUncommitted()
	if c.ReadCommitted {
		isolation = kgo.ReadCommitted()
	}
	opts := append(k.behind(m.gate).common(c.ClientID, answerSlack), producing...)
	opts = append(opts,
		kgo.WithContext(life),
		kgo.Dialer(m.gate.dial),
		kgo.ConsumerGroup(c.Group),
		kgo.ConsumeTopics(c.Topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(m.membership),
		kgo.WithHooks(m.membership),
		kgo.SessionTimeout(c.SessionTimeout),
		kgo.RebalanceTimeout(c.Rebalance),
		kgo.HeartbeatInterval(c.SessionTimeout/heartbeats),
		kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(isolation),
		kgo.FetchMaxWait(fetchMaxWait),
		kgo.FetchMinBytes(1),
		kgo.FetchMaxBytes(fetchBytes),
		kgo.FetchMaxPartitionBytes(fetchPartition),
	)
	opts = append(opts, watchOptions(c.Watch)...)
	if c.Producer.TransactionalID != "" {
		m.session, err = kgo.NewGroupTransactSession(opts...)
		if err == nil {
			m.client = m.session.Client()
		}
	} else {
		m.client, err = kgo.NewClient(append(opts, kgo.BlockRebalanceOnPoll())...)
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("load: %w", err)
	}
	if err := m.client.Ping(ctx); err != nil {
		m.Crash()
		return nil, fmt.Errorf("load: %w", err)
	}
	return m, nil
}

// behind is k for a client whose gate dials: it encrypts and binds, too.
func (k *kafka) behind(g *gate) *kafka {
	plain := *k
	plain.cfg.Source = nil // a client has one dialer
	if k.cfg.Security != nil {
		sec := *k.cfg.Security
		g.tls, sec.TLS = sec.TLS, nil
		plain.cfg.Security = &sec
	}
	return &plain
}

func watchOptions(w MemberWatch) []kgo.Opt {
	each := func(cl *kgo.Client, partitions map[string][]int32, fn func(topic string, partition, generation int32)) {
		_, generation := cl.GroupMetadata()
		for topic, list := range partitions {
			for _, p := range list {
				fn(topic, p, generation)
			}
		}
	}
	return []kgo.Opt{
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, got map[string][]int32) { each(cl, got, w.Assigned) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, cl *kgo.Client, gave map[string][]int32) {
			each(cl, gave, func(t string, p, g int32) { w.Revoked(t, p, g, false) })
		}),
		kgo.OnPartitionsLost(func(_ context.Context, cl *kgo.Client, lost map[string][]int32) {
			each(cl, lost, func(t string, p, g int32) { w.Revoked(t, p, g, true) })
		}),
		kgo.AdjustFetchOffsetsFn(func(_ context.Context, told map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			for topic, list := range told {
				for p, o := range list {
					w.Position(topic, p, max(o.EpochOffset().Offset, -1)) // below zero it says where to begin without one
				}
			}
			return told, nil
		}),
	}
}

func (m *kafkaMember) Poll(ctx context.Context, most int, fn func(Delivery)) error {
	holding, err := m.membership.await(ctx)
	if holding == 0 {
		return err
	}
	m.holding = holding
	fetches := m.client.PollRecords(ctx, most)
	if fetches.IsClientClosed() {
		return ErrClosed
	}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		for _, r := range p.Records {
			fn(Delivery{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Time: r.Timestamp})
		}
		var told *kgo.ErrGroupSession // by membership
		if p.Err != nil && ctx.Err() == nil && !errors.As(p.Err, &told) {
			err = fmt.Errorf("%s/%d: %w", p.Topic, p.Partition, p.Err)
		}
	})
	return err
}

func (m *kafkaMember) Generation() int32 {
	_, generation := m.client.GroupMetadata()
	return generation
}

func (m *kafkaMember) Send(rec *Record, done func(Ack)) {
	r := &kgo.Record{Topic: rec.Topic, Partition: rec.Partition, Key: rec.Key, Value: rec.Value}
	m.client.TryProduce(context.Background(), r, func(r *kgo.Record, err error) {
		a := Ack{Offset: r.Offset, Err: err}
		if err != nil {
			a.Offset, a.Definite = -1, definite(err)
			m.failed.Add(1)
		}
		done(a)
	})
}

func (m *kafkaMember) Flush(ctx context.Context) error { return m.client.Flush(ctx) }

func (m *kafkaMember) Commit(ctx context.Context, places []Place, answer func(Place, error)) {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for _, p := range places {
		if offsets[p.Topic] == nil {
			offsets[p.Topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[p.Topic][p.Partition] = kgo.EpochOffset{Epoch: -1, Offset: p.Offset}
	}
	errs := map[Place]error{}
	ctx = kgo.PreCommitFnContext(ctx, func(*kmsg.OffsetCommitRequest) error {
		if !m.membership.lasts(m.holding) {
			return errForgotten
		}
		return nil
	})
	m.client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		for _, p := range places {
			errs[p] = err
		}
		if err != nil || resp == nil {
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				place := Place{t.Topic, p.Partition, offsets[t.Topic][p.Partition].Offset}
				errs[place] = kerr.ErrorForCode(p.ErrorCode)
			}
		}
	})
	for _, p := range places {
		err, told := errs[p]
		if !told {
			err = errors.New("load: commit: no answer")
		}
		answer(p, err)
	}
}

// refusedPosition says whether a commit outside of a transaction was certainly not done.
func refusedPosition(err error) bool {
	for _, e := range []error{errForgotten, kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.RebalanceInProgress, kerr.FencedInstanceID, kerr.OffsetMetadataTooLarge} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (m *kafkaMember) Release() {
	if m.session == nil {
		m.client.AllowRebalance()
	}
}

func (m *kafkaMember) Init(ctx context.Context) (int32, error) {
	_, epoch, err := m.client.ProducerID(ctx)
	if err != nil {
		return -1, fmt.Errorf("load: init producer id: %w", err)
	}
	return int32(epoch), nil
}

func (m *kafkaMember) Begin() error {
	m.failed.Store(0)
	if err := m.session.Begin(); err != nil {
		return fmt.Errorf("load: begin: %w", err)
	}
	return nil
}

func (m *kafkaMember) End(ctx context.Context, commit bool) TxnEnd {
	if err := m.client.Flush(ctx); err != nil {
		return TxnEnd{Err: fmt.Errorf("load: flush: %w", err), Broken: true}
	}
	if n := m.failed.Load(); commit && n > 0 {
		commit = false
	}
	commit = commit && m.membership.lasts(m.holding) // what is lost from here on, the session knows
	committed, err := m.session.End(ctx, kgo.TransactionEndTry(commit))
	switch {
	case errors.Is(err, kerr.UnknownProducerID): // how a voted transaction says that a partition voted no
		return TxnEnd{Result: TxnAborted, Err: fmt.Errorf("load: end of a transaction: %w", err), Broken: true}
	case err != nil:
		return TxnEnd{Err: fmt.Errorf("load: end of a transaction: %w", err), Broken: true}
	case committed:
		return TxnEnd{Result: TxnCommitted}
	}
	return TxnEnd{Result: TxnAborted}
}

func (m *kafkaMember) Freeze() { m.gate.hold() }
func (m *kafkaMember) Thaw()   { m.gate.open() }

// Crash severs the connections first, so that whatever the client says at its end is not heard.
func (m *kafkaMember) Crash() {
	m.gate.sever()
	m.end()
	m.client.CloseAllowingRebalance()
}

func (m *kafkaMember) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	stop := context.AfterFunc(ctx, m.end) // a coordinator that is away must not hold up the end of a trial
	defer stop()
	m.client.CloseAllowingRebalance()
	m.end()
}

func (k *kafka) Positions(ctx context.Context, group string) ([]Place, error) {
	got, err := k.admin.FetchOffsets(kadm.RequireStable(ctx), group)
	if err != nil {
		return nil, fmt.Errorf("load: positions of group %s: %w", group, err)
	}
	var out []Place
	for _, o := range got.Sorted() {
		if o.Err != nil {
			return nil, fmt.Errorf("load: positions of group %s: %w", group, o.Err)
		}
		out = append(out, Place{o.Topic, o.Partition, o.At})
	}
	return out, nil
}
