package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"gopherlog/cmd/internal/cli"
)

type txnFindHanging struct {
	Topic string        `help:"Only this topic, or some partitions of it as in orders:0,2." placeholder:"TOPIC[:N,...]"`
	Older time.Duration `help:"Only transactions whose producer wrote nothing for longer: a shorter one may be waiting for its coordinator." default:"15m" placeholder:"DURATION"`
}

// hangingLine is a transaction that is open in a partition.
type hangingLine struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Producer  int64   `json:"producer_id"`
	Epoch     int16   `json:"epoch"`
	Offset    int64   `json:"offset"` // where it begins
	Silent    float64 `json:"silent_seconds"`

	coordinatorEpoch int32
}

// Run prints one line per hanging transaction.
func (c *txnFindHanging) Run(s *session) error {
	admin, err := s.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	ctx, cancel := s.limit()
	defer cancel()
	open, short := openIn(ctx, admin, c.Topic)
	if short != nil && !isUnheard(short) {
		return short
	}
	old := slices.DeleteFunc(open, func(h hangingLine) bool { return h.Silent <= c.Older.Seconds() })
	hanging, err := s.withoutCoordinator(ctx, admin, old, c.Older)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	if !s.json {
		fmt.Fprintln(w, "TOPIC\tPARTITION\tOFFSET\tPRODUCER\tSILENT FOR")
	}
	for _, h := range hanging {
		if s.json {
			if err := s.printJSON(h); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d:%d\t%s\n", h.Topic, h.Partition, h.Offset, h.Producer, h.Epoch, age(h.Silent))
	}
	return errors.Join(w.Flush(), short)
}

// openIn are the transactions that are open in partitions; an empty text means all topics. With an error that isUnheard those of some
// partitions are missing.
func openIn(ctx context.Context, admin *kadm.Client, text string) (open []hangingLine, err error) {
	set, missing := kadm.TopicsSet{}, &unheard{}
	some := somePartitions{}
	var topics []string
	if text != "" {
		if some, err = parsePartitions(text); err != nil {
			return nil, err
		}
		topics = []string{some.topic}
	}
	details, err := admin.ListTopicsWithInternal(ctx, topics...)
	if err != nil {
		return nil, refused("list topics", err, "")
	}
	for name, d := range details {
		if d.Err != nil {
			return nil, refused("describe topic "+name, d.Err, "")
		}
		for _, p := range d.Partitions.Sorted() {
			switch {
			case !some.has(p.Partition):
			case p.Leader < 0:
				missing.shards = append(missing.shards, shard{name, p.Partition})
			default:
				set.Add(name, p.Partition)
			}
		}
	}
	if len(set) == 0 { // no partition would mean all
		return nil, missing.orNil("find transactions")
	}
	described, err := admin.DescribeProducers(ctx, set)
	if err != nil {
		return nil, refused("describe producers", err, "")
	}
	now := time.Now()
	for _, p := range described.SortedPartitions() {
		if errors.Is(p.Err, kerr.LeaderNotAvailable) || errors.Is(p.Err, kerr.NotLeaderForPartition) {
			missing.shards = append(missing.shards, shard{p.Topic, p.Partition})
			continue
		}
		if p.Err != nil {
			return nil, refused(fmt.Sprintf("describe producers of %s-%d", p.Topic, p.Partition), p.Err, p.ErrMessage)
		}
		for _, a := range p.ActiveProducers.Sorted() {
			if a.CurrentTxnStartOffset < 0 {
				continue
			}
			open = append(open, hangingLine{Topic: p.Topic, Partition: p.Partition, Producer: a.ProducerID, Epoch: a.ProducerEpoch, Offset: a.CurrentTxnStartOffset,
				Silent: max(0, now.Sub(time.UnixMilli(a.LastTimestamp)).Seconds()), coordinatorEpoch: a.CoordinatorEpoch})
		}
	}
	return open, missing.orNil("find transactions")
}

// withoutCoordinator are those of the open transactions that no coordinator knows to be under way in their partition. It fails if one
// coordinator cannot say: a transaction of its would be taken for one that hangs.
func (s *session) withoutCoordinator(ctx context.Context, admin *kadm.Client, open []hangingLine, older time.Duration) (out []hangingLine, err error) {
	var ids []int64
	for _, h := range open {
		ids = append(ids, h.Producer)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	listed, err := transactions(ctx, admin, ids, nil)
	var short *unheard
	if errors.As(err, &short) && len(short.shards) > 0 {
		return nil, refused("find transactions", err, fmt.Sprintf("%s open, and whether a coordinator will end them cannot be told: nobody leads %s; see cluster status",
			count(len(open), "transaction is", "transactions are"), named(short.shards)))
	}
	if err != nil {
		return nil, err
	}
	described, err := s.described(listed.TransactionalIDs())
	if err != nil {
		return nil, err
	}
	known := map[int64]txnShown{}
	for id, d := range described {
		if d.Err != nil {
			return nil, refused("describe "+id, d.Err, "")
		}
		known[d.ProducerID] = d
	}
	return hangs(open, known, older), nil
}

// hangs picks those that are in no transaction which the coordinator of the producer, if there is one, is to end.
func hangs(open []hangingLine, known map[int64]txnShown, older time.Duration) (out []hangingLine) {
	for _, h := range open {
		d, there := known[h.Producer]
		if there && unfinished(d.State) && d.Topics.Lookup(h.Topic, h.Partition) || h.Silent <= older.Seconds() {
			continue
		}
		out = append(out, h)
	}
	return out
}

type txnAbort struct {
	txnName
	Topic  string `help:"The partition in which a hanging transaction is open, as in orders:2." placeholder:"TOPIC:N"`
	Offset int64  `help:"Where the hanging transaction begins, as find-hanging shows it." default:"-1" placeholder:"OFFSET"`
}

// Run aborts a transaction.
func (c *txnAbort) Run(s *session) error {
	if c.Topic != "" {
		if c.Name != "" || c.ID != "" {
			return cli.Usage(errors.New("give a transactional id, or -topic and -offset of a hanging transaction, not both"))
		}
		return c.hanging(s)
	}
	id, err := c.get()
	if err != nil {
		return err
	}
	return c.owner(s, id)
}

// owner takes the transactional id over, which aborts what is open and shuts its producer out.
func (c *txnAbort) owner(s *session, id string) error {
	admin, err := s.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	d, err := s.transaction(admin, id)
	if err != nil {
		return err
	}
	if !unfinished(d.State) {
		return fmt.Errorf("abort %s: no transaction is open: it is %s", id, d.State)
	}
	client, err := s.connect(kgo.TransactionalID(id), kgo.TransactionTimeout(max(time.Duration(d.TimeoutMillis)*time.Millisecond, time.Millisecond)))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := s.limit()
	defer cancel()
	producer, epoch, err := client.ProducerID(ctx)
	if errors.Is(err, context.DeadlineExceeded) && strings.HasPrefix(d.State, "Prepare") {
		return refused("abort "+id, err, fmt.Sprintf("it is %s: decided, and over as soon as its partitions have taken the outcome: %s; see cluster status", d.State, strings.Join(partitionsOf(d), " ")))
	}
	if err != nil {
		return refused("abort "+id, s.unled(admin, txnShards, err), "")
	}
	after, err := s.transaction(admin, id)
	if err != nil {
		return err
	}
	return s.print(map[string]any{"transactional_id": id, "was": d.State, "state": after.State, "producer_id": producer, "epoch": epoch},
		"took over %s, which was %s: its producer is shut out, and a transaction that was not decided is aborted", id, d.State)
}

// hanging writes the marker that no coordinator will write.
func (c *txnAbort) hanging(s *session) error {
	some, err := parsePartitions(c.Topic)
	if err != nil {
		return err
	}
	if len(some.numbers) != 1 || c.Offset < 0 {
		return cli.Usage(errors.New("give the partition and the offset at which the transaction begins, as in -topic orders:2 -offset 1234"))
	}
	admin, err := s.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	ctx, cancel := s.limit()
	defer cancel()
	open, err := openIn(ctx, admin, c.Topic)
	if err != nil {
		return err
	}
	hanging, err := s.withoutCoordinator(ctx, admin, open, -1)
	if err != nil {
		return err
	}
	for _, h := range open {
		if h.Offset != c.Offset {
			continue
		}
		if !containsLine(hanging, h) {
			return fmt.Errorf("abort: the transaction at offset %d of %s is its coordinator's to end; see txn list", c.Offset, c.Topic)
		}
		return c.mark(ctx, s, admin, h)
	}
	return fmt.Errorf("abort: no transaction that is open in %s begins at offset %d; see txn find-hanging", c.Topic, c.Offset)
}

func containsLine(all []hangingLine, h hangingLine) bool {
	for _, x := range all {
		if x == h {
			return true
		}
	}
	return false
}

func (c *txnAbort) mark(ctx context.Context, s *session, admin *kadm.Client, h hangingLine) error {
	set := kadm.TopicsSet{}
	set.Add(h.Topic, h.Partition)
	done, err := admin.WriteTxnMarkers(ctx, kadm.TxnMarkers{
		ProducerID: h.Producer, ProducerEpoch: h.Epoch, CoordinatorEpoch: max(h.coordinatorEpoch, 0), Topics: set,
	})
	if err != nil {
		return refused("abort", err, "")
	}
	for _, r := range done.SortedPartitions() {
		if r.Err != nil {
			return refused(fmt.Sprintf("abort in %s-%d", r.Topic, r.Partition), r.Err, "")
		}
	}
	return s.print(h, "aborted the transaction of producer %d:%d that began at offset %d of %s-%d", h.Producer, h.Epoch, h.Offset, h.Topic, h.Partition)
}
