package suite

import (
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"strings"

	"gopherlog/bench/check"
	"gopherlog/bench/result"
)

// writeExports leaves the run in forms that other tools read: Go benchmark
// lines for benchstat, JUnit for CI systems.
func writeExports(r *result.Run) error {
	return errors.Join(os.WriteFile(r.File(result.BenchFile), []byte(goBench(r)), 0o644), writeJUnit(r))
}

// goBench prints one line a trial; benchstat groups them by the keys in the name.
func goBench(r *result.Run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "goos: %s\npkg: %s\ncpu: %s\n", strings.Split(r.Manifest.Host.OS, "/")[0], r.Manifest.Scenario.Name, r.Manifest.Host.CPU)
	for _, t := range r.Results.Valid() {
		for _, c := range r.Manifest.Cells {
			if c.ID != t.Cell {
				continue
			}
			name := fmt.Sprintf("BenchmarkProduce/system=%s/guarantee=%s/rate=%.0f/model=%s", r.Manifest.SystemOf(c).Name, c.Guarantee, c.Rate, c.Model)
			fmt.Fprintf(&b, "%s 1 %.0f records/s", name, t.Achieved)
			if ack, ok := t.Latency["ack"]["steady"]; ok && c.Model == "open" {
				fmt.Fprintf(&b, " %.4f p50-ms %.4f p99-ms", ack.P50, ack.P99)
			}
			if t.Usage.Records > 0 {
				fmt.Fprintf(&b, " %.3f broker-cpu-us/record", t.Usage.BrokerCPU*1e6/float64(t.Usage.Records))
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitMessage `xml:"failure,omitempty"`
	Skipped *junitMessage `xml:"skipped,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
}

// writeJUnit gives each trial, each of its rules and each threshold a test case.
// A trial that could not be judged fails, unless all that was missing is a fault
// which this machine cannot inject.
func writeJUnit(r *result.Run) error {
	s := junitSuite{Name: r.Manifest.Scenario.Name}
	add := func(class, name string, failed, skipped bool, why string) {
		c := junitCase{Class: class, Name: name}
		switch {
		case failed:
			c.Failure = &junitMessage{why}
			s.Failures++
		case skipped:
			c.Skipped = &junitMessage{why}
			s.Skipped++
		}
		s.Tests++
		s.Cases = append(s.Cases, c)
	}
	for _, t := range r.Results.Trials {
		doubtful := t.Check.Status == check.Inconclusive
		add(t.ID, "could be judged", doubtful && !skippedOnly(t), doubtful, strings.Join(t.Check.Reasons, "; "))
		for _, x := range t.Check.Rules {
			what := fmt.Sprintf("%d of %d %s", x.Count, x.Denominator, x.Of)
			if x.Status == check.NotChecked {
				what = "not checked: " + x.Why
			}
			add(t.ID, x.ID+" "+x.Name, x.Status == check.Violated && !x.Tolerated, x.Status == check.Inconclusive || x.Status == check.NotChecked, what)
		}
	}
	for _, e := range r.Results.Expectations {
		add("expect", e.Line, e.Outcome == missed || unanswered(e), e.Outcome == undecided, e.Got)
	}
	b, err := xml.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.File(result.JUnitFile), append([]byte(xml.Header), append(b, '\n')...), 0o644)
}
