package kafkastyle

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

// The shipped machines at version 2: every order of events, with requests, answers and markers lost, repeated and late.
func TestKafkasCommitHoldsInEveryOrderOfEvents(t *testing.T) {
	worlds := []struct {
		Setting
		explore.Limits
	}{
		{Setting{Transactions: 1, Partitions: 2, Version: 2}, explore.Limits{Crashes: 1}},
		{Setting{Transactions: 2, Partitions: 1, Version: 2}, explore.Limits{Crashes: 1}},
		{Setting{Transactions: 1, Partitions: 1, Version: 2}, explore.Limits{Crashes: 2, Depositions: true}},
		{Setting{Transactions: 2, Partitions: 1, Version: 2}, explore.Limits{Crashes: 2}},
	}
	if testing.Short() || quick {
		worlds = worlds[:3]
	}
	for _, c := range worlds {
		if r := search(t, c.Setting, c.Limits); r.Broken != nil || !r.Complete {
			t.Errorf("%s: broken or not all visited", r.System)
		}
	}
}

func TestEveryPlantedFaultIsFound(t *testing.T) {
	found := map[Plant]bool{}
	for _, c := range []struct {
		plant Plant
		Setting
		explore.Limits
		what string
	}{
		{EarlyOutcome, Setting{Transactions: 1, Partitions: 2, Version: 2}, explore.Limits{Crashes: 1}, "lost"},
		{OneEpoch, Setting{Transactions: 2, Partitions: 1, Version: 2, OnlyEndsLate: true}, explore.Limits{}, "never asked"},
		{RefusedMarker, Setting{Transactions: 1, Partitions: 1, Version: 2}, explore.Limits{Crashes: 1}, "stuck"},
		{NoVerify, Setting{Transactions: 1, Partitions: 1, Version: 2}, explore.Limits{}, "stuck"},
		{OldMarkers, Setting{Transactions: 2, Partitions: 1, Version: 2}, explore.Limits{}, "never asked"},
		{Reopened, Setting{Transactions: 1, Partitions: 1, Version: 2}, explore.Limits{Crashes: 1}, "decided again"},
		{NoTermFence, Setting{Transactions: 1, Partitions: 1, Version: 1}, explore.Limits{Crashes: 1}, "after coordinator 2 did"},
		{OwedForgotten, Setting{Transactions: 2, Partitions: 2, Version: 2}, explore.Limits{Crashes: 1}, "transaction 0 is open"},
		{EarlyAdd, Setting{Transactions: 2, Partitions: 1, Version: 2}, explore.Limits{Crashes: 1}, "lost"},
		{EarlyEnd, Setting{Transactions: 2, Partitions: 1, Version: 2}, explore.Limits{Crashes: 1}, "lost"},
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

// At version 1 an EndTxn that comes late decides the next transaction: the request does not say which one it means (KAFKA-17754).
func TestALateEndTxnDecidesTheNextTransactionAtVersion1(t *testing.T) {
	r := search(t, Setting{Transactions: 2, Partitions: 1, Version: 1, OnlyEndsLate: true}, explore.Limits{})
	if r.Broken == nil || !strings.Contains(r.Broken.What, "never asked") {
		t.Error("not found")
	}
}

// Larger worlds, as far as time allows.
func TestKafkasCommitInLargerWorlds(t *testing.T) {
	l := explore.Limits{States: 20_000}
	if *deep {
		l = explore.Limits{States: 8_000_000, Time: 5 * time.Minute}
	}
	for _, c := range []struct {
		Setting
		explore.Limits
	}{
		{Setting{Transactions: 1, Partitions: 2, Version: 2}, explore.Limits{Crashes: 1, Depositions: true}},
		{Setting{Transactions: 2, Partitions: 1, Version: 2}, explore.Limits{Crashes: 1, Depositions: true}},
		{Setting{Transactions: 2, Partitions: 2, Version: 2}, explore.Limits{Crashes: 1}},
		{Setting{Transactions: 3, Partitions: 1, Version: 2}, explore.Limits{Crashes: 1}},
	} {
		c.Limits.States, c.Limits.Time = l.States, l.Time
		if r := search(t, c.Setting, c.Limits); r.Broken != nil {
			t.Errorf("%s: broken", r.System)
		}
	}
}
