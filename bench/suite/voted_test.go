package suite

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopherlog/bench/load"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
)

func TestALineSpeaksOnlyOfCellsThatCanBeMeasured(t *testing.T) {
	r := &result.Run{Manifest: result.Manifest{Cells: []result.Cell{
		{ID: "c01", Guarantee: "idempotent"},
		{ID: "c02", Guarantee: "transactional", Txn: &result.Txn{Records: 10}},
		{ID: "c03", Guarantee: "two_phase_commit", Txn: &result.Txn{Records: 10}, Absent: "not applicable: no votes"},
	}}}
	for _, id := range []string{"c01", "c02"} {
		r.Results.Trials = append(r.Results.Trials, result.Trial{ID: id, Cell: id, Txns: 5, Counts: result.Counts{Acked: 100}})
	}
	r.Results.Trials[1].Counts.TxnsInDoubt = 2
	for _, c := range []struct {
		metric, op string
		value      float64
		want       string
	}{{"violations", "==", 0, met}, {"in_doubt", "<=", 2, met}, {"in_doubt", "<", 2, missed}} {
		e := scenario.Expect{Metric: c.metric, Op: c.op, Value: c.value}
		if got, said := judgeAbsolute(e, r); got != c.want || strings.Contains(said, "not measured") {
			t.Errorf("%+v: %s, %s", c, got, said)
		}
	}
}

func TestFactsOfEarlierTrialsAreLeftOut(t *testing.T) {
	plan := load.Plan{RunID: 7, Guarantee: scenario.TwoPhaseCommit, Producers: scenario.Producers{Count: 1}}
	own := load.TransactionalID(plan.Guarantee, plan.Prefix, plan.RunID, 0)
	answer, _ := json.Marshal(map[string]any{"node": 2, "dropped": 1, "facts": []map[string]any{{"id": own, "index": 4}, {"id": "2pc.another", "index": 5}}})
	b, err := factsOf(answer, plan)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Node, Dropped int
		Facts         []struct {
			ID    string
			Index int
		}
	}
	if err := json.Unmarshal(b, &got); err != nil || got.Node != 2 || got.Dropped != 1 || len(got.Facts) != 1 || got.Facts[0].ID != own || got.Facts[0].Index != 4 {
		t.Errorf("%v: %s", err, b)
	}
}

func TestApacheKafkaHasNoVotes(t *testing.T) {
	c := scenario.Cell{Scenario: scenario.Scenario{Guarantee: scenario.TwoPhaseCommit, Target: scenario.Target{System: "kafka"}}}
	if err := cannot(c); err == nil || !strings.Contains(err.Error(), "no voted two-phase commit") {
		t.Errorf("got %v", err)
	}
	c.Guarantee = scenario.Transactional
	if err := cannot(c); err != nil {
		t.Error(err)
	}
}

// votesOn is a driver of brokers that vote on transactional ids with a prefix.
type votesOn struct {
	load.Driver
	prefix string
}

func (p votesOn) VotedPrefix(context.Context) (string, error) { return p.prefix, nil }

// What brokers would end in Kafka's way is not measured as a two-phase commit.
func TestBrokersThatVoteOnOtherIdsAreNotMeasuredByOurs(t *testing.T) {
	for _, c := range []struct {
		guarantee      scenario.Guarantee
		system, prefix string
		want           error
		says           string
	}{
		{scenario.TwoPhaseCommit, "gopherlog", "2pc.", nil, ""},
		{scenario.TwoPhaseCommit, "external", "2", nil, ""}, // ours as well
		{scenario.TwoPhaseCommit, "gopherlog", "vote-", ErrEnvironment, `begin with "vote-"`},
		{scenario.TwoPhaseCommit, "external", "vote-", errAbsent, `begin with "vote-"`},
		{scenario.TwoPhaseCommit, "external", "2pc.mine-", errAbsent, `begin with "2pc.mine-"`},
		{scenario.TwoPhaseCommit, "gopherlog", "", ErrEnvironment, "not served"},
		{scenario.TwoPhaseCommit, "external", "", errAbsent, "no voted"},
		{scenario.Transactional, "gopherlog", "vote-", nil, ""},
	} {
		cell := scenario.Cell{Scenario: scenario.Scenario{Guarantee: c.guarantee, Target: scenario.Target{System: c.system}}}
		err := votes(t.Context(), cell, votesOn{prefix: c.prefix})
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestACellKnowsTheSizeOfItsOwnRecords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nname: x\nload: {value: {size: [100B, 10KiB]}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{100, 10240} {
		if got := cellOf(s.Expand()[i]); got.Bytes != want {
			t.Errorf("%v: %d bytes, want %d", got.Sweep, got.Bytes, want)
		}
	}
}
