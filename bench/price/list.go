package price

import (
	"fmt"
	"slices"
	"strings"

	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/bench/stats"
)

// wide is the width from which on medians stand with their intervals.
const wide = 120

// labels are the guarantees as people say them.
var labels = map[scenario.Guarantee]string{
	"at_most_once": "at most once", "at_least_once": "at least once", "idempotent": "idempotent", "transactional": "transactional", "two_phase_commit": "two-phase commit",
}

// A List is the answer of a run: what each guarantee costs, as text for a terminal.
type List struct {
	Plan   *Plan
	Report *Report       // nil: not known
	Runs   []*result.Run // one for each of the plan's scenarios, or fewer where the run was interrupted
	Silent []string      // brokers that stopped answering during the run
}

// Text is the list, no wider than width where that is at least 80.
func (l List) Text(width int) string {
	width = max(width, 80)
	var b strings.Builder
	for _, line := range Wrap("", l.heading(), width) {
		b.WriteString(line + "\n")
	}
	trials := 0
	for _, r := range l.Runs {
		trials += len(r.Results.Trials)
		if len(r.Results.Trials) == 0 {
			continue
		}
		b.WriteString("\n")
		if r.Manifest.Scenario.Model == "open" {
			l.latencies(&b, r, width)
		} else {
			l.rates(&b, r, width)
		}
	}
	if trials == 0 {
		b.WriteString("\nNothing was measured.\n")
		return b.String()
	}
	b.WriteString("\n")
	l.held(&b)
	b.WriteString("\n")
	for _, n := range l.notes() {
		for _, line := range Wrap(n.mark, n.text, width) {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// Priced says whether the list holds what the others are multiples of.
func (l List) Priced() bool {
	for _, r := range l.Runs {
		for _, f := range figuresOf(r, nil) {
			if f.guarantee == scenario.AtLeastOnce && f.valid > 0 {
				return true
			}
		}
	}
	return false
}

func (l List) heading() string {
	p := l.Plan
	copies := "copies as the cluster makes by default"
	if n := max(p.Copies, l.copies()); n > 0 {
		copies = count(n, "copy", "copies")
	}
	if l.Report != nil && l.Report.Effective["min.insync.replicas"] != "" {
		copies += " (min.insync.replicas " + l.Report.Effective["min.insync.replicas"] + ")"
	}
	return fmt.Sprintf("What each delivery guarantee costs on %s: %s; %d partitions, %s; records of %d bytes from %s.",
		p.Brokers[0], count(len(p.Facts.Brokers), "broker", "brokers"), p.Partitions, copies, p.Bytes, count(p.Producers, "producer", "producers"))
}

func (l List) copies() int {
	if l.Report == nil {
		return 0
	}
	return l.Report.Copies
}

func (l List) latencies(b *strings.Builder, r *result.Run, width int) {
	fmt.Fprintf(b, "At %s records/s offered; latencies from the moment a record was due:\n\n", thousands(int64(l.Plan.Rate)))
	value, w := bare, 6
	if width >= wide {
		value, w = withBounds(bare), 16
	}
	head := table{widths: []int{16, 2*w + 1, 2*w + 1, 35}}
	head.row("", "acked, ms", "readable, ms", "× at least once, p50")
	b.WriteString(head.String())
	t := table{widths: []int{16, w, w, w, w, 17, 17}}
	t.row("guarantee", "p50", "p99", "p50", "p99", "acked", "readable")
	t.rule()
	fs := figuresOf(r, latencyPicks)
	l.rows(&t, fs, func(f figures) []string {
		return []string{show(f.values["acked p50"], value), show(f.values["acked p99"], value), show(f.values["readable p50"], value), show(f.values["readable p99"], value),
			multiple(f, "acked p50"), multiple(f, "readable p50")}
	})
	b.WriteString(t.String())
	if l.Plan.Workers > 0 {
		l.endToEnd(b, fs, value, w)
	}
}

// endToEnd is what the guarantee costs a pipeline: until what its workers made of a record can be read.
func (l List) endToEnd(b *strings.Builder, fs []figures, value func(stats.Interval) string, w int) {
	t := table{widths: []int{16, w, w, 17}}
	fmt.Fprintf(b, "\nThrough a pipeline of %s, until what was made of a record can be read, in ms:\n\n", count(l.Plan.Workers, "worker", "workers"))
	t.row("guarantee", "p50", "p99", "× at least once")
	t.rule()
	l.rows(&t, fs, func(f figures) []string {
		return []string{show(f.values["end to end p50"], value), show(f.values["end to end p99"], value), multiple(f, "end to end p50")}
	})
	b.WriteString(t.String())
}

func (l List) rates(b *strings.Builder, r *result.Run, width int) {
	fmt.Fprintf(b, "At saturation, %s records outstanding:\n\n", thousands(int64(r.Manifest.Cells[0].Bound)))
	value, w := plainRate, 12
	if width >= wide {
		value, w = withBounds(plainRate), 32
	}
	t := table{widths: []int{16, w, 10, 20}}
	t.row("guarantee", "records/s", "MB/s", "× at least once")
	t.rule()
	l.rows(&t, figuresOf(r, ratePicks), func(f figures) []string {
		mb := func(v float64) string { return fmt.Sprintf("%.1f", v*float64(l.Plan.Bytes)/1e6) }
		return []string{show(f.values["records/s"], value), show(f.values["records/s"], func(iv stats.Interval) string { return mb(iv.Center) }), multiple(f, "records/s")}
	})
	b.WriteString(t.String())
}

// rows adds a row for each guarantee that was asked for, also for those that could not be had.
func (l List) rows(t *table, fs []figures, cells func(figures) []string) {
	for _, g := range Guarantees {
		if !slices.Contains(l.Plan.Guarantees, g) {
			continue
		}
		if l.Plan.Unavailable[g] != "" {
			t.row(labels[g], "n/a")
			continue
		}
		for _, f := range fs {
			if f.guarantee == g {
				t.row(append([]string{labels[g]}, cells(f)...)...)
			}
		}
	}
}

// held tells for each guarantee what became of its records in all runs.
func (l List) held(b *strings.Builder) {
	t := table{widths: []int{16, 11, 7, 19, 10, 12}}
	t.row("did it hold?", "acked", "lost", "", "duplicates", "verdict")
	t.rule()
	sums := map[scenario.Guarantee]*figures{}
	for _, r := range l.Runs {
		for _, f := range figuresOf(r, nil) {
			s := sums[f.guarantee]
			if s == nil {
				s = &figures{}
				sums[f.guarantee] = s
			}
			s.totals.Acked += f.totals.Acked
			s.totals.Expired += f.totals.Expired
			s.totals.Lost += f.totals.Lost
			s.totals.Unseen += f.totals.Unseen
			s.totals.Duplicates += f.totals.Duplicates
			s.violated, s.doubtful, s.trials = s.violated+f.violated, s.doubtful+f.doubtful, s.trials+f.trials
			s.unread = s.unread || f.unread
		}
	}
	for _, g := range Guarantees {
		s := sums[g]
		if s == nil || s.trials == 0 {
			continue
		}
		bound := ""
		if judged := s.totals.Judged(); judged > 0 {
			bound = fmt.Sprintf("≤ %s a million", thousands(int64(1e6*stats.UpperBound(min(s.totals.Lost, judged), judged)+0.999)))
		}
		t.row(labels[g], thousands(s.totals.Acked), thousands(s.totals.Lost), bound, thousands(s.totals.Duplicates), s.verdict())
	}
	b.WriteString(t.String())
}

func (f *figures) verdict() string {
	switch {
	case f.violated > 0:
		return "✗ broken"
	case f.doubtful == f.trials:
		return "? not known"
	case f.doubtful > 0:
		return fmt.Sprintf("✓ %d unknown", f.doubtful)
	}
	if f.unread {
		return "✓ to clients"
	}
	return "✓ held"
}

// unread says what of a voted commit was not judged.
func (l List) unread() []note {
	for _, r := range l.Runs {
		for _, f := range figuresOf(r, nil) {
			if f.unread {
				return []note{{"", labels[f.guarantee] + ": judged by what clients were told and could read. What coordinator and participants wrote down of votes " +
					"and decisions (rules D1 to D6) cannot be read from outside: a scenario that starts the cluster judges that too."}}
			}
		}
	}
	return nil
}

// note is a paragraph below the list.
type note struct{ mark, text string }

// notes say how to read the list, and what it does not say.
func (l List) notes() []note {
	var out []note
	for _, g := range Guarantees {
		if why := l.Plan.Unavailable[g]; why != "" && slices.Contains(l.Plan.Guarantees, g) {
			out = append(out, note{"n/a ", labels[g] + ": " + why})
		}
	}
	aside, all, reasons := l.setAside()
	if aside > 0 {
		was := "were"
		if aside == 1 {
			was = "was"
		}
		out = append(out, note{"! ", fmt.Sprintf("%d of %d trials %s set aside: %s.%s", aside, all, was, strings.Join(reasons, "; "), hint(reasons))})
	}
	if len(l.Plan.Silent) > 0 {
		out = append(out, note{"! ", strings.Join(l.Plan.Silent, " and ") + " could not be reached when the run began: if that is a broker of this cluster, these are not the prices of a whole one."})
	}
	for _, b := range l.Plan.Facts.Down {
		out = append(out, note{"! ", fmt.Sprintf("Broker %d at %s was down from the beginning: these are not the prices of a whole cluster.", b.ID, b.Addr)})
	}
	if len(l.Silent) > 0 {
		out = append(out, note{"! ", strings.Join(l.Silent, " and ") + " stopped answering during the run: these are not the prices of a whole cluster."})
	}
	out = slices.Concat(out, l.behind(), l.few(), l.commits(), l.unread())
	if l.copies() == 1 {
		out = append(out, note{"! ", "A partition has one copy here: what is acknowledged is lost with its broker. -replication-factor asks for more copies."})
	}
	out = append(out,
		note{"", "Acked: the producer was told. Readable: a reader that follows has it; with transactions only once they are committed, and before that nothing is safe."},
		note{"", l.bounds()})
	if !l.Plan.Saturate {
		out = append(out, note{"", "What the cluster takes at most was not measured: -saturate offers it all that it takes."})
	}
	return out
}

// commits tells of the transactions themselves.
func (l List) commits() []note {
	var out []note
	for _, r := range l.Runs {
		for _, f := range figuresOf(r, latencyPicks) {
			rate := f.values["transactions/s"]
			if rate == nil {
				continue
			}
			text := fmt.Sprintf("%s: %s transactions a second", labels[f.guarantee], two(rate.Center))
			if size := f.values["records/transaction"]; size != nil {
				text += fmt.Sprintf(" of %s records (%d at most, and %s)", two(size.Center), l.Plan.Records, TransactionFor)
			}
			if r.Manifest.Scenario.Model != "open" {
				text += ", at saturation"
			}
			if mid := f.values["commit p50"]; mid != nil {
				text += fmt.Sprintf("; a commit was answered %s ms after it was due", two(mid.Center))
			}
			if far := f.values["commit p99"]; far != nil {
				text += fmt.Sprintf(", at the 99th percentile %s", two(far.Center))
			}
			out = append(out, note{"", text + "."})
		}
	}
	return out
}

// within says how multiples came about.
const within = " Multiples are taken within a block, in which every guarantee had its turn."

// bounds says what the brackets mean.
func (l List) bounds() string {
	blocks := 0
	for _, r := range l.Runs {
		for _, f := range figuresOf(r, nil) {
			blocks = max(blocks, f.valid)
		}
	}
	if blocks == 0 {
		return "No trial was sound."
	}
	if blocks < 6 {
		return fmt.Sprintf("Medians of %s, in brackets lowest and highest: -blocks 6 is the least that gives a 95 %% interval.%s", count(blocks, "block", "blocks"), within)
	}
	return fmt.Sprintf("Medians of %d blocks, in brackets their 95 %% interval; \"~\" before a multiple: the interval holds 1, no difference was seen.%s", blocks, within)
}

// hint says what makes fewer trials be set aside.
func hint(reasons []string) string {
	if !strings.Contains(strings.Join(reasons, " "), "fell behind") {
		return ""
	}
	return " A client machine that does nothing else, or a lower -rate, gives more sound ones."
}

func (l List) setAside() (aside, all int, reasons []string) {
	for _, r := range l.Runs {
		for _, t := range r.Results.Trials {
			all++
			if len(t.Invalid) == 0 {
				continue
			}
			aside++
			for _, why := range t.Invalid {
				why, _, _ = strings.Cut(why, ":")
				if !slices.Contains(reasons, why) && len(reasons) < 3 {
					reasons = append(reasons, why)
				}
			}
		}
	}
	return aside, all, reasons
}

// behind names guarantees under which the cluster did not take what was offered: their latencies are those of a queue.
func (l List) behind() []note {
	const enough = 0.95
	var slow []string
	for _, r := range l.Runs {
		if r.Manifest.Scenario.Model != "open" {
			continue
		}
		for _, f := range figuresOf(r, latencyPicks) {
			if k := f.values["kept up"]; k != nil && k.Center < enough {
				slow = append(slow, fmt.Sprintf("%s %.0f %%", labels[f.guarantee], 100*k.Center))
			}
		}
	}
	if len(slow) == 0 {
		return nil
	}
	return []note{{"! ", "Done in time of what was offered: " + strings.Join(slow, ", ") + ". These latencies are those of a queue that grows; a lower -rate shows others."}}
}

// few says what a dash beside figures means, where there is one.
func (l List) few() []note {
	for _, r := range l.Runs {
		if r.Manifest.Scenario.Model != "open" {
			continue
		}
		for _, f := range figuresOf(r, latencyPicks) {
			if f.values["acked p50"] != nil && (f.values["acked p99"] == nil || f.values["readable p99"] == nil) {
				return []note{{"", "– under p99: fewer than ten records lie beyond it in a trial. A greater -rate, or a longer -steady, gives more."}}
			}
		}
	}
	return nil
}

// multiple shows a figure as a multiple of at least once.
func multiple(f figures, name string) string {
	iv := f.times[name]
	switch {
	case iv == nil:
		return "–"
	case f.guarantee == scenario.AtLeastOnce:
		return "1"
	}
	out := withBounds(bare)(*iv)
	if iv.Confidence > 0 && iv.Lo <= 1 && iv.Hi >= 1 {
		out = "~" + out
	}
	return out
}

func show(iv *stats.Interval, how func(stats.Interval) string) string {
	if iv == nil {
		return "–"
	}
	return how(*iv)
}

// bare shows a figure without its bounds.
func bare(iv stats.Interval) string { return two(iv.Center) }

func plainRate(iv stats.Interval) string { return thousands(int64(iv.Center)) }

// withBounds puts the bounds behind the median.
func withBounds(how func(stats.Interval) string) func(stats.Interval) string {
	return func(iv stats.Interval) string {
		if iv.N == 1 {
			return how(iv)
		}
		at := func(v float64) string { return how(stats.Interval{Center: v}) }
		return fmt.Sprintf("%s (%s–%s)", at(iv.Center), at(iv.Lo), at(iv.Hi))
	}
}
