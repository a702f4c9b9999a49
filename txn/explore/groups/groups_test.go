package groups

import (
	"flag"
	"strings"
	"testing"
	"time"

	"gopherlog/txn/explore"
)

var (
	deep  = flag.Bool("deep", false, "explore the large worlds too, for minutes (make explore)")
	quick bool // set by the race detector's build
)

// search runs one exploration and prints what it visited.
func search(t *testing.T, s Setting, l explore.Limits) explore.Result {
	t.Helper()
	if l.States == 0 {
		l.States = 3_000_000 // a world that was thought small and is not must not run for ever
	}
	r := explore.Explore(s.System(), l)
	t.Logf("%d crashes, depositions %v: %s", l.Crashes, l.Depositions, r)
	if r.Broken != nil {
		t.Logf("\n%s", r.Broken.Trace)
	}
	return r
}

// The shipped machine: every order of events, with requests and answers lost, repeated and late, sessions that end at any moment, and
// coordinators that die or are deposed.
func TestAGroupHoldsInEveryOrderOfEvents(t *testing.T) {
	worlds := []struct {
		Setting
		explore.Limits
	}{
		{Setting{Members: 2, Partitions: 1, Commits: 1, Tries: 1, Generations: 2, Punctual: true}, explore.Limits{}},
		{Setting{Members: 1, Partitions: 1, Commits: 1, Tries: 2, Generations: 2, Punctual: true}, explore.Limits{Crashes: 1, Depositions: true}},
		{Setting{Members: 1, Partitions: 1, Commits: 1, Tries: 2, Generations: 2}, explore.Limits{}},
		{Setting{Members: 2, Partitions: 2, Commits: 1, Tries: 2, Generations: 2, Punctual: true, Calm: true}, explore.Limits{}},
		{Setting{Members: 2, Partitions: 1, Commits: 1, Tries: 1, Generations: 2, Punctual: true, Calm: true}, explore.Limits{Crashes: 1, Depositions: true}},
	}
	if quick || testing.Short() {
		worlds = worlds[:2]
	}
	for _, c := range worlds {
		if r := search(t, c.Setting, c.Limits); r.Broken != nil || !r.Complete {
			t.Errorf("%s: broken or not all visited", r.System)
		}
	}
}

func TestEveryPlantedFaultIsFound(t *testing.T) {
	two := Setting{Members: 2, Partitions: 1, Commits: 1, Tries: 1, Generations: 2, Punctual: true, Calm: true}
	one := Setting{Members: 1, Partitions: 1, Commits: 2, Tries: 2, Generations: 2, Punctual: true}
	found := map[Plant]bool{}
	for _, c := range []struct {
		plant Plant
		Setting
		explore.Limits
		what string
	}{
		{ForgetGeneration, one, explore.Limits{}, "landed"},
		{NoBarrier, one, explore.Limits{Crashes: 1}, "committed before it"},
		{EarlyAnswer, one, explore.Limits{Crashes: 1}, "lost"},
		{EarlyAssignment, one, explore.Limits{Crashes: 1}, "not durable"},
		{EarlyGeneration, one, explore.Limits{Crashes: 1}, "would not know"},
		{UncertainFetch, one, explore.Limits{Crashes: 1, Depositions: true}, "committed before it"},
		{ForgottenTimers, two, explore.Limits{Crashes: 1}, "stuck"},
		{ForgottenCount, two, explore.Limits{Crashes: 1}, "came after"},
		{MixedAssignment, two, explore.Limits{}, "two owners"},
	} {
		c.Setting.Plant = c.plant
		r := search(t, c.Setting, c.Limits)
		if r.Broken == nil || !strings.Contains(r.Broken.What, c.what) {
			t.Errorf("%s: not found", c.plant)
		}
		found[c.plant] = true
	}
	for _, p := range Plants() {
		if !found[p] {
			t.Errorf("%s: not looked for", p)
		}
	}
}

// What the network forgets saves states and nothing else: without it the same is found, on ways of the same length.
func TestForgettingSpentMessagesHidesNothing(t *testing.T) {
	for _, s := range []Setting{
		{Members: 1, Partitions: 1, Commits: 1, Tries: 1, Generations: 2},
		{Members: 1, Partitions: 1, Commits: 1, Tries: 2, Generations: 2, Plant: ForgetGeneration},
		{Members: 1, Partitions: 1, Commits: 1, Tries: 2, Generations: 2, Plant: EarlyAnswer},
	} {
		l := explore.Limits{States: 1_000_000}
		if s.Plant == EarlyAnswer {
			l.Crashes = 1
		}
		forgetting, all := s.System(), s.System()
		all.Spent = nil
		a, b := explore.Explore(forgetting, l), explore.Explore(all, l)
		t.Logf("%s\nwithout: %s", a, b)
		if (a.Broken == nil) != (b.Broken == nil) || a.Broken != nil && len(a.Broken.Trace) != len(b.Broken.Trace) {
			t.Error("they differ")
		}
	}
}

// Larger worlds, as far as time allows.
func TestAGroupInLargerWorlds(t *testing.T) {
	l := explore.Limits{States: 10_000}
	if *deep {
		l = explore.Limits{States: 8_000_000, Time: 5 * time.Minute}
	}
	for _, c := range []struct {
		Setting
		explore.Limits
	}{
		{Setting{Members: 2, Partitions: 2, Commits: 2, Tries: 3, Generations: 3}, explore.Limits{Crashes: 1}},
		{Setting{Members: 2, Partitions: 1, Commits: 1, Tries: 3, Generations: 3, Punctual: true}, explore.Limits{Crashes: 1, Depositions: true}},
		{Setting{Members: 3, Partitions: 2, Commits: 1, Tries: 2, Generations: 3, Punctual: true, Calm: true}, explore.Limits{Crashes: 1}},
	} {
		c.Limits.States, c.Limits.Time = l.States, l.Time
		if r := search(t, c.Setting, c.Limits); r.Broken != nil {
			t.Errorf("%s: broken", r.System)
		}
	}
}
