package scenario

import (
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// Expect is one line of the expect section: metric op value [in phase] [or undecided], or
// ratio(metric, a, b[, key=value ...]) op value [or undecided].
type Expect struct {
	Raw    string
	Metric string  // "visible.p99", "violations", ...
	A, B   string  // of ratio(metric, a, b): two values of one swept key; else empty
	Where  []Axis  // of a ratio: other swept keys, and the only value of each that the line speaks of
	Op     string  // < <= > >= == !=
	Value  float64 // seconds for durations, bytes for sizes, else a plain number
	Unit   Unit
	Phase  string // "" = the whole measured part
	Open   bool   // "or undecided": a run that cannot decide the line may pass all the same
}

// Half is the metric that no trial has by itself: the records of a transaction at which half of the rate without transactions is reached,
// fitted over the sizes that a block measured. Only a ratio may ask for it.
const Half = "n50"

// Unit is the dimension of a metric.
type Unit string

// Units of metrics.
const (
	UnitCount   Unit = "count"
	UnitSeconds Unit = "seconds"
	UnitRate    Unit = "per_second"
	UnitShare   Unit = "share"
	UnitBytes   Unit = "bytes"
)

// metrics are the words that an expectation may begin with.
var metrics = func() map[string]Unit {
	m := map[string]Unit{
		"violations": UnitCount, "lost": UnitCount, "duplicates": UnitCount, "failed": UnitCount, "shed": UnitCount, "late": UnitCount,
		"throughput": UnitRate, "achieved_ratio": UnitShare, "rss": UnitBytes, "broker_cpu_per_record": UnitSeconds,
		"outage.max": UnitSeconds, "outage.median": UnitSeconds, "outage_prober.max": UnitSeconds, "outage_prober.median": UnitSeconds,
		"pace_before_fault.min": UnitRate,
		"committed":             UnitCount, "committed_records": UnitRate, "transactions": UnitRate, "in_doubt": UnitCount, "transformed": UnitCount, "faults": UnitCount,
		"stall.max": UnitSeconds, "stall.median": UnitSeconds, Half: UnitCount,
	}
	for _, latency := range Latencies() {
		for _, p := range percentiles {
			m[latency+"."+p] = UnitSeconds
		}
	}
	return m
}()

// Latencies lists what is timed, all from the moment at which it was due but end_txn, which is timed from when it was asked.
func Latencies() []string { return []string{"ack", "visible", "commit", "end_txn", "end_to_end"} }

// Metrics lists the words that an expectation may begin with, sorted.
func Metrics() []string {
	names := make([]string, 0, len(metrics))
	for name := range metrics {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// percentiles are what a latency is asked for by.
var percentiles = []string{"p50", "p90", "p99", "p999", "max"}

// metricHint names the metric that was meant: the nearest, those of which only the end was written, or all, latencies in one breath.
func metricHint(word string) string {
	if near := nearest(word, Metrics()); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	var ends, others []string
	for _, name := range Metrics() {
		of, _, _ := strings.Cut(name, ".")
		if strings.HasSuffix(name, "."+word) {
			ends = append(ends, name)
		}
		if !contains(Latencies(), of) {
			others = append(others, name)
		}
	}
	if len(ends) > 0 {
		return " by itself; use one of: " + strings.Join(ends, ", ")
	}
	return fmt.Sprintf("; use %s of one of %s, as in ack.p99; or one of: %s",
		strings.Join(percentiles, ", "), strings.Join(Latencies(), ", "), strings.Join(others, ", "))
}

var (
	expectPattern = regexp.MustCompile(`^\s*(.+?)\s*(<=|>=|==|!=|<|>)\s*(\S+)(?:\s+in\s+(\S+))?(\s+or\s+undecided)?\s*$`)
	loneEquals    = regexp.MustCompile(`^\s*(ratio\(.*\)|[^=<>!(]+?)\s*=\s*([^=<>!]+)$`)
	ratioPattern  = regexp.MustCompile(`^ratio\(\s*([^,\s]+)\s*,\s*([^,\s]+)\s*,\s*([^,\s]+)\s*((?:,\s*[^,\s=]+=[^,\s]+\s*)*)\)$`)
)

func parseExpect(s string) (Expect, error) {
	m := expectPattern.FindStringSubmatch(s)
	if m == nil {
		if equals := loneEquals.FindStringSubmatch(s); equals != nil {
			return Expect{}, fmt.Errorf("%q: equality is written ==, as in %q", s, equals[1]+" == "+equals[2])
		}
		return Expect{}, fmt.Errorf("%q is not an expectation such as \"visible.p99 < 50ms in steady\"", s)
	}
	e := Expect{Raw: s, Metric: m[1], Op: m[2], Phase: m[4], Open: m[5] != ""}
	if r := ratioPattern.FindStringSubmatch(m[1]); r != nil {
		e.Metric, e.A, e.B = r[1], r[2], r[3]
		for _, w := range strings.Split(r[4], ",")[1:] {
			key, value, _ := strings.Cut(strings.TrimSpace(w), "=")
			e.Where = append(e.Where, Axis{Key: key, Value: value})
		}
	}
	if e.Metric == Half && e.A == "" {
		return e, fmt.Errorf("%s is compared, not measured alone: ratio(%s, a, b)", Half, Half)
	}
	unit, ok := metrics[e.Metric]
	if !ok {
		return e, fmt.Errorf("%q is not a metric%s", e.Metric, metricHint(e.Metric))
	}
	if e.Unit = unit; e.A != "" {
		e.Unit = UnitShare
	}
	if e.Phase != "" && !contains(PhaseNames()[:4], e.Phase) {
		return e, fmt.Errorf("%q is not a phase of the load%s", e.Phase, oneOf(e.Phase, PhaseNames()[:4]))
	}
	if err := e.phaseFits(); err != nil {
		return e, err
	}
	var err error
	e.Value, err = parseMeasure(m[3], e.Unit)
	return e, err
}

// phaseFits refuses a phase that the metric would ignore. Latencies know every
// phase, outages belong to faults wherever these are.
func (e Expect) phaseFits() error {
	kind, _, _ := strings.Cut(e.Metric, ".")
	switch {
	case e.Phase == "", contains(Latencies(), kind), kind == "outage", kind == "outage_prober", kind == "stall":
		return nil
	case e.Metric == "throughput", e.Metric == "achieved_ratio", e.Metric == "broker_cpu_per_record", e.Metric == "committed_records", e.Metric == "transactions":
		if e.Phase == PhaseSteady {
			return nil
		}
		return fmt.Errorf("%s is measured in the steady phase only", e.Metric)
	}
	return fmt.Errorf("%s is measured over the whole trial: leave out \"in %s\"", e.Metric, e.Phase)
}

func parseMeasure(s string, u Unit) (float64, error) {
	switch u {
	case UnitSeconds:
		d, err := parseDuration(s)
		return d.Seconds(), err
	case UnitBytes:
		b, err := parseSize(s)
		return float64(b), err
	case UnitRate:
		r, err := parseRate(s)
		return float64(r), err
	case UnitShare:
		if p, ok := strings.CutSuffix(s, "%"); ok {
			v, err := strconv.ParseFloat(p, 64)
			return v / 100, err
		}
	}
	v, err := parseNumber(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", s)
	}
	return v, nil
}

// Holds says whether a measured value (in the unit of the metric) meets the line.
func (e Expect) Holds(v float64) bool {
	switch e.Op {
	case "<":
		return v < e.Value
	case "<=":
		return v <= e.Value
	case ">":
		return v > e.Value
	case ">=":
		return v >= e.Value
	case "==":
		return v == e.Value
	case "!=":
		return v != e.Value
	}
	panic(fmt.Sprintf("scenario: operator %q", e.Op))
}

func (e Expect) String() string { return e.Raw }
