package suite

import (
	"fmt"
	"time"

	"gopherlog/bench/hdr"
	"gopherlog/bench/load"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/bench/stats"
)

// Limits of a trial whose latency is told.
const (
	driftLimit   = 0.2  // change of the median latency between the halves of the steady phase
	latenessPart = 0.10 // slot lateness p99 beyond this share of the ack p99 sets a trial aside
	latenessFree = 2 * time.Millisecond
)

// describe turns the outcome into the trial's record.
func (t *oneTrial) describe(plan load.Plan) {
	o, out := t.outcome, &t.out
	t.notePaces()
	out.Started, out.Faults, out.Leaders = o.Zero, t.events, t.leaders
	for _, p := range o.Phases {
		out.Phases = append(out.Phases, result.Span{Phase: p.Phase, Start: p.Start.Seconds(), End: p.End.Seconds()})
		t.count(p)
	}
	if n := len(o.Seconds); n > 0 {
		out.Seconds = (o.Seconds[n-1].At + o.Ack.Interval()).Seconds()
	}
	out.Latency = map[string]map[string]result.Latency{}
	for name, s := range latencies(o) {
		out.Latency[name] = t.byPhase(s)
	}
	out.Lateness = latencyOf(o.Late.All())
	out.Outages, out.Stalls = t.outages(), t.stalls()
	beside := out.Usage.BesideCores
	out.Usage = t.usage()
	out.Usage.BesideCores, out.Usage.Stolen = beside, t.stolen
	out.Drift = t.drifts()
	out.Invalid = append(out.Invalid, o.Invalid...)
	out.Invalid = append(out.Invalid, t.tooLate()...)
	out.Invalid = append(out.Invalid, t.target.Deaths()...)
	if o.Partial {
		out.Invalid = append(out.Invalid, interrupted)
	}
	for _, e := range o.Errors {
		out.Errors = append(out.Errors, result.ErrorCount{What: e.What, Count: e.Count})
	}
	t.noteSettings(o.Settings, plan)
}

// count adds up a phase; the steady one alone is what rates are told of.
func (t *oneTrial) count(p load.PhaseCounts) {
	out, n := &t.out, &t.out.Counts
	n.Slots += p.Slots
	n.Sent += p.Sent
	n.Acked += p.Acked
	n.Failed += p.Failed
	n.Unknown += p.Unknown
	n.Late += p.Late
	n.Shed += p.Shed
	n.Delivered += p.Read
	n.Txns += p.Txns
	n.TxnsCommitted += p.TxnsCommitted
	n.TxnsAborted += p.TxnsAborted
	n.TxnsInDoubt += p.TxnsInDoubt
	n.Committed += p.Committed
	n.Transformed += p.Transformed
	if p.Phase == scenario.PhaseSteady && p.End > p.Start {
		out.Offered = float64(p.Slots) / (p.End - p.Start).Seconds()
		out.Achieved = float64(p.Acked) / (p.End - p.Start).Seconds()
		out.Commits = float64(p.Committed) / (p.End - p.Start).Seconds()
		out.Txns = float64(p.TxnsCommitted) / (p.End - p.Start).Seconds()
	}
}

// paceSpan is the time before a fault over which the pace of its partition is told.
const paceSpan = time.Second

// notePaces adds to each fault on a partition how busy that was: a fault on an idle partition shows nothing.
func (t *oneTrial) notePaces() {
	for i := range t.events {
		e, aim := &t.events[i], t.cell.Faults[i].Target
		if e.Injected.IsZero() {
			continue
		}
		for _, p := range t.outcome.Paces {
			if p.Topic == t.prefix()+aim.Topic && p.Partition == aim.Partition {
				pace := p.Before(e.Injected.Sub(t.outcome.Zero), paceSpan)
				e.Pace = &pace
				if e.Proof != "" {
					e.Proof += fmt.Sprintf("; %s/%d had acknowledged %.0f records in the second before", aim.Topic, aim.Partition, pace)
				}
			}
		}
	}
}

func (t *oneTrial) byPhase(s *hdr.Series) map[string]result.Latency {
	out := map[string]result.Latency{}
	for _, p := range t.outcome.Phases {
		if h := s.Range(p.Start, p.End); h.Count() > 0 {
			out[p.Phase] = latencyOf(h)
		}
	}
	return out
}

func latencyOf(h *hdr.Histogram) result.Latency {
	at := func(p float64) float64 {
		d, ok := h.Percentile(p)
		if !ok {
			return 0
		}
		return ms(d)
	}
	return result.Latency{Count: h.Count(), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: ms(h.Max())}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// tooLate sets a trial aside when the generator, not the system, made part of
// the latency: an open loop must keep its own slots.
func (t *oneTrial) tooLate() []string {
	if t.cell.Load.Model != "open" {
		return nil
	}
	from, to := t.span(scenario.PhaseSteady)
	late, ok := t.outcome.Late.Range(from, to).Percentile(99)
	ack, ok2 := t.outcome.Ack.Range(from, to).Percentile(99)
	if ok && ok2 && late > latenessFree && float64(late) > latenessPart*float64(ack) {
		return []string{fmt.Sprintf("the load client fell behind its schedule: slot lateness p99 %s, more than %.0f %% of the ack p99 %s", late.Round(10*time.Microsecond), latenessPart*100, ack.Round(10*time.Microsecond))}
	}
	return nil
}

func (t *oneTrial) span(phase string) (from, to time.Duration) {
	for _, p := range t.outcome.Phases {
		if p.Phase == phase {
			return p.Start, p.End
		}
	}
	return 0, 0
}

// drifts tests whether the median latency moved within the steady phase.
func (t *oneTrial) drifts() bool {
	from, to := t.span(scenario.PhaseSteady)
	var series []float64
	for at := from; at < to; at += t.outcome.Ack.Interval() {
		if d, ok := t.outcome.Ack.Range(at, at+t.outcome.Ack.Interval()).Percentile(50); ok {
			series = append(series, ms(d))
		}
	}
	return len(series) >= 8 && stats.DriftTest(series, driftLimit).Drifting
}
