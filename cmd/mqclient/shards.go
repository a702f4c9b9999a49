package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
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
	unledWait  = 3 * shardsWait  // for looks until a node has answered one
	// vacantFor is after how long a shard that nobody leads is not waited for any more: elections take less, and a node that is down may
	// stay so for hours.
	vacantFor = 6 * time.Second
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
	return "nobody leads " + named(u.shards) + ": what is kept there is missing until a node that holds it is back; see cluster status"
}

// orNil is the error, if anything is missing.
func (u *unheard) orNil(doing string) error {
	if len(u.shards) == 0 {
		return nil
	}
	return refused(doing, u, "")
}

// named is a list of shards for people.
func named(shards []shard) string {
	numbers := map[string][]int32{}
	for _, s := range shards {
		numbers[s.topic] = append(numbers[s.topic], s.number)
	}
	var parts []string
	for _, topic := range slices.Sorted(maps.Keys(numbers)) {
		parts = append(parts, fmt.Sprintf("%s[%s]", topic, ranges(numbers[topic])))
	}
	return strings.Join(parts, " ")
}

// ranges lists numbers in order, three and more in a row as one range.
func ranges(ids []int32) string {
	ids = sorted(ids)
	var parts []string
	for i := 0; i < len(ids); {
		end := i
		for end+1 < len(ids) && ids[end+1] == ids[end]+1 {
			end++
		}
		if end-i < 2 {
			end = i
			parts = append(parts, fmt.Sprint(ids[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", ids[i], ids[end]))
		}
		i = end + 1
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ",")
}

// fromAll asks every coordinator, until each shard of the topics was led by one and the same node, which serves it, before and after it was
// asked: a shard whose leader dies or is not elected yet is in nobody's answer, and nobody can say that it is missing. What was heard last
// stands when the time is up, or nobody has led a shard for vacantFor; the error says what is missing in it.
func fromAll(ctx context.Context, admin *kadm.Client, topics []string, ask func() error) error {
	return gather(ctx, func() (map[shard]tenure, error) { return tenures(ctx, admin, topics) }, ask)
}

// keep is a question for fromAll whose last answer stays, but for one that the end of the time has cut short: it says less than the one before.
func keep[M ~map[K]V, K comparable, V any](ctx context.Context, into *M, ask func() (M, error)) func() error {
	return func() error {
		heard, err := ask()
		if ctx.Err() == nil || len(heard) > 0 {
			*into = heard
		}
		return err
	}
}

func gather(ctx context.Context, look func() (map[shard]tenure, error), ask func() error) error {
	before, missing := look()
	began := time.Now()
	for {
		err := ask()
		if err != nil && !away(err) && !someAnswered(err) && ctx.Err() == nil {
			return err
		}
		after, stillMissing := look()
		if err == nil && missing == nil && stillMissing == nil && maps.Equal(before, after) {
			return nil
		}
		if missing == nil || stillMissing == nil {
			began = time.Now()
		}
		if isUnheard(missing) && time.Since(began) >= vacantFor {
			return missing
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

// unled says what of the topics nobody leads, where that explains an error that came of it; else it is that error.
func (s *session) unled(admin *kadm.Client, topics []string, err error) error {
	if !silent(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, unledWait)
	defer cancel()
	return cmp.Or(missingIn(ctx, func() error { _, err := tenures(ctx, admin, topics); return err }), err)
}

// missingIn looks until it sees what is missing; nil: nothing is, or nobody told within the time. When most nodes are down a look may have
// asked those alone.
func missingIn(ctx context.Context, look func() error) error {
	for {
		err := look()
		if err == nil || isUnheard(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(askAgain):
		}
	}
}

// silent says that nobody answered, as a coordinator or a leader that is down does.
func silent(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, kerr.LeaderNotAvailable) || away(err)
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

// count is a number of things, with the word for one or for more.
func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
