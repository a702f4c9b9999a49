package load

import (
	"sync"
	"time"

	"gopherlog/bench/scenario"
)

// tally counts what one goroutine sees, by phase of the intended time and by interval of the moment.
type tally struct {
	phases   scenario.Phases
	interval time.Duration

	mu      sync.Mutex
	byPhase [5]PhaseCounts
	ticks   []Tick
}

func newTally(p scenario.Phases, interval time.Duration) *tally {
	return &tally{phases: p, interval: interval}
}

// add lets f count one message, intended then and handled now.
func (t *tally) add(intended, now time.Duration, f func(p *PhaseCounts, k *Tick)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := int(max(now, 0) / t.interval)
	for len(t.ticks) <= i {
		t.ticks = append(t.ticks, Tick{})
	}
	f(&t.byPhase[t.phaseIndex(intended)], &t.ticks[i])
}

func (t *tally) phaseIndex(at time.Duration) int {
	p := &t.phases
	switch {
	case at < p.Warmup:
		return 0
	case at < p.Warmup+p.Steady:
		return 1
	case at < p.Warmup+p.Steady+p.Impact:
		return 2
	case at < p.Warmup+p.Steady+p.Impact+p.Recovery:
		return 3
	}
	return 4
}

func (a *PhaseCounts) add(b PhaseCounts) {
	a.Slots += b.Slots
	a.Sent += b.Sent
	a.Shed += b.Shed
	a.Late += b.Late
	a.Acked += b.Acked
	a.Failed += b.Failed
	a.Unknown += b.Unknown
	a.Read += b.Read
	a.Bytes += b.Bytes
	a.Txns += b.Txns
	a.TxnsCommitted += b.TxnsCommitted
	a.TxnsAborted += b.TxnsAborted
	a.TxnsInDoubt += b.TxnsInDoubt
	a.Committed += b.Committed
	a.Transformed += b.Transformed
}

func (a *Tick) add(b Tick) {
	a.Slots += b.Slots
	a.Sent += b.Sent
	a.Acked += b.Acked
	a.Failed += b.Failed
	a.Unknown += b.Unknown
	a.Shed += b.Shed
	a.Read += b.Read
	a.Committed += b.Committed
	a.Aborted += b.Aborted
}

// total adds up tallies of one trial: the sending phases and the drain, and all intervals with what waited at the end of each.
func total(p scenario.Phases, interval time.Duration, tallies []*tally) ([]PhaseCounts, []Tick) {
	names := scenario.PhaseNames()
	phases := make([]PhaseCounts, len(names))
	for i, name := range names {
		phases[i] = PhaseCounts{Phase: name, Start: p.Start(name), End: p.End(name)}
	}
	var ticks []Tick
	for _, t := range tallies {
		t.mu.Lock()
		for i := range t.byPhase {
			phases[i].add(t.byPhase[i])
		}
		for i, k := range t.ticks {
			if i == len(ticks) {
				ticks = append(ticks, Tick{At: time.Duration(i) * interval})
			}
			ticks[i].add(k)
		}
		t.mu.Unlock()
	}
	var waiting int64
	for i := range ticks {
		waiting += ticks[i].Sent - ticks[i].Acked - ticks[i].Failed - ticks[i].Unknown
		ticks[i].Waiting = waiting
	}
	return phases, ticks
}
