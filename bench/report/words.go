package report

import (
	"fmt"
	"sort"
	"strings"

	"gopherlog/bench/result"
	"gopherlog/bench/stats"
)

func upper(kn [2]int64) float64 { return stats.UpperBound(kn[0], kn[1]) }

// outcome answers a scenario's question in figures.
func (s *set) outcome(r *result.Run) string {
	var parts []string
	gs := (&set{runs: []*result.Run{r}}).guarantees()
	if r.Manifest.Scenario.Model == "closed" {
		for _, g := range gs {
			for _, c := range cells(r, g) {
				if iv, ok := summary(trials(r, c.ID), throughput); ok {
					parts = append(parts, fmt.Sprintf("%s: %s records/s", look(g).Label, compact(iv.Center)))
				}
			}
		}
		return strings.Join(parts, ", ") + "."
	}
	for _, e := range r.Results.Expectations {
		parts = append(parts, fmt.Sprintf("%s: %s (%s)", e.Line, e.Outcome, e.Got))
	}
	if len(parts) == 0 {
		return "no expectation was stated; verdict: " + string(r.Results.Verdict) + "."
	}
	return strings.Join(parts, "; ") + "."
}

// saturation lists the closed runs' throughput and what a record cost.
func (s *set) saturation() Table {
	t := Table{Head: []string{"guarantee", "records/s", "bounds", "MB/s", "broker CPU µs/record", "client CPU µs/record", "copies at the acknowledgement"}}
	for _, r := range s.runs {
		if r.Manifest.Scenario.Model != "closed" {
			continue
		}
		for _, c := range r.Manifest.Cells {
			ts := trials(r, c.ID)
			iv, ok := summary(ts, throughput)
			if !ok {
				continue
			}
			t.Rows = append(t.Rows, []string{look(c.Guarantee).Label, compact(iv.Center), fmt.Sprintf("%s – %s, %s of %d", compact(iv.Lo), compact(iv.Hi), span(iv), iv.N),
				fmt.Sprintf("%.0f", iv.Center*float64(r.Manifest.System.RecordBytes)/1e6), cpuOf(ts, func(u result.Usage) float64 { return u.BrokerCPU }),
				cpuOf(ts, func(u result.Usage) float64 { return u.ClientCPU }), fmt.Sprint(ts[0].Usage.CopiesAtAck)})
		}
	}
	return t
}

func cpuOf(ts []result.Trial, of func(result.Usage) float64) string {
	iv, ok := summary(ts, func(t result.Trial) (float64, bool) {
		return of(t.Usage) * 1e6 / float64(max(t.Usage.Records, 1)), t.Usage.Records > 0
	})
	if !ok {
		return "not measured"
	}
	return fmt.Sprintf("%.1f", iv.Center)
}

// thresholds lists every expect line with its outcome.
func (s *set) thresholds() Table {
	t := Table{Head: []string{"scenario", "threshold", "outcome", "measured"}}
	for _, r := range s.runs {
		for _, e := range r.Results.Expectations {
			mark := map[string]string{"met": "✓ met", "missed": "✗ missed", "undecided": "? undecided"}[e.Outcome]
			t.Rows = append(t.Rows, []string{r.Manifest.Scenario.Name, e.Line, mark, e.Got})
		}
	}
	return t
}

// ackMeaning says in a sentence how many copies exist where when a producer is
// answered.
func (s *set) ackMeaning() string {
	sys := s.runs[0].Manifest.System
	majority := sys.ReplicationFactor/2 + 1
	where := "in the page cache of the nodes; a power loss of a majority at once may lose them"
	if sys.Tier == "T2" {
		where = "synced to the disks of the nodes"
	}
	if sys.Name != "gopherlog" {
		return fmt.Sprintf("The system was run by somebody else: its durability is not known here. Replication factor %d, min.insync.replicas %d as asked for.", sys.ReplicationFactor, sys.MinInsync)
	}
	return fmt.Sprintf("Tier %s: with acks=all (at least once, idempotent) %d of %d copies exist when a record is acknowledged, %s. With acks=1 (at most once) one copy exists: the leader's.",
		sys.Tier, max(majority, sys.MinInsync), sys.ReplicationFactor, where)
}

// settings lists client settings by guarantee, and the topics' effective ones.
func (s *set) settings() Table {
	t := Table{Head: []string{"setting"}}
	values := map[string]map[string]string{}
	for _, g := range s.guarantees() {
		t.Head = append(t.Head, look(g).Label)
		for _, r := range s.runs {
			for _, c := range cells(r, g) {
				for k, v := range c.Client {
					if values[k] == nil {
						values[k] = map[string]string{}
					}
					values[k][g] = v
				}
				for k, v := range c.Deviates {
					values[k] = map[string]string{g: v + " (deviates from the guarantee's table)"}
				}
			}
		}
	}
	for _, k := range keysOf(values) {
		row := []string{k}
		for _, g := range s.guarantees() {
			row = append(row, values[k][g])
		}
		t.Rows = append(t.Rows, row)
	}
	effective := s.runs[0].Manifest.System.Effective
	for _, k := range keysOf(effective) {
		row := []string{"topic: " + k}
		for range s.guarantees() {
			row = append(row, effective[k])
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func keysOf[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// limits lists what the figures cannot say, from what the run recorded.
func (s *set) limits() []string {
	h, sys := s.runs[0].Manifest.Host, s.runs[0].Manifest.System
	out := []string{fmt.Sprintf("One host, loopback: brokers and load client share %d cores (%s, %s). Ratios within a run hold; absolute figures are this machine's.", h.Cores, h.CPU, h.Kernel)}
	out = append(out, fmt.Sprintf("Durability tier %s only. Data on %s; one synced write of 4 KiB took %.2f ms at the median before the run.", sys.Tier, h.Filesystem, h.FsyncP50))
	if h.Namespace != "own" {
		out = append(out, "Network faults were skipped: "+h.Namespace)
	}
	if s.quick() {
		out = append(out, "Fewer than six blocks: bars and bands show the lowest and highest trial, which is no confidence interval.")
	}
	var aside []string
	for _, r := range s.runs {
		for _, t := range r.Results.Trials {
			if len(t.Invalid) > 0 {
				aside = append(aside, fmt.Sprintf("%s/%s (%s)", r.Manifest.Scenario.Name, t.ID, strings.Join(t.Invalid, "; ")))
			}
		}
		if r.Manifest.Partial {
			out = append(out, r.Manifest.Scenario.Name+" was interrupted: fewer trials than planned.")
		}
	}
	if len(aside) > 0 {
		out = append(out, "Set aside and listed in trials.csv: "+strings.Join(aside, ", ")+".")
	}
	out = append(out, fmt.Sprintf("%s, %s, %s.", h.OS, h.Go, systemName(sys)+" "+sys.Version))
	return out
}

// markdown is the page in words, for terminals and pull requests.
func (p *page) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n", p.Title, p.Subtitle)
	for _, q := range p.Questions {
		fmt.Fprintf(&b, "%s\n\n", strings.TrimSpace(strings.Join([]string{q.Question, "Hypothesis: " + q.Hypothesis, "Outcome: " + q.Outcome}, " ")))
	}
	for _, c := range p.Cards {
		fmt.Fprintf(&b, "- %s **%s**: %s\n", c.Mark, c.Head, c.Text)
	}
	if len(p.Ledger.Rows) > 0 {
		head := append([]string{"guarantee"}, p.Ledger.Columns...)
		var rows [][]string
		for _, r := range p.Ledger.Rows {
			row := []string{r.Guarantee}
			for _, c := range r.Cells {
				row = append(row, strings.TrimSpace(c.Mark+" "+c.Text))
			}
			rows = append(rows, row)
		}
		fmt.Fprintf(&b, "\n## Did it hold?\n\n%s", mdTable(Table{Head: head, Rows: rows}))
	}
	for _, c := range p.Prices {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s", c.Title, c.Caption, mdTable(c.Table))
	}
	if len(p.Saturation.Rows) > 0 {
		fmt.Fprintf(&b, "\n## Saturation\n\n%s", mdTable(p.Saturation))
	}
	if len(p.Thresholds.Rows) > 0 {
		fmt.Fprintf(&b, "\n## Thresholds\n\n%s", mdTable(p.Thresholds))
	}
	b.WriteString("\n## Limits\n\n")
	for _, l := range p.Limits {
		fmt.Fprintf(&b, "- %s\n", l)
	}
	return b.String()
}

func mdTable(t Table) string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.Head)
	line(strings.Split(strings.Repeat("--- ", len(t.Head)-1)+"---", " "))
	for _, r := range t.Rows {
		line(r)
	}
	return b.String()
}
