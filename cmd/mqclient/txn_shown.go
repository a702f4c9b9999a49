package main

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/txn/twopc"
)

// txnShown is a transactional id as its coordinator shows it.
type txnShown struct {
	kadm.DescribedTransaction
	phase   string // of a voted transaction; else empty
	inDoubt int64  // when its partitions were asked for promises, in milliseconds since 1970; 0: none can be in doubt
}

// describe asks the coordinators of transactional ids about them. An id that nobody could tell of is missing, and the error says why.
func (s *session) describe(ctx context.Context, ids ...string) (map[string]txnShown, error) {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = ids
	all, failed := map[string]txnShown{}, &kadm.ShardErrors{Name: kmsg.NameForKey(req.Key())}
	shards := s.client.RequestSharded(ctx, req)
	for _, shard := range shards {
		if shard.Err != nil {
			failed.Errs = append(failed.Errs, kadm.ShardError{Req: shard.Req, Err: shard.Err, Broker: shard.Meta})
			continue
		}
		for _, state := range shard.Resp.(*kmsg.DescribeTransactionsResponse).TransactionStates {
			all[state.TransactionalID] = shownOf(shard, state)
		}
	}
	if len(failed.Errs) > 0 {
		failed.AllFailed = len(failed.Errs) == len(shards)
		return all, failed
	}
	if len(ids) == 1 && len(all) == 0 {
		return nil, errors.New("nobody answered")
	}
	return all, nil
}

func shownOf(by kgo.ResponseShard, d kmsg.DescribeTransactionsResponseTransactionState) txnShown {
	out := txnShown{DescribedTransaction: kadm.DescribedTransaction{
		Coordinator: by.Meta.NodeID, TxnID: d.TransactionalID, State: d.State, TimeoutMillis: d.TimeoutMillis, StartTimestamp: d.StartTimestamp,
		ProducerID: d.ProducerID, ProducerEpoch: d.ProducerEpoch, Err: kerr.ErrorForCode(d.ErrorCode),
	}}
	for _, t := range d.Topics {
		out.Topics.Add(t.Topic, t.Partitions...)
	}
	d.UnknownTags.Each(func(tag uint32, value []byte) {
		switch {
		case tag == twopc.TagPhase:
			out.phase = string(value)
		case tag == twopc.TagInDoubt && len(value) == 8:
			out.inDoubt = int64(binary.BigEndian.Uint64(value))
		}
	})
	return out
}
