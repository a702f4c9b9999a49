package load

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/bench/scenario"
)

// slowTarget acknowledges after a fixed time, and nothing during one stall: what was due in it is acknowledged at its end. In virtual
// time it is exact, so that the instrument must be, too.
type slowTarget struct {
	Driver      // the null target's answers to all other questions
	clock       *Clock
	service     time.Duration
	from, until time.Duration
}

func (d *slowTarget) NewProducer(context.Context, ProducerConfig) (Producer, error) {
	return &slowProducer{target: d}, nil
}

type slowProducer struct {
	target *slowTarget
	open   sync.WaitGroup
}

func (p *slowProducer) Send(_ *Record, done func(Ack)) {
	now := p.target.clock.Now()
	at := now + p.target.service
	if now >= p.target.from && now < p.target.until {
		at = p.target.until
	}
	p.open.Go(func() {
		time.Sleep(at - now)
		done(Ack{Offset: -1})
	})
}

func (p *slowProducer) Flush(context.Context) error { p.open.Wait(); return nil }

func (p *slowProducer) Close() {}

func virtualRun(t *testing.T, arrival string, closed bool) *Outcome {
	t.Helper()
	clock := NewClock()
	d := &slowTarget{Driver: NewNull(), clock: clock, service: 2 * time.Millisecond, from: 2 * time.Second, until: 3 * time.Second}
	p := smallPlan(t, scenario.AtLeastOnce)
	p.HistoryDir, p.Clock, p.sleep = "", clock, time.Sleep
	p.Topics = []TopicSpec{{Name: "in", Partitions: 1}}
	p.Load.Arrival, p.Load.Rate, p.Load.MaxOutstanding = arrival, 1000, 1_000_000
	if closed {
		p.Load.Model, p.Load.MaxOutstanding = "closed", 2
	}
	p.Phases = scenario.Phases{Warmup: time.Second, Steady: 4 * time.Second, Drain: 10 * time.Second}
	out, err := Run(t.Context(), d, p)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAKnownStallIsMeasuredExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := virtualRun(t, "constant", false)
		all := out.Ack.All()
		if n := all.Count(); n != 5000 {
			t.Fatalf("%d messages of 5000", n)
		}
		// 1,000 messages a second were due in the stall of one second: their latencies are spread evenly over it.
		for ms := time.Duration(100); ms < 1000; ms += 100 {
			want := 1000 - int64(ms)
			if got := all.Above(ms * time.Millisecond); got < want-5 || got > want+5 {
				t.Errorf("%d messages took longer than %d ms, not %d", got, ms, want)
			}
		}
		if max := all.Max(); max < 998*time.Millisecond || max > 1002*time.Millisecond {
			t.Errorf("the longest latency is %v", max)
		}
		if p50, _ := all.Percentile(50); p50 < 2*time.Millisecond || p50 > 2200*time.Microsecond {
			t.Errorf("the median latency is %v", p50)
		}
		if late := out.Late.All().Max(); late > 200*time.Microsecond {
			t.Errorf("slots were late by %v", late)
		}
		if len(out.Outages) != 1 || out.Outages[0].End != 3*time.Second || out.Outages[0].Start < 1990*time.Millisecond || out.Outages[0].Start > 2010*time.Millisecond {
			t.Errorf("outages %+v", out.Outages)
		}
		for _, k := range out.Seconds[20:29] {
			if k.Slots != 100 || k.Acked > 2 {
				t.Errorf("in the stall: %+v", k)
			}
		}
	})
}

// What the open loop is for: a closed loop sends nothing into the stall, and its latencies hide it.
func TestAClosedLoopHidesTheStallThatAnOpenOneShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed, open := virtualRun(t, "poisson", true).Ack.All(), virtualRun(t, "poisson", false).Ack.All()
		if n := closed.Above(100 * time.Millisecond); n != 2 {
			t.Errorf("closed: %d messages saw the stall, not the 2 outstanding ones", n)
		}
		if n := open.Above(100 * time.Millisecond); n < 800 || n > 1000 {
			t.Errorf("open: %d messages saw the stall, not about 900", n)
		}
		hidden, _ := closed.Percentile(99)
		shown, _ := open.Percentile(99)
		if hidden > 3*time.Millisecond || shown < 900*time.Millisecond {
			t.Errorf("p99: closed %v, open %v", hidden, shown)
		}
	})
}

// tardyTarget needs a second for the end of every transaction.
type tardyTarget struct{ Driver }

func (tardyTarget) NewProducer(context.Context, ProducerConfig) (Producer, error) {
	return tardyProducer{&nullProducer{}}, nil
}

type tardyProducer struct{ *nullProducer }

func (tardyProducer) Init(context.Context) (int32, error) { return 0, nil }
func (tardyProducer) Begin() error                        { return nil }
func (tardyProducer) End(_ context.Context, commit bool, asked func(bool)) TxnEnd {
	asked(commit)
	time.Sleep(time.Second)
	return TxnEnd{Result: TxnCommitted}
}

// Transactions that cannot grow, at a broker that is too slow for them: what is left is given up when the drain phase is over.
func TestABacklogThatCannotBeWorkedOffEndsWithTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallPlan(t, scenario.Transactional)
		p.HistoryDir, p.Clock, p.sleep = "", NewClock(), time.Sleep
		p.Topics = []TopicSpec{{Name: "in", Partitions: 1}}
		p.Producers.Transaction = scenario.Transaction{Records: 1, Partitions: 1, MaxDuration: 50 * time.Millisecond, Timeout: 2 * time.Second}
		p.Load.Arrival, p.Load.Rate = "constant", 100
		p.Phases = scenario.Phases{Steady: 4 * time.Second, Drain: 10 * time.Second}
		out, err := Run(t.Context(), tardyTarget{NewNull()}, p)
		if err != nil {
			t.Fatal(err)
		}
		if took := p.Clock.Now(); took > 2*(p.Phases.Steady+p.Phases.Drain) {
			t.Errorf("the trial ended after %v", took)
		}
		if len(out.Invalid) == 0 {
			t.Error("a trial that gave messages up proves nothing, and does not say so")
		}
	})
}
