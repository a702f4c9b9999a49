package report

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"gopherlog/bench/check"
	"gopherlog/bench/result"
)

// ruleKey is a row of the table of rules.
type ruleKey struct{ guarantee, id string }

// ruleSum is what the trials of a row add up to.
type ruleSum struct {
	count, of int64
	checked   bool
	why       string // not checked: what is missing
	row       []string
}

// rules is the table of every rule's finding, summed over a cell's trials. Rules that nothing could be checked of stand together, at the
// end, with what they lack.
func (s *set) rules() Table {
	t := Table{Head: []string{"scenario", "guarantee", "rule", "asked", "count", "of", "what is counted", "≤ per million (95 %)"}}
	for _, r := range s.runs {
		sums := map[ruleKey]*ruleSum{}
		var keys []ruleKey
		for _, c := range r.Manifest.Cells {
			for _, tr := range recorded(r, c.ID) {
				for _, x := range tr.Check.Rules {
					k := ruleKey{c.Guarantee, x.ID}
					v := sums[k]
					if v == nil {
						v = &ruleSum{row: []string{r.Manifest.Scenario.Name, look(c.Guarantee).Label, x.ID + " " + x.Name, strings.ReplaceAll(string(x.Demand), "_", " "), "", "", x.Of, ""}}
						sums[k], keys = v, append(keys, k)
					}
					v.add(x)
				}
			}
		}
		for _, k := range keys {
			if v := sums[k]; v.checked {
				v.row[4], v.row[5], v.row[7] = thousands(v.count), thousands(v.of), perMillion(upper([2]int64{v.count, v.of}))
				t.Rows = append(t.Rows, v.row)
			}
		}
		t.Rows = append(t.Rows, notChecked(keys, sums)...)
	}
	sort.SliceStable(t.Rows, func(i, j int) bool { return t.Rows[i][0] < t.Rows[j][0] })
	return t
}

func (v *ruleSum) add(x check.RuleResult) {
	if x.Status == check.NotChecked {
		v.why = x.Why
		return
	}
	v.checked = true
	v.count += x.Count
	v.of += x.Denominator
}

// notChecked is a row for each guarantee and each thing that is missing.
func notChecked(keys []ruleKey, sums map[ruleKey]*ruleSum) (rows [][]string) {
	at := map[[2]string]int{}
	for _, k := range keys {
		v := sums[k]
		if v.checked {
			continue
		}
		group := [2]string{k.guarantee, v.why}
		i, ok := at[group]
		if !ok {
			i = len(rows)
			at[group] = i
			rows = append(rows, []string{v.row[0], v.row[1], k.id, "", "not checked", "–", v.why, "–"})
			continue
		}
		rows[i][2] += ", " + k.id
	}
	return rows
}

// shownWitnesses bounds the witnesses of one rule and cell on the page; results.json holds more.
const shownWitnesses = 5

// witnesses lists what the rules saw that the guarantee forbids.
func (s *set) witnesses() Table {
	t := Table{Head: []string{"guarantee", "rule", "trial", "at, s", "where", "what"}}
	for _, r := range s.runs {
		for _, c := range r.Manifest.Cells {
			shown := map[string]int{}
			for _, tr := range recorded(r, c.ID) {
				for _, x := range tr.Check.Rules {
					if x.Status != check.Violated {
						continue
					}
					for _, e := range x.Examples[:min(len(x.Examples), shownWitnesses-shown[x.ID])] {
						shown[x.ID]++
						at := "–"
						if e.Seconds >= 0 {
							at = fmt.Sprintf("%.3f", e.Seconds)
						}
						t.Rows = append(t.Rows, []string{look(c.Guarantee).Label, x.ID + " " + x.Name, tr.ID, at, e.Where(), e.What})
					}
				}
			}
		}
	}
	return t
}

// younger are the rules that came when runs had been published.
var younger = []string{"A8", "A10", "A12"}

// leftOut says which rules the scenario left out of a trial: rules of families that the trial was judged by. Older runs knew the first
// family only, or not the younger rules.
func leftOut(t result.Trial, asked map[string]bool) (out []string) {
	families := map[byte]bool{}
	for id := range asked {
		families[id[0]] = true
	}
	old := !slices.ContainsFunc(younger, func(id string) bool { return asked[id] })
	applies := map[byte]bool{'A': true, 'B': true, 'C': t.Counts.Txns > 0}
	for _, id := range check.RuleIDs() {
		if !asked[id] && families[id[0]] && applies[id[0]] && !(old && slices.Contains(younger, id)) {
			out = append(out, id)
		}
	}
	return out
}

// span of rule ids: "D1 to D6" rather than six names.
func idSpan(ids []string) string {
	if len(ids) < 3 {
		return strings.Join(ids, ", ")
	}
	return fmt.Sprintf("%s to %s", ids[0], ids[len(ids)-1])
}
