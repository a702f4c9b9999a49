package scenario

import (
	"strings"
	"testing"
	"time"
)

func TestSystemsAreComparedOnClustersThatAreKept(t *testing.T) {
	s := mustParse(t, "kafka.yaml")
	cells := s.Expand()
	if len(cells) != 2 || cells[0].Target.System != "gopherlog" || cells[1].Target.System != "kafka" {
		t.Fatalf("%d cells", len(cells))
	}
	k := cells[1]
	if k.Runs.FreshCluster || k.Runs.WarmCluster != 3*time.Minute || k.Load.ReadAlong || k.Target.Kafka.Heap != 512<<20 || k.Target.Kafka.Settings["num.io.threads"] != "4" {
		t.Errorf("%+v", k.Scenario)
	}
	if p := s.Plan(map[string]time.Duration{}); p.Warming != 6*time.Minute {
		t.Errorf("warming takes %v, want three minutes for each of two clusters", p.Warming)
	}
}

func TestEveryBlockLaunchesAndWarmsItsOwnClustersIfAskedTo(t *testing.T) {
	s := mustParse(t, "kafka.yaml", "runs.block_cluster=true", "runs.repeats=4")
	if p := s.Plan(map[string]time.Duration{}); p.Repeats != 4 || p.Warming != 4*2*(3*time.Minute+clusterOverhead) {
		t.Errorf("warming takes %v in %d blocks, want three minutes and a launch for each of two clusters in each", p.Warming, p.Repeats)
	}
}

func TestClustersAreSharedByWhatTheyAreLaunchedWith(t *testing.T) {
	key := func(sets ...string) string {
		return mustParse(t, "kafka.yaml", sets...).Expand()[1].Target.ClusterKey()
	}
	if key() != key("target.replication_factor=1", "target.durability=T2", "target.settings={}") {
		t.Error("what belongs to topics, or to the other system, asks for another cluster")
	}
	for _, set := range []string{"target.nodes=5", "target.nice=0", "target.kafka.heap=1GiB", "target.kafka.settings={num.io.threads: 8}"} {
		if key() == key(set) {
			t.Errorf("%s is started with other words and shares the cluster", set)
		}
	}
}

func TestAScenarioOfWhichNothingWouldRunIsRefused(t *testing.T) {
	const head = "version: 1\nname: x\n"
	refused(t, head+"target: {system: kafka}\nguarantee: two_phase_commit\n", "nothing would run: Apache Kafka has no voted two-phase commit")
	for _, rest := range []string{"target: {system: kafka}\nguarantee: [transactional, two_phase_commit]\n", "target: {system: [gopherlog, kafka]}\nguarantee: two_phase_commit\n"} {
		if _, err := Parse(written(t, head+rest), nil); err != nil {
			t.Errorf("%s: %v", rest, err)
		}
	}
}

func TestTiersAreNotSweptOver(t *testing.T) {
	refused(t, "version: 1\nname: x\ntarget: {durability: [T1, T2]}\n", "a run has one tier")
}

func TestWhatOneSystemAloneUnderstandsIsRefusedElsewhere(t *testing.T) {
	for set, want := range map[string]string{
		"target.kafka={heap: 1GiB}":         "belongs to system: kafka",
		"target.system=nats":                "not supported yet",
		"target={system: kafka, nodes: 10}": "more than the 9",
		"runs.block_cluster=true":           "every trial has a cluster of its own already",
		"runs={block_cluster: true, fresh_cluster: false}\ntarget={system: external, external: {bootstrap: ['h:1']}}": "the harness did not start this system, so it cannot start another",
	} {
		_, err := Parse("testdata/least.yaml", strings.Split(set, "\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
	}
}
