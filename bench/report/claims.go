package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gopherlog/bench/result"
	"gopherlog/bench/stats"
)

// A claim is a sentence that was there before anything was measured, and what became of it.
type claim struct {
	Text       string
	Measured   string // value with interval, a line each; "not measured in this run"
	Conditions string
	Mark       string // ✓ holds, ✗ does not, ≈ in part, ? undecided or not measured
	Judgement  string
}

const notMeasured = "not measured in this run"

// claims judges what is commonly said of exactly-once delivery, on what the runs measured.
func (s *set) claims() []claim {
	if !s.transacts() {
		return nil
	}
	out := []claim{s.idempotenceClaim(), s.slowdownClaim(), s.latencyClaim(), s.blockingClaim()}
	for _, c := range out {
		if c.Measured != notMeasured {
			return out
		}
	}
	return nil // these runs asked something else
}

// transacts says whether any cell has transactions: the claims are about those.
func (s *set) transacts() bool {
	for _, r := range s.runs {
		for _, c := range r.Manifest.Cells {
			if c.Txn != nil {
				return true
			}
		}
	}
	return false
}

// own lists the runs' cells of the first system that the claims are about: this broker's where it ran, else the first one's.
func (s *set) own(r *result.Run) (out []result.Cell) {
	name := systems(r)[0].Name
	for _, sys := range systems(r) {
		if sys.Name == "gopherlog" {
			name = sys.Name
		}
	}
	for _, c := range r.Manifest.Cells {
		if r.Manifest.SystemOf(c).Name == name {
			out = append(out, c)
		}
	}
	return out
}

// conditions says what a comparison of two cells held equal.
func conditions(r *result.Run, c result.Cell) string {
	sys := r.Manifest.SystemOf(c)
	load := "saturation"
	if c.Model != "closed" {
		load = compact(c.Rate) + " records/s, open loop"
	} else if c.Bound == 1 {
		load = "one record in flight"
	}
	out := []string{systemName(sys), load, setUp(sys), strings.TrimSuffix(shape(r), ".")}
	if c.Producers > 0 {
		out = append(out, sweptWord("producers.count", fmt.Sprint(c.Producers)))
	}
	return strings.Join(out, "; ")
}

// A pairing is two cells of one run that differ in the guarantee alone.
type pairing struct {
	run     *result.Run
	of, and result.Cell
}

func (p pairing) ratio(pick func(result.Trial) (float64, bool)) (stats.Interval, bool) {
	return ratio(p.run, p.of.ID, p.and.ID, pick)
}

// pairings lists the pairs of cells with guarantees a and b.
func (s *set) pairings(a, b string, wanted func(result.Cell) bool) (out []pairing) {
	for _, r := range s.runs {
		own := s.own(r)
		for _, x := range own {
			for _, y := range own {
				if plainGuarantee(x) != a || plainGuarantee(y) != b || x.Model != y.Model || x.Rate != y.Rate || x.Producers != y.Producers || !wanted(x) || x.Bound != y.Bound || x.Txn != nil && y.Txn != nil && variantOf(x) != variantOf(y) {
					continue
				}
				out = append(out, pairing{r, x, y})
			}
		}
	}
	return out
}

// pair is the first pair of which a measure is known of both cells, and the measure's ratio.
func (s *set) pair(a, b string, wanted func(result.Cell) bool, pick func(result.Trial) (float64, bool)) (iv stats.Interval, p pairing, ok bool) {
	for _, p := range s.pairings(a, b, wanted) {
		if iv, ok := p.ratio(pick); ok {
			return iv, p, true
		}
	}
	return iv, p, false
}

// disturbed says whether either cell had faults.
func (p pairing) disturbed() bool {
	for _, c := range []result.Cell{p.of, p.and} {
		for _, t := range recorded(p.run, c.ID) {
			if len(t.Faults) > 0 {
				return true
			}
		}
	}
	return false
}

func closedCell(c result.Cell) bool { return c.Model == "closed" && c.Bound != 1 }

func openCell(c result.Cell) bool { return c.Model != "closed" }

func (s *set) idempotenceClaim() claim {
	c := claim{Text: "Idempotent producers cost 20 to 30 % of the throughput.", Measured: notMeasured, Mark: "?"}
	iv, p, ok := s.pair("idempotent", "at_least_once", closedCell, throughput)
	if !ok {
		return c
	}
	cost := stats.Interval{Center: 100 * (1 - iv.Center), Lo: 100 * (1 - iv.Hi), Hi: 100 * (1 - iv.Lo), N: iv.N, Confidence: iv.Confidence}
	c.Measured = fmt.Sprintf("%s %% of the throughput, %s of %s", brackets(cost, func(v float64) string { return fmt.Sprintf("%.1f", v) }), span(iv), plural(iv.N, "block"))
	c.Conditions = conditions(p.run, p.of) + "; acks=all and five requests in flight in both columns"
	c.Mark, c.Judgement = within20to30(cost)
	return c
}

// within20to30 judges a cost in per cent against a claim of 20 to 30.
func within20to30(cost stats.Interval) (mark, judgement string) {
	const from, to = 20, 30
	switch {
	case cost.N < fewestBlocks:
		return "?", undecidedBlocks(cost.N)
	case cost.Hi < from:
		mark, judgement = "✗", "it costs less"
		if cost.Lo > -100*sameWithin && cost.Hi < 100*sameWithin {
			judgement = "it costs nothing that can be told apart: within ± 5 %"
		}
	case cost.Lo > to:
		mark, judgement = "✗", "it costs more"
	case cost.Lo >= from && cost.Hi <= to:
		mark, judgement = "✓", "holds here"
	default:
		return "?", "undecided: the bounds reach beyond the claim on both sides or one"
	}
	return mark, judgement + fewBlocks(cost)
}

// slowdownClaim judges the factor over the sizes that were measured: it is no constant.
func (s *set) slowdownClaim() claim {
	c := claim{Text: "A full two-phase commit costs a factor of 10 to 100 in throughput.", Measured: notMeasured, Mark: "?"}
	var told, held, conds []string
	low, high := math.Inf(1), 0.0
	voted, few, blocks := false, "", math.MaxInt
	for _, r := range s.runs {
		for _, l := range sizeLines(r) {
			g := strings.TrimPrefix(l.guarantee[strings.Index(l.guarantee, "/")+1:], "/")
			if !l.sizes[0].known || !s.ownLine(r, l) || g != "two_phase_commit" && g != "transactional" {
				continue
			}
			if g == "two_phase_commit" {
				voted, few, blocks = true, fewBlocks(l.sizes[0].ratio), min(blocks, l.sizes[0].ratio.N)
			}
			first, last := l.sizes[0], l.sizes[len(l.sizes)-1]
			told = append(told, fmt.Sprintf("%s: %s × at %s a transaction, %s × at %s", l.name(), slower(first.ratio), records(first.records), slower(last.ratio), records(last.records)))
			if g == "two_phase_commit" {
				low, high = math.Min(low, 1/last.ratio.Center), math.Max(high, 1/first.ratio.Center)
				if from, to := l.sizesAt(10), l.sizesAt(100); l.fitted && l.fit.Over && from > 0 {
					held = append(held, fmt.Sprintf("%s: between %s and %s records a transaction", l.name(), sig(math.Max(to, 1)), sig(from)))
				}
			}
			conds = append(conds, fmt.Sprintf("saturation by %s, each with one transaction at a time; 1 = %s by the same producers, whose requests need not wait for each other; %s", sweptWord("producers.count", fmt.Sprint(l.producers)), look(l.base).Label, strings.TrimSuffix(shape(r), ".")))
		}
	}
	if len(told) == 0 {
		return c
	}
	c.Measured, c.Conditions = strings.Join(told, "\n"), strings.Join(unique(conds, 2), ". ")
	switch {
	case !voted:
		c.Judgement = "the voted two-phase commit was " + notMeasured + "; Kafka's way is beside it"
	case blocks < fewestBlocks:
		c.Judgement, few = undecidedBlocks(blocks), ""
	case high < 10:
		c.Mark, c.Judgement = "✗", "at no size that was measured"
	case low >= 10 && high <= 100:
		c.Mark, c.Judgement = "✓", "holds at every size that was measured"
	default:
		c.Mark, c.Judgement = "≈", "no one factor: it falls as transactions grow"
		if len(held) > 0 {
			c.Judgement += ". It is 10 to 100 for " + strings.Join(held, "; ") + "; more for smaller ones, less for larger ones"
		}
	}
	c.Judgement += few
	return c
}

func (s *set) ownLine(r *result.Run, l *sizeLine) bool {
	for _, c := range s.own(r) {
		if c.Guarantee == l.guarantee {
			return true
		}
	}
	return false
}

func slower(iv stats.Interval) string {
	return brackets(stats.Interval{Center: 1 / iv.Center, Lo: 1 / iv.Hi, Hi: 1 / iv.Lo, N: iv.N}, sig)
}

func records(n int) string {
	if n == 1 {
		return "1 record"
	}
	return thousands(int64(n)) + " records"
}

// sizesAt is the size below which the fitted line is slower than by a factor; 0 where it never is.
func (l *sizeLine) sizesAt(factor float64) float64 {
	if !l.fitted || !l.fit.Over {
		return 0
	}
	// a + b·n = factor · plain·n
	d := factor*l.plainCost() - l.fit.B.Center
	if d <= 0 {
		return math.Inf(1)
	}
	return l.fit.A.Center / d
}

func (s *set) latencyClaim() claim {
	c := claim{Text: "A two-phase commit takes 2 to 5 times as long.", Measured: notMeasured, Mark: "?"}
	var told, conds []string
	for _, g := range []string{"transactional", "two_phase_commit"} {
		p, mid, tail, ok := s.untilVisible(g)
		if !ok {
			continue
		}
		told = append(told, fmt.Sprintf("%s, p50 until visible: %s ×", look(g).Label, brackets(mid, sig)))
		cond := conditions(p.run, p.of)
		if p.of.Txn != nil {
			cond += fmt.Sprintf("; %s a transaction", records(p.of.Txn.Records))
		}
		if tail.N > 0 {
			told = append(told, fmt.Sprintf("%s, p99 until visible: %s ×", look(g).Label, brackets(tail, sig)))
		} else if p.disturbed() {
			cond += "; up to the first fault. Some of the slowest records waited for that fault's end, so no p99 is told"
		}
		conds = append(conds, cond)
		if g == "two_phase_commit" {
			c.Mark, c.Judgement = twoToFive(mid)
		}
	}
	if len(told) > 0 {
		if c.Judgement == "" {
			c.Judgement = "the voted two-phase commit was " + notMeasured
		}
		c.Judgement += ". A record waits for the end of its transaction: the figure rises with the transaction's duration"
	}
	if iv, p, ok := s.pair("two_phase_commit", "transactional", openCell, latency(commit, steady, p50)); ok {
		told = append(told, fmt.Sprintf("%s beside %s, p50 of a commit: %s ×", look("two_phase_commit").Label, look("transactional").Label, brackets(iv, sig)))
		if len(conds) == 0 {
			conds, c.Judgement = []string{conditions(p.run, p.of)}, "beside producers without transactions: "+notMeasured
		}
	}
	if len(told) > 0 {
		c.Measured, c.Conditions = strings.Join(told, "\n"), strings.Join(unique(conds, 2), ". ")
	}
	return c
}

// untilVisible compares a guarantee with one without transactions: where no fault disturbed either, else up to the first fault; with at
// least once, else with idempotent producers. No p99 is told (tail.N is 0) where too few records lie beyond it, or where a fault followed:
// a record that is sent right before one may wait for its end, which is not what a transaction costs.
func (s *set) untilVisible(g string) (p pairing, mid, tail stats.Interval, ok bool) {
	for _, disturbed := range []bool{false, true} {
		for _, base := range []string{"at_least_once", "idempotent"} {
			for _, p := range s.pairings(g, base, openCell) {
				if p.disturbed() != disturbed {
					continue
				}
				if mid, ok := p.ratio(latency(visible, steady, p50)); ok {
					if !disturbed {
						tail, _ = p.ratio(latency(visible, steady, p99))
					}
					return p, mid, tail, true
				}
			}
		}
	}
	return p, mid, tail, false
}

func twoToFive(iv stats.Interval) (mark, judgement string) {
	switch {
	case iv.N < fewestBlocks:
		return "?", undecidedBlocks(iv.N)
	case iv.Lo >= 2 && iv.Hi <= 5:
		mark, judgement = "✓", "holds here"
	case iv.Hi < 2:
		mark, judgement = "✗", "it takes less"
	case iv.Lo > 5:
		mark, judgement = "✗", "it takes more"
	default:
		return "?", "undecided: the bounds reach beyond the claim"
	}
	return mark, judgement + fewBlocks(iv)
}

// fewestBlocks is below what nothing is decided, as of a line of expect.
const fewestBlocks = 3

func undecidedBlocks(n int) string {
	if n == 1 {
		return "undecided: one block decides nothing"
	}
	return "undecided: " + plural(n, "block") + " decide nothing"
}

// fewBlocks is what a judgement says of a figure that has no interval.
func fewBlocks(iv stats.Interval) string {
	if iv.Confidence > 0 {
		return ""
	}
	return " (few blocks: a range, no interval)"
}

func (s *set) blockingClaim() claim {
	c := claim{Text: "A two-phase commit blocks when its coordinator fails.", Measured: notMeasured, Mark: "?"}
	var told []string
	var blocked, free []*stallLine
	fewest := fewFaults
	for _, l := range s.stalls() {
		if !strings.HasPrefix(l.fault, transactionCoordinator) {
			continue
		}
		fewest = min(fewest, len(l.seconds))
		iv := stats.Summary(l.seconds)
		down := 0.0
		if len(l.down) > 0 {
			down = stats.Summary(l.down).Center
		}
		told = append(told, fmt.Sprintf("%s, %s: readers waited %s s while it was gone for %s s (%s)", l.name(), strings.TrimPrefix(l.fault, "transaction "), brackets(iv, sig), sig(down), plural(len(l.seconds), "fault")))
		if strings.HasSuffix(l.guarantee, "two_phase_commit") {
			if down > 0 && iv.Center >= 0.8*down || l.open > 0 {
				blocked = append(blocked, l)
			} else {
				free = append(free, l)
			}
		}
	}
	if len(told) == 0 {
		return c
	}
	c.Measured, c.Conditions = strings.Join(told, "\n"), "the longest wait of any partition's reader after each fault; where no point is named, the coordinator died at a moment of the schedule and may have had nothing undecided"
	switch {
	case len(blocked) > 0 && len(free) > 0 && !blockedAlone(blocked, free):
		c.Mark, c.Judgement = "≈", "readers waited until it was back in some cases, not in others: "+strings.Join(stallNames(blocked), "; ")
	case len(blocked) > 0 && len(free) > 0:
		c.Mark, c.Judgement = "≈", "holds where the coordinator has one replica, until it is back and has read its log; a replicated one lets readers go on"
	case len(blocked) > 0:
		c.Mark, c.Judgement = "✓", "holds: readers wait until the coordinator returns"
	case len(free) > 0:
		c.Mark, c.Judgement = "✗", "readers go on before the coordinator returns"
	default:
		c.Judgement = "the voted two-phase commit was " + notMeasured
	}
	if fewest < fewFaults {
		c.Judgement += fmt.Sprintf(" (as few as %s of a kind: seen, not yet a distribution)", plural(fewest, "fault"))
	}
	return c
}

// blockedAlone says whether the coordinators that readers waited for were exactly those of one replica.
func blockedAlone(blocked, free []*stallLine) bool {
	alone := func(l *stallLine) bool { return strings.Contains(l.variant, sweptWord("voted.replicas", "1")) }
	return !slices.ContainsFunc(blocked, func(l *stallLine) bool { return !alone(l) }) && !slices.ContainsFunc(free, alone)
}

func stallNames(of []*stallLine) (names []string) {
	for _, l := range of {
		names = append(names, fmt.Sprintf("%s, %s", l.name(), l.fault))
	}
	return names
}

// fewFaults is below what a kind of fault says little about how long the next one lasts.
const fewFaults = 5

// claimTable is the section as a table.
func claimTable(cs []claim) Table {
	t := Table{Head: []string{"claim", "measured", "conditions", "judgement"}}
	for _, c := range cs {
		t.Rows = append(t.Rows, []string{c.Text, strings.ReplaceAll(c.Measured, "\n", "; "), c.Conditions, strings.TrimSpace(c.Mark + " " + c.Judgement)})
	}
	return t
}
