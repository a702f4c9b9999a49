package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const pipelineText = `version: 1
name: pipeline
guarantee: [transactional, idempotent]
topics: [{name: in, partitions: 3}, {name: out, partitions: 3}]
producers: {transaction: {records: 10, partitions: 2}}
consumers: {groups: [{name: workers, members: 2}], transform: {from: in, to: out}}
load: {rate: 10/s}
phases: {warmup: 1s, steady: 1s, impact: 60s, recovery: 10s}
faults:
  - {at: impact+1s, kind: kill, target: worker(1), for: 2s, every: 10s, times: 5}
  - {at: on failpoint txn/before-decision hit 3, kind: kill, target: txn_coordinator, for: 1s, only: transactional}
  - {at: impact+5s, kind: partition, shape: halves, target: leader(out/0), for: 1s}
`

func TestFaultsComeAsOftenAsWrittenAndWhereTheyBelong(t *testing.T) {
	s, err := Parse(writeScenario(t, pipelineText), nil)
	if err != nil {
		t.Fatal(err)
	}
	cells := s.Expand()
	if len(cells[0].Faults) != 7 || len(cells[1].Faults) != 6 || len(s.Faults) != 3 {
		t.Fatalf("%d and %d faults, %d written", len(cells[0].Faults), len(cells[1].Faults), len(s.Faults))
	}
	for i := range 5 {
		if at := cells[0].Faults[i].At; at.Offset != time.Second+time.Duration(i)*10*time.Second {
			t.Errorf("fault %d at %v", i, at)
		}
	}
	if p := cells[0].Faults[5].At; p.Failpoint != "txn/before-decision" || p.Hit != 3 || p.Phase != PhaseImpact {
		t.Errorf("%+v", p)
	}
	back, err := Parse(writeScenario(t, string(s.YAML())), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range cells {
		if d := cmp.Diff(cells[i].Faults, back.Expand()[i].Faults); d != "" {
			t.Errorf("read back: %s", d)
		}
	}
}

func TestWhatGroupsAndTransactionsCannotBeIsRefused(t *testing.T) {
	for change, want := range map[string]string{
		"transform: {from: in, to: out}|transform: {from: in, to: nowhere}": `there is no topic "nowhere"`,
		"transform: {from: in, to: out}|transform: {from: out, to: out}":    "would never end",
		"partitions: 2}|partitions: 7}":                                     "has only 3",
		"groups: [{name: workers, members: 2}], |":                          "consumers.groups is empty",
		"guarantee: [transactional, idempotent]|guarantee: idempotent":      "belongs to guarantees with transactions",
		"load: {rate: 10/s}|load: {rate: 10/s, read_along: false}":          "is known from a reader",
		"load: {rate: 10/s}|load: {rate: 10/s, value: {size: 50B}}":         "says what it was made from",
		"worker(1)|worker(9)":                                    "no such member",
		"every: 10s, times: 5|every: 1s, times: 5":               "come again after 1s",
		"times: 5|times: 50":                                     "after the end of the load",
		"every: 10s, times: 5|every: 10s":                        "needs times",
		"records: 10, partitions: 2|records: 10, timeout: 500ms": "not between 1s and 15m",
		"hit 3, kind: kill|hit 3, kind: pause":                   "at a failpoint a process can be killed",
		"transform: {from: in, to: out}}|transform: {from: in, to: out}, commit: in_transaction}": "in_transaction needs",
	} {
		was, now, _ := strings.Cut(change, "|")
		text := strings.Replace(pipelineText, was, now, 1)
		if text == pipelineText {
			t.Fatalf("%q changes nothing", change)
		}
		if _, err := Parse(writeScenario(t, text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", change, err, want)
		}
	}
}

func TestThePointOfCommitFollowsFromTheGuarantee(t *testing.T) {
	for g, want := range map[Guarantee]string{AtMostOnce: "before_process", AtLeastOnce: "after_process", Idempotent: "after_process", Transactional: "in_transaction", TwoPhaseCommit: "in_transaction"} {
		s := Scenario{Guarantee: g, Consumers: Consumers{Transform: Transform{To: "out"}}}
		if got := s.CommitPoint(); got != want {
			t.Errorf("%s commits %s, want %s", g, got, want)
		}
	}
	if s := (&Scenario{Guarantee: Transactional}); s.CommitPoint() != "after_process" {
		t.Errorf("a group that makes nothing commits %s", s.CommitPoint())
	}
}

func writeScenario(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
