package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"

	"gopherlog/bench/result"
	"gopherlog/bench/stats"
)

// sizeLine is one line of chart C4: transactions of several sizes that agree in everything else, beside the same producers without
// transactions.
type sizeLine struct {
	system     string
	plain      string // the guarantee, without the system
	guarantee  string
	variant    string // what tells it from other lines of the guarantee: producers, partitions, other swept keys
	swept      string // the same and the guarantee, by key
	producers  int
	partitions int
	sizes      []sizePoint
	costs      map[int]stats.CostBlock // by block
	blocks     []stats.CostBlock       // the same, in order
	base       string                  // guarantee of the cells without transactions; "" where none ran
	fit        stats.Line
	fitted     bool
}

// sizePoint is what transactions of one size reached.
type sizePoint struct {
	records int
	rate    stats.Interval // transactions a second
	ratio   stats.Interval // records a second, to those without transactions
	known   bool           // the ratio is
}

func committedRate(t result.Trial) (float64, bool) {
	v := t.CommittedRate()
	return v, v > 0
}

func plainGuarantee(c result.Cell) string { return c.Plain() }

// sizeLines finds the lines of a run: closed cells with transactions of at least two sizes.
func sizeLines(r *result.Run) []*sizeLine {
	byKey := map[string]*sizeLine{}
	cellsOf := map[string][]result.Cell{}
	var keys []string
	for _, c := range r.Manifest.Cells {
		if c.Txn == nil || c.Model != "closed" || c.Absent != "" {
			continue
		}
		key := r.Manifest.SystemOf(c).Name + "\x00" + c.Guarantee + "\x00" + variantOf(c)
		if byKey[key] == nil {
			byKey[key] = &sizeLine{system: r.Manifest.SystemOf(c).Name, plain: plainGuarantee(c), guarantee: c.Guarantee, variant: variantOf(c), swept: rest(c, "producers.transaction.records"), producers: max(c.Producers, 1), partitions: c.Txn.Partitions}
			keys = append(keys, key)
		}
		cellsOf[key] = append(cellsOf[key], c)
	}
	var out []*sizeLine
	for _, k := range keys {
		l, cs := byKey[k], cellsOf[k]
		sort.SliceStable(cs, func(i, j int) bool { return cs[i].Txn.Records < cs[j].Txn.Records })
		if l.fill(r, cs); len(l.sizes) > 1 {
			out = append(out, l)
		}
	}
	return out
}

// variantOf is everything that a cell was swept over but the system, the guarantee and what belongs to the size of transactions.
func variantOf(c result.Cell) string {
	var out []string
	for _, k := range keysOf(c.Sweep) {
		if k != "target.system" && k != "guarantee" && k != "producers.transaction.records" {
			out = append(out, sweptWord(k, c.Sweep[k]))
		}
	}
	return strings.Join(out, ", ")
}

// sweptWord says a swept key in words.
func sweptWord(key, value string) string {
	plural := func(what string) string {
		if value == "1" {
			return "1 " + what
		}
		return value + " " + what + "s"
	}
	switch key {
	case "producers.count":
		return plural("producer")
	case "producers.transaction.records":
		return plural("record") + " a transaction"
	case "producers.transaction.partitions":
		return plural("partition")
	}
	if strings.HasSuffix(key, "voted.replicas") {
		return "coordinator of " + plural("replica")
	}
	parts := strings.Split(key, ".")
	return strings.ReplaceAll(parts[len(parts)-1], "_", " ") + " " + value
}

// fill measures a line. Blocks without a value for a size do without it.
func (l *sizeLine) fill(r *result.Run, cs []result.Cell) {
	l.costs, l.base = r.SizeCosts(cs)
	for _, c := range cs {
		var rates []float64
		var ratios []stats.Block
		for _, t := range trials(r, c.ID) {
			v, ok := committedRate(t)
			if !ok {
				continue
			}
			rates = append(rates, v/float64(c.Txn.Records))
			if p := l.costs[t.Block].Plain; p > 0 {
				ratios = append(ratios, stats.Block{A: v, B: float64(l.producers) / p})
			}
		}
		if len(rates) == 0 {
			continue
		}
		point := sizePoint{records: c.Txn.Records, rate: stats.Summary(rates), known: len(ratios) > 0}
		if point.known {
			point.ratio = stats.Ratio(ratios, r.Manifest.Scenario.Seed)
		}
		l.sizes = append(l.sizes, point)
	}
	for _, k := range slices.Sorted(maps.Keys(l.costs)) {
		l.blocks = append(l.blocks, l.costs[k])
	}
	if len(l.sizes) > 1 {
		l.fit, l.fitted = stats.FitCost(l.blocks, r.Manifest.Scenario.Seed)
	}
}

// name is the line's name in legends and tables.
func (l *sizeLine) name() string {
	if l.variant == "" {
		return look(l.guarantee).Label
	}
	return look(l.guarantee).Label + ", " + l.variant
}

// beyond says whether one half is reached beyond the sizes that were measured: n50 then is the formula's word, no measurement.
func (l *sizeLine) beyond() bool {
	return l.fitted && l.fit.Over && !math.IsInf(l.fit.Half.Center, 1) && l.fit.Half.Center > float64(l.sizes[len(l.sizes)-1].records)
}

// fits says whether a size is in the fit: smaller transactions than a full set of partitions have fewer participants.
func (l *sizeLine) fits(z sizePoint) bool { return l.fitted && z.records >= l.partitions }

// off says how far the fit is from the medians of its sizes, and which sizes it does not speak of.
func (l *sizeLine) off() string {
	told := fmt.Sprintf("%.0f %%", 100*l.fit.Off)
	var without []string
	for _, z := range l.sizes {
		if !l.fits(z) {
			without = append(without, thousands(int64(z.records)))
		}
	}
	if len(without) > 0 {
		told += ", without n = " + strings.Join(without, " and ")
	}
	return told
}

// reach says from where n50 is known.
func (l *sizeLine) reach() string {
	largest := records(l.sizes[len(l.sizes)-1].records)
	if l.beyond() {
		return "extrapolated beyond " + largest
	}
	return "within what was measured"
}

// relative is the fitted share of the plain rate at a size.
func (l *sizeLine) relative(n float64) float64 {
	if !l.fit.Over {
		return 0
	}
	return l.plainCost() * n / (l.fit.A.Center + l.fit.B.Center*n)
}

// plainCost is seconds a record and producer without transactions.
func (l *sizeLine) plainCost() float64 {
	var v []float64
	for _, b := range l.blocks {
		if b.Plain > 0 {
			v = append(v, b.Plain)
		}
	}
	return stats.Summary(v).Center
}

// sizeOutcome answers a scenario that asks what transactions cost.
func sizeOutcome(r *result.Run) string {
	var parts []string
	for _, l := range sizeLines(r) {
		if l.fitted {
			told := l.name() + ": " + halfWords(l.fit)
			if l.beyond() {
				told += " (" + l.reach() + ")"
			}
			parts = append(parts, told)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "records a transaction at which half of the rate without transactions is reached: " + strings.Join(parts, "; ")
}

// sized counts the runs whose transactions have several sizes.
func (s *set) sized() (n int) {
	for _, r := range s.runs {
		if len(sizeLines(r)) > 0 {
			n++
		}
	}
	return n
}

// sizeTable says what the fit found, a line of the chart a row.
func (s *set) sizeTable() Table {
	several := s.sized() > 1
	t := Table{Head: []string{"guarantee", "a, ms a transaction", "b, µs a record", "n50, records", "n50 is", "transactions/s of one record, each producer", "blocks", "fit off by at most"}}
	if several {
		t.Head = append([]string{"scenario"}, t.Head...)
	}
	for _, r := range s.runs {
		for _, l := range sizeLines(r) {
			if !l.fitted {
				continue
			}
			one := "not measured"
			if z := l.sizes[0]; z.records == 1 {
				k := float64(l.producers)
				one = brackets(stats.Interval{Center: z.rate.Center / k, Lo: z.rate.Lo / k, Hi: z.rate.Hi / k, N: z.rate.N}, sig)
			}
			row := []string{l.name(), brackets(scaled(l.fit.A, 1e3), sig), brackets(scaled(l.fit.B, 1e6), sig), halfWords(l.fit), l.reach(), one,
				fmt.Sprint(l.fit.A.N), l.off()}
			if several {
				row = append([]string{r.Manifest.Scenario.Name}, row...)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// halfWords prints n50.
func halfWords(l stats.Line) string {
	if math.IsInf(l.Half.Center, 1) {
		return "never reached"
	}
	if math.IsInf(l.Half.Hi, 1) {
		return fmt.Sprintf("%s [%s – not reached]", sig(l.Half.Center), sig(l.Half.Lo))
	}
	return brackets(l.Half, sig)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func scaled(iv stats.Interval, by float64) stats.Interval {
	iv.Center, iv.Lo, iv.Hi = iv.Center*by, iv.Lo*by, iv.Hi*by
	return iv
}

func brackets(iv stats.Interval, print func(float64) string) string {
	if iv.N == 1 {
		return print(iv.Center)
	}
	return fmt.Sprintf("%s [%s – %s]", print(iv.Center), print(iv.Lo), print(iv.Hi))
}

// sig prints three significant digits: 0.0213, 4.5, 1,230.
func sig(v float64) string {
	switch {
	case v == 0:
		return "0"
	case math.Abs(v) >= 1000:
		return thousands(int64(math.Round(v)))
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
