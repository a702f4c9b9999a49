package check

import (
	"fmt"
	"slices"

	"gopherlog/bench/history"
	"gopherlog/bench/stats"
)

// delivery is one message of the final read, placed in its lane.
type delivery struct {
	*history.Record
	lane  *lane // nil: not a message that was sent
	first bool  // the first copy in offset order
}

// Judge reads the history in dir and judges it. An error means that there is no history to judge; damage within it makes the verdict
// inconclusive. It reads each file once, again only where something is wrong, and keeps two bits a message.
func Judge(dir string, o Options) (Verdict, error) {
	l, err := newLedger(dir, o)
	if err != nil {
		return Verdict{}, err
	}
	found := map[string]*finding{}
	for _, pass := range []func(*ledger, map[string]*finding) error{
		judgeEnds, judgeBegun,
		func(l *ledger, _ map[string]*finding) error { return l.readSends() },
		func(l *ledger, _ map[string]*finding) error { return l.readAcks() },
		judgeFinal, judgeOrder, judgeReads, judgeLoss, judgeOffsets, judgeGroups,
		func(l *ledger, found map[string]*finding) error { return judgeTransactions(l, found, o) },
		func(l *ledger, found map[string]*finding) error { return judgePipelines(l, found, o) },
		func(l *ledger, found map[string]*finding) error { judgeVotes(found, o.Votes); return nil },
		func(l *ledger, found map[string]*finding) error { judgeReplicas(found, o.Replicas); return nil },
	} {
		if err := pass(l, found); err != nil {
			return Verdict{}, err
		}
	}
	blindfold(found, o)
	return conclude(l, found, o), nil
}

// blindfold takes their evidence from rules that compare with the committed final read, where that is not whole: what it does not hold may
// have been there.
func blindfold(found map[string]*finding, o Options) {
	if o.Drained {
		return
	}
	for _, id := range []string{"B1", "B3", "B6", "B7", "B11", "B12", "C5"} {
		if f := found[id]; f != nil && f.missing == "" {
			f.missing = "the final read did not reach the end of the log"
		}
	}
}

// judgeFinal goes once through the final read, and once through the committed one where that is another.
func judgeFinal(l *ledger, found map[string]*finding) error {
	var a2 duplicates
	var a3 phantoms
	var a9 reorders
	err := l.delivered(l.final, func(r *history.Record) {
		l.totals.Drained++
		a := l.find(r)
		again := r.Offset < l.next[r.Partition] // after a reset; A1 compares it with the first time
		l.witnesses.drained(r, a, again)
		if again {
			return
		}
		l.next[r.Partition] = r.Offset + 1
		if a3.judge(l, r, a, true) {
			d := delivery{Record: r, lane: a, first: !a.seen.has(r.Sequence)}
			a2.judge(l, d)
			a9.judge(l, d)
			a.see(r.Sequence)
			if !l.raw {
				l.book.readable(a, r, d.first)
			}
		}
		if !l.raw {
			l.views[r.Partition].add(r.Offset)
		}
	})
	if err == nil && l.raw {
		err = readCommitted(l, &a3)
	}
	if err != nil {
		return err
	}
	if err := a2.locate(l); err != nil {
		return err
	}
	l.totals.Duplicates = a2.count
	for _, a := range l.lanes {
		l.totals.Recovered += a.seen.without(a.acked)
	}
	a3.of += l.totals.Drained
	a2.of, a9.of = l.totals.Drained, l.totals.Drained
	found["A2"], found["A3"], found["A9"] = &a2.finding, &a3.finding, &a9.finding
	return nil
}

// readCommitted goes through the committed final read where the log itself was read by another client.
func readCommitted(l *ledger, a3 *phantoms) error {
	next := make([]int64, len(l.partitions))
	return l.delivered(history.RoleDrain, func(r *history.Record) {
		l.views[r.Partition].add(r.Offset)
		if r.Offset < next[r.Partition] {
			return
		}
		next[r.Partition] = r.Offset + 1
		a3.of++
		a := l.find(r)
		if !a3.judge(l, r, a, true) {
			return
		}
		first := !a.readable.has(r.Sequence)
		a.readable.set(r.Sequence)
		l.book.readable(a, r, first)
	})
}

// judgeReads goes through the reads of the run.
func judgeReads(l *ledger, found map[string]*finding) error {
	a3 := phantoms{*found["A3"]}
	runs := newTxnReads(l)
	polls := newPolls(l)
	for _, name := range l.files[history.RoleReads] {
		watch := polls.watch(name)
		err := l.file(name, func(r *history.Record) {
			if r.Kind == history.Group && r.Step == history.PollEnd {
				watch.end()
			}
			if r.Kind != history.Delivered {
				return
			}
			l.totals.Read++
			a3.of++
			a := l.find(r)
			l.witnesses.read(r, a)
			watch.delivered(r)
			if a3.judge(l, r, a, false) {
				runs.judge(a, r)
			}
		})
		if err != nil {
			return err
		}
	}
	found["A3"] = &a3.finding
	l.book.runs, l.polls = runs, polls
	return nil
}

func (a *lane) see(sequence uint64) {
	if !a.any {
		a.any, a.low, a.high = true, sequence, sequence
	}
	a.low, a.high = min(a.low, sequence), max(a.high, sequence)
	a.seen.set(sequence)
}

// conclude weighs what was found by what the guarantee demands.
func conclude(l *ledger, found map[string]*finding, o Options) Verdict {
	v := Verdict{Status: Pass, Totals: l.totals}
	var doubts []string
	for _, r := range rules {
		if o.Rules != nil && !slices.Contains(o.Rules, r.id) {
			continue
		}
		demand := DemandOf(o.Guarantee, r.id)
		if demand == NotApplicable {
			continue
		}
		f := found[r.id]
		res := RuleResult{ID: r.id, Name: r.name, Of: r.of, Demand: demand, Status: Pass, Count: f.count, Denominator: f.of,
			Upper95: stats.UpperBound(min(f.count, f.of), f.of), Shapes: f.shapes, Examples: f.examples, Tolerated: slices.Contains(o.Tolerate, r.id)}
		if f.count == 0 && (f.missing != "" || f.of == 0) {
			res.Status, res.Why, res.Denominator, res.Upper95 = NotChecked, f.missing, 0, 1
			if res.Why == "" {
				res.Why = "the history has no " + r.of
			}
		}
		if f.count > 0 && res.Demand == MustBeZero {
			sentence := fmt.Sprintf("%s: %d %s", r.id, f.count, r.what)
			switch {
			case r.id == "A5":
				res.Status = Inconclusive
				if !res.Tolerated {
					doubts = append(doubts, sentence)
				}
			default:
				res.Status = Violated
				if !res.Tolerated {
					v.Status = Violated
					v.Reasons = append(v.Reasons, sentence)
				}
			}
		}
		v.Rules = append(v.Rules, res)
	}
	doubts = append(doubts, unchecked(v.Rules, o, len(l.files[history.RoleGroup]) > 0)...)
	if len(v.Rules) == 0 {
		doubts = append(doubts, "no rule was asked for")
	}
	doubts = append(doubts, l.doubts(o)...)
	if v.Status == Pass && len(doubts) > 0 {
		v.Status = Inconclusive
	}
	v.Reasons = append(v.Reasons, doubts...)
	return v
}

func (l *ledger) doubts(o Options) []string {
	out := append([]string(nil), o.Invalid...)
	out = append(out, l.damage...)
	if o.Dropped > 0 {
		out = append(out, fmt.Sprintf("%d records did not get into the history", o.Dropped))
	}
	if l.totals.Acked == 0 {
		out = append(out, "no message was acknowledged: there is nothing to judge")
	} else if l.totals.Acked < o.MinAcked {
		out = append(out, fmt.Sprintf("only %d messages were acknowledged, %d are required", l.totals.Acked, o.MinAcked))
	}
	if l.raw && !o.RawDrained {
		out = append(out, "the uncommitted final read did not reach the end of the log")
	}
	if !o.Drained {
		out = append(out, "the final read did not reach the end of the log")
	}
	return out
}

// unchecked says which rules that had to be checked could not be.
func unchecked(rules []RuleResult, o Options, grouped bool) (out []string) {
	need := required(o.Guarantee, o, grouped)
	for _, r := range rules {
		if r.Status == NotChecked && (slices.Contains(need, r.ID) || slices.Contains(o.Rules, r.ID)) {
			out = append(out, fmt.Sprintf("%s was not checked: %s", r.ID, r.Why))
		}
	}
	return out
}
