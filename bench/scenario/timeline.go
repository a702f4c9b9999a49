package scenario

import (
	"fmt"
	"time"
)

// PhaseNames lists the phases in order.
func PhaseNames() []string {
	return []string{PhaseWarmup, PhaseSteady, PhaseImpact, PhaseRecovery, PhaseDrain}
}

func (p Phases) length(phase string) time.Duration {
	switch phase {
	case PhaseWarmup:
		return p.Warmup
	case PhaseSteady:
		return p.Steady
	case PhaseImpact:
		return p.Impact
	case PhaseRecovery:
		return p.Recovery
	case PhaseDrain:
		return p.Drain
	}
	panic(fmt.Sprintf("scenario: no phase %q", phase))
}

// Start is the moment at which a phase begins, since the first send.
func (p Phases) Start(phase string) time.Duration {
	var at time.Duration
	for _, name := range PhaseNames() {
		if name == phase {
			break
		}
		at += p.length(name)
	}
	return at
}

// End is the moment at which a phase ends; of drain, the latest moment.
func (p Phases) End(phase string) time.Duration { return p.Start(phase) + p.length(phase) }

// Of names the phase of a moment: [start, end) of each, drain from the end of the load on, warmup before zero.
func (p Phases) Of(t time.Duration) string {
	for _, name := range PhaseNames() {
		if t < p.End(name) {
			return name
		}
	}
	return PhaseDrain
}

// Sending is how long load is offered: all phases but drain.
func (p Phases) Sending() time.Duration { return p.Start(PhaseDrain) }

// Moment places a fault on the timeline.
func (p Phases) Moment(at At) time.Duration { return p.Start(at.Phase) + at.Offset }
