package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopherlog/bench/result"
	"gopherlog/bench/stats"
)

// Beside is one system next to another: what was measured, in both, with the
// ratio per block and the goal where the scenario states one.
type Beside struct {
	Title string
	Table Table
	Notes []string
}

// measure is one row of the comparison.
type measure struct {
	metric string // as in an expect line
	what   string
	print  func(float64) string
	pick   func(result.Trial) (float64, bool)
}

func millis(v float64) string { return fmt.Sprintf("%.2f", v) }
func micros(v float64) string { return fmt.Sprintf("%.1f", v) }
func mebi(v float64) string   { return thousands(int64(v / (1 << 20))) }

var (
	rateRow = measure{"throughput", "records/s", compact, throughput}
	cpuRow  = measure{"broker_cpu_per_record", "broker CPU, µs a record", micros, func(t result.Trial) (float64, bool) {
		return t.Usage.BrokerCPU * 1e6 / float64(max(t.Usage.Records, 1)), t.Usage.Records > 0 && t.Usage.BrokerCPU > 0
	}}
	rssRow    = measure{"rss", "memory of the largest node, MiB", mebi, func(t result.Trial) (float64, bool) { return float64(t.Usage.BrokerRSS), t.Usage.BrokerRSS > 0 }}
	keptUpRow = measure{"achieved_ratio", "acknowledged, % of the offered", micros, func(t result.Trial) (float64, bool) {
		return 100 * t.Achieved / t.Offered, t.Offered > 0
	}}
	gapRowOf = func(who string, of func(result.Outage) float64) measure {
		metric := map[string]string{"load client": "outage.max", "prober": "outage_prober.max"}[who]
		return measure{metric, "without acknowledgement after a fault, " + who + ", s", millis, func(t result.Trial) (float64, bool) { return longestGap(t, of) }}
	}
	ackRow = func(p string, of func(result.Latency) float64) measure {
		return measure{"ack." + p, "acknowledged, " + p + ", ms", millis, latency(ack, steady, of)}
	}
	visibleRow = func(p string, of func(result.Latency) float64) measure {
		return measure{"visible." + p, "visible to a reader, " + p + ", ms", millis, latency(visible, steady, of)}
	}
	commitRow = func(p string, of func(result.Latency) float64) measure {
		return measure{"commit." + p, "committed, " + p + ", ms", millis, latency(commit, steady, of)}
	}
	endTxnRow = measure{"end_txn.p50", "answer to the end of a transaction, p50, ms", millis, latency(endTxn, steady, p50)}
	txnRow    = measure{"transactions", "transactions/s", micros, func(t result.Trial) (float64, bool) { return t.Txns, t.Txns > 0 }}
)

// measures are the rows that a cell's load answers. Latency of a closed loop is
// queueing, except where one record at a time is outstanding.
func measures(c result.Cell) (load string, rows []measure) {
	switch {
	case c.Model != "closed" && c.Txn != nil:
		return compact(c.Rate) + " records/s, open loop", []measure{commitRow("p50", p50), commitRow("p99", p99), endTxnRow, visibleRow("p99", p99), cpuRow}
	case c.Model != "closed":
		return compact(c.Rate) + " records/s, open loop", []measure{ackRow("p50", p50), ackRow("p99", p99), visibleRow("p99", p99), cpuRow, rssRow, gapRowOf("load client", loadGap), gapRowOf("prober", proberGap)}
	case c.Bound == 1:
		return "one record in flight", []measure{ackRow("p50", p50), ackRow("p99", p99), rateRow, cpuRow}
	}
	if c.Txn != nil { // their records a second are as many times as many
		return "saturation", []measure{txnRow, cpuRow}
	}
	return "saturation", []measure{rateRow, cpuRow, rssRow}
}

func loadGap(o result.Outage) float64   { return o.Load }
func proberGap(o result.Outage) float64 { return o.Prober }

// longestGap is the longest that any fault of a trial left a partition that it hit
// without acknowledgements.
func longestGap(t result.Trial, of func(result.Outage) float64) (longest float64, ok bool) {
	for _, o := range t.Outages {
		if g := of(o); o.Affected && g >= 0 {
			longest, ok = max(longest, g), true
		}
	}
	return longest, ok && longest > 0
}

// times is a ratio with as many digits as tell it from its neighbours.
func times(v float64) string {
	if v < 0.1 {
		return fmt.Sprintf("%.3f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// SideBySide compares the systems that occur together in the runs, the first of
// a scenario with each other one. Only cells that agree in everything but the
// system are compared: the load, the guarantee, the durability tier.
func SideBySide(runs []*result.Run) []Beside {
	byPair := map[string]*Beside{}
	var pairs []string
	for _, r := range runs {
		all := systems(r)
		for _, other := range all[min(1, len(all)):] {
			key := systemName(all[0]) + " beside " + systemName(other) + asLaunched(runs, other)
			b := byPair[key]
			if b == nil {
				b = &Beside{Title: key, Table: Table{Head: []string{"load", "measured", systemName(all[0]), systemName(other), "ratio", "goal", ""}}}
				byPair[key], pairs = b, append(pairs, key)
			}
			b.add(r, all[0], other)
		}
	}
	var out []Beside
	for _, k := range pairs {
		out = append(out, *byPair[k])
	}
	return out
}

// goalsFrom is how many rows beside each other make it worth while to say in one place what was asked.
const goalsFrom = 12

// Goals gathers the rows that a scenario stated a goal for, of all tables: what was asked, what was measured, and what became of it. It says
// no where there are none, or where the tables are short enough to show them.
func Goals(all []Beside) (Beside, bool) {
	out := Beside{Title: "What was asked, and what came of it"}
	rows := 0
	for i, b := range all {
		if i == 0 {
			out.Table.Head = slices.Clone(b.Table.Head)
		} else if !slices.Equal(b.Table.Head, out.Table.Head) {
			out.Table.Head[2], out.Table.Head[3] = "the first", "the other"
		}
		apart, load := "", ""
		if rest := strings.TrimPrefix(b.Title, all[0].Title); rest != "" {
			apart = ", " + strings.TrimSpace(rest)
		}
		for _, row := range b.Table.Rows {
			if rows++; row[0] != "" {
				load = row[0]
			}
			if goal := row[len(row)-2]; goal != "" {
				out.Table.Rows = append(out.Table.Rows, append([]string{load + apart}, row[1:]...))
			}
		}
	}
	return out, len(out.Table.Rows) > 0 && rows >= goalsFrom
}

// asLaunched names the broker settings of a system in one run that it had not in all.
func asLaunched(runs []*result.Run, of result.System) string {
	values := map[string]map[string]bool{}
	for _, r := range runs {
		for _, s := range systems(r) {
			if s.Name != of.Name {
				continue
			}
			for k := range of.Launched {
				if values[k] == nil {
					values[k] = map[string]bool{}
				}
				values[k][s.Launched[k]] = true
			}
		}
	}
	var out []string
	for _, k := range keysOf(of.Launched) {
		if len(values[k]) > 1 {
			out = append(out, k+"="+of.Launched[k])
		}
	}
	if len(out) == 0 {
		return ""
	}
	return " with " + strings.Join(out, ", ")
}

func (b *Beside) add(r *result.Run, one, other result.System) {
	b.halves(r, one, other)
	for _, x := range r.Manifest.Cells {
		if x.System != one.Name {
			continue
		}
		if y, instead, ok := partner(r, x, other); ok {
			b.cells(r, x, y, instead)
		}
	}
}

// partner is the cell of the other system that agrees in everything else. Where that system cannot vote, it is the one with its own transactions,
// and what it stands for.
func partner(r *result.Run, x result.Cell, other result.System) (y result.Cell, instead string, ok bool) {
	for _, y := range r.Manifest.Cells {
		if y.System == other.Name && rest(y) == rest(x) && y.Absent == "" {
			return y, "", true
		}
	}
	if plainGuarantee(x) != votes {
		return y, "", false
	}
	like := strings.ReplaceAll(rest(x), "guarantee="+votes, "guarantee="+transacts)
	for _, y := range r.Manifest.Cells {
		if y.System == other.Name && rest(y) == like && y.Absent == "" {
			return y, " beside " + transacts, true
		}
	}
	return y, "", false
}

// The guarantees with transactions.
const (
	transacts = "transactional"
	votes     = "two_phase_commit"
)

// halves compares how large transactions must be for half of the rate without.
func (b *Beside) halves(r *result.Run, one, other result.System) {
	lines := sizeLines(r)
	find := func(guarantee string, like *sizeLine) *sizeLine {
		for _, l := range lines {
			if l.system == other.Name && l.plain == guarantee && l.variant == like.variant {
				return l
			}
		}
		return nil
	}
	for _, x := range lines {
		if x.system != one.Name || !x.fitted {
			continue
		}
		load := []string{strings.ReplaceAll(x.plain, "_", " ")}
		y := find(x.plain, x)
		if y == nil && x.plain == votes {
			if y = find(transacts, x); y != nil {
				load[0] += " beside " + transacts
			}
		}
		if y == nil || !y.fitted {
			continue
		}
		if x.variant != "" {
			load = append(load, x.variant)
		}
		row := []string{strings.Join(load, ", "), "n50: records a transaction for half of the rate without", halfWords(x.fit), halfWords(y.fit), "not measured", "", ""}
		if iv, ok := stats.HalfRatio(x.costs, y.costs, r.Manifest.Scenario.Seed); ok {
			row[4] = ratioWords(iv, r.Manifest.Scenario.Blocks)
		}
		row[5], row[6] = goalOf(r, "n50", x.system, y.system, x.swept)
		b.Table.Rows = append(b.Table.Rows, row)
	}
}

// ratioWords prints a ratio with its bounds; of fewer than three blocks it says so.
func ratioWords(iv stats.Interval, blocks int) string {
	if iv.N < 3 {
		return fmt.Sprintf("%s × [%d of %s]", times(iv.Center), iv.N, plural(blocks, "block"))
	}
	return fmt.Sprintf("%s × [%s – %s]", times(iv.Center), times(iv.Lo), times(iv.Hi))
}

// rest is everything that a cell was swept over, but the system and what else is left out.
func rest(c result.Cell, without ...string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(c.Sweep)) {
		if k != "target.system" && !slices.Contains(without, k) {
			out = append(out, k+"="+c.Sweep[k])
		}
	}
	return strings.Join(out, " ")
}

// fellShort says whether a cell did not keep up with the load that it was offered:
// its latency then is that of the records that it took.
func fellShort(r *result.Run, c result.Cell) bool {
	kept, ok := summary(trials(r, c.ID), keptUpRow.pick)
	return ok && c.Model != "closed" && kept.Center < 100*achievedShare
}

// besideRate is what a cell was swept over but the system and the rate; its guarantee may stand beside another one.
func besideRate(c result.Cell, instead string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(c.Sweep)) {
		switch {
		case k == "target.system" || k == "load.rate":
		case k == "guarantee":
			out = append(out, strings.ReplaceAll(c.Sweep[k], "_", " ")+instead)
		default:
			out = append(out, sweptWord(k, c.Sweep[k]))
		}
	}
	return strings.Join(out, ", ")
}

// cells compares two. The second may stand for one that its system cannot run; then it is said instead of what.
func (b *Beside) cells(r *result.Run, x, y result.Cell, instead string) {
	load, rows := measures(x)
	if also := besideRate(x, instead); also != "" {
		load += ", " + also
	}
	if late := fellShort(r, x) || fellShort(r, y); late {
		rows = append([]measure{keptUpRow}, rows...)
	}
	for _, m := range rows {
		vx, okx := summary(trials(r, x.ID), m.pick)
		vy, oky := summary(trials(r, y.ID), m.pick)
		if !okx && !oky {
			continue
		}
		row := []string{load, m.what, valueOf(vx, okx, m.print), valueOf(vy, oky, m.print), "not measured", "", ""}
		iv, ok := ratio(r, x.ID, y.ID, m.pick)
		if ok {
			row[4] = ratioWords(iv, r.Manifest.Scenario.Blocks)
		}
		row[5], row[6] = goalOf(r, m.metric, x.System, y.System, rest(x))
		b.Table.Rows = append(b.Table.Rows, row)
		load = ""
	}
	if heap := r.Manifest.SystemOf(y).Launched["heap"]; heap != "" && slices.ContainsFunc(rows, func(m measure) bool { return m.metric == rssRow.metric }) {
		b.note(fmt.Sprintf("Memory of %s follows its heap, which this run set to %s: with another heap it is another figure.", systemName(r.Manifest.SystemOf(y)), heap))
	}
	b.note(fmt.Sprintf("Copies when a record is acknowledged: %s %s, %s %s.", systemName(r.Manifest.SystemOf(x)), copiesIn(r, x), systemName(r.Manifest.SystemOf(y)), copiesIn(r, y)))
}

// note adds a sentence below the table, once.
func (b *Beside) note(text string) {
	if !slices.Contains(b.Notes, text) {
		b.Notes = append(b.Notes, text)
	}
}

func valueOf(iv stats.Interval, ok bool, print func(float64) string) string {
	switch {
	case !ok:
		return "not measured"
	case iv.N == 1:
		return print(iv.Center)
	}
	return fmt.Sprintf("%s [%s – %s]", print(iv.Center), print(iv.Lo), print(iv.Hi))
}

// goalOf is the scenario's line on the ratio of two systems' cells that are
// otherwise swept alike, and how it was decided for them.
func goalOf(r *result.Run, metric, one, other, alike string) (goal, outcome string) {
	for _, e := range r.Results.Expectations {
		q := e.Ratio
		if q == nil || q.Metric != metric || q.A != one || q.B != other {
			continue
		}
		for _, g := range q.Groups {
			if g.Name == alike {
				return fmt.Sprintf("%s %g ×", strings.NewReplacer("<=", "≤", ">=", "≥").Replace(q.Op), q.Value), outcomeWords[g.Outcome]
			}
		}
	}
	return "", ""
}

var outcomeWords = map[string]string{"met": "✓ met", "missed": "✗ missed", "undecided": "? undecided"}

func copiesIn(r *result.Run, c result.Cell) string {
	fewest, most := -1, -1
	for _, t := range recorded(r, c.ID) {
		if n := t.Usage.CopiesAtAck; n >= 0 {
			most = max(most, n)
			if fewest < 0 || n < fewest {
				fewest = n
			}
		}
	}
	switch of := r.Manifest.SystemOf(c).ReplicationFactor; {
	case fewest < 0:
		return "not known"
	case fewest < most:
		return fmt.Sprintf("%d to %d of %d", fewest, most, of)
	default:
		return fmt.Sprintf("%d of %d", fewest, of)
	}
}

// valueBounds is a table's cell as the page shows it: the bounds below the value.
type valueBounds struct{ Value, Bounds string }

func splitBounds(cell string) valueBounds {
	value, bounds, ok := strings.Cut(cell, " [")
	if !ok {
		return valueBounds{cell, ""}
	}
	return valueBounds{value, strings.TrimSuffix(bounds, "]")}
}

// besideClass marks a row that begins a load, and what became of its goal.
func besideClass(row []string) string {
	var out []string
	if row[0] != "" {
		out = append(out, "first")
	}
	if _, word, ok := strings.Cut(row[len(row)-1], " "); ok {
		out = append(out, word)
	}
	return strings.Join(out, " ")
}

// Text is the table for a terminal.
func (b Beside) Text() string {
	rows := append([][]string{b.Table.Head}, b.Table.Rows...)
	width := make([]int, len(b.Table.Head))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n", b.Title)
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "  %s%s", cell, strings.Repeat(" ", width[i]-len([]rune(cell))))
		}
		fmt.Fprintln(&out, strings.TrimRight(line.String(), " "))
	}
	for _, n := range b.Notes {
		fmt.Fprintf(&out, "  %s\n", n)
	}
	return out.String()
}
