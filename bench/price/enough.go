package price

import (
	"fmt"
	"math"
	"time"
)

// leastRecords are due in a trial: 500 must be acknowledged (price.yaml), and when they are due is random.
const leastRecords = 600

// enough says why so few records a second cannot be priced, and what can: first a greater rate with the rest as it is, then, where the limits
// leave room for it, a longer trial at this rate. What it suggests is valid, and a block of it ends in time.
func (o Options) enough() error {
	if err := o.inTime(); err != nil || o.due() >= leastRecords {
		return err
	}
	said := fmt.Sprintf("%g records a second are about %.0f in a trial, and fewer than %d cannot be judged: -rate %g would do", o.Rate, o.due(), leastRecords, o.leastRate())
	longer := o
	longer.Steady = o.leastSteady()
	switch {
	case longer.Steady > mostSteady:
		return fmt.Errorf("%s (a longer trial would not: its measured part is %s at most)", said, Span(mostSteady))
	case longer.blocks() < 1:
		return fmt.Errorf("%s (trials long enough for this rate would not end within %s)", said, Span(MostTime))
	case longer.blocks() < o.Blocks:
		return fmt.Errorf("%s, or -steady %s at this rate, of which %s instead of %d end within %s", said, longer.Steady, count(longer.blocks(), "block", "blocks"), o.Blocks, Span(MostTime))
	}
	return fmt.Errorf("%s, or -steady %s at this rate", said, longer.Steady)
}

// inTime says what to change where not even one trial of each guarantee ends in time.
func (o Options) inTime() error {
	if o.blocks() >= 1 {
		return nil
	}
	shorter := o
	for shorter.Steady = o.Steady.Truncate(time.Second); shorter.Steady > time.Second && shorter.blocks() < 1; shorter.Steady -= time.Second {
	}
	said := fmt.Sprintf("one trial of each guarantee with a measured part of %s does not end within %s", Span(o.Steady), Span(MostTime))
	if shorter.blocks() >= 1 && shorter.due() >= leastRecords {
		return fmt.Errorf("%s: -steady %s would do", said, shorter.Steady)
	}
	return fmt.Errorf("%s: price fewer with -guarantees, or leave out -saturate", said)
}

// due is how many records are due in a trial.
func (o Options) due() float64 { return o.Rate * (o.Steady + o.warmup()).Seconds() }

// warmup is what is sent before the measured part; a pipeline's group takes its time to gather.
func (o Options) warmup() time.Duration {
	if o.Workers > 0 {
		return max(o.Steady/3, gathering)
	}
	return o.Steady / 3
}

// leastRate is the smallest whole rate at which trials of this length can be judged.
func (o Options) leastRate() float64 {
	r := o
	for r.Rate = math.Floor(leastRecords / (o.Steady + o.warmup()).Seconds()); r.due() < leastRecords; r.Rate++ {
	}
	return r.Rate
}

// leastSteady is the smallest whole number of seconds in which this rate can be judged; mostSteady and a second where that is too long.
func (o Options) leastSteady() time.Duration {
	l := o
	for l.Steady = time.Second; l.Steady <= mostSteady && l.due() < leastRecords; l.Steady += time.Second {
	}
	return l.Steady
}

// blocks is how many blocks of all guarantees end in time, of those that are asked for.
func (o Options) blocks() int {
	share, block := o.share(), time.Duration(len(o.Guarantees))*(o.Steady+o.warmup()+trialExtra+cooldown)
	if o.Saturate { // whose trials have no pipeline
		block = max(block, time.Duration(len(o.Guarantees))*(o.Steady+o.Steady/3+trialExtra+cooldown))
	}
	return min(o.Blocks, int(share/max(block, 1)))
}

// share is the time that each scenario may take.
func (o Options) share() time.Duration {
	if o.Saturate {
		return (MostTime - spare) / 2
	}
	return MostTime - spare
}
