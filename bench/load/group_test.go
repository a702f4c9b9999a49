package load

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"gopherlog/bench/check"
	"gopherlog/bench/history"
	"gopherlog/bench/scenario"
)

// shortSessions lets members be missed within the time of a test.
var shortSessions = kfake.BrokerConfigs(map[string]string{"group.min.session.timeout.ms": "100"})

// calmly gives members so much time that none is missed by its group on a busy machine: for tests in which none comes or goes.
func calmly(p *Plan) { p.Consumers.SessionTimeout, p.Consumers.Rebalance = 30*time.Second, time.Minute }

func groupPlan(t testing.TB, g scenario.Guarantee) Plan {
	p := smallPlan(t, g)
	p.Producers.Transaction = scenario.Transaction{Records: 20, MaxDuration: 20 * time.Millisecond, Timeout: time.Minute}
	p.Load.Rate = 1000
	p.Consumers = scenario.Consumers{Groups: []scenario.ConsumerGroup{{Name: "workers", Members: 2}}, Transform: scenario.Transform{From: "in", To: "out"},
		PollRecords: 50, SessionTimeout: time.Second, Rebalance: time.Second}
	c := scenario.Scenario{Guarantee: g, Consumers: p.Consumers}
	p.CommitPoint = c.CommitPoint()
	return p
}

// stepsOf counts the steps of members in a history.
func stepsOf(t testing.TB, dir string) (steps map[history.Step]int, origins map[history.Partition]map[int64]int) {
	t.Helper()
	steps, origins = map[history.Step]int{}, map[history.Partition]map[int64]int{}
	names, _ := filepath.Glob(filepath.Join(dir, "*.hist"))
	for _, name := range names {
		f, err := history.OpenReader(name)
		if err != nil {
			t.Fatal(err)
		}
		role := f.Header().Role
		var r history.Record
		for f.Next(&r) {
			switch {
			case r.Kind == history.Group && role == history.RolePositions:
				steps[0]++
			case r.Kind == history.Group:
				steps[r.Step]++
			case r.Kind == history.Origin && role == history.RoleDrain:
				p := f.Header().Partitions[r.Partition]
				if origins[p] == nil {
					origins[p] = map[int64]int{}
				}
				origins[p][r.Offset]++
			}
		}
		if f.Err() != nil {
			t.Fatal(f.Err())
		}
		f.Close()
	}
	return steps, origins
}

func TestAGroupMakesOneOutputOfEachInput(t *testing.T) {
	for _, g := range []scenario.Guarantee{scenario.AtMostOnce, scenario.AtLeastOnce, scenario.Idempotent, scenario.Transactional, scenario.TwoPhaseCommit} {
		t.Run(string(g), func(t *testing.T) {
			_, d := fakeCluster(t, shortSessions)
			p := groupPlan(t, g)
			calmly(&p)
			out, err := Run(t.Context(), d, p)
			if err != nil {
				t.Fatal(err)
			}
			var sum PhaseCounts
			for _, c := range out.Phases {
				sum.add(c)
			}
			if !out.Drain.Complete || len(out.Invalid) > 0 {
				t.Fatalf("drain %+v, invalid %q, errors %v", out.Drain, out.Invalid, out.Errors)
			}
			if sum.Read == 0 || sum.Transformed != sum.Read || out.EndToEnd.All().Count() != sum.Read {
				t.Fatalf("%d read, %d transformed, %d end to end; errors %v", sum.Read, sum.Transformed, out.EndToEnd.All().Count(), out.Errors)
			}
			steps, origins := stepsOf(t, p.HistoryDir)
			var outputs int64
			for p, at := range origins {
				for offset, n := range at {
					if outputs++; n != 1 {
						t.Fatalf("%d outputs of %v at %d", n, p, offset)
					}
				}
			}
			if outputs != sum.Read || steps[history.Assigned] < 3 || steps[history.PollEnd] == 0 || steps[history.CommitAsked] == 0 || steps[history.Left] != 2 || steps[0] != 3 {
				t.Fatalf("%d outputs, steps %v", outputs, steps)
			}
			v, err := check.Judge(p.HistoryDir, check.Options{Guarantee: g, MinAcked: 100, Drained: out.Drain.Complete, RawDrained: out.Drain.Raw, Invalid: out.Invalid,
				TxnTimeout: p.Producers.Transaction.Timeout, Grace: 5 * time.Second, Transforms: []check.Transform{{Group: "workers", From: "in", To: "out"}}})
			if err != nil || v.Status != check.Pass {
				t.Fatalf("%v %s %q", err, v.Status, v.Reasons)
			}
		})
	}
}

func TestAPipelineHoldsWhileItsWorkersComeAndGo(t *testing.T) {
	_, d := fakeCluster(t, shortSessions)
	p := groupPlan(t, scenario.Transactional)
	p.Phases.Steady = 3 * time.Second
	p.Consumers.Churn = scenario.Churn{Rejoin: 0.05, Crash: 0.05, Zombie: 0.03}
	out, err := Run(t.Context(), d, p)
	if err != nil {
		t.Fatal(err)
	}
	steps, _ := stepsOf(t, p.HistoryDir)
	if steps[history.Crashed] == 0 || steps[history.Left] < 3 {
		t.Fatalf("steps %v", steps)
	}
	var sum PhaseCounts
	for _, c := range out.Phases {
		sum.add(c)
	}
	if sum.Txns != sum.TxnsCommitted+sum.TxnsAborted+sum.TxnsInDoubt {
		t.Errorf("of %d transactions %d were committed, %d aborted and %d are in doubt; %d workers crashed", sum.Txns, sum.TxnsCommitted, sum.TxnsAborted, sum.TxnsInDoubt, steps[history.Crashed])
	}
	v, err := check.Judge(p.HistoryDir, check.Options{Guarantee: p.Guarantee, MinAcked: 100, Drained: out.Drain.Complete, RawDrained: out.Drain.Raw, Invalid: out.Invalid,
		TxnTimeout: p.Producers.Transaction.Timeout, Grace: 5 * time.Second, Transforms: []check.Transform{{Group: "workers", From: "in", To: "out"}}})
	if err != nil || v.Status != check.Pass {
		t.Fatalf("%v %s %q; steps %v, errors %v", err, v.Status, v.Reasons, steps, out.Errors)
	}
}

// longestWork is the longest time that a member worked on one poll.
func longestWork(t testing.TB, dir string) (longest time.Duration) {
	t.Helper()
	names, _ := filepath.Glob(filepath.Join(dir, "*.hist"))
	for _, name := range names {
		f, err := history.OpenReader(name)
		if err != nil {
			t.Fatal(err)
		}
		polled := map[uint16]time.Duration{}
		var r history.Record
		for f.Next(&r) {
			switch {
			case r.Kind == history.Group && r.Step == history.PollEnd:
				polled[r.Session] = r.At
			case r.Kind == history.Group && r.Step == history.Processed:
				longest = max(longest, r.At-polled[r.Session])
			}
		}
		if f.Err() != nil {
			t.Fatal(f.Err())
		}
		f.Close()
	}
	return longest
}

func TestAPipelineHoldsWhileAWorkerIsSlowerThanItsGroupWaits(t *testing.T) {
	_, d := fakeCluster(t, shortSessions)
	p := groupPlan(t, scenario.Transactional)
	p.Phases.Steady = 3 * time.Second
	p.Consumers.Rebalance = 600 * time.Millisecond
	p.Consumers.Churn = scenario.Churn{Rejoin: 0.05, Slow: 0.05}
	out, err := Run(t.Context(), d, p)
	if err != nil {
		t.Fatal(err)
	}
	if worked := longestWork(t, p.HistoryDir); worked < p.Consumers.Rebalance {
		t.Fatalf("no member worked on a poll for longer than %v; the longest took %v", p.Consumers.Rebalance, worked)
	}
	v, err := check.Judge(p.HistoryDir, check.Options{Guarantee: p.Guarantee, MinAcked: 100, Drained: out.Drain.Complete, RawDrained: out.Drain.Raw, Invalid: out.Invalid,
		TxnTimeout: p.Producers.Transaction.Timeout, Grace: 5 * time.Second, Transforms: []check.Transform{{Group: "workers", From: "in", To: "out"}}})
	if err != nil || v.Status != check.Pass {
		t.Fatalf("%v %s %q; errors %v", err, v.Status, v.Reasons, out.Errors)
	}
}

func TestAStruckWorkerIsReplacedAndNothingIsLost(t *testing.T) {
	_, d := fakeCluster(t, shortSessions)
	p := groupPlan(t, scenario.Transactional)
	p.Phases.Steady = 8 * time.Second // about three are needed
	p.Clock, p.Workers = NewClock(), &Workers{}
	work, over := context.WithCancel(t.Context())
	defer over()
	type struck struct {
		proof string
		err   error
	}
	seen := make(chan struck, 2)
	go func() {
		<-p.Clock.Started()
		for there := false; !there && pause(work, 10*time.Millisecond); {
			p.Workers.mu.Lock()
			there = len(p.Workers.members) > 0
			p.Workers.mu.Unlock()
		}
		pause(work, 500*time.Millisecond) // until the group has dealt its partitions; a strike waits for a poll anyway
		for _, kind := range []string{"kill", "pause"} {
			proof, err := p.Workers.Strike(work, 0, kind, time.Second)
			seen <- struck{proof, err}
		}
	}()
	out, err := Run(t.Context(), d, p)
	over() // or a strike that came too late would wait for a poll for ever
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if s := <-seen; s.err != nil || s.proof == "" {
			t.Errorf("%+v", s)
		}
	}
	steps, _ := stepsOf(t, p.HistoryDir)
	if steps[history.Crashed] != 1 || steps[history.Frozen] != 1 || steps[history.Thawed] != 1 {
		t.Errorf("steps %v", steps)
	}
	v, err := check.Judge(p.HistoryDir, check.Options{Guarantee: p.Guarantee, MinAcked: 100, Drained: out.Drain.Complete, RawDrained: out.Drain.Raw, Invalid: out.Invalid,
		TxnTimeout: p.Producers.Transaction.Timeout, Grace: 5 * time.Second, Transforms: []check.Transform{{Group: "workers", From: "in", To: "out"}}})
	if err != nil || v.Status != check.Pass {
		t.Fatalf("%v %s %q; steps %v, errors %v", err, v.Status, v.Reasons, steps, out.Errors)
	}
}

// grumbling is a driver whose members hear of an unwell partition with every poll.
type grumbling struct{ *kafka }

type grumbler struct{ Member }

func (g grumbling) NewMember(ctx context.Context, cfg MemberConfig) (Member, error) {
	m, err := g.kafka.NewMember(ctx, cfg)
	return grumbler{m}, err
}

func (g grumbler) Poll(ctx context.Context, most int, fn func(Delivery)) error {
	return errors.Join(errors.New("one partition is unwell"), g.Member.Poll(ctx, most, fn))
}

func TestWhatComesBesideAnErrorIsWorkedOn(t *testing.T) {
	_, d := fakeCluster(t, shortSessions)
	p := groupPlan(t, scenario.Transactional)
	calmly(&p)
	out, err := Run(t.Context(), grumbling{d.(*kafka)}, p)
	if err != nil {
		t.Fatal(err)
	}
	v, err := check.Judge(p.HistoryDir, check.Options{Guarantee: p.Guarantee, MinAcked: 100, Drained: out.Drain.Complete, RawDrained: out.Drain.Raw, Invalid: out.Invalid,
		TxnTimeout: p.Producers.Transaction.Timeout, Grace: 5 * time.Second, Transforms: []check.Transform{{Group: "workers", From: "in", To: "out"}}})
	if err != nil || v.Status != check.Pass {
		t.Fatalf("%v %s %q; errors %v", err, v.Status, v.Reasons, out.Errors)
	}
}
