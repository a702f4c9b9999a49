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
	var acked, lost, dup, broken int64
	unproved := 0
	for _, t := range ts {
		acked += t.Check.Totals.Acked
		lost += t.Check.Totals.Lost
		dup += t.Check.Totals.Duplicates
		for _, r := range t.Check.Rules {
			if r.Status == check.Violated && !r.Tolerated {
				broken += r.Count
			}
		}
		if t.Check.Status == check.Inconclusive {
			unproved++
		}
	}
	bound := fmt.Sprintf("of %s, ≤ %s per million", short(acked), perMillion(stats.UpperBound(0, acked)))
	switch {
	case broken > 0:
		return ledgerCell{"✗", fmt.Sprintf("%s violations %s", thousands(broken), "of "+short(acked))}
	case unproved > 0:
		return ledgerCell{"?", fmt.Sprintf("%d of %d trials inconclusive: %s", unproved, len(ts), firstReason(ts))}
	case lost > 0 || dup > 0:
		return ledgerCell{"≈", fmt.Sprintf("%s lost, %s duplicate, of %s", thousands(lost), thousands(dup), short(acked))}
	}
	return ledgerCell{"✓", "0 " + bound}
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
	var broken, acked int64
	proved, faults, skipped, inconclusive := 0, 0, 0, 0
	for _, r := range s.runs {
		for _, t := range r.Results.Trials {
			acked += t.Check.Totals.Acked
			for _, x := range t.Check.Rules {
				if x.Status == check.Violated && !x.Tolerated {
					broken += x.Count
				}
			}
			if t.Check.Status == check.Inconclusive {
				inconclusive++
			}
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
	text := fmt.Sprintf("%s violations in %s acknowledged records", thousands(broken), short(acked))
	if faults > 0 {
		text += fmt.Sprintf("; %d of %d faults proven to bite", proved, faults)
	}
	if skipped > 0 {
		text += fmt.Sprintf(", %d skipped on this machine", skipped)
	}
	switch {
	case broken > 0:
		return card{"b", "✗", "Delivery did not hold", text}
	case inconclusive > 0:
		return card{"w", "?", fmt.Sprintf("%d trials inconclusive", inconclusive), text}
	}
	return card{"", "✓", "Delivery held", text}
}

func (s *set) thresholdCard() card {
	met, total := 0, 0
	var missed, all []string
	for _, r := range s.runs {
		for _, e := range r.Results.Expectations {
			total++
			all = append(all, e.Line)
			if e.Outcome == "met" {
				met++
			} else {
				missed = append(missed, fmt.Sprintf("%s: %s, %s", e.Line, e.Outcome, e.Got))
			}
		}
	}
	switch {
	case total == 0:
		return card{"w", "≈", "No threshold set", "the scenarios have no expect lines"}
	case met < total:
		return card{"b", "✗", fmt.Sprintf("Thresholds %d of %d", met, total), strings.Join(missed, "; ")}
	}
	if len(all) > 3 {
		all = append(all[:3], "…")
	}
	return card{"", "✓", fmt.Sprintf("Thresholds %d of %d", met, total), strings.Join(all, ", ")}
}

func (s *set) validCard() card {
	aside, total, drift := 0, 0, 0
	partial := false
	var why []string
	for _, r := range s.runs {
		partial = partial || r.Manifest.Partial
		for _, t := range r.Results.Trials {
			total++
			if len(t.Invalid) > 0 {
				aside++
				why = append(why, t.Invalid...)
			}
			if t.Drift {
				drift++
			}
		}
	}
	text := fmt.Sprintf("%d of %d trials set aside", aside, total)
	if len(why) > 0 {
		text += ": " + strings.Join(unique(why, 2), "; ")
	}
	if drift > 0 {
		text += fmt.Sprintf("; %d were not steady", drift)
	}
	switch {
	case partial:
		return card{"b", "✗", "Partial run", "interrupted; " + text}
	case total == 0 || aside == total:
		return card{"b", "✗", "Not valid", text}
	case aside > 0 || drift > 0 || s.quick():
		if s.quick() {
			text += "; three blocks or fewer: ranges, no intervals"
		}
		return card{"w", "≈", "Valid, with caution", text}
	}
	return card{"", "✓", "Valid", text}
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
