package scenario

import (
	"fmt"
	"time"
)

// What a trial takes beside its phases, as measured: connecting, the final read and judging; and starting and stopping a cluster of its own.
const (
	trialOverhead   = 2 * time.Second
	clusterOverhead = 3 * time.Second
)

// historyBytesPerMessage is what sends, outcomes, reads and the final read of a message leave on disk, as measured.
const historyBytesPerMessage = 20

// A Plan is what running a scenario would take.
type Plan struct {
	Cells, Repeats, Trials int           // without cells that are absent
	Warming                time.Duration // of clusters that were not warmed before
	Total                  time.Duration
	Messages               int64 // offered in all trials; those of a closed model cannot be told
	BrokerBytes            int64 // written by all replicas in the largest trial with an open model
	HereBytes              int64 // of those, what is written on this machine: nothing where the cluster is external
	HistoryBytes           int64 // left in the run directory
	Shrunk                 bool  // max_time allows fewer repeats than asked; Repeats is what fits, at least one
}

// Takes estimates the time of one trial, the pause after it included.
func (c Cell) Takes() time.Duration {
	d := c.Phases.Sending() + trialOverhead + c.Runs.Cooldown
	if c.Runs.FreshCluster {
		d += clusterOverhead
	}
	return d
}

// Absent says why a cell has no trials, as far as its system alone decides that; "" if it has some.
func (c Cell) Absent() string {
	if c.Guarantee == TwoPhaseCommit && c.Target.System == "kafka" {
		return "Apache Kafka has no voted two-phase commit: its coordinator decides alone"
	}
	return ""
}

// Writes estimates the bytes that all replicas write in one trial. Those of a closed model cannot be told: ok is false.
func (c Cell) Writes() (bytes int64, ok bool) {
	return c.messages() * int64(c.Load.Value.Size.Mean()) * int64(max(1, c.Target.ReplicationFactor)), c.Load.Model == "open"
}

func (c Cell) messages() int64 { return int64(float64(c.Load.Rate) * c.Phases.Sending().Seconds()) }

// Plan estimates time and size of all trials. warmed is what scenarios of the same call have warmed before, and is brought up to date.
func (s *Scenario) Plan(warmed map[string]time.Duration) Plan {
	p := Plan{Cells: len(s.cells), Repeats: s.Runs.Repeats}
	var block time.Duration
	var messages int64
	for _, c := range s.cells {
		if c.Absent() != "" {
			p.Cells--
			continue
		}
		block += c.Takes()
		if bytes, ok := c.Writes(); ok {
			messages += c.messages()
			p.BrokerBytes = max(p.BrokerBytes, bytes)
			if c.Target.System != "external" {
				p.HereBytes = max(p.HereBytes, bytes)
			}
		}
	}
	p.Warming = s.warming(p.Repeats, warmed)
	if fits := int((s.Runs.MaxTime - p.Warming) / max(block, 1)); fits < p.Repeats {
		p.Repeats, p.Shrunk = max(1, fits), true
	}
	p.Trials = p.Cells * p.Repeats
	p.Total = block*time.Duration(p.Repeats) + p.Warming
	p.Messages = messages * int64(p.Repeats)
	p.HistoryBytes = p.Messages * historyBytesPerMessage
	return p
}

// warming is what the warm load takes: before each trial, once for each cluster that is kept, or in each block, with the launches. had is what kept clusters have had
// before, by their key, and is brought up to date.
func (s *Scenario) warming(repeats int, had map[string]time.Duration) time.Duration {
	var sum time.Duration
	each := map[string]time.Duration{} // of the clusters that every block has for itself
	for _, c := range s.cells {
		if c.Absent() != "" {
			continue
		}
		key, want := c.Target.ClusterKey(), c.Runs.WarmCluster
		switch {
		case c.Runs.BlockCluster:
			each[key] = max(each[key], want)
		case c.Runs.FreshCluster:
			sum += want * time.Duration(repeats)
		case want > had[key]:
			sum += want - had[key]
			had[key] = want
		}
	}
	for key, want := range each {
		sum += (clusterOverhead + want) * time.Duration(repeats)
		had[key] = want
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
