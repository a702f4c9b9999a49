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
		func(l *ledger, _ map[string]*finding) error { return l.readSends() },
		func(l *ledger, _ map[string]*finding) error { return l.readAcks() },
		judgeEnds, judgeReads, judgeLoss, judgeOffsets,
	} {
		if err := pass(l, found); err != nil {
			return Verdict{}, err
		}
	}
	return conclude(l, found, o), nil
}

// judgeReads goes once through the final read and once through the reads of the run.
func judgeReads(l *ledger, found map[string]*finding) error {
	var a2 duplicates
	var a3 phantoms
	var a9 reorders
	err := l.each(history.RoleDrain, func(r *history.Record) {
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
		}
	})
	if err != nil {
		return err
	}
	err = l.each(history.RoleReads, func(r *history.Record) {
		l.totals.Read++
		a := l.find(r)
		l.witnesses.read(r, a)
		a3.judge(l, r, a, false)
	})
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
	a3.of = l.totals.Drained + l.totals.Read
	a2.of, a9.of = l.totals.Drained, l.totals.Drained
	found["A2"], found["A3"], found["A9"] = &a2.finding, &a3.finding, &a9.finding
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
		f := found[r.id]
		res := RuleResult{ID: r.id, Name: r.name, Of: r.of, Demand: DemandOf(o.Guarantee, r.id), Status: Pass, Count: f.count, Denominator: f.of,
			Upper95: stats.UpperBound(min(f.count, f.of), f.of), Shapes: f.shapes, Examples: f.examples, Tolerated: slices.Contains(o.Tolerate, r.id)}
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
	if !o.Drained {
		out = append(out, "the final read did not reach the end of the log")
	}
	return out
}
