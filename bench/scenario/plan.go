package scenario

import (
	"fmt"
	"time"
)

// What a trial takes beside its phases, as a guess: starting and stopping a cluster, the settling and the final read.
const trialOverhead = 8 * time.Second

// historyBytesPerMessage is what sends, outcomes, reads and the final read of a message leave on disk, as measured.
const historyBytesPerMessage = 20

// A Plan is what running a scenario would take.
type Plan struct {
	Cells, Repeats, Trials int
	Trial                  time.Duration // of the longest cell, start and drain included
	Warming                time.Duration // of all clusters, once, before the first trial
	Total                  time.Duration
	Messages               int64 // offered in all trials; those of a closed model cannot be told
	BrokerBytes            int64 // written by all replicas in the largest trial
	HistoryBytes           int64 // left in the run directory
	Shrunk                 bool  // max_time allows fewer repeats than asked; Repeats is what fits, at least one
}

// Plan estimates time and size of all trials.
func (s *Scenario) Plan() Plan {
	p := Plan{Cells: len(s.cells), Repeats: s.Runs.Repeats}
	var block time.Duration
	var messages int64
	for _, c := range s.cells {
		trial := c.Phases.Sending() + trialOverhead + c.Runs.Cooldown
		p.Trial = max(p.Trial, trial)
		block += trial
		if c.Load.Model == "open" {
			n := int64(float64(c.Load.Rate) * c.Phases.Sending().Seconds())
			messages += n
			p.BrokerBytes = max(p.BrokerBytes, n*int64(c.Load.Value.Size.Mean())*int64(max(1, c.Target.ReplicationFactor)))
		}
	}
	p.Warming = s.Warming(p.Repeats, map[string]time.Duration{})
	if fits := int((s.Runs.MaxTime - p.Warming) / max(block, 1)); fits < p.Repeats {
		p.Repeats, p.Shrunk = max(1, fits), true
	}
	p.Trials = p.Cells * p.Repeats
	p.Total = block*time.Duration(p.Repeats) + p.Warming
	p.Messages = messages * int64(p.Repeats)
	p.HistoryBytes = p.Messages * historyBytesPerMessage
	return p
}

// Warming is what the warm load takes: before each trial, or once for each cluster that is kept. had is what kept clusters have had
// before, by their key, and is brought up to date.
func (s *Scenario) Warming(repeats int, had map[string]time.Duration) time.Duration {
	var sum time.Duration
	for _, c := range s.cells {
		key, want := c.Target.ClusterKey(), c.Runs.WarmCluster
		switch {
		case c.Runs.FreshCluster:
			sum += want * time.Duration(repeats)
		case want > had[key]:
			sum += want - had[key]
			had[key] = want
		}
	}
	return sum
}

// ClusterKey tells clusters apart that must be launched apart: two targets with the same key may use the same running cluster.
// What belongs to topics (copies, durability) is no part of it.
func (t Target) ClusterKey() string {
	switch t.System {
	case "external":
		return fmt.Sprintf("external %q", t.External.Bootstrap)
	case "kafka":
		return fmt.Sprintf("kafka %d %d %v %v", t.Nodes, t.Nice, t.Kafka.Heap, t.Kafka.Settings)
	}
	return fmt.Sprintf("%s %d %d %v", t.System, t.Nodes, t.Nice, t.Settings)
}
