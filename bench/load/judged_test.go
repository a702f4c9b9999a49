package load

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/bench/check"
	"gopherlog/bench/scenario"
)

// The whole instrument against an honest fake and against lying ones: what the harness says must follow from what the fake did.

func TestAnHonestBrokerPassesInEveryGuarantee(t *testing.T) {
	for _, g := range []scenario.Guarantee{scenario.AtMostOnce, scenario.AtLeastOnce, scenario.Idempotent} {
		_, d := fakeCluster(t)
		p := smallPlan(t, g)
		out, err := Run(t.Context(), d, p)
		if err != nil {
			t.Fatal(err)
		}
		v, err := check.Judge(p.HistoryDir, check.Options{Guarantee: g, MinAcked: 1000, Drained: out.Drain.Complete, Invalid: out.Invalid})
		if err != nil || v.Status != check.Pass {
			t.Fatalf("%s: %v %s %q", g, err, v.Status, v.Reasons)
		}
	}
}

func TestABrokerThatAcknowledgesAndForgetsIsCaught(t *testing.T) {
	c, d := fakeCluster(t)
	p := smallPlan(t, scenario.Idempotent)
	// Every twentieth produce request is acknowledged and thrown away.
	requests := 0
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if requests++; requests%20 != 10 {
			return nil, nil, false
		}
		return forget(r.(*kmsg.ProduceRequest)), nil, true
	})
	p.Guarantee = scenario.AtLeastOnce // without sequences, so that the fake does not notice the hole itself
	out, err := Run(t.Context(), d, p)
	if err != nil {
		t.Fatal(err)
	}
	v, err := check.Judge(p.HistoryDir, check.Options{Guarantee: p.Guarantee, Drained: out.Drain.Complete, Invalid: out.Invalid})
	if err != nil || v.Status != check.Violated || v.Totals.Lost == 0 {
		t.Fatalf("%v %s %q %+v", err, v.Status, v.Reasons, v.Totals)
	}
}

// forget answers every partition of a produce request with success.
func forget(r *kmsg.ProduceRequest) kmsg.Response {
	answer := r.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range r.Topics {
		at := kmsg.NewProduceResponseTopic()
		at.Topic, at.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			ap := kmsg.NewProduceResponseTopicPartition()
			ap.Partition, ap.BaseOffset = p.Partition, -1
			at.Partitions = append(at.Partitions, ap)
		}
		answer.Topics = append(answer.Topics, at)
	}
	return answer
}

func TestABrokerThatAppendsTwiceIsCaught(t *testing.T) {
	c, d := fakeCluster(t)
	p := smallPlan(t, scenario.AtLeastOnce)
	// A broker that appends and then loses the answer makes the client send again.
	requests := 0
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		requests++
		return nil, nil, false
	})
	for range 5 {
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: 1, When: func(kmsg.Request) bool { return requests > 5 }})
	}
	out, err := Run(t.Context(), d, p)
	if err != nil {
		t.Fatal(err)
	}
	for g, want := range map[scenario.Guarantee]check.Status{scenario.AtLeastOnce: check.Pass, scenario.Idempotent: check.Violated} {
		v, err := check.Judge(p.HistoryDir, check.Options{Guarantee: g, Drained: out.Drain.Complete, Invalid: out.Invalid})
		if err != nil || v.Status != want || v.Totals.Duplicates == 0 {
			t.Fatalf("as %s: %v %s %q %+v", g, err, v.Status, v.Reasons, v.Totals)
		}
	}
}

func TestAStallOfOneSecondIsSeenByEveryMessageThatWasDueInIt(t *testing.T) {
	const stall, rate = time.Second, 500
	c, d := fakeCluster(t, kfake.NumBrokers(1))
	p := smallPlan(t, scenario.Idempotent)
	p.Topics = []TopicSpec{{Name: "in", Partitions: 1, ReplicationFactor: 1}}
	p.Load.Arrival, p.Load.Rate, p.Producers.Count = "constant", rate, 1
	p.Phases = scenario.Phases{Warmup: 500 * time.Millisecond, Steady: 2 * time.Second, Drain: 20 * time.Second}
	p.Clock = NewClock()
	// From 0.8 s on the clock, the broker answers nothing until the stall is over. A control function that sleeps stops the whole fake.
	const from = 800 * time.Millisecond
	stalled := false
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if now := p.Clock.Now(); !stalled && now >= from {
			stalled = true
			time.Sleep(from + stall - now)
		}
		return nil, nil, false
	})
	out, err := Run(t.Context(), d, p)
	if err != nil {
		t.Fatal(err)
	}
	// At least the messages that were due in the stall are slow; a starved machine adds to them.
	all := out.Ack.All()
	for _, least := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, 750 * time.Millisecond} {
		if slow, want := float64(all.Above(least)), 0.8*rate*(stall-least).Seconds(); slow < want {
			t.Errorf("%.0f messages took longer than %v; the stall explains %.0f", slow, least, want)
		}
	}
	long := 0
	for _, o := range out.Outages {
		if o.End-o.Start > 700*time.Millisecond {
			long++
		}
	}
	if long == 0 {
		t.Errorf("outages %+v", out.Outages)
	}
}
