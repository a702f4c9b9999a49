package load

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"gopherlog/bench/history"
	"gopherlog/bench/scenario"
)

func fakeCluster(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, Driver) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	d, err := NewKafka(KafkaConfig{Bootstrap: c.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return c, d
}

// smallPlan lasts a second. Its limits are those that only a failure reaches: on a busy machine an answer takes seconds.
func smallPlan(t testing.TB, g scenario.Guarantee) Plan {
	return Plan{
		RunID: 42, Seed: 7, Guarantee: g,
		Topics: []TopicSpec{{Name: "in", Partitions: 3, ReplicationFactor: 3}, {Name: "out", Partitions: 2, ReplicationFactor: 3}},
		Producers: scenario.Producers{Count: 2, BatchBytes: 1 << 20, Compression: "none",
			Overrides: map[string]string{"request_timeout": "2m", "delivery_timeout": "2m"}},
		Load: scenario.Load{Model: "open", Arrival: "poisson", Rate: 2000, MaxOutstanding: 20000, Partitioner: "fnv1a",
			Keys: scenario.Keys{Dist: "uniform", Space: 1000}, Value: scenario.Value{Size: scenario.SizeDist{Fixed: 100}, Entropy: 0.5}},
		Phases:     scenario.Phases{Warmup: 300 * time.Millisecond, Steady: 700 * time.Millisecond, Drain: 2 * time.Minute},
		HistoryDir: filepath.Join(t.TempDir(), "history"),
		Interval:   100 * time.Millisecond,
	}
}

// lostByTime says whether a run lost what at most once may lose: requests are sent once, and some went without an answer because a
// connection was not made or written to in time. Whatever became of a message, it is counted once, and what was acknowledged is read.
func lostByTime(t *testing.T, out *Outcome, sum PhaseCounts) bool {
	t.Helper()
	if sum.Sent != sum.Slots || sum.Acked+sum.Failed+sum.Unknown != sum.Sent || sum.Read < sum.Acked || sum.Read > sum.Acked+sum.Unknown || out.Drain.Messages != sum.Read {
		t.Fatalf("counts %+v, errors %v, drain %+v", sum, out.Errors, out.Drain)
	}
	return sum.Failed+sum.Unknown > 0
}

func TestEverythingSentIsAcknowledgedReadAndDrained(t *testing.T) {
	const tries = 10 // of a guarantee that permits losses, on a machine that is too busy for a second
	for _, g := range []scenario.Guarantee{scenario.AtMostOnce, scenario.AtLeastOnce, scenario.Idempotent} {
		t.Run(string(g), func(t *testing.T) {
			var p Plan
			var out *Outcome
			var sum PhaseCounts
			glances := 0
			for try := 1; ; try++ {
				_, d := fakeCluster(t)
				p, glances, sum = smallPlan(t, g), 0, PhaseCounts{}
				p.Progress = func(Progress) { glances++ }
				var err error
				if out, err = Run(t.Context(), d, p); err != nil {
					t.Fatal(err)
				}
				for _, c := range out.Phases {
					sum.add(c)
				}
				if g != scenario.AtMostOnce || !lostByTime(t, out, sum) || try == tries {
					break
				}
				t.Logf("try %d: %d of %d lost: %v", try, sum.Failed+sum.Unknown, sum.Sent, out.Errors)
			}
			if sum.Slots < 1500 || sum.Sent != sum.Slots || sum.Acked != sum.Sent || sum.Read != sum.Acked || sum.Failed+sum.Unknown+sum.Shed != 0 {
				t.Fatalf("counts %+v, errors %v, drain %+v", sum, out.Errors, out.Drain)
			}
			if !out.Drain.Complete || out.Drain.Messages != sum.Acked {
				t.Fatalf("drain %+v of %d acknowledged", out.Drain, sum.Acked)
			}
			for name, s := range map[string]int64{"ack": out.Ack.All().Count(), "visible": out.Visible.All().Count(), "late": out.Late.All().Count()} {
				if s != sum.Sent {
					t.Errorf("%s has %d samples of %d messages", name, s, sum.Sent)
				}
			}
			if want := 4 * sum.Sent; out.History.Records < want || out.History.Dropped != 0 || out.History.Bytes > out.History.Records*history.MaxRecordBytes {
				t.Errorf("history %+v, at least %d records wanted", out.History, want)
			}
			if out.Partial || len(out.Invalid) > 0 || glances == 0 || len(out.Settings) == 0 {
				t.Errorf("partial %v, invalid %q, %d glances, %d settings", out.Partial, out.Invalid, glances, len(out.Settings))
			}
		})
	}
}

func TestAClosedLoopKeepsItsBound(t *testing.T) {
	_, d := fakeCluster(t)
	p := smallPlan(t, scenario.Idempotent)
	p.Load.Model, p.Load.MaxOutstanding = "closed", 100
	out, err := Run(t.Context(), d, p)
	if err != nil {
		t.Fatal(err)
	}
	if out.Model != "closed" || !out.Drain.Complete {
		t.Fatalf("model %q, drain %+v", out.Model, out.Drain)
	}
	for _, k := range out.Seconds {
		if k.Waiting > 100 {
			t.Fatalf("%d outstanding at %v", k.Waiting, k.At)
		}
	}
}

func TestAnInterruptedRunStillTellsWhatItMeasured(t *testing.T) {
	_, d := fakeCluster(t)
	p := smallPlan(t, scenario.AtLeastOnce)
	p.Phases.Steady = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	p.Progress = func(g Progress) {
		if g.At > 300*time.Millisecond && g.Acked > 0 {
			cancel()
		}
	}
	out, err := Run(ctx, d, p)
	if err != nil {
		t.Fatal(err)
	}
	if !out.Partial || out.Drain.Complete || out.Ack.All().Count() == 0 {
		t.Fatalf("partial %v, drain %+v, %d acks", out.Partial, out.Drain, out.Ack.All().Count())
	}
}

func TestAProberSeesNoGapWhereThereIsNone(t *testing.T) {
	c, d := fakeCluster(t)
	if err := d.CreateTopics(t.Context(), []TopicSpec{{Name: "in", Partitions: 2, ReplicationFactor: 3}}); err != nil {
		t.Fatal(err)
	}
	clock := NewClock()
	p, err := StartProber(t.Context(), ProbeConfig{Nodes: c.ListenAddrs(), Partitions: []history.Partition{{Topic: "in", Partition: 0}, {Topic: "in", Partition: 1}}, RunID: 1, Acks: -1, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	clock.Start()
	for {
		if _, n := p.Counts(); n > 100 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if gaps := p.Stop(20 * time.Second); len(gaps) != 0 {
		t.Fatalf("gaps %+v", gaps)
	}
}

func TestFinalReadWaitsUntilTheSystemIsWholeAgain(t *testing.T) {
	_, d := fakeCluster(t)
	p := smallPlan(t, scenario.AtLeastOnce)
	whole := false
	p.BeforeDrain = func() { whole = true }
	p.DrainReader = func() Driver {
		if !whole {
			t.Error("the final read began first")
		}
		return unclosed{d}
	}
	if out, err := Run(t.Context(), d, p); err != nil || !out.Drain.Complete || !whole {
		t.Fatalf("%v, %+v", err, out)
	}
}

// unclosed is a driver that somebody else closes.
type unclosed struct{ Driver }

func (unclosed) Close() {}

func TestHoldersOfAPartitionAreNamed(t *testing.T) {
	_, d := fakeCluster(t)
	if err := d.CreateTopics(t.Context(), []TopicSpec{{Name: "held", Partitions: 2, ReplicationFactor: 3}}); err != nil {
		t.Fatal(err)
	}
	leaders, err := d.Leaders(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	held, err := d.Replicas(t.Context(), "held")
	for p := range int32(2) {
		if err != nil || !slices.Contains(held[p], leaders[p]) {
			t.Errorf("%v: partition %d is led by %d and held by %v", err, p, leaders[p], held[p])
		}
	}
}
