package suite

import (
	"strings"
	"testing"
	"time"

	"gopherlog/bench/check"
	"gopherlog/bench/fault"
	"gopherlog/bench/history"
	"gopherlog/bench/load"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/bench/target"
)

// mortal is a system whose brokers may have ended by themselves.
type mortal struct {
	target.External
	deaths []string
}

func (m *mortal) Deaths() []string { return m.deaths }

// trialWithFault is a trial in which a leader was killed at 2 s for 3 s, as asked.
func trialWithFault() (*oneTrial, *mortal) {
	zero := time.Now()
	at := func(s int) time.Time { return zero.Add(time.Duration(s) * time.Second) }
	m := &mortal{}
	t := &oneTrial{run: &run{}, target: m, outcome: &load.Outcome{Zero: zero}}
	t.cell.Target.System, t.cell.Runs.FreshCluster = "gopherlog", true
	t.cell.Phases = scenario.Phases{Steady: time.Second, Impact: 5 * time.Second, Recovery: 4 * time.Second}
	t.cell.Faults = []scenario.Fault{{Kind: "kill", Target: scenario.FaultTarget{Role: "leader", Topic: "load"}}}
	t.events = []fault.Event{{Kind: "kill", Target: "leader(load/0)", Nodes: []int{2}, Proof: "gone", Injected: at(2), Effective: at(2), Healed: at(5)}}
	t.leaders = []result.LeaderChange{{At: 2.2, Topic: "load", Node: 3}}
	return t, m
}

func TestOnlyAFaultThatWasAsAskedLeavesNoDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		bend func(t *oneTrial, m *mortal)
		want string
	}{
		"as asked":                     {func(*oneTrial, *mortal) {}, ""},
		"not attempted":                {func(t *oneTrial, _ *mortal) { t.events = nil }, "1 of 1 faults were not attempted"},
		"without proof":                {func(t *oneTrial, _ *mortal) { t.events[0].Proof = "" }, "no proof"},
		"failed":                       {func(t *oneTrial, _ *mortal) { t.events[0].Error = "heal: no" }, "heal: no"},
		"after the load":               {func(t *oneTrial, _ *mortal) { t.events[0].Effective = t.outcome.Zero.Add(11 * time.Second) }, "after the load had ended"},
		"on a node that did not lead":  {func(t *oneTrial, _ *mortal) { t.leaders = nil }, "was not its leader"},
		"noticed on another partition": {func(t *oneTrial, _ *mortal) { t.leaders[0].Partition = 1 }, "was not its leader"},
		"noticed before it happened":   {func(t *oneTrial, _ *mortal) { t.leaders[0].At = 1 }, "was not its leader"},
		"noticed by a gap alone": {func(t *oneTrial, _ *mortal) {
			t.leaders, t.out.Outages = nil, []result.Outage{{Topic: "load", Prober: 0.1, Affected: true}}
		}, ""},
		"a broker that ended by itself": {func(_ *oneTrial, m *mortal) { m.deaths = []string{"node 1 ended by itself"} }, "node 1 ended"},
		"an interruption":               {func(t *oneTrial, _ *mortal) { t.outcome.Partial = true }, "interrupted"},
	} {
		tr, m := trialWithFault()
		c.bend(tr, m)
		got := strings.Join(tr.doubts(), "; ")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestFollowerNeedNotBeMissed(t *testing.T) {
	tr, _ := trialWithFault()
	tr.leaders, tr.cell.Faults[0].Target.Role = nil, "follower"
	if got := tr.doubts(); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// writeHistory of one message that was sent, acknowledged and read.
func writeHistory(t *testing.T, tr *oneTrial) {
	t.Helper()
	w, err := history.Create(tr.dir.History(""), 1, []history.Partition{{Topic: "load"}})
	if err != nil {
		t.Fatal(err)
	}
	for role, r := range map[string]history.Record{
		history.RoleSends: {Kind: history.Sent},
		history.RoleAcks:  {Kind: history.Outcome, Result: history.OK},
		history.RoleDrain: {Kind: history.Delivered},
		history.RoleEnds:  {Kind: history.EndAnswer, Offset: 1},
	} {
		s, err := w.Stream(role, role)
		if err != nil {
			t.Fatal(err)
		}
		s.Append(r)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRecordsThatTheDiskRefusedForbidAPass(t *testing.T) {
	tr, _ := trialWithFault()
	tr.dir, tr.cell.Guarantee = &result.Dir{Path: t.TempDir()}, scenario.AtLeastOnce
	tr.outcome.Drain.Complete = true
	writeHistory(t, tr)
	for dropped, want := range map[int64]check.Status{0: check.Pass, 1: check.Inconclusive} {
		tr.outcome.History.Dropped = dropped
		if err := tr.judge(load.Plan{}, nil); err != nil || tr.out.Check.Status != want {
			t.Errorf("%d dropped: %s %q, %v", dropped, tr.out.Check.Status, tr.out.Check.Reasons, err)
		}
	}
}

func TestOnlyWhoAskedForRetentionMayLoseTheHeadOfALog(t *testing.T) {
	tr, _ := trialWithFault()
	tr.cell.Topics = []scenario.Topic{{Config: map[string]string{"segment.bytes": "1MiB"}}}
	if tr.expires() {
		t.Error("nobody asked for retention")
	}
	tr.cell.Topics[0].Config["retention.bytes"] = "1GiB"
	if !tr.expires() {
		t.Error("the topic has retention.bytes")
	}
}

func TestCopiesFollowTheSettingThatWasUsed(t *testing.T) {
	tr, _ := trialWithFault()
	tr.cell.Target.ReplicationFactor, tr.cell.Guarantee = 3, scenario.AtLeastOnce
	for acks, want := range map[string]int{"0": 0, "1": 1, "all": 2} {
		tr.outcome.Settings = []load.Setting{{Key: "acks", Value: acks}}
		if got := tr.copies(); got != want {
			t.Errorf("acks %s: %d copies, want %d", acks, got, want)
		}
	}
	tr.cell.Target.System, tr.outcome.Settings = "external", []load.Setting{{Key: "acks", Value: "all"}}
	if got := tr.copies(); got != -1 {
		t.Errorf("%d copies in a system that nobody knows", got)
	}
}

// A fault on an idle partition shows nothing: each says how busy its partition was.
func TestEveryFaultTellsThePaceOfItsPartitionRightBefore(t *testing.T) {
	tr, _ := trialWithFault()
	if _, ok := leastPace(result.Trial{Faults: tr.events}, ""); ok {
		t.Error("a pace that nobody measured")
	}
	acked := make([]uint32, 100)
	for i := range acked {
		acked[i] = 120
	}
	acked[20] = 0 // after the fault at 2 s
	tr.outcome.Paces = []load.Pace{{Topic: "other", Step: 100 * time.Millisecond}, {Topic: "load", Step: 100 * time.Millisecond, Acked: acked}}
	tr.notePaces()
	if got, ok := leastPace(result.Trial{Faults: tr.events}, ""); !ok || got != 1200 {
		t.Errorf("pace %v, %v, want 1200", got, ok)
	}
	if want := "gone; load/0 had acknowledged 1200 records in the second before"; tr.events[0].Proof != want {
		t.Errorf("proof %q, want %q", tr.events[0].Proof, want)
	}
}
