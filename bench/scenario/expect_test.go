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
