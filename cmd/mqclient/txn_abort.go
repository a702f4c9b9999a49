package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"gopherlog/cmd/internal/cli"
)

type txnAbort struct {
	txnName
	Topic   string `help:"The partition in which a hanging transaction is open, as in orders:2." placeholder:"TOPIC:N"`
	Offset  int64  `help:"Where the hanging transaction begins, as find-hanging shows it." default:"-1" placeholder:"OFFSET"`
	Outcome string `help:"Of one in doubt whose coordinator is lost: what other partitions of it were told. Without it, it is aborted only if none was." enum:"abort,commit," default:"" placeholder:"abort|commit"`
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
	if c.Outcome != "" || c.Offset >= 0 { // not passed over: who asks for a commit would get an abort
		return cli.Usage(fmt.Errorf("-offset and -outcome are of a hanging transaction, which -topic names: leave them out to abort %s", id))
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
	open, err := s.openIn(ctx, admin, c.Topic)
	if err != nil {
		return err
	}
	open = slices.DeleteFunc(open, func(h hangingLine) bool { return h.Offset != c.Offset })
	hanging, err := s.withoutCoordinator(admin, open, -1)
	switch {
	case err != nil:
		return err
	case len(hanging) > 0 && hanging[0].ID != "":
		return s.decree(admin, hanging[0], c.Outcome)
	case c.Outcome != "":
		return fmt.Errorf("abort: nothing that begins at offset %d of %s is in doubt without a coordinator, so it has no outcome to be told; see txn find-hanging", c.Offset, c.Topic)
	case len(hanging) > 0:
		return c.mark(s, admin, hanging[0])
	case len(open) > 0:
		return fmt.Errorf("abort: the transaction at offset %d of %s is its coordinator's to end; see txn list", c.Offset, c.Topic)
	}
	return fmt.Errorf("abort: no transaction that is open in %s begins at offset %d; see txn find-hanging", c.Topic, c.Offset)
}

func (c *txnAbort) mark(s *session, admin *kadm.Client, h hangingLine) error {
	ctx, cancel := s.limit()
	defer cancel()
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
