package scenario

import (
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
