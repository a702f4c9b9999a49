package report

import (
	"fmt"
	"strings"

	"gopherlog/bench/check"
	"gopherlog/bench/result"
	"gopherlog/bench/stats"
)

// judge sums the verdicts of the trials in one cell of the ledger. Every zero
// stands with its denominator and the bound that so many records support.
func judge(ts []result.Trial) ledgerCell {
	if len(ts) == 0 {
		return ledgerCell{"", "not run"}
	}
	v := sum(ts)
	switch {
	case v.broken > 0:
		return ledgerCell{"✗", fmt.Sprintf("%s violations of %s", thousands(v.broken), short(v.judged))}
	case v.inconclusive > 0:
		return ledgerCell{"?", fmt.Sprintf("%d of %d trials inconclusive: %s", v.inconclusive, len(ts), firstReason(ts))}
	}
	cell := ledgerCell{"✓", fmt.Sprintf("0 of %s, ≤ %s per million", short(v.judged), perMillion(stats.UpperBound(0, v.judged)))}
	if v.faults > 0 {
		cell.Text += fmt.Sprintf("; after 0 of %s, ≤ %.0f %%", plural(v.faults, "fault"), 100*stats.UpperBound(0, int64(v.faults)))
	}
	if v.lost > 0 || v.dup > 0 {
		cell = ledgerCell{"≈", fmt.Sprintf("%s lost, %s duplicate, of %s", thousands(v.lost), thousands(v.dup), short(v.judged))}
		if v.faults > 0 {
			cell.Text += "; " + plural(v.faults, "fault")
		}
	}
	if v.expired > 0 {
		cell.Text += fmt.Sprintf("; %s more deleted by retention before they could be read", thousands(v.expired))
	}
	if notes := v.exceptions(); len(notes) > 0 {
		cell = ledgerCell{"?", cell.Text + "; " + strings.Join(notes, "; ")}
	}
	return cell
}

// judgement is what the verdicts of several trials add up to.
type judgement struct {
	judged          int64 // acknowledged, and still there to be looked for
	lost, dup       int64
	broken, expired int64
	faults          int // proven
	inconclusive    int
	tolerated       map[string]int64 // rule → anomalies that the scenario lets pass
	unasked         map[string]bool  // rules that the guarantee demands and the scenario left out
	unseen          map[string]bool  // rules on votes that nothing could be checked of
	unseenWhy       string
}

func sum(ts []result.Trial) judgement {
	v := judgement{tolerated: map[string]int64{}, unasked: map[string]bool{}, unseen: map[string]bool{}}
	for _, t := range ts {
		v.judged += t.Check.Totals.Judged()
		v.lost += t.Check.Totals.Lost
		v.dup += t.Check.Totals.Duplicates
		v.expired += t.Check.Totals.Expired
		for _, e := range t.Faults {
			if e.Proved() {
				v.faults++
			}
		}
		asked := map[string]bool{}
		for _, r := range t.Check.Rules {
			asked[r.ID] = true
			switch {
			case r.Tolerated && r.Demand == check.MustBeZero && r.Count > 0:
				v.tolerated[r.ID] += r.Count
			case r.Status == check.Violated && !r.Tolerated:
				v.broken += r.Count
			case r.Status == check.NotChecked && r.ID[0] == 'D' && r.Demand == check.MustBeZero:
				v.unseen[r.ID], v.unseenWhy = true, r.Why
			}
		}
		if t.Check.Status == check.Inconclusive {
			v.inconclusive++
		}
		for _, id := range leftOut(t, asked) {
			v.unasked[id] = true
		}
	}
	return v
}

// exceptions says what a mark of approval would hide.
func (v judgement) exceptions() []string {
	var out []string
	for _, id := range keysOf(v.tolerated) {
		out = append(out, fmt.Sprintf("%s tolerated by the scenario: %s", id, thousands(v.tolerated[id])))
	}
	if len(v.unasked) > 0 {
		out = append(out, "rules that the scenario left out: "+strings.Join(keysOf(v.unasked), ", "))
	}
	if len(v.unseen) > 0 {
		out = append(out, fmt.Sprintf("%s not checked: %s", idSpan(keysOf(v.unseen)), v.unseenWhy))
	}
	return out
}

func firstReason(ts []result.Trial) string {
	for _, t := range ts {
		if t.Check.Status == check.Inconclusive && len(t.Check.Reasons) > 0 {
			return t.Check.Reasons[0]
		}
	}
	return "no reason recorded"
}

func perMillion(share float64) string {
	v := share * 1e6
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 1:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// short prints a count in words that fit a table: 41.2 M, 512 k, 980.
func short(n int64) string {
	switch {
	case n >= 10_000_000:
		return fmt.Sprintf("%.1f M", float64(n)/1e6)
	case n >= 1_000_000:
		return fmt.Sprintf("%.2f M", float64(n)/1e6)
	case n >= 10_000:
		return fmt.Sprintf("%.0f k", float64(n)/1e3)
	}
	return thousands(n)
}

// card is one of the three verdicts at the head of the page.
type card struct {
	Class, Mark, Head, Text string
}

// cards answers: did delivery hold, were the thresholds met, is the run valid.
func (s *set) cards() []card { return []card{s.deliveryCard(), s.thresholdCard(), s.validCard()} }

func (s *set) deliveryCard() card {
	var all []result.Trial
	proved, faults, skipped := 0, 0, 0
	var planted []string
	for _, r := range s.runs {
		planted = append(planted, r.Manifest.Planted...)
		for _, t := range r.Results.Trials {
			all = append(all, t)
			for _, e := range t.Faults {
				faults++
				switch {
				case e.Skipped:
					skipped++
				case e.Proved():
					proved++
				}
			}
		}
	}
	v := sum(all)
	text := []string{fmt.Sprintf("%s violations in %s acknowledged records", thousands(v.broken), short(v.judged))}
	if permitted := permitted(v.lost, v.dup); permitted != "" && v.broken == 0 && len(v.tolerated) == 0 {
		text = append(text, permitted+" as their guarantees permit")
	}
	if faults > 0 {
		text = append(text, fmt.Sprintf("%d of %d faults proven to bite", proved, faults))
	}
	if skipped > 0 {
		text = append(text, fmt.Sprintf("%d skipped on this machine", skipped))
	}
	if v.expired > 0 {
		text = append(text, fmt.Sprintf("%s more records deleted by retention before they could be read", short(v.expired)))
	}
	if len(planted) > 0 {
		text = append(text, "planted on purpose: "+strings.Join(unique(planted, 3), ", "))
	}
	exceptions := v.exceptions()
	text = append(text, exceptions...)
	return verdictCard(len(all), v, len(exceptions) > 0, strings.Join(text, "; "))
}

// permitted says what was lost and duplicated without breaking a promise; "" where nothing was.
func permitted(lost, dup int64) string {
	var out []string
	if lost > 0 {
		out = append(out, thousands(lost)+" lost")
	}
	if dup > 0 {
		out = append(out, thousands(dup)+" duplicated")
	}
	return strings.Join(out, " and ")
}

func verdictCard(trials int, v judgement, excepted bool, text string) card {
	switch {
	case v.broken > 0:
		return card{"b", "✗", "Delivery did not hold", text}
	case trials == 0:
		return card{"b", "?", "Nothing was judged", "no trial ended"}
	case v.inconclusive > 0:
		return card{"w", "?", fmt.Sprintf("%d of %d trials inconclusive", v.inconclusive, trials), text}
	case excepted:
		return card{"w", "≈", "Delivery held, with exceptions", text}
	}
	return card{"", "✓", "Delivery held", text}
}

// cardWords bounds what a card repeats of a measurement; the table has it all.
const cardWords = 90

func (s *set) thresholdCard() card {
	met, missed, total := 0, 0, 0
	var open, all []string
	for _, r := range s.runs {
		for _, e := range r.Results.Expectations {
			total++
			all = append(all, e.Line)
			switch e.Outcome {
			case "met":
				met++
				continue
			case "missed":
				missed++
			}
			told := fmt.Sprintf("%s: %s", strings.TrimSuffix(e.Line, " or undecided"), e.Outcome)
			if len(e.Got) <= cardWords {
				told += ", " + e.Got
			}
			open = append(open, told)
		}
	}
	switch {
	case total == 0:
		return card{"w", "≈", "No threshold set", "the scenarios have no expect lines"}
	case missed > 0:
		return card{"b", "✗", fmt.Sprintf("Thresholds %d of %d", met, total), strings.Join(open, "; ")}
	case met < total:
		return card{"w", "?", fmt.Sprintf("Thresholds %d of %d, %d undecided", met, total, total-met), strings.Join(open, "; ")}
	}
	if all = unique(all, len(all)); len(all) > 3 {
		all = append(all[:3], "…")
	}
	return card{"", "✓", fmt.Sprintf("Thresholds %d of %d", met, total), strings.Join(all, ", ")}
}

// stolenLimit is the share of the machine's processor time that its host may take before the report says so: queues that form meanwhile are nobody's
// doing, and a 99th percentile is the first to show them.
const stolenLimit = 0.02

// shownReasons bounds the reasons for setting trials aside that the card repeats.
const shownReasons = 2

func (s *set) validCard() card {
	aside, total, drift, robbed := 0, 0, 0, 0
	partial := false
	var why, stopped []string
	for _, r := range s.runs {
		if r.Manifest.Partial {
			partial, stopped = true, append(stopped, whyStopped(r))
		}
		for _, t := range r.Results.Trials {
			total++
			if len(t.Invalid) > 0 {
				aside++
				why = append(why, kindsOf(t.Invalid)...)
			}
			if t.Drift {
				drift++
			}
			if t.Usage.Stolen != nil && *t.Usage.Stolen > stolenLimit {
				robbed++
			}
		}
	}
	barren, cells := s.barren()
	text := validText(aside, total, barren, cells)
	if reasons := unique(why, len(why)); len(reasons) > 0 {
		text += ": " + strings.Join(reasons[:min(len(reasons), shownReasons)], "; ")
		if n := len(reasons) - shownReasons; n > 0 {
			text += fmt.Sprintf("; and %s, under limits", plural(n, "other reason"))
		}
	}
	if drift > 0 {
		text += fmt.Sprintf("; %d were not steady", drift)
	}
	if robbed > 0 {
		text += fmt.Sprintf("; the machine's host took more than %.0f %% of its processors' time in %d", stolenLimit*100, robbed)
	}
	switch {
	case partial:
		return card{"b", "✗", "Partial run", strings.Join(unique(stopped, 2), "; ") + "; " + text}
	case total == 0:
		return card{"b", "✗", "Not valid", "no trial ended"}
	case aside == total:
		return card{"b", "✗", "Latency and rates not valid", text}
	case aside > 0 || drift > 0 || robbed > 0 || s.quick():
		if s.quick() {
			text += "; three blocks or fewer: ranges, no intervals"
		}
		if barren > 0 {
			return card{"w", "≈", "Valid in part", text}
		}
		return card{"w", "≈", "Valid, with caution", text}
	}
	return card{"", "✓", "Valid", text}
}

func validText(aside, total, barren, cells int) string {
	switch {
	case aside == 0:
		return "no trial's latency and rates set aside"
	case barren > 0 && barren < cells:
		return fmt.Sprintf("no figures of %d of %d cells; latency and rates of %d of %d trials set aside", barren, cells, aside, total)
	}
	return fmt.Sprintf("latency and rates of %d of %d trials set aside", aside, total)
}

// barren counts the cells that have trials, and those of which every trial was set aside.
func (s *set) barren() (barren, cells int) {
	for _, r := range s.runs {
		sound := map[string]bool{}
		for _, t := range r.Results.Trials {
			sound[t.Cell] = sound[t.Cell] || len(t.Invalid) == 0
		}
		for _, some := range sound {
			if cells++; !some {
				barren++
			}
		}
	}
	return barren, cells
}

// whyStopped says why a run has fewer trials than planned.
func whyStopped(r *result.Run) string {
	if r.Manifest.Stopped == "" {
		return "interrupted"
	}
	return r.Manifest.Stopped
}

// quick says whether any run has too few blocks for intervals.
func (s *set) quick() bool {
	for _, r := range s.runs {
		if r.Manifest.Scenario.Blocks < 6 {
			return true
		}
	}
	return false
}

func unique(in []string, most int) []string {
	seen := map[string]bool{}
	var out []string
	for _, x := range in {
		if !seen[x] && len(out) < most {
			seen[x] = true
			out = append(out, x)
		}
	}
	return out
}
