package suite

import (
	"fmt"
	"strings"
	"time"

	"gopherlog/bench/check"
	"gopherlog/bench/fault"
	"gopherlog/bench/load"
	"gopherlog/bench/replicas"
	"gopherlog/bench/scenario"
)

// judge lets the checker loose on the history, with everything that forbids to
// take its zeros for proofs.
func (t *oneTrial) judge(plan load.Plan, held *replicas.Report) error {
	v, err := check.Judge(t.dir.History(t.out.ID), check.Options{Guarantee: t.cell.Guarantee, Rules: t.cell.Checks.Rules, Tolerate: t.cell.Checks.Tolerate,
		MinAcked: t.cell.Checks.MinAcked, Drained: t.outcome.Drain.Complete, Dropped: t.outcome.History.Dropped, Expires: t.expires(), Invalid: t.doubts(),
		RawDrained: t.outcome.Drain.Raw, Transforms: t.transforms(), TxnTimeout: t.cell.Producers.Transaction.Timeout, Grace: doubtGrace, Votes: t.votesOf(plan), Replicas: held})
	if err != nil {
		return fmt.Errorf("judge trial %s: %w", t.out.ID, err)
	}
	t.out.Check = v
	return nil
}

// doubtGrace is what a broker gets beyond the timeout of a transaction to end it.
const doubtGrace = 5 * time.Second

// transforms names what the groups of the trial make from what.
func (t *oneTrial) transforms() []check.Transform {
	c := t.cell.Consumers
	if c.Transform.To == "" || len(c.Groups) == 0 {
		return nil
	}
	var out []check.Transform
	for _, from := range t.cell.Inputs() {
		if c.Transform.From == "" || c.Transform.From == from {
			out = append(out, check.Transform{Group: t.prefix() + c.Groups[0].Name, From: t.prefix() + from, To: t.prefix() + c.Transform.To})
		}
	}
	return out
}

// doubts says what keeps the trial from proving anything beyond its history: one
// sentence for each fault that was not what the scenario asks for, for each
// broker that ended by itself, and for an interruption.
func (t *oneTrial) doubts() []string {
	var out []string
	if planned, got := len(t.cell.Faults), len(t.events); got < planned {
		out = append(out, fmt.Sprintf("%d of %d faults were not attempted", planned-got, planned))
	}
	for i, e := range t.events {
		if why := t.faultDoubt(i, e); why != "" {
			out = append(out, fmt.Sprintf("fault %s on %s not proven: %s", strings.TrimSpace(e.Kind+" "+e.Shape), e.Target, why))
		}
	}
	if len(t.Failpoints) == 0 { // a failpoint may be armed to end its process
		out = append(out, t.target.Deaths()...)
	}
	if t.outcome.Partial {
		out = append(out, "the trial was interrupted")
	}
	return out
}

// faultDoubt says why a fault does not count; "" where it does.
func (t *oneTrial) faultDoubt(i int, e fault.Event) string {
	end := t.outcome.Zero.Add(t.cell.Phases.End(scenario.PhaseRecovery))
	switch {
	case e.Error != "":
		return e.Error
	case !e.Proved():
		return "no proof"
	case !e.Effective.Before(end):
		return fmt.Sprintf("it took effect %s after the load had ended", e.Effective.Sub(end).Round(time.Millisecond))
	case !t.felt(i, e):
		return fmt.Sprintf("neither a change of leader nor a gap was seen on %s/%d: node %v was not its leader", t.cell.Faults[i].Target.Topic, t.cell.Faults[i].Target.Partition, e.Nodes)
	}
	return ""
}

// felt says whether a fault on a partition's leader was noticed on that very
// partition. The proof only tells that a process or a link was hit; who led was
// read from metadata, which may have been old.
func (t *oneTrial) felt(i int, e fault.Event) bool {
	f := t.cell.Faults[i].Target
	if f.Role != "leader" {
		return true
	}
	from, to := e.Injected.Sub(t.outcome.Zero).Seconds(), e.Healed.Sub(t.outcome.Zero).Seconds()
	for _, l := range t.leaders {
		if l.Topic == t.prefix()+f.Topic && l.Partition == f.Partition && l.At >= from && (l.At <= to+1 || e.Healed.IsZero()) {
			return true
		}
	}
	for _, o := range t.out.Outages {
		if o.Fault == i && o.Topic == t.prefix()+f.Topic && o.Partition == f.Partition && (o.Load > 0 || o.Prober > 0) {
			return true
		}
	}
	return false
}

// expires says whether the broker may delete old records: it was told to, or
// nobody here knows what it was told.
func (t *oneTrial) expires() bool {
	if t.cell.Target.System == "external" {
		return true
	}
	for k := range t.cell.Target.Settings {
		if strings.Contains(k, "retention") {
			return true
		}
	}
	for _, topic := range t.cell.Topics {
		for k := range topic.Config {
			if strings.Contains(k, "retention") {
				return true
			}
		}
	}
	return false
}
