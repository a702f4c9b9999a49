package report

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gopherlog/bench/check"
	"gopherlog/bench/result"
)

var update = flag.Bool("update", false, "rewrite golden files")

// twoSystems makes a run directory in which Kafka takes three times as long as
// GopherLog and acknowledges half as much.
func twoSystems(t *testing.T, root, name, model string, bound int, rates ...float64) string {
	t.Helper()
	d, err := result.Create(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	sys := func(name, version string) result.System {
		return result.System{Name: name, Version: version, Nodes: 3, ReplicationFactor: 3, MinInsync: 2, Tier: "T1", Partitions: 6, RecordBytes: 1024,
			Effective: map[string]string{"segment.bytes": "67108864"}, Kept: true, Warm: &result.Warm{Seconds: 180, First: 90000, Last: 240000}}
	}
	m := result.Manifest{Started: start, Finished: start.Add(3 * time.Minute), Command: "mqbench run " + name + ".yaml",
		Scenario: result.Scenario{Name: name, File: name + ".yaml", Question: "How do they compare at " + name + "?", Seed: 42, Blocks: 3, Model: model, Resolved: "version: 1\n"},
		Systems:  []result.System{sys("gopherlog", "1.0"), sys("kafka", "4.4.0, java 17")},
		Host:     result.Host{Cores: 2, CPU: "test", Kernel: "test", Filesystem: "ext4"}}
	m.Systems[1].Launched = map[string]string{"heap": "1024 MiB"}
	m.System = m.Systems[0]
	var res result.Results
	rng := rand.New(rand.NewPCG(3, 4))
	s := sample{name: name, model: model}
	for si, system := range []string{"gopherlog", "kafka"} {
		for ri, rate := range rates {
			c := result.Cell{ID: fmt.Sprintf("c%d%d", si, ri), System: system, Guarantee: "idempotent", Model: model, Rate: rate, Client: map[string]string{"acks": "all"},
				Sweep: map[string]string{"target.system": system}}
			if model == "closed" {
				c.Bound = bound
			}
			if len(rates) > 1 {
				c.Sweep["load.rate"] = fmt.Sprintf("%.0fk/s", rate/1000)
			}
			m.Cells = append(m.Cells, c)
			for block := range 3 {
				tr := s.trial(t, d, c, block, start, rng)
				slow := float64(2*si + 1)
				tr.Achieved = max(rate, 200000/float64(si+1))
				tr.Usage = result.Usage{BrokerCPU: slow, ClientCPU: 0.5, Records: 100000, CopiesAtAck: 2 + si, BrokerRSS: int64(300<<20) * int64(1+3*si), BesideCores: 0.04}
				l := result.Latency{Count: 10000, P50: slow, P99: 4 * slow, Max: 20}
				tr.Latency = map[string]map[string]result.Latency{"ack": {"steady": l}, "visible": {"steady": l}}
				res.Trials = append(res.Trials, tr)
			}
		}
	}
	var groups []result.RatioGroup
	for i, rate := range rates {
		g := result.RatioGroup{Outcome: []string{"met", "missed"}[i%2]}
		if len(rates) > 1 {
			g.Name = fmt.Sprintf("load.rate=%.0fk/s", rate/1000)
		}
		groups = append(groups, g)
	}
	metric := map[string]string{"open": "ack.p99", "closed": "throughput"}[model]
	res.Expectations = []result.Expectation{{Line: "ratio(" + metric + ", gopherlog, kafka) <= 0.4", Outcome: "missed", Got: "0.333", Ratio: &result.Ratio{Metric: metric, A: "gopherlog", B: "kafka", Op: "<=", Value: 0.4, Groups: groups}}}
	res.Verdict = check.Pass
	if err := d.WriteManifest(&m); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteResults(&res); err != nil {
		t.Fatal(err)
	}
	return d.Path
}

func TestTwoSystemsStandSideBySideWithRatioGoalAndCopies(t *testing.T) {
	root := t.TempDir()
	if *keep != "" {
		root = *keep + "-beside"
		os.RemoveAll(root)
	}
	dirs := []string{twoSystems(t, root, "saturation", "closed", 20000, 0), twoSystems(t, root, "latency", "open", 0, 20000, 75000), twoSystems(t, root, "in-flight", "closed", 1, 0)}
	var runs []*result.Run
	for _, d := range dirs {
		r, err := result.Load(d)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	all := SideBySide(runs)
	if len(all) != 1 {
		t.Fatalf("%d comparisons", len(all))
	}
	const golden = "testdata/beside.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(all[0].Text()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || string(want) != all[0].Text() {
		t.Errorf("%s differs (%v); if that is right: go test ./bench/report -update\n%s", golden, err, all[0].Text())
	}
	if err := Render(dirs, root, "GopherLog and Kafka"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, result.ReportFile))
	if err != nil {
		t.Fatal(err)
	}
	page, at := string(b), 0
	for _, want := range []string{"GopherLog and Apache Kafka, 3 nodes", "<h2>GopherLog beside Apache Kafka</h2>", "0.33 ×", "≤ 0.4 ×", "Copies when a record is acknowledged: GopherLog 2 of 3, Apache Kafka 3 of 3",
		"Ratio to what each axis calls 1", "<th>Apache Kafka</th>", "Saturation</h2>", "One record in flight</h2>", "waits for every replica that is in sync", "broker: heap",
		"180 s of full load before its first trial, 90,000 records/s at first and 240,000 at last", "used 0.04 of a core", "Apache Kafka 4.4.0"} {
		i := strings.Index(page[at:], want)
		if i < 0 {
			t.Fatalf("%q is missing, or stands too early", want)
		}
		at += i
	}
	if strings.Contains(page, "<th>guarantee</th>") {
		t.Error("a column of systems is headed guarantee")
	}
	if sat, err := os.ReadFile(filepath.Join(root, "charts", "saturation.csv")); err != nil || strings.Count(string(sat), "\n") != 3 {
		t.Errorf("one record in flight is no saturation: %v: %s", err, sat)
	}
}

func TestSystemsOfOneGuaranteeDoNotMixInALine(t *testing.T) {
	root := t.TempDir()
	r, err := result.Load(twoSystems(t, root, "latency", "open", 0, 20000))
	if err != nil {
		t.Fatal(err)
	}
	s := &set{runs: []*result.Run{r}}
	s.tellSystemsApart()
	gs := s.guarantees()
	if len(gs) != 2 || gs[0] != "gopherlog" || gs[1] != "kafka" {
		t.Fatalf("series %q", gs)
	}
	c := loadCurve(r, gs, ack)
	if len(c.Table.Rows) != 2 || c.Table.Rows[0][3] != "1.000" || c.Table.Rows[1][3] != "3.000" {
		t.Errorf("%q", c.Table.Rows)
	}
	if l := look("kafka/at_least_once"); l.Label != "Apache Kafka, at least once" || l.Color != look("kafka").Color {
		t.Errorf("%+v", l)
	}
}

func TestRunsOfOneSystemHaveNothingBesideThem(t *testing.T) {
	r := &result.Run{Manifest: result.Manifest{System: result.System{Name: "gopherlog"}, Cells: []result.Cell{{ID: "a", Guarantee: "idempotent"}}}}
	if got := SideBySide([]*result.Run{r}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// withKafka adds, to transactions of several sizes, Apache Kafka, whose transactions cost ten times as much and which cannot vote.
func withKafka(blocks int) *txnSample {
	s := sizes(blocks, true)
	s.m.Systems = []result.System{{Name: "gopherlog", Nodes: 3, ReplicationFactor: 3}, {Name: "kafka", Nodes: 3, ReplicationFactor: 3}}
	for i, c := range s.m.Cells {
		c.System = "gopherlog"
		c.Sweep["target.system"], c.Sweep["guarantee"] = "gopherlog", c.Guarantee
		s.m.Cells[i] = c
		theirs := c
		theirs.System, theirs.Sweep = "kafka", map[string]string{}
		for k, v := range c.Sweep {
			theirs.Sweep[k] = v
		}
		theirs.Sweep["target.system"] = "kafka"
		ours := trialsOf(s, c.ID)
		if c.Guarantee == votes {
			theirs.Absent, ours = "its coordinator decides alone", nil
		}
		theirs.ID = c.ID + "k"
		s.m.Cells = append(s.m.Cells, theirs)
		for _, t := range ours {
			t.ID, t.Cell = t.ID+"k", theirs.ID
			if c.Txn != nil {
				n, k := float64(c.Txn.Records), float64(c.Producers)
				t.Txns = k / (10*(k/t.Txns-9e-6*n) + 9e-6*n)
				t.Commits = t.Txns * n
			}
			s.res.Trials = append(s.res.Trials, t)
		}
	}
	return s
}

func trialsOf(s *txnSample, cell string) (out []result.Trial) {
	for _, t := range s.res.Trials {
		if t.Cell == cell {
			out = append(out, t)
		}
	}
	return out
}

func TestWhatWasAskedStandsInOnePlace(t *testing.T) {
	s := withKafka(6)
	s.res.Expectations = append(s.res.Expectations, result.Expectation{Line: "n50", Outcome: "missed", Ratio: &result.Ratio{Metric: "n50", A: "gopherlog", B: "kafka", Op: "<=", Value: 0.05,
		Groups: []result.RatioGroup{{Name: "guarantee=transactional producers.count=1", Outcome: "missed"}}}})
	r, err := result.Load(s.write(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	goals, ok := Goals(SideBySide([]*result.Run{r}))
	if !ok || len(goals.Table.Rows) != 1 {
		t.Fatalf("%v\n%s", ok, goals.Text())
	}
	row := goals.Table.Rows[0]
	if got := strings.Join(append(row[:2:2], row[5:]...), "|"); got != "transactional, 1 producer|n50: records a transaction for half of the rate without|≤ 0.05 ×|✗ missed" {
		t.Errorf("%q", got)
	}
	if len(row) != len(goals.Table.Head) {
		t.Errorf("%d columns below %d heads", len(row), len(goals.Table.Head))
	}
	tuned := SideBySide([]*result.Run{r})[0]
	tuned.Title += " with its.backoff=1"
	goals, _ = Goals(append(SideBySide([]*result.Run{r}), tuned))
	if rows := goals.Table.Rows; len(rows) != 2 || rows[1][0] != "transactional, 1 producer, with its.backoff=1" {
		t.Errorf("%q", rows)
	}
	if _, ok := Goals(nil); ok {
		t.Error("goals of nothing")
	}
}

func TestTransactionsOfTwoSystemsAreComparedBySizeAndByHalf(t *testing.T) {
	r, err := result.Load(withKafka(6).write(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	all := SideBySide([]*result.Run{r})
	if len(all) != 1 {
		t.Fatalf("%d comparisons", len(all))
	}
	rows := map[string][]string{}
	load := ""
	for _, row := range all[0].Table.Rows {
		if row[0] != "" {
			load = row[0]
		}
		rows[load+" | "+row[1]] = row
	}
	const half = " | n50: records a transaction for half of the rate without"
	for _, x := range []struct {
		row      string
		low, top float64
	}{
		{"transactional, 1 producer" + half, 0.08, 0.12},
		{"transactional, 8 producers" + half, 0.05, 0.12},
		{"two phase commit beside transactional, 1 producer" + half, 0.2, 0.32},
		{"saturation, transactional, 1 producer, 1 record a transaction | transactions/s", 8.5, 10.5},
		{"saturation, two phase commit beside transactional, 8 producers, 1 record a transaction | transactions/s", 3, 4.5},
	} {
		row := rows[x.row]
		if row == nil {
			t.Errorf("no row %q in\n%s", x.row, all[0].Text())
			continue
		}
		var ratio float64
		if _, err := fmt.Sscan(row[4], &ratio); err != nil || ratio < x.low || ratio > x.top || !strings.Contains(row[4], "–") {
			t.Errorf("%s: %q, want %g to %g with its interval", x.row, row[4], x.low, x.top)
		}
	}
	if text := all[0].Text(); strings.Contains(text, "not measured") {
		t.Errorf("what a system cannot do counts as not measured:\n%s", text)
	}
}
