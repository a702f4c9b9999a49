package report

import (
	"fmt"
	"regexp"
	"sort"
	"strings"

	"gopherlog/bench/fault"
	"gopherlog/bench/result"
)

// shownErrors bounds the texts listed for one cell; results.json holds all.
const shownErrors = 8

// sent is what became of the records of each cell, over all its trials: a latency
// says nothing of a record that got no acknowledgement.
func (s *set) sent() Table {
	t := Table{Head: []string{"scenario", "guarantee", "offered/s", "trials", "sent", "acknowledged", "failed", "unknown", "shed", "late", "read"}}
	if s.transacts() {
		t.Head = append(t.Head, "txns", "committed", "aborted", "end unknown")
	}
	for _, r := range s.runs {
		for _, c := range r.Manifest.Cells {
			ts := recorded(r, c.ID)
			if len(ts) == 0 {
				continue
			}
			var n result.Counts
			for _, x := range ts {
				n.Sent += x.Counts.Sent
				n.Acked += x.Counts.Acked
				n.Failed += x.Counts.Failed
				n.Unknown += x.Counts.Unknown
				n.Shed += x.Counts.Shed
				n.Late += x.Counts.Late
				n.Delivered += x.Counts.Delivered
				n.Txns += x.Counts.Txns
				n.TxnsCommitted += x.Counts.TxnsCommitted
				n.TxnsAborted += x.Counts.TxnsAborted
				n.TxnsInDoubt += x.Counts.TxnsInDoubt
			}
			name := cellName(c)
			if c.Txn != nil {
				name += ", " + records(c.Txn.Records)
			}
			row := []string{r.Manifest.Scenario.Name, name, offered(c), trialsWord(len(ts), len(ts)-len(trials(r, c.ID))),
				thousands(n.Sent), thousands(n.Acked), thousands(n.Failed), thousands(n.Unknown), thousands(n.Shed), thousands(n.Late), thousands(n.Delivered)}
			switch {
			case !s.transacts():
			case c.Txn == nil:
				row = append(row, "–", "–", "–", "–")
			default:
				row = append(row, thousands(n.Txns), thousands(n.TxnsCommitted), thousands(n.TxnsAborted), thousands(n.TxnsInDoubt))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

func trialsWord(n, aside int) string {
	if aside == 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d, %d set aside", n, aside)
}

func offered(c result.Cell) string {
	if c.Model == "closed" {
		return "closed"
	}
	return compact(c.Rate)
}

// errors lists what sends and reads failed with, most frequent first.
func (s *set) errors() Table {
	t := Table{Head: []string{"scenario", "guarantee", "offered/s", "times", "error"}}
	for _, r := range s.runs {
		for _, c := range r.Manifest.Cells {
			times := map[string]int64{}
			for _, x := range recorded(r, c.ID) {
				for _, e := range x.Errors {
					times[plainError(e.What)] += e.Count
				}
			}
			texts := keysOf(times)
			sort.SliceStable(texts, func(i, j int) bool { return times[texts[i]] > times[texts[j]] })
			for i, what := range texts {
				if i == shownErrors {
					t.Rows = append(t.Rows, []string{r.Manifest.Scenario.Name, cellName(c), offered(c), "", fmt.Sprintf("and %d other texts, in results.json", len(texts)-i)})
					break
				}
				t.Rows = append(t.Rows, []string{r.Manifest.Scenario.Name, cellName(c), offered(c), thousands(times[what]), what})
			}
		}
	}
	return t
}

// somePort is the port of an address: it differs from trial to trial and tells nothing.
var somePort = regexp.MustCompile(`(\d+\.\d+\.\d+\.\d+):\d+`)

// plainError is an error's text in one line, without what differs from trial to trial.
func plainError(text string) string {
	return somePort.ReplaceAllString(strings.ReplaceAll(text, "\n", "; "), "$1")
}

// faults lists every fault of every trial with its proof, or with the reason why
// it does not count.
func (s *set) faults() Table {
	t := Table{Head: []string{"scenario", "trial", "guarantee", "fault", "node", "at, s", "lasted, s", "what proves it"}}
	for _, r := range s.runs {
		for _, c := range r.Manifest.Cells {
			for _, x := range recorded(r, c.ID) {
				for _, e := range x.Faults {
					at, lasted := "", ""
					if from, to, ok := faultSpan(x, e); ok {
						at = fmt.Sprintf("%.2f", from)
						if !e.Healed.IsZero() {
							lasted = fmt.Sprintf("%.2f", to-from)
						}
					}
					t.Rows = append(t.Rows, []string{r.Manifest.Scenario.Name, x.ID, cellName(c), struck(e),
						strings.Trim(fmt.Sprint(e.Nodes), "[]"), at, lasted, evidence(e)})
				}
			}
		}
	}
	return t
}

func evidence(e fault.Event) string {
	switch {
	case e.Skipped:
		return "– " + e.Error
	case e.Error != "":
		return "? " + e.Error
	case e.Proof == "":
		return "? nothing"
	}
	return strings.TrimSuffix("✓ "+e.Proof+"; "+e.HealProof, "; ")
}
