package voted

import (
	"flag"
	"os/exec"
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
	if quick && s.Plant == None && !s.OnlyEndsLate {
		s.Transactions, l.Crashes = 1, min(l.Crashes, 1)
		if l.Depositions {
			s.Partitions = 1
		}
	}
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

// The shipped machines at version 2, every order of events of two transactions with two crashes included.
func TestVotedCommitHoldsInEveryOrderOfEvents(t *testing.T) {
	for _, c := range []struct {
		Setting
		explore.Limits
	}{
		{Setting{Transactions: 2, Partitions: 2, Version: 2}, explore.Limits{Crashes: 2}},
		{Setting{Transactions: 1, Partitions: 2, Version: 2}, explore.Limits{Crashes: 1, Depositions: true}},
		{Setting{Transactions: 2, Partitions: 1, Version: 2}, explore.Limits{Crashes: 1, Depositions: true}},
		{Setting{Transactions: 2, Partitions: 1, Version: 2, Replaced: true}, explore.Limits{Crashes: 1}},
	} {
		if r := search(t, c.Setting, c.Limits); r.Broken != nil || !r.Complete {
			t.Errorf("%s: broken or not all visited", r.System)
		}
	}
}

func TestEveryPlantedFaultIsFound(t *testing.T) {
	small := Setting{Transactions: 1, Partitions: 2, Version: 2}
	next := Setting{Transactions: 2, Partitions: 1, Version: 2}
	for _, c := range []struct {
		plant Plant
		Setting
		explore.Limits
		what string
	}{
		{EarlyOutcome, small, explore.Limits{Crashes: 1}, "told that it is aborted"},
		{NoTermFence, small, explore.Limits{Crashes: 1}, "lost"},
		{OneEpoch, Setting{Transactions: 2, Partitions: 1, Version: 2, OnlyEndsLate: true}, explore.Limits{}, "never asked"},
		{RefusedMarker, small, explore.Limits{Crashes: 1}, "stuck"},
		{LonelyAbort, small, explore.Limits{}, "alone"},
		{EarlyVote, small, explore.Limits{Crashes: 1}, "lost"},
		{IgnorantEnded, Setting{Transactions: 2, Partitions: 2, Version: 2, Narrow: true, Patient: true}, explore.Limits{Crashes: 1, Depositions: true, Only: "p0"}, "alone"},
		{AdoptedOrphan, next, explore.Limits{Crashes: 1}, "never asked"},
		{EarlyWord, Setting{Transactions: 2, Partitions: 1, Version: 0, Punctual: true}, explore.Limits{Crashes: 1}, "lost"},
	} {
		c.Setting.Plant = c.plant
		r := search(t, c.Setting, c.Limits)
		if r.Broken == nil || !strings.Contains(r.Broken.What, c.what) {
			t.Errorf("%s: not found", c.plant)
		}
	}
}

// At version 0 an EndTxn that comes late decides the next transaction: the request does not say which one it means.
func TestALateEndTxnDecidesTheNextTransactionAtVersion0(t *testing.T) {
	r := search(t, Setting{Transactions: 2, Partitions: 1, Version: 0, OnlyEndsLate: true}, explore.Limits{States: 2_000_000})
	if r.Broken == nil || !strings.Contains(r.Broken.What, "never asked") {
		t.Error("not found")
	}
}

// What version 0 lacks is the name of the transaction in the client's requests. Where none of them comes late it holds too.
func TestVersion0HoldsWhereNoRequestOfTheClientComesLate(t *testing.T) {
	for _, c := range []struct {
		Setting
		explore.Limits
	}{
		{Setting{Transactions: 2, Partitions: 2, Version: 0, Punctual: true}, explore.Limits{Crashes: 1}},
		{Setting{Transactions: 2, Partitions: 1, Version: 0, Punctual: true}, explore.Limits{Crashes: 1, Depositions: true}},
		{Setting{Transactions: 2, Partitions: 1, Version: 0, Punctual: true, Replaced: true}, explore.Limits{Crashes: 1}},
	} {
		if r := search(t, c.Setting, c.Limits); r.Broken != nil || !r.Complete {
			t.Errorf("%s: broken or not all visited", r.System)
		}
	}
}

// What the network forgets saves states and nothing else: without it the same is found, on ways of the same length.
func TestForgettingSpentMessagesHidesNothing(t *testing.T) {
	for _, c := range []struct {
		Setting
		explore.Limits
	}{
		{Setting{Transactions: 1, Partitions: 1, Version: 2}, explore.Limits{Crashes: 1, Depositions: true}},
		{Setting{Transactions: 1, Partitions: 2, Version: 2, Plant: LonelyAbort}, explore.Limits{}},
		{Setting{Transactions: 1, Partitions: 2, Version: 2, Plant: EarlyVote}, explore.Limits{Crashes: 1}},
		{Setting{Transactions: 1, Partitions: 2, Version: 2, Plant: NoTermFence}, explore.Limits{Crashes: 1}},
	} {
		forgetting, all := c.Setting.System(), c.Setting.System()
		all.Spent = nil
		a, b := explore.Explore(forgetting, c.Limits), explore.Explore(all, c.Limits)
		t.Logf("%s\nwithout: %s", a, b)
		if (a.Broken == nil) != (b.Broken == nil) || a.Broken != nil && len(a.Broken.Trace) != len(b.Broken.Trace) {
			t.Error("they differ")
		}
	}
}

// Larger worlds, as far as time allows.
func TestVotedCommitInLargerWorlds(t *testing.T) {
	l := explore.Limits{Crashes: 1, States: 50_000}
	if *deep {
		l = explore.Limits{Crashes: 2, States: 8_000_000, Time: 5 * time.Minute}
	}
	for _, s := range []Setting{{Transactions: 3, Partitions: 2, Version: 2}, {Transactions: 2, Partitions: 2, Version: 2, Replaced: true}} {
		for _, l.Depositions = range []bool{false, true} {
			if r := search(t, s, l); r.Broken != nil {
				t.Errorf("%s: broken", r.System)
			}
		}
	}
}

// The planted faults are here and not in the machines; no command that runs a broker contains them.
func TestPlantedFaultsAreOutOfReachOfServers(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "gopherlog/cmd/server").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	if strings.Contains(string(out), "gopherlog/txn/explore") {
		t.Error("cmd/server contains the explorer")
	}
}
