package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPhaseThatAMetricWouldIgnoreIsRefused(t *testing.T) {
	for line, want := range map[string]string{
		"ack.p99 < 5ms in impact":          "",
		"achieved_ratio > 0.9 in steady":   "",
		"throughput > 1k/s":                "",
		"outage_prober.max < 3s in impact": "",
		"throughput > 1k/s in impact":      "steady phase only",
		"failed == 0 in steady":            "whole trial",
		"rss < 300MiB in warmup":           "whole trial",
	} {
		_, err := parseExpect(line)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

func TestLineMaySayThatItNeedNotBeDecided(t *testing.T) {
	for line, open := range map[string]bool{
		"ack.p99 < 5ms in steady or undecided":                            true,
		"ratio(throughput, idempotent, at_least_once) > 0.8 or undecided": true,
		"ack.p99 < 5ms": false,
	} {
		if e, err := parseExpect(line); err != nil || e.Open != open || e.Raw != line {
			t.Errorf("%s: %+v, %v", line, e, err)
		}
	}
	if _, err := parseExpect("ack.p99 < 5ms or maybe"); err == nil {
		t.Error("an unknown ending is accepted")
	}
}

func TestRatioMaySpeakOfSomeCellsOnly(t *testing.T) {
	e, err := parseExpect("ratio(transactions, gopherlog, kafka, guarantee=transactional, producers.transaction.records=1) >= 20 or undecided")
	if err != nil || e.A != "gopherlog" || e.B != "kafka" || !e.Open || e.Value != 20 || len(e.Where) != 2 || e.Where[1] != (Axis{"producers.transaction.records", "1"}) {
		t.Errorf("%+v, %v", e, err)
	}
	for line, want := range map[string]string{
		"n50 < 5":                    "compared, not measured alone",
		"ratio(n50, a, b, c) < 5":    "is not a metric",
		"ratio(n50, a, b, c=) < 5":   "is not a metric",
		"ratio(n50, a, b, c=d,) < 5": "is not a metric",
	} {
		if _, err := parseExpect(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	const head = "version: 1\nname: x\nguarantee: [idempotent, transactional]\ntarget: {system: [gopherlog, kafka]}\nproducers: {transaction: {records: "
	for rest, want := range map[string]string{
		"[1, 10]}}\nexpect: ['ratio(n50, gopherlog, kafka, producers.transaction.records=1) < 1']": "",
		"[1, 10]}}\nexpect: ['ratio(throughput, gopherlog, kafka, load.rate=1k/s) < 1']":           "not a value that load.rate is swept over",
		"[1, 10]}}\nexpect: ['ratio(throughput, gopherlog, kafka, guarantee=at_least_once) < 1']":  "not a value that guarantee is swept over",
		"1}}\nexpect: ['ratio(n50, gopherlog, kafka) < 1']":                                        "transactions of several sizes",
	} {
		file := filepath.Join(t.TempDir(), "x.yaml")
		if err := os.WriteFile(file, []byte(head+rest+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Parse(file, nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", rest, err, want)
		}
	}
}

func TestALoneEqualsSignIsToldHowEqualityIsWritten(t *testing.T) {
	for line, want := range map[string]string{
		"violations = 0":        `as in "violations == 0"`,
		"violations=0":          `as in "violations == 0"`,
		"ratio(rss, a, b) = 1":  `as in "ratio(rss, a, b) == 1"`,
		"ratio(rss, a, b, c=d)": "is not an expectation such as",
	} {
		if _, err := parseExpect(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

func TestLatencyOfAClosedLoopIsNoExpectation(t *testing.T) {
	const head = "version: 1\nname: x\nexpect: [ack.p99 < 5ms]\n"
	refused(t, head+"load: {model: closed, max_outstanding: 500}\n", "ack.p99 of a closed loop with 500 outstanding is queueing")
	for _, load := range []string{"{model: open}", "{model: closed, max_outstanding: 1}", "{model: [open, closed]}"} {
		if _, err := Parse(written(t, head+"load: "+load+"\n"), nil); err != nil {
			t.Errorf("%s: %v", load, err)
		}
	}
}
