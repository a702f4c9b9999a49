package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopherlog/bench/fault"
	"gopherlog/bench/target"
)

func TestMain(m *testing.M) {
	fault.HandleProbe()
	os.Exit(m.Run())
}

// call runs the command line in this process.
func call(args ...string) (code int, out, errs string) {
	var o, e strings.Builder
	code = run(args, &o, &e)
	return code, o.String(), e.String()
}

func file(t *testing.T, text string) string {
	t.Helper()
	f := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(f, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestValidateNamesEveryMistakeAndExitsWithTwo(t *testing.T) {
	code, _, errs := call("validate", file(t, "version: 1\nname: x\nlode: {}\nphases: {steady: 20}\n"))
	if code != 2 || !strings.Contains(errs, "lode") || !strings.Contains(errs, "steady") {
		t.Errorf("exit code %d, said: %s", code, errs)
	}
}

func TestUnknownFlagIsOneSentenceAndExitsWithTwo(t *testing.T) {
	code, out, errs := call("run", "-no-such-flag", "x.yaml")
	if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "no-such-flag") {
		t.Errorf("exit code %d, printed %q, said %q", code, out, errs)
	}
}

func TestMissingServerIsAnUnusableEnvironment(t *testing.T) {
	code, _, errs := call("run", file(t, "version: 1\nname: x\n"), "-out", filepath.Join(t.TempDir(), "o"))
	if code != 3 || !strings.Contains(errs, "make build") {
		t.Errorf("exit code %d, said: %s", code, errs)
	}
}

func TestMissingKafkaIsAnUnusableEnvironmentBeforeAnythingRuns(t *testing.T) {
	t.Setenv(target.KafkaHomeVar, t.TempDir())
	out := filepath.Join(t.TempDir(), "o")
	code, _, errs := call("run", file(t, "version: 1\nname: beside\ntarget: {system: [gopherlog, kafka]}\n"), "-out", out)
	if code != 3 || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "beside cannot be run here") || !strings.Contains(errs, target.KafkaFetch) {
		t.Errorf("exit code %d, said: %s", code, errs)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a run directory was made")
	}
}

func TestPlanCountsTheWarmingOfASharedClusterOnce(t *testing.T) {
	text := "version: 1\nname: %s\ntarget: {system: [gopherlog, kafka]}\nruns: {repeats: 1, fresh_cluster: false, warm_cluster: 3m}\n"
	code, out, _ := call("plan", file(t, strings.Replace(text, "%s", "one", 1)), file(t, strings.Replace(text, "%s", "two", 1)))
	if code != 0 || strings.Count(out, "warming of the clusters") != 1 || !strings.Contains(out, "6m0s") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestExternalSystemCannotBeMeasuredBesideAPartedNetwork(t *testing.T) {
	outside := file(t, "version: 1\nname: outside\ntarget: {system: external, external: {bootstrap: [127.0.0.1:9092]}}\n")
	parts := file(t, "version: 1\nname: parts\nphases: {impact: 5s}\nfaults: [{at: impact+1s, kind: partition, shape: isolate, target: node(1), for: 1s}]\n")
	out := filepath.Join(t.TempDir(), "o")
	code, _, errs := call("run", outside, parts, "-out", out)
	if code != 2 || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, parts+" parts the network") || !strings.Contains(errs, "two calls") {
		t.Errorf("exit code %d, said: %s", code, errs)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a run directory was made")
	}
	for _, alone := range []string{outside, parts} {
		if err := canRunTogether([]parsed{read(t, alone)}); err != nil {
			t.Errorf("%s alone: %v", alone, err)
		}
	}
}

func read(t *testing.T, path string) parsed {
	t.Helper()
	list, err := (&scenarioFlags{Files: []string{path}}).parse()
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

func TestPlanCountsTrialsAndTime(t *testing.T) {
	code, out, errs := call("plan", file(t, "version: 1\nname: x\nguarantee: [at_least_once, idempotent]\nload: {rate: [1k/s, 2k/s]}\nphases: {warmup: 1s, steady: 4s}\n"), "-profile", "quick")
	if code != 0 || !strings.Contains(out, "4 cells × 3 blocks = 12 trials") {
		t.Errorf("exit code %d, printed %s%s", code, out, errs)
	}
}

func TestPlanWarnsOfADiskThatIsTooSmall(t *testing.T) {
	const huge = "load: {rate: 10k/s, value: {size: 512KiB}}\nphases: {warmup: 1s, steady: 1h}\nruns: {repeats: 1, max_time: 2h}\n"
	elsewhere := huge + "target: {system: external, external: {bootstrap: [127.0.0.1:1]}}\n"
	for text, want := range map[string]bool{huge: true, elsewhere: false, "": false} {
		code, out, errs := call("plan", file(t, "version: 1\nname: x\n"+text))
		if code != 0 || strings.Contains(out, "! the disk is too small: ") != want {
			t.Errorf("%s\nexit code %d, want a warning: %v; printed %s%s", text, code, want, out, errs)
		}
	}
}

func TestTheQuickProfileAddsNoBlocks(t *testing.T) {
	code, out, errs := call("plan", file(t, "version: 1\nname: x\nruns: {repeats: 1}\n"), "-profile", "quick")
	if code != 0 || !strings.Contains(out, "1 cell × 1 block = 1 trial") {
		t.Errorf("exit code %d, printed %s%s", code, out, errs)
	}
}

func TestReportOfSomethingElseSaysSo(t *testing.T) {
	code, _, errs := call("report", t.TempDir())
	if code != 2 || !strings.Contains(errs, "manifest.json") {
		t.Errorf("exit code %d, said: %s", code, errs)
	}
}

func TestHelpOfEveryCommandPrintsAndExitsWithZero(t *testing.T) {
	for _, c := range []string{"run", "plan", "validate", "report", "doctor", "schema", "version"} {
		if code, out, _ := call(c, "-help"); code != 0 || !strings.Contains(out, "Usage: mqbench "+c) {
			t.Errorf("%s -help: exit code %d, printed %q", c, code, out)
		}
	}
}
