package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gopherlog/bench/result"
)

// ackMeaning says, a sentence for each setting of acks on each system, how many
// copies exist where when a producer is answered.
func (s *set) ackMeaning() []string {
	type promise struct{ acks, text string }
	by := map[promise][]string{} // guarantees
	var order []promise
	for _, g := range s.guarantees() {
		for _, r := range s.runs {
			for _, c := range cells(r, g) {
				p := promise{acksOf(c), meaning(r.Manifest.SystemOf(c), acksOf(c))}
				if by[p] == nil {
					order = append(order, p)
				}
				if !slices.Contains(by[p], look(g).Label) {
					by[p] = append(by[p], look(g).Label)
				}
			}
		}
	}
	var out []string
	for _, p := range order {
		out = append(out, fmt.Sprintf("acks=%s (%s): %s", p.acks, strings.Join(by[p], ", "), p.text))
	}
	return out
}

// acksOf is the setting that a cell's clients used.
func acksOf(c result.Cell) string {
	if a := c.Client["acks"]; a != "" {
		return a
	}
	if strings.HasSuffix(c.Guarantee, "at_most_once") {
		return "1"
	}
	return "all"
}

func meaning(sys result.System, acks string) string {
	switch acks {
	case "0":
		return "no broker has been heard of when a record counts as acknowledged."
	case "1":
		return "one copy exists when a record is acknowledged, the leader's; if it fails before it is copied, the record is gone."
	}
	if sys.Name == "kafka" {
		where := "in the page caches of the nodes: Kafka leaves it to the operating system when they reach a disk"
		if sys.Tier == "T2" {
			where = "synced (flush.messages=1)"
		}
		return fmt.Sprintf("Kafka's leader waits for every replica that is in sync: %d of %d copies exist when a record is acknowledged, fewer while a replica lags, never fewer than %d, %s (tier %s).",
			sys.ReplicationFactor, sys.ReplicationFactor, sys.MinInsync, where, sys.Tier)
	}
	if sys.Name != "gopherlog" {
		return fmt.Sprintf("those copies exist that the system counts as in sync; it is run by somebody else, and where it writes them is not known here. The topic has %s and min.insync.replicas %s, as the brokers tell.",
			orUnknown(sys.ReplicationFactor, "replica"), cmp.Or(sys.Effective["min.insync.replicas"], "not known"))
	}
	where := "in the page caches of the nodes: a power loss of a majority at once may lose them"
	if sys.Tier == "T2" {
		where = "synced to the disks of the nodes"
	}
	return fmt.Sprintf("%d of %d copies exist when a record is acknowledged, %s (tier %s).", max(sys.ReplicationFactor/2+1, sys.MinInsync), sys.ReplicationFactor, where, sys.Tier)
}

func orUnknown(n int, what string) string {
	if n == 0 {
		return "an unknown number of " + what + "s"
	}
	return plural(n, what)
}

func copiesOf(n int) string {
	if n < 0 {
		return "not known"
	}
	return fmt.Sprint(n)
}

// settings lists client settings by guarantee, and the topics' effective ones.
// Where cells of a guarantee differ, all values stand.
func (s *set) settings() Table {
	values := map[string]map[string][]string{} // key → guarantee → values
	note := func(key, g, value string) {
		if values[key] == nil {
			values[key] = map[string][]string{}
		}
		if !slices.Contains(values[key][g], value) {
			values[key][g] = append(values[key][g], value)
		}
	}
	for _, r := range s.runs {
		for _, c := range r.Manifest.Cells {
			for k, v := range c.Client {
				if _, deviates := c.Deviates[k]; deviates {
					v += " (deviates from the guarantee's table)"
				}
				note(k, c.Guarantee, v)
			}
			for k, v := range r.Manifest.SystemOf(c).Effective {
				note("topic: "+k, c.Guarantee, v)
			}
			for k, v := range r.Manifest.SystemOf(c).Launched {
				note("broker: "+k, c.Guarantee, v)
			}
		}
	}
	t := Table{Head: []string{"setting"}}
	for _, g := range s.guarantees() {
		t.Head = append(t.Head, look(g).Label)
	}
	for _, k := range keysOf(values) {
		row := []string{k}
		for _, g := range s.guarantees() {
			row = append(row, strings.Join(values[k][g], " | "))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// limits lists what the figures cannot say, from what the runs recorded.
func (s *set) limits() []string {
	var out []string
	for _, r := range s.runs {
		h, sys := r.Manifest.Host, r.Manifest.System
		if sys.Name == "external" {
			out = append(out, fmt.Sprintf("The brokers are run by somebody else: their machines, their disks and what else they do are not known here. The load client had %d cores (%s, %s).", h.Cores, h.CPU, h.Kernel))
			continue
		}
		priority := ""
		if sys.Nice > 0 {
			priority = fmt.Sprintf(" The brokers run at nice %d, so that the client keeps its schedule.", sys.Nice)
		}
		out = append(out,
			fmt.Sprintf("One host, loopback: brokers and load client share %d cores (%s, %s).%s Ratios within a run hold; absolute figures are this machine's.", h.Cores, h.CPU, h.Kernel, priority),
			fmt.Sprintf("Durability tier %s only. Data on %s.", sys.Tier, h.Filesystem))
	}
	out = append(out, s.syncedWrite()...)
	for _, r := range s.runs {
		out = append(out, s.limitsOf(r)...)
	}
	if s.quick() {
		out = append(out, "Fewer than six blocks: bars and bands show the lowest and highest trial, which is no confidence interval.")
	}
	for _, r := range s.runs {
		m := r.Manifest
		for _, sys := range systems(r) {
			out = append(out, fmt.Sprintf("%s, %s, %s %s.", m.Host.OS, m.Host.Go, systemName(sys), sys.Version))
		}
	}
	return unique(out, len(out))
}

// syncedWrite says what the disk under the brokers can do.
func (s *set) syncedWrite() []string {
	var ms []float64
	for _, r := range s.runs {
		if r.Manifest.System.Name != "external" {
			ms = append(ms, r.Manifest.Host.FsyncP50)
		}
	}
	if len(ms) == 0 {
		return nil
	}
	lo, hi := millis(slices.Min(ms)), millis(slices.Max(ms))
	if lo != hi {
		lo += " to " + hi
	}
	return []string{fmt.Sprintf("One synced write of 4 KiB took %s ms at the median before the runs.", lo)}
}

func (s *set) limitsOf(r *result.Run) []string {
	m := r.Manifest
	var out []string
	if len(m.Planted) > 0 {
		out = append(out, fmt.Sprintf("%s: planted in every broker on purpose: %s.", m.Scenario.Name, strings.Join(m.Planted, ", ")))
	}
	for _, c := range m.Cells {
		if c.Absent != "" {
			out = append(out, fmt.Sprintf("%s: %s was not run: %s.", m.Scenario.Name, look(c.Guarantee).Label, strings.TrimSuffix(strings.TrimPrefix(c.Absent, notApplicable), ".")))
		}
	}
	out = append(out, s.keptLimits(r)...)
	out = append(out, hostLimits(r)...)
	var skipped []string
	aside := map[string][]string{} // kind of reason → trials
	for _, t := range r.Results.Trials {
		for _, e := range t.Faults {
			if e.Skipped {
				skipped = append(skipped, e.Error)
			}
		}
		for _, kind := range kindsOf(t.Invalid) {
			aside[kind] = append(aside[kind], t.ID)
		}
	}
	for _, why := range unique(skipped, len(skipped)) {
		out = append(out, fmt.Sprintf("%s: a fault was %s.", m.Scenario.Name, why))
	}
	for _, kind := range keysOf(aside) {
		out = append(out, fmt.Sprintf("%s: latency and rates of %d of %d trials are set aside, their records were judged: %s (%s; figures in results.json).",
			m.Scenario.Name, len(aside[kind]), len(r.Results.Trials), kind, strings.Join(aside[kind], ", ")))
	}
	if m.Partial {
		out = append(out, fmt.Sprintf("%s has fewer trials than planned: %s.", m.Scenario.Name, whyStopped(r)))
	}
	return out
}

// hostLimits says what the host of a virtual machine took from the trials.
func hostLimits(r *result.Run) []string {
	stolen := func(t result.Trial) (float64, bool) {
		if t.Usage.Stolen == nil {
			return 0, false
		}
		return *t.Usage.Stolen, true
	}
	middle, ok := summary(r.Results.Trials, stolen)
	if !ok {
		return nil
	}
	var worst float64
	var where string
	for _, t := range r.Results.Trials {
		if share, _ := stolen(t); share > worst {
			worst, where = share, t.ID
		}
	}
	if worst == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: the machine's host took %.1f %% of its processors' time from the median trial, %.1f %% from the worst (%s).",
		r.Manifest.Scenario.Name, middle.Center*100, worst*100, where)}
}

// kindsOf are reasons without their figures, which follow a colon.
func kindsOf(reasons []string) (out []string) {
	for _, why := range reasons {
		kind, _, _ := strings.Cut(why, ": ")
		out = append(out, kind)
	}
	return unique(out, len(out))
}

// keptLimits says how warm the clusters were that ran through all trials, and
// what the ones not being measured took from the one that was. It names the scenario where others had their clusters otherwise.
func (s *set) keptLimits(r *result.Run) []string {
	var out []string
	of := ""
	if !s.clusteredAlike() {
		of = r.Manifest.Scenario.Name + ": "
	}
	for _, sys := range systems(r) {
		if !sys.Kept {
			continue
		}
		warm := "it was not warmed"
		if w := sys.Warm; w != nil {
			warm = fmt.Sprintf("%.0f s of full load before its first trial, %s records/s at first and %s at last", w.Seconds, compact(w.First), compact(w.Last))
		}
		ran := fmt.Sprintf("one cluster of %s ran through all trials", systemName(sys))
		if sys.PerBlock {
			ran = fmt.Sprintf("each block had a cluster of %s, which ran through its trials", systemName(sys))
		}
		if of == "" {
			ran = strings.ToUpper(ran[:1]) + ran[1:]
		}
		out = append(out, fmt.Sprintf("%s%s, with topics of their own: %s.", of, ran, warm))
	}
	if len(out) > 1 {
		if iv, ok := summary(r.Results.Valid(), func(t result.Trial) (float64, bool) { return t.Usage.BesideCores, t.Usage.BesideCores > 0 }); ok {
			out = append(out, fmt.Sprintf("%s: while one system was measured, the other stood idle beside it and used %.2f of a core (%.2f – %.2f).", r.Manifest.Scenario.Name, iv.Center, iv.Lo, iv.Hi))
		}
	}
	return out
}

// clusteredAlike says whether all runs kept their clusters equally long.
func (s *set) clusteredAlike() bool {
	type kept struct{ all, perBlock bool }
	seen := map[kept]bool{}
	for _, r := range s.runs {
		for _, sys := range systems(r) {
			seen[kept{sys.Kept, sys.PerBlock}] = true
		}
	}
	return len(seen) < 2
}
