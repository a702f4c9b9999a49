package admin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
)

// Registry collects a node's metrics and remembers what each is, so that docs/METRICS.md is written by what was
// registered. It is a prometheus.Registerer and a prometheus.Gatherer, safe for concurrent use.
type Registry struct {
	reg *prometheus.Registry

	mu      sync.Mutex
	metrics map[string]Metric
}

// Metric describes one metric.
type Metric struct {
	Name   string
	Kind   string // counter, gauge or histogram
	Labels []string
	Help   string
}

// NewRegistry returns a registry that has the Go runtime's and the process's own metrics already; those are not among
// Metrics, their names are the same in every Go program.
func NewRegistry() *Registry {
	r := &Registry{reg: prometheus.NewRegistry(), metrics: map[string]Metric{}}
	r.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Register implements prometheus.Registerer.
func (r *Registry) Register(c prometheus.Collector) error {
	if err := r.reg.Register(c); err != nil {
		return err
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		c.Describe(descs)
		close(descs)
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	for d := range descs {
		if m, ok := describe(d, c); ok {
			r.metrics[m.Name] = m
		}
	}
	return nil
}

// MustRegister implements prometheus.Registerer; it panics where Register fails.
func (r *Registry) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (r *Registry) Unregister(c prometheus.Collector) bool { return r.reg.Unregister(c) }

// Gather implements prometheus.Gatherer.
func (r *Registry) Gather() ([]*dto.MetricFamily, error) { return r.reg.Gather() }

// Metrics returns what was ever registered, in order of name.
func (r *Registry) Metrics() []Metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.metrics), func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
}

// describe reads a descriptor's text form: its fields are not exported.
func describe(d *prometheus.Desc, c prometheus.Collector) (Metric, bool) {
	text := d.String()
	name, ok := quotedAfter(text, "fqName: ")
	if !ok {
		return Metric{}, false
	}
	help, _ := quotedAfter(text, "help: ")
	return Metric{Name: name, Kind: kindOf(name, c), Help: help, Labels: labelsOf(text)}, true
}

func quotedAfter(text, key string) (string, bool) {
	_, rest, ok := strings.Cut(text, key)
	if !ok {
		return "", false
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return "", false
	}
	s, err := strconv.Unquote(quoted)
	return s, err == nil
}

func labelsOf(text string) []string {
	const key = "variableLabels: {"
	i := strings.LastIndex(text, key)
	if i < 0 {
		return nil
	}
	list, _, _ := strings.Cut(text[i+len(key):], "}")
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// kindOf follows the naming rule that all rooms keep to: what ends in _total is a counter.
func kindOf(name string, c prometheus.Collector) string {
	switch c.(type) {
	case *prometheus.HistogramVec, prometheus.Observer:
		return "histogram"
	}
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}

// Markdown is docs/METRICS.md.
func (r *Registry) Markdown() string {
	var b strings.Builder
	b.WriteString("# Metrics\n\nWritten by `go test ./cluster/admin -run TestMetricsDocument -update` from what the rooms register. " +
		"`GET /metrics` on the admin port also has the Go runtime's and the process's own metrics (`go_*`, `process_*`).\n\n" +
		"| Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n")
	for _, m := range r.Metrics() {
		labels := "–"
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, labels, strings.ReplaceAll(m.Help, "|", "\\|"))
	}
	return b.String()
}
