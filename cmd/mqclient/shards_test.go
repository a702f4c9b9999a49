package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// views are what is seen of the shards, one after the other; the last one stays.
type views []view

type view struct {
	led map[shard]tenure
	err error
}

func (l *views) next() (map[shard]tenure, error) {
	now := (*l)[0]
	if len(*l) > 1 {
		*l = (*l)[1:]
	}
	return now.led, now.err
}

// failed is what comes of a question that some nodes, or all, did not hear.
func failed(all bool) error {
	return &kadm.ShardErrors{Name: "ListGroups", AllFailed: all, Errs: []kadm.ShardError{{Err: errors.New("connection refused")}}}
}

func TestAListIsWholeWhenNoShardMovedMeanwhile(t *testing.T) {
	one := view{led: map[shard]tenure{{"t", 0}: {1, 5, 5}, {"t", 1}: {2, 5, 5}}}
	moved := view{led: map[shard]tenure{{"t", 0}: {1, 5, 5}, {"t", 1}: {3, 6, 6}}}
	nobody := view{err: &unheard{shards: []shard{{"t", 1}, {"t", 0}}}}
	refusing := kerr.ClusterAuthorizationFailed
	for name, c := range map[string]struct {
		seen  views
		heard []error // by the questions, one after the other; the last one stays
		asked int     // 0: until the time is up
		want  string  // in the error
	}{
		"nothing moves":                 {views{one}, []error{nil}, 1, ""},
		"a shard moves":                 {views{one, moved}, []error{nil}, 2, ""},
		"nobody led a shard before":     {views{nobody, one}, []error{nil}, 2, ""},
		"nobody leads a shard after":    {views{one, nobody, one}, []error{nil}, 3, ""},
		"nobody ever leads two shards":  {views{nobody}, []error{nil}, int(vacantFor/askAgain) + 1, "nobody leads t[0,1]: what is kept there is missing"},
		"a coordinator is loading":      {views{one}, []error{kerr.CoordinatorLoadInProgress, nil}, 2, ""},
		"one is loading all the time":   {views{one}, []error{kerr.CoordinatorLoadInProgress}, 0, "COORDINATOR_LOAD_IN_PROGRESS"},
		"a node is down for a moment":   {views{one}, []error{failed(false), nil}, 2, ""},
		"all nodes are down":            {views{one}, []error{failed(true)}, 1, "connection refused"},
		"another refusal ends it":       {views{one}, []error{refusing}, 1, "CLUSTER_AUTHORIZATION_FAILED"},
		"the cluster is not to be seen": {views{{err: errors.New("no route")}}, []error{nil}, 0, "no route"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				asked := 0
				err := gather(ctx, c.seen.next, func() error {
					asked++
					return c.heard[min(asked, len(c.heard))-1]
				})
				if c.asked == 0 && ctx.Err() == nil || c.asked > 0 && asked != c.asked {
					t.Errorf("asked %d times in %v, want %d", asked, ctx.Err(), c.asked)
				}
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(refused("list", err, "").Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
			})
		})
	}
}

func TestNumbersInARowAreOneRange(t *testing.T) {
	for want, ids := range map[string][]int32{"none": nil, "7": {7}, "1,2": {2, 1}, "0-2": {1, 0, 2}, "0-3,5,8,9,11-13": {13, 12, 11, 9, 8, 5, 3, 2, 1, 0}} {
		if got := ranges(ids); got != want {
			t.Errorf("%v: %s, want %s", ids, got, want)
		}
	}
}

func TestWhatIsWrongWithAClusterIsSaidInNumbers(t *testing.T) {
	r := clusterReport{Nodes: []nodeLine{{State: "ready"}, {State: stateSilent}, {State: "not ready", Reasons: []string{"a", "b"}}}, Leaderless: []string{"t-0"}, Behind: []string{"t-0", "t-1"}}
	if got := strings.Join(r.wrong(), ", "); got != "1 node does not answer, 1 node is not ready, 1 partition has no leader, 2 partitions lack replicas" {
		t.Error(got)
	}
	if got := (&clusterReport{Nodes: []nodeLine{{State: "ready"}, {State: "answers"}}}).wrong(); len(got) > 0 {
		t.Error(got)
	}
}

func TestTheEndOfTheTimeTakesNothingFromAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var listed kadm.ListedGroups
		err := gather(ctx, func() (map[shard]tenure, error) { return nil, &unheard{shards: []shard{{"t", 1}}} },
			keep(ctx, &listed, func() (kadm.ListedGroups, error) {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return kadm.ListedGroups{"billing": {Group: "billing"}}, failed(false)
			}))
		if !isUnheard(err) || len(listed) != 1 {
			t.Errorf("%v, %v", listed, err)
		}
	})
}

func TestWhatIsMissingIsLookedForUntilANodeAnswers(t *testing.T) {
	down, unled := errors.New("connection refused"), &unheard{shards: []shard{{"__consumer_offsets", 3}}}
	for _, c := range []struct {
		looks []error
		want  error
	}{{[]error{nil}, nil}, {[]error{unled}, unled}, {[]error{down, down, unled}, unled}, {[]error{down, nil}, nil}} {
		n := 0
		got := missingIn(t.Context(), func() error { n++; return c.looks[n-1] })
		if !errors.Is(got, c.want) || n != len(c.looks) {
			t.Errorf("looks %v: %v after %d", c.looks, got, n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := missingIn(ctx, func() error { return context.Canceled }); got != nil {
		t.Errorf("when the time is up: %v", got)
	}
}

func TestASilentCoordinatorIsExplainedByShardsThatNobodyLeads(t *testing.T) {
	for err, want := range map[error]bool{
		context.DeadlineExceeded: true, kerr.CoordinatorNotAvailable: true, &net.OpError{Op: "dial", Err: errors.New("connection refused")}: true,
		kerr.GroupIDNotFound: false, kerr.ClusterAuthorizationFailed: false,
	} {
		if silent(err) != want {
			t.Errorf("%v", err)
		}
	}
}
