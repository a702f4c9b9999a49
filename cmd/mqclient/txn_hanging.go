package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/txn/twopc"
)

type txnFindHanging struct {
	Topic string        `help:"Only this topic, or some partitions of it as in orders:0,2." placeholder:"TOPIC[:N,...]"`
	Older time.Duration `help:"Only transactions whose producer wrote nothing for longer: a shorter one may be waiting for its coordinator. Default: ${default}." default:"15m" placeholder:"DURATION"`
}

// hangingLine is a transaction that is open in a partition.
type hangingLine struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Producer  int64   `json:"producer_id"`
	Epoch     int16   `json:"epoch"`
	Offset    int64   `json:"offset"` // where it begins
	Silent    float64 `json:"silent_seconds"`

	// Of one that was promised in a voted commit, and whose outcome is not known there.
	ID      string  `json:"transactional_id,omitempty"`
	InDoubt float64 `json:"in_doubt_seconds"` // since the promise; -1: not in doubt, or not known
	Why     string  `json:"why"`

	coordinatorEpoch int32
}

// Run prints one line per hanging transaction. Where some coordinators cannot say, so does the error.
func (c *txnFindHanging) Run(s *session) error {
	admin, err := s.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	ctx, cancel := s.limit()
	defer cancel()
	open, short := s.openIn(ctx, admin, c.Topic)
	if short != nil && !isUnheard(short) {
		return short
	}
	old := slices.DeleteFunc(open, func(h hangingLine) bool { return max(h.Silent, h.InDoubt) <= c.Older.Seconds() })
	hanging, err := s.withoutCoordinator(admin, old, c.Older)
	if err != nil && !isUnheard(err) {
		return err
	}
	short = cmp.Or(err, short)
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	if !s.json {
		fmt.Fprintln(w, "TOPIC\tPARTITION\tOFFSET\tPRODUCER\tSILENT FOR\tIN DOUBT FOR\tWHY")
	}
	for _, h := range hanging {
		if s.json {
			if err := s.printJSON(h); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d:%d\t%s\t%s\t%s\n", h.Topic, h.Partition, h.Offset, h.Producer, h.Epoch, age(h.Silent), age(h.InDoubt), h.Why)
	}
	return errors.Join(w.Flush(), short)
}

// openIn are the transactions that are open in partitions; an empty text means all topics. With an error that isUnheard those of some
// partitions are missing.
func (s *session) openIn(ctx context.Context, admin *kadm.Client, text string) (open []hangingLine, err error) {
	all, err := s.producersIn(ctx, admin, text)
	return slices.DeleteFunc(all, func(h hangingLine) bool { return h.Offset < 0 }), err
}

// producersIn are the producers that partitions remember, with what is open there; of one with nothing open Offset is negative.
func (s *session) producersIn(ctx context.Context, admin *kadm.Client, text string) (all []hangingLine, err error) {
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
		if slices.Contains(txnShards, name) {
			continue // what coordinators write is in no transaction
		}
		if err := some.allIn(d.Partitions.Numbers()); err != nil {
			return nil, err
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
	all, err = s.producersAt(ctx, set, missing)
	if err != nil {
		return nil, err
	}
	return all, missing.orNil("find transactions")
}

// producersAt asks the leaders of partitions. Partitions whose leaders moved meanwhile are missing.
func (s *session) producersAt(ctx context.Context, set kadm.TopicsSet, missing *unheard) (all []hangingLine, err error) {
	if len(set) == 0 { // no partition would mean all
		return nil, nil
	}
	req := kmsg.NewPtrDescribeProducersRequest()
	for _, t := range set.Sorted() {
		topic := kmsg.NewDescribeProducersRequestTopic()
		topic.Topic, topic.Partitions = t.Topic, t.Partitions
		req.Topics = append(req.Topics, topic)
	}
	now := time.Now()
	for _, answer := range s.client.RequestSharded(ctx, req) {
		if answer.Err != nil {
			return nil, refused("describe producers", answer.Err, "")
		}
		for _, t := range answer.Resp.(*kmsg.DescribeProducersResponse).Topics {
			for _, p := range t.Partitions {
				switch err := kerr.ErrorForCode(p.ErrorCode); {
				case errors.Is(err, kerr.LeaderNotAvailable), errors.Is(err, kerr.NotLeaderForPartition):
					missing.shards = append(missing.shards, shard{t.Topic, p.Partition})
				case err != nil:
					return nil, refused(fmt.Sprintf("describe producers of %s-%d", t.Topic, p.Partition), err, said(p.ErrorMessage))
				}
				for _, a := range p.ActiveProducers {
					all = append(all, producerLine(t.Topic, p.Partition, a, now))
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b hangingLine) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Producer, b.Producer))
	})
	return all, nil
}

func producerLine(topic string, number int32, a kmsg.DescribeProducersResponseTopicPartitionActiveProducer, now time.Time) hangingLine {
	h := hangingLine{Topic: topic, Partition: number, Producer: a.ProducerID, Epoch: int16(a.ProducerEpoch), Offset: a.CurrentTxnStartOffset,
		Silent: max(0, now.Sub(time.UnixMilli(a.LastTimestamp)).Seconds()), InDoubt: -1, Why: whyHanging, coordinatorEpoch: a.CoordinatorEpoch}
	a.UnknownTags.Each(func(tag uint32, value []byte) {
		switch {
		case tag == twopc.TagTransactionalID:
			h.ID = string(value)
		case tag == twopc.TagInDoubt && len(value) == 8 && binary.BigEndian.Uint64(value) != 0:
			h.InDoubt = max(0, now.Sub(time.UnixMilli(int64(binary.BigEndian.Uint64(value)))).Seconds())
		}
	})
	return h
}

// said is a message of a node, which may be none.
func said(message *string) string {
	if message == nil {
		return ""
	}
	return *message
}

// whyHanging is why a transaction that is in no doubt is in the list.
const whyHanging = "no coordinator knows it"

// withoutCoordinator are those of the open transactions that no coordinator will end: nobody knows that they are under way in their partition,
// or they were promised there and nobody leads who decides. With an error that isUnheard it cannot be told of the others, for one coordinator
// cannot say: a transaction of its would be taken for one that hangs.
func (s *session) withoutCoordinator(admin *kadm.Client, open []hangingLine, older time.Duration) (out []hangingLine, err error) {
	var rest, doubts []hangingLine
	var producers []int64
	var ids []string
	for _, h := range open {
		if h.ID == "" {
			rest, producers = append(rest, h), append(producers, h.Producer)
		} else {
			doubts, ids = append(doubts, h), append(ids, h.ID)
		}
	}
	there, err := s.coordinatorsThere(ids...)
	if err != nil {
		return nil, err
	}
	for _, h := range doubts {
		if !there[h.ID] {
			h.Why = fmt.Sprintf("in doubt: promised, and nobody leads the coordinator of %s", h.ID)
			out = append(out, h)
		}
	}
	if len(rest) == 0 {
		return out, nil
	}
	ctx, cancel := s.limit()
	defer cancel()
	listed, err := transactions(ctx, admin, producers, nil)
	var short *unheard
	if errors.As(err, &short) && len(short.shards) > 0 {
		return out, refused("find transactions", err, fmt.Sprintf("%s open, and whether a coordinator will end them cannot be told: nobody leads %s; see cluster status",
			count(len(rest), "transaction is", "transactions are"), named(short.shards)))
	}
	if err != nil {
		return out, err
	}
	described, err := s.described(listed.TransactionalIDs())
	if err != nil {
		return out, err
	}
	known := map[int64]txnShown{}
	for id, d := range described {
		if d.Err != nil {
			return out, refused("describe "+id, d.Err, "")
		}
		known[d.ProducerID] = d
	}
	return append(out, hangs(rest, known, older)...), nil
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
