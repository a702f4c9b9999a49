package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// The internal topics whose shards' leaders know groups and transactional ids, on GopherLog and on Kafka.
var (
	groupShards = []string{"__consumer_offsets"}
	txnShards   = []string{"__transaction_state", "__two_phase_commit"}
)

const (
	askAgain   = 100 * time.Millisecond
	shardsWait = 2 * time.Second // for one look at who leads the shards
)

// shard is a partition of an internal topic.
type shard struct {
	topic  string
	number int32
}

// tenure is one leadership of a shard, as far as clients are told.
type tenure struct {
	leader, epoch int32
	lastEpoch     int32 // of what it wrote last
}

// unheard are shards of which a list knows nothing.
type unheard struct {
	shards []shard // that nobody leads
	why    string  // when there are none
}

// isUnheard: what was heard can be told, and what is missing with it.
func isUnheard(err error) bool {
	var short *unheard
	return errors.As(err, &short)
}

func (u *unheard) Error() string {
	if len(u.shards) == 0 {
		return u.why
	}
	numbers := map[string][]int32{}
	for _, s := range u.shards {
		numbers[s.topic] = append(numbers[s.topic], s.number)
	}
	var parts []string
	for _, topic := range slices.Sorted(maps.Keys(numbers)) {
		parts = append(parts, fmt.Sprintf("%s[%s]", topic, joined(sorted(numbers[topic]))))
	}
	return "nobody leads " + strings.Join(parts, " ") + ": what was kept there is missing"
}

// fromAll asks every coordinator, until each shard of the topics was led by one and the same node, which serves it, before and after it was
// asked: a shard whose leader dies or is not elected yet is in nobody's answer, and nobody can say that it is missing. What was heard last
// stands when the time is up; the error says what is missing in it.
func fromAll(ctx context.Context, admin *kadm.Client, topics []string, ask func() error) error {
	return gather(ctx, func() (map[shard]tenure, error) { return tenures(ctx, admin, topics) }, ask)
}

func gather(ctx context.Context, look func() (map[shard]tenure, error), ask func() error) error {
	before, missing := look()
	for {
		err := ask()
		if err != nil && !away(err) && !someAnswered(err) && ctx.Err() == nil {
			return err
		}
		after, stillMissing := look()
		if err == nil && missing == nil && stillMissing == nil && maps.Equal(before, after) {
			return nil
		}
		if ctx.Err() != nil {
			if missing == nil && err == nil {
				missing = &unheard{why: "coordinators moved all the time: some that they know may be missing"}
			}
			return cmp.Or(missing, err) // what was seen last says little: the end of the time cut it short
		}
		before, missing = after, stillMissing
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
		}
	}
}

// away says that a coordinator is where nobody asked, or not ready.
func away(err error) bool {
	return errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.NotCoordinator)
}

// someAnswered says that some nodes answered: others are down perhaps, and what they led will have other leaders.
func someAnswered(err error) bool {
	var some *kadm.ShardErrors
	return errors.As(err, &some) && !some.AllFailed
}

// tenures are the leaders of all shards of those of the topics that there are. Each has just answered a question of its shard.
func tenures(ctx context.Context, admin *kadm.Client, topics []string) (map[shard]tenure, error) {
	ctx, cancel := context.WithTimeout(ctx, shardsWait)
	defer cancel()
	all, missing := map[shard]tenure{}, &unheard{}
	details, err := admin.ListTopicsWithInternal(ctx, topics...)
	if err != nil {
		return nil, err
	}
	var there []string
	for name, d := range details {
		if errors.Is(d.Err, kerr.UnknownTopicOrPartition) {
			continue // nobody used it yet
		}
		if d.Err != nil {
			return nil, d.Err
		}
		there = append(there, name)
		for _, p := range d.Partitions {
			all[shard{name, p.Partition}] = tenure{leader: p.Leader, epoch: p.LeaderEpoch}
			if p.Err != nil || p.Leader < 0 {
				missing.shards = append(missing.shards, shard{name, p.Partition})
			}
		}
	}
	if len(missing.shards) > 0 {
		return nil, missing
	}
	if len(there) == 0 {
		return all, nil
	}
	return all, serve(ctx, admin, there, all)
}

// serve asks each shard's leader for the shard's end, which only one that serves it knows.
func serve(ctx context.Context, admin *kadm.Client, topics []string, all map[shard]tenure) error {
	ends, err := admin.ListEndOffsets(ctx, topics...)
	missing := &unheard{}
	for s, t := range all {
		end, ok := ends.Lookup(s.topic, s.number)
		if !ok || end.Err != nil {
			missing.shards = append(missing.shards, s)
			continue
		}
		t.lastEpoch = end.LeaderEpoch
		all[s] = t
	}
	if len(missing.shards) > 0 {
		return missing
	}
	return err
}
