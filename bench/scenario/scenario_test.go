package scenario

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "rewrite golden files")

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s differs; if that is right: go test ./bench/scenario -update\n%s", file, d)
	}
}

func mustParse(t *testing.T, file string, sets ...string) *Scenario {
	t.Helper()
	s, err := Parse(filepath.Join("testdata", file), sets)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAllMistakesAreReportedAtOnceWithPlaceAndSuggestion(t *testing.T) {
	for _, name := range []string{"broken", "impossible", "kafka-impossible"} {
		_, err := Parse("testdata/"+name+".yaml", nil)
		var p Problems
		if !errors.As(err, &p) {
			t.Fatalf("%s: got %v", name, err)
		}
		golden(t, "testdata/"+name+".golden", []byte(err.Error()+"\n"))
	}
}

func TestWhatDoesNotHangOnAnUnreadValueIsCheckedBesideIt(t *testing.T) {
	const head = "version: 1\nname: x\n"
	const unread = "load: {rate: 5000}\n" // no unit
	for text, want := range map[string][]string{
		unread + "phases: {steady: 0s}\nchecks: {rules: [Z99]}":                        {"rate \"5000\" has no unit", "without a steady phase", `"Z99" is not a rule`},
		unread + "faults: [{at: impact+1s, kind: kill, target: leader(other/0)}]":      {"has no unit", "the phase impact has no length", `no topic "other"`},
		"phases: {impact: 9}\nfaults: [{at: impact+1s, kind: kill, target: node(1)}]":  {"has no unit"}, // its length is not known
		"phasis: {impact: 9s}\nfaults: [{at: impact+1s, kind: kill, target: node(1)}]": {`did you mean "phases"`},
		unread + "expect: [ack.p99 < 5ms in recovery]":                                 {"has no unit"},
	} {
		refused(t, head+text+"\n", want...)
	}
}

func TestTextThatIsNoScenarioIsToldInWordsOfAScenario(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "the file is empty",
		"# later\n":                         "the file is empty",
		"load:\n\trate: 1k/s\n":             "indent with spaces",
		"version: 1\n load: {rate: 1k/s}\n": "indented too far",
		"version: 1\nload: {rate: [1k/s]\n": "still open",
		"- version: 1\n":                    "a mapping of keys to values",
	} {
		refused(t, text, want)
	}
}

func TestLineThatNoTrialCouldDecideIsRefused(t *testing.T) {
	const head = "version: 1\nname: x\nexpect: ["
	const fault = "]\nphases: {impact: 9s}\nfaults: [{at: impact+0s, kind: kill, target: node(1)}]\n"
	const outside = "]\ntarget: {system: external, external: {bootstrap: ['h:1']}}\n"
	for text, want := range map[string]string{
		"commit.p99 < 5ms]":                     "is of transactions, and the guarantee at_least_once has none",
		"in_doubt == 0]\nguarantee: idempotent": "is of transactions, and the guarantee idempotent has none",
		"outage.max < 3s]":                      "is measured around faults, and there are none",
		"end_to_end.p50 < 3s]":                  "consumers.transform.to names no topic",
		"rss < 1GiB" + outside:                  "is not known of brokers that the harness did not start",
		"p99 < 5ms]":                            "use one of: ack.p99, commit.p99",
		"latency < 5ms]":                        "p50, p90, p99, p999, max of one of ack, visible",
	} {
		refused(t, head+text+"\n", want)
	}
	for _, text := range []string{"commit.p99 < 5ms, in_doubt == 0]\nguarantee: [idempotent, transactional]", "outage.max < 3s" + fault, "faults == 0]", "ack.p99 < 5ms" + outside} {
		if _, err := Parse(written(t, head+text+"\n"), nil); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestShortWordIsNotTakenForAnotherShortOne(t *testing.T) {
	refused(t, "version: 1\nname: x\nreport: {formats: [pdf]}\n", `"pdf" is unknown; use one of: html`)
}

func TestWordsFromElsewhereAreToldWhatTheyAreCalledHere(t *testing.T) {
	head := "version: 1\nname: x\n"
	refused(t, head+"guarantee: [exactly_once, idempotent]\n", "it is called transactional here")
	refused(t, head+"phases: {impact: 5s}\nfaults: [{at: impact+0s, kind: crash, target: node(1)}, {at: impact+1s, kind: isolate, target: node(1)}]\n",
		"it is called kill here", "write kind: partition, shape: isolate")
	refused(t, head+"expect: [lost = 0]\n", `as in "lost == 0"`)
	refused(t, head+"expect: ['ratio(throughput, a, b, load.rate=5k/s)']\n", "is not an expectation such as")
	refused(t, head+"expect: ['ratio(throughput, a, b, load.rate=5k/s) = 1']\n", `as in "ratio(throughput, a, b, load.rate=5k/s) == 1"`)
}

func written(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// refused expects as many problems as words, each with one of them, in the order of the file.
func refused(t *testing.T, text string, words ...string) {
	t.Helper()
	_, err := Parse(written(t, text), nil)
	var p Problems
	if !errors.As(err, &p) || len(p) != len(words) {
		t.Errorf("%q: %v, want %d problems: %q", text, err, len(words), words)
		return
	}
	for i, w := range words {
		if !strings.Contains(p[i].String(), w) {
			t.Errorf("%q: problem %d is %v, want %q", text, i, p[i], w)
		}
	}
}

func TestAFullScenarioIsReadWithItsSweeps(t *testing.T) {
	s := mustParse(t, "full.yaml")
	cells := s.Expand()
	if len(cells) != 12 {
		t.Fatalf("%d cells", len(cells))
	}
	want := []Sweep{{"target.settings.log.segment.bytes", []string{"16MiB", "64MiB"}}, {"guarantee", []string{"at_most_once", "at_least_once", "idempotent"}}, {"load.rate", []string{"10k/s", "50k/s"}}}
	if d := cmp.Diff(want, s.Sweeps()); d != "" {
		t.Error(d)
	}
	last := cells[11]
	if last.Label() != "64MiB · idempotent · 50k/s" || last.Load.Rate != 50000 || last.Guarantee != Idempotent || last.Target.Settings["log.segment.bytes"] != "64MiB" || last.Index != 11 {
		t.Errorf("last cell %s: %+v", last.Label(), last.Scenario)
	}
	if f := last.Faults[1]; f.Target != (FaultTarget{Role: "leader", Topic: "out", Partition: 1}) || last.Phases.Moment(f.At) != 45*time.Second {
		t.Errorf("fault %+v", f)
	}
	if e := last.Expect[1]; e.Metric != "visible.p99" || e.Value != 0.05 || e.Unit != UnitSeconds || e.Phase != PhaseSteady || !e.Holds(0.04) || e.Holds(0.05) {
		t.Errorf("expectation %+v", e)
	}
	if e := last.Expect[2]; e.A != "idempotent" || e.B != "at_least_once" || e.Unit != UnitShare {
		t.Errorf("expectation %+v", e)
	}
}

func TestTheResolvedScenarioIsReadBackToTheSameCells(t *testing.T) {
	for _, name := range []string{"full.yaml", "least.yaml", "child.yaml", "kafka.yaml"} {
		s := mustParse(t, name)
		file := filepath.Join(t.TempDir(), "resolved.yaml")
		if err := os.WriteFile(file, s.YAML(), 0o644); err != nil {
			t.Fatal(err)
		}
		again, err := Parse(file, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, s.YAML())
		}
		if d := cmp.Diff(s.Expand(), again.Expand(), cmpopts.IgnoreUnexported(Scenario{}), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestAClosedLoopIsReadBackToo(t *testing.T) {
	s := mustParse(t, "least.yaml", "load.model=closed")
	file := filepath.Join(t.TempDir(), "resolved.yaml")
	os.WriteFile(file, s.YAML(), 0o644)
	if _, err := Parse(file, nil); err != nil {
		t.Fatal(err)
	}
}

func TestDefaultsFollowFromOtherValues(t *testing.T) {
	s := mustParse(t, "least.yaml", "target.nodes=1")
	if s.Target.ReplicationFactor != 1 || s.Target.MinInsyncReplicas != 1 || s.Load.Partitioner != "sticky" || s.Topics[0].Name != "load" {
		t.Errorf("%+v", s)
	}
	if s := mustParse(t, "child.yaml"); s.Load.Partitioner != "fnv1a" {
		t.Errorf("partitioner %q with keys", s.Load.Partitioner)
	}
}

func TestAFileIsPutOverTheOneItExtends(t *testing.T) {
	s := mustParse(t, "child.yaml")
	if s.Name != "child" || s.Phases.Warmup != time.Second || s.Phases.Steady != 9*time.Second || s.Target.Durability != "T2" || s.Guarantee != Idempotent {
		t.Errorf("%+v", s)
	}
	circle := filepath.Join(t.TempDir(), "circle.yaml")
	os.WriteFile(circle, []byte("extends: circle.yaml\nname: x\n"), 0o644)
	if _, err := Parse(circle, nil); err == nil || !strings.Contains(err.Error(), "circle") {
		t.Errorf("a circle: %v", err)
	}
}

func TestOverridesReachEveryKey(t *testing.T) {
	s := mustParse(t, "full.yaml", "load.rate=[1k/s, 2k/s, 3k/s]", "topics[1].partitions=12", "target.settings.log.segment.bytes=1MiB",
		"topics.0.config.retention.ms=1000", "runs.repeats=3", "faults=[]", "phases.impact=1s", "phases.recovery=0s", "expect=[]", "producers.overrides.request_timeout=1s")
	if s.Runs.Repeats != 3 || s.Topics[1].Partitions != 12 || len(s.Faults) != 0 || len(s.Expand()) != 9 ||
		s.Topics[0].Config["retention.ms"] != "1000" || s.Target.Settings["log.segment.bytes"] != "1MiB" || s.Producers.Overrides["request_timeout"] != "1s" {
		t.Errorf("%+v", s)
	}
	for _, bad := range []string{"load.rat=1k/s", "nonsense", "topics.7.partitions=1", "load.rate=fast", "name.first=x"} {
		_, err := Parse("testdata/full.yaml", []string{bad})
		if err == nil || !strings.Contains(err.Error(), "-set") {
			t.Errorf("-set %s: %v", bad, err)
		}
	}
}

func TestAFileThatIsNoScenarioIsRefusedInOneSentence(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "list": "- a\n", "syntax": "name: [a\nversion: 1\n", "twice": "version: 1\nname: a\nname: b\n"} {
		file := filepath.Join(dir, name+".yaml")
		os.WriteFile(file, []byte(text), 0o644)
		if _, err := Parse(file, nil); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Parse(filepath.Join(dir, "absent.yaml"), nil); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("absent: %v", err)
	}
}

func TestAPlanTellsWhatARunTakes(t *testing.T) {
	p := mustParse(t, "full.yaml").Plan(map[string]time.Duration{})
	if p.Cells != 12 || !p.Shrunk || p.Repeats != 3 || p.Trials != 36 || p.Messages == 0 || p.BrokerBytes == 0 || p.Total > time.Hour {
		t.Errorf("%+v", p)
	}
	if p := mustParse(t, "least.yaml").Plan(map[string]time.Duration{}); p.Shrunk || p.Repeats != 6 || p.Trials != 6 {
		t.Errorf("%+v", p)
	}
}

func TestAPlanCountsNoTrialsOfWhatTheSystemDoesNotHave(t *testing.T) {
	sets := []string{"guarantee=[idempotent, two_phase_commit]", "producers.transaction.records=[1, 10]"}
	of := func(system string) Plan {
		return mustParse(t, "least.yaml", append(sets, "target.system="+system)...).Plan(map[string]time.Duration{})
	}
	with, without := of("gopherlog"), of("kafka")
	if with.Cells != 3 || without.Cells != 1 || without.Trials != without.Repeats || without.Total >= with.Total || without.Messages >= with.Messages {
		t.Errorf("with %+v\nwithout %+v", with, without)
	}
}

func TestKeysThatSayNothingToAGuaranteeMakeNoCellsOfIt(t *testing.T) {
	s := mustParse(t, "least.yaml", "guarantee=[idempotent, transactional, two_phase_commit]", "producers.transaction.records=[1, 10]",
		"target.settings={transaction.voted.replicas: [1, 3]}", "producers.count=[1, 8]")
	got := map[Guarantee][]string{}
	for i, c := range s.Expand() {
		if c.Index != i {
			t.Errorf("cell %d has the index %d", i, c.Index)
		}
		got[c.Guarantee] = append(got[c.Guarantee], c.Label())
	}
	want := map[Guarantee]int{Idempotent: 2, Transactional: 4, TwoPhaseCommit: 8}
	for g, n := range want {
		if len(got[g]) != n {
			t.Errorf("%s has %d cells, not %d: %q", g, len(got[g]), n, got[g])
		}
	}
	if l := got[Idempotent][0]; strings.Count(l, " · ") != 1 {
		t.Errorf("an idempotent cell is called %q: only its guarantee and its producers tell it apart", l)
	}
}

func TestPhasesAreHalfOpen(t *testing.T) {
	p := Phases{Warmup: 1, Steady: 2, Impact: 0, Recovery: 4, Drain: 8}
	for at, want := range map[time.Duration]string{0: PhaseWarmup, 1: PhaseSteady, 2: PhaseSteady, 3: PhaseRecovery, 6: PhaseRecovery, 7: PhaseDrain, 99: PhaseDrain} {
		if got := p.Of(at); got != want {
			t.Errorf("%d is in %s, not %s", at, got, want)
		}
	}
	if p.Sending() != 7 || p.End(PhaseDrain) != 15 || p.Start(PhaseImpact) != 3 {
		t.Error(p.Sending(), p.End(PhaseDrain), p.Start(PhaseImpact))
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"full", "broken", "impossible", "least", "child"} {
		text, err := os.ReadFile("testdata/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "load.rate=5k/s")
	}
	f.Add([]byte("a: &x [*x]\n"), "topics.0.name=x")
	f.Add([]byte("version: 1\nname: [a, [b]]\ntopics: {a: b}\nfaults: [1, {at: 2}]\n"), "=")
	f.Fuzz(func(t *testing.T, text []byte, set string) {
		file := filepath.Join(t.TempDir(), "x.yaml")
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := Parse(file, []string{set})
		if err == nil {
			s.Plan(map[string]time.Duration{})
			s.YAML()
		} else if err.Error() == "" {
			t.Error("refused without a reason")
		}
	})
}

func TestConfigurationTakesUnitsWhereTheKeyNamesOne(t *testing.T) {
	for _, c := range [][3]string{{"segment.bytes", "64MiB", "67108864"}, {"segment.bytes", "1024", "1024"}, {"retention.ms", "10m", "600000"}, {"retention.ms", "-1", "-1"}, {"cleanup.policy", "delete", "delete"}} {
		if got, err := Plain(c[0], c[1]); err != nil || got != c[2] {
			t.Errorf("%s: %s became %q, %v", c[0], c[1], got, err)
		}
	}
	if _, err := Parse("testdata/full.yaml", []string{"topics.1.config.segment.bytes=much"}); err == nil || !strings.Contains(err.Error(), "segment.bytes") {
		t.Error(err)
	}
}

func TestUnitsAreRequired(t *testing.T) {
	if _, err := parseSize("100"); err == nil || !strings.Contains(err.Error(), "no unit") {
		t.Error(err)
	}
	if _, err := parseRate("100"); err == nil || !strings.Contains(err.Error(), "no unit") {
		t.Error(err)
	}
	if _, err := parseDuration("100"); err == nil || !strings.Contains(err.Error(), "no unit") {
		t.Error(err)
	}
	if s, err := parseSize("1.5KiB"); err != nil || s != 1536 {
		t.Error(s, err)
	}
	if m := (SizeDist{Fixed: 1024}).Mean(); m != 1024 {
		t.Error(m)
	}
	if m := (SizeDist{Median: 512, P99: 16384}).Mean(); m < 1400 || m > 1600 {
		t.Error(m)
	}
}
