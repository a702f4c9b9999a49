package report

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"gopherlog/bench/check"
	"gopherlog/bench/fault"
	"gopherlog/bench/hdr"
	"gopherlog/bench/result"
)

var keep = flag.String("keep", "", "write the rendered sample report here, to look at")

// sample is a scenario whose figures are made up for the test.
type sample struct {
	name   string
	model  string
	rates  []float64
	faults bool
}

// write makes a complete run directory of three blocks.
func (s sample) write(t *testing.T, root string) string {
	t.Helper()
	d, err := result.Create(filepath.Join(root, s.name))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	m := result.Manifest{Started: start, Finished: start.Add(3 * time.Minute), Command: "mqbench run scenarios/" + s.name + ".yaml -seed 42",
		Scenario: result.Scenario{Name: s.name, File: "scenarios/" + s.name + ".yaml", Question: "What of " + s.name + "?", Hypothesis: "It holds.", Seed: 42, Blocks: 3, Model: s.model, Resolved: "version: 1\n"},
		System:   result.System{Name: "gopherlog", Nodes: 3, ReplicationFactor: 3, MinInsync: 2, Tier: "T1", Partitions: 6, RecordBytes: 1024, Effective: map[string]string{"flush.messages": "0"}},
		Host:     result.Host{Cores: 2, CPU: "test", Kernel: "test", Namespace: "own", Filesystem: "ext4"}}
	var res result.Results
	rng := rand.New(rand.NewPCG(1, 2))
	for gi, g := range []string{"at_most_once", "at_least_once", "idempotent"} {
		for ri, rate := range s.rates {
			c := result.Cell{ID: fmt.Sprintf("c%d%d", gi, ri), Guarantee: g, Model: s.model, Rate: rate, Client: map[string]string{"acks": "all"}}
			m.Cells = append(m.Cells, c)
			for block := range 3 {
				res.Trials = append(res.Trials, s.trial(t, d, c, block, start, rng))
			}
		}
	}
	res.Expectations = []result.Expectation{{Line: "violations == 0", Outcome: "met", Got: "0"}}
	res.Verdict = check.Pass
	if err := d.WriteManifest(&m); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteResults(&res); err != nil {
		t.Fatal(err)
	}
	return d.Path
}

func (s sample) trial(t *testing.T, d *result.Dir, c result.Cell, block int, start time.Time, rng *rand.Rand) result.Trial {
	id := fmt.Sprintf("b%d-%s", block, c.ID)
	tr := result.Trial{ID: id, Cell: c.ID, Block: block, Started: start, Seconds: 30, Offered: c.Rate, Achieved: max(c.Rate, 100000) * (0.99 + 0.02*rng.Float64()),
		Phases: []result.Span{{Phase: "warmup", Start: 0, End: 2}, {Phase: "steady", Start: 2, End: 10}, {Phase: "impact", Start: 10, End: 30}}}
	if c.Model == "open" {
		tr.Achieved = c.Rate
	}
	ack, vis := hdr.NewRecorder(time.Second), hdr.NewRecorder(time.Second)
	var rows []result.Second
	for sec := range 30 {
		worst := 0.0
		for range 200 {
			v := math.Exp(rng.NormFloat64()*0.7) * (0.3 + c.Rate/100000)
			if s.faults && sec == 12 {
				v += 400 * rng.Float64()
			}
			worst = math.Max(worst, v)
			at := time.Duration(sec)*time.Second + time.Duration(rng.Int64N(int64(time.Second)))
			ack.Record(at, time.Duration(v*float64(time.Millisecond)))
			vis.Record(at, time.Duration((v+0.2)*float64(time.Millisecond)))
		}
		rows = append(rows, result.Second{At: float64(sec), Sent: int64(c.Rate), Acked: int64(c.Rate * (0.97 + 0.05*rng.Float64())), AckP50: 0.4, AckP99: 2, AckMax: worst, Lag: int64(rng.IntN(200))})
	}
	f, err := os.Create(d.Latency(id + ".hlog"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for tag, r := range map[string]*hdr.Recorder{"ack": ack, "visible": vis} {
		if err := hdr.Merge(r).WriteLog(f, tag, start); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.WriteSeconds(id, rows); err != nil {
		t.Fatal(err)
	}
	l := result.Latency{Count: 10000, P50: 0.4 + c.Rate/1e5 + 0.05*rng.Float64(), P99: 2 + c.Rate/3e4 + rng.Float64(), Max: 20}
	tr.Latency = map[string]map[string]result.Latency{"ack": {"steady": l}, "visible": {"steady": l}}
	tr.Check = check.Verdict{Status: check.Pass, Totals: check.Totals{Acked: 100000, Lost: map[string]int64{"at_most_once": 12}[c.Guarantee]},
		Rules: []check.RuleResult{{ID: "A4", Name: "lost-write", Demand: check.MustBeZero, Status: check.Pass, Denominator: 100000, Of: "acknowledged records"}}}
	tr.Usage = result.Usage{BrokerCPU: 1, ClientCPU: 0.5, Records: 100000, CopiesAtAck: 2}
	if s.faults {
		at := start.Add(12 * time.Second)
		for i, kind := range []string{"kill", "partition"} {
			e := fault.Event{Kind: kind, Target: "leader(load/0)", Nodes: []int{1}, Injected: at, Effective: at, Healed: at.Add(5 * time.Second), Proof: "seen"}
			if kind == "partition" {
				e.Shape, e.Injected, e.Healed = "isolate", at.Add(8*time.Second), at.Add(12*time.Second)
			}
			tr.Faults = append(tr.Faults, e)
			tr.Outages = append(tr.Outages, result.Outage{Fault: i, Topic: "load", Load: 0.3 + rng.Float64(), Prober: 0.02 + 0.1*rng.Float64(), Affected: true})
		}
		tr.Leaders = []result.LeaderChange{{At: 12.1, Topic: "load", Node: 2}}
	}
	return tr
}

// render draws the sample once for all tests of this file.
func render(t *testing.T) (page string, dir string) {
	t.Helper()
	rendered.Do(func() { sampleDir, sampleErr = renderSample(t) })
	if sampleErr != nil {
		t.Fatal(sampleErr)
	}
	b, err := os.ReadFile(filepath.Join(sampleDir, result.ReportFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(b), sampleDir
}

var (
	rendered  sync.Once
	sampleDir string
	sampleErr error
)

func TestMain(m *testing.M) {
	code := m.Run()
	if *keep == "" && sampleDir != "" {
		os.RemoveAll(sampleDir)
	}
	os.Exit(code)
}

func renderSample(t *testing.T) (string, error) {
	root, err := os.MkdirTemp("", "report")
	if err != nil {
		return "", err
	}
	if *keep != "" {
		root = *keep
		if err := os.RemoveAll(root); err != nil {
			return "", err
		}
	}
	var dirs []string
	for _, s := range []sample{{"price", "closed", []float64{0}, false}, {"latency", "open", []float64{5000, 20000, 50000}, false}, {"faults", "open", []float64{5000}, true}} {
		dirs = append(dirs, s.write(t, root))
	}
	return root, Render(dirs, root, "What does each delivery guarantee cost?")
}

func TestPageHasEveryPartInOrder(t *testing.T) {
	page, _ := render(t)
	at := 0
	for _, want := range []string{"<h1>What does", "Delivery held", "The price list", "Did it hold?", "<h2>Latency", "Through the fault", "Saturation", "Thresholds judged", "What an acknowledgement means", "Limits of this run"} {
		i := strings.Index(page[at:], want)
		if i < 0 {
			t.Fatalf("%q is missing or out of order", want)
		}
		at += i
	}
}

func TestPageNeedsNoNetwork(t *testing.T) {
	page, _ := render(t)
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]*)"|url\(([^)]*)\)|@import[^;]*`).FindAllString(page, -1) {
		t.Errorf("the page refers to something outside itself: %s", m)
	}
	if len(page) > 2<<20 {
		t.Errorf("the page has %d bytes, more than 2 MiB", len(page))
	}
}

func TestChartsFollowTheTheme(t *testing.T) {
	page, _ := render(t)
	for _, c := range []string{"#010203", "#040506", "#070809"} {
		if strings.Contains(strings.ToLower(page), c) {
			t.Errorf("stand-in colour %s was not replaced", c)
		}
	}
}

func TestEveryChartLeavesSVGPictureAndData(t *testing.T) {
	_, dir := render(t)
	for _, id := range []string{"price-throughput", "price-visible-p99", "latency-spectrum-ack", "latency-load-ack", "timeline-c20", "unavailability"} {
		for _, ext := range []string{".svg", ".png", ".csv"} {
			if s, err := os.Stat(filepath.Join(dir, "charts", id+ext)); err != nil || s.Size() == 0 {
				t.Errorf("charts/%s%s: %v", id, ext, err)
			}
		}
	}
}

func TestClosedRunsLatencyIsNeverDrawn(t *testing.T) {
	root := t.TempDir()
	dir := sample{"price", "closed", []float64{0}, false}.write(t, root)
	if err := Render([]string{dir}, dir, ""); err != nil {
		t.Fatal(err)
	}
	got, _ := filepath.Glob(filepath.Join(dir, "charts", "latency-*"))
	if len(got) > 0 {
		t.Errorf("latency charts of a closed run: %v", got)
	}
}

func TestJudgeNeverPrintsABareZero(t *testing.T) {
	tr := result.Trial{Check: check.Verdict{Status: check.Pass, Totals: check.Totals{Acked: 1_000_000}}}
	if got := judge([]result.Trial{tr}); got.Mark != "✓" || !strings.Contains(got.Text, "of 1.00 M") || !strings.Contains(got.Text, "≤ 3") {
		t.Errorf("got %q, want the denominator and the bound of 3 per million", got.Text)
	}
	tr.Check.Status = check.Inconclusive
	if got := judge([]result.Trial{tr}); got.Mark != "?" {
		t.Errorf("an inconclusive trial is marked %q", got.Mark)
	}
}
