package scenario

import "time"

// What a trial takes beside its phases, as a guess: starting and stopping a cluster, the settling and the final read.
const trialOverhead = 8 * time.Second

// historyBytesPerMessage is what sends, outcomes, reads and the final read of a message leave on disk, as measured.
const historyBytesPerMessage = 20

// A Plan is what running a scenario would take.
type Plan struct {
	Cells, Repeats, Trials int
	Trial                  time.Duration // of the longest cell, start and drain included
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
	if fits := int(s.Runs.MaxTime / max(block, 1)); fits < p.Repeats {
		p.Repeats, p.Shrunk = max(1, fits), true
	}
	p.Trials = p.Cells * p.Repeats
	p.Total = block * time.Duration(p.Repeats)
	p.Messages = messages * int64(p.Repeats)
	p.HistoryBytes = p.Messages * historyBytesPerMessage
	return p
}
