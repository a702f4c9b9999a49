package report

import (
	"fmt"
	"slices"
	"strings"

	"gopherlog/bench/result"
)

// systemOrder is the order of systems in legends and tables; the others follow.
var systemOrder = []string{"gopherlog", "kafka", "nats", "external"}

// compared says whether the runs hold more than one system.
func (s *set) compared() bool {
	seen := map[string]bool{}
	for _, r := range s.runs {
		for _, c := range r.Manifest.Cells {
			seen[r.Manifest.SystemOf(c).Name] = true
		}
	}
	return len(seen) > 1
}

// tellSystemsApart renames the guarantees of the cells where several systems are
// compared: what has a line in a chart and a row in a table then is a system, or
// a guarantee on a system where guarantees differ too.
func (s *set) tellSystemsApart() {
	if !s.compared() {
		return
	}
	several := len(s.guarantees()) > 1
	for _, r := range s.runs {
		for i := range r.Manifest.Cells {
			c := &r.Manifest.Cells[i]
			name := r.Manifest.SystemOf(*c).Name
			if several {
				name += "/" + c.Guarantee
			}
			c.Guarantee = name
		}
	}
}

// order sorts the names of series: by system, then from weak to strong.
func order(a, b string) int { return orderOf(a) - orderOf(b) }

func orderOf(series string) int {
	system, guarantee, both := strings.Cut(series, "/")
	at := slices.Index(systemOrder, system)
	if at < 0 && !both {
		return rank(series)
	}
	if at < 0 {
		at = len(systemOrder)
	}
	return 100*(at+1) + rank(guarantee)
}

// base is the series that a price list calls 1: at least once, or, where systems
// are compared, the other system under the same guarantee.
func base(series []string) string {
	for _, g := range series {
		if system, _, _ := strings.Cut(g, "/"); slices.Contains(systemOrder, system) && system != series0(series) {
			return g
		}
	}
	return "at_least_once"
}

func series0(series []string) string {
	system, _, _ := strings.Cut(series[0], "/")
	return system
}

// retitle heads the columns that name systems so.
func (s *set) retitle(p *page, charts []*Chart) {
	if !s.compared() {
		return
	}
	rename := func(head []string) {
		for i := range head {
			if head[i] == "guarantee" {
				head[i] = "system"
			}
		}
	}
	for _, t := range p.tables() {
		rename(t.Head)
	}
	for _, c := range charts {
		rename(c.Table.Head)
	}
}

// setUp says how a system was run, as far as that is known: a cluster of somebody else's tells how many replicas the topic has, and nothing
// of where they are written.
func setUp(s result.System) string {
	copies := fmt.Sprintf("RF %d", s.ReplicationFactor)
	if s.ReplicationFactor == 0 {
		copies = "RF not known"
	}
	if s.Name == "external" {
		return copies + ", durability as its owner runs it"
	}
	return fmt.Sprintf("%s, %s, tier %s", plural(s.Nodes, "node"), copies, s.Tier)
}

func systemName(s result.System) string { return nameOf(s.Name) }

func nameOf(system string) string {
	if name, ok := map[string]string{"gopherlog": "GopherLog", "kafka": "Apache Kafka", "nats": "NATS JetStream"}[system]; ok {
		return name
	}
	return system
}

// systems lists those of a run.
func systems(r *result.Run) []result.System {
	if len(r.Manifest.Systems) == 0 {
		return []result.System{r.Manifest.System}
	}
	return r.Manifest.Systems
}

func systemNames(r *result.Run) string {
	var out []string
	for _, s := range systems(r) {
		out = append(out, systemName(s))
	}
	return strings.Join(out, " and ")
}
