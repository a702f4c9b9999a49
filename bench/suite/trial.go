package suite

import (
	"context"
	"fmt"
	"sync"
	"time"

	"gopherlog/bench/fault"
	"gopherlog/bench/history"
	"gopherlog/bench/load"
	"gopherlog/bench/result"
	"gopherlog/bench/scenario"
	"gopherlog/bench/stats"
	"gopherlog/bench/target"
)

// Limits of a trial.
const (
	leaderPoll   = 100 * time.Millisecond
	samplePeriod = time.Second
	stopTimeout  = 20 * time.Second
)

// trial runs one cell once. An error means that the machine or the target
// failed before load began; whatever happens later is in the trial.
func (s *run) trial(ctx context.Context, c scenario.Cell, o stats.Trial, order int) (*result.Trial, error) {
	id := fmt.Sprintf("b%02d-%s", o.Block+1, cellID(c))
	tgt, release, err := s.acquire(ctx, c, id)
	if err != nil {
		return nil, err
	}
	defer release()
	driver, err := load.NewKafka(load.KafkaConfig{Bootstrap: tgt.Bootstrap(), Security: s.Security, Logger: s.Logger, Source: sources(c)})
	if err != nil {
		return nil, fmt.Errorf("%w: connect to the target: %w", ErrEnvironment, err)
	}
	defer driver.Close()
	if err := votes(ctx, c, driver); err != nil {
		return nil, err
	}
	if err := s.sabotage(ctx, tgt); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnvironment, err)
	}
	tr := &oneTrial{run: s, cell: c, target: tgt, driver: driver, clock: load.NewClock(), whole: make(chan struct{}),
		out: result.Trial{ID: id, Cell: cellID(c), Block: o.Block, Order: order, Seed: o.Seed}}
	if err := tr.execute(ctx, o.Seed); err != nil {
		return nil, err
	}
	return &tr.out, nil
}

// sabotage plants the configured fault and arms the failpoints in every node.
func (s *run) sabotage(ctx context.Context, tgt target.Target) error {
	if !s.controlled() {
		return nil
	}
	for _, n := range tgt.Nodes() {
		if s.Sabotage.Name != "" {
			body := map[string]any{"name": s.Sabotage.Name, "on": true, "arg": s.Sabotage.Arg}
			if err := tgt.Control(ctx, n.ID, "/sabotage", body); err != nil {
				return fmt.Errorf("plant %s in node %d: %w", s.Sabotage.Name, n.ID, err)
			}
		}
		for name, action := range s.Failpoints {
			if err := tgt.Control(ctx, n.ID, "/failpoint", map[string]any{"name": name, "action": action}); err != nil {
				return fmt.Errorf("arm failpoint %s in node %d: %w", name, n.ID, err)
			}
		}
	}
	return nil
}

// oneTrial is a trial while it runs. watchers fill their own fields; execute
// reads them after they ended.
type oneTrial struct {
	*run
	cell    scenario.Cell
	target  target.Target
	driver  load.Driver
	clock   *load.Clock
	outcome *load.Outcome
	prober  *load.Prober
	out     result.Trial

	events  []fault.Event
	whole   chan struct{} // closed when every fault is over
	leaders []result.LeaderChange
	samples []target.Sample
	probed  []load.Outage
	stolen  *float64 // share of the machine's processor time that its host took in the steady phase; nil: not known
	insync  int      // the fewest replicas in sync of any partition after the load; 0: not asked
}

func (t *oneTrial) execute(ctx context.Context, seed int64) error {
	plan := load.PlanOf(t.cell, seed, t.prefix())
	plan.Clock, plan.Logger, plan.Progress, plan.Workers = t.clock, t.Logger, t.Progress.TrialGlance, &load.Workers{}
	plan.HistoryDir = t.dir.History(t.out.ID)
	plan.DrainReader = func() load.Driver {
		d, err := load.NewKafka(load.KafkaConfig{Bootstrap: t.target.Bootstrap(), Security: t.Security, Logger: t.Logger})
		if err != nil {
			return t.driver
		}
		return d
	}
	plan.Troubled = len(t.cell.Faults) > 0
	plan.BeforeDrain = func() { t.awaitWhole(ctx) }
	if t.shared() {
		defer t.removeTopics(plan)
	}
	watch, stop := context.WithCancel(ctx)
	defer stop()
	wait := t.watchers(watch, plan)
	beside, began := t.Clusters.busy(t.target), time.Now()
	var err error
	t.outcome, err = load.Run(ctx, t.driver, plan)
	t.out.Usage.BesideCores = (t.Clusters.busy(t.target) - beside).Seconds() / time.Since(began).Seconds()
	stop()
	wait()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEnvironment, err)
	}
	t.insync = t.fewestInSync(ctx, plan)
	t.describe(plan) // asks the system for its topic settings: before the topics go
	if err := t.judge(plan, t.replicasOf(ctx, plan, replicaLimits(t.cell))); err != nil {
		return err
	}
	if err := t.files(); err != nil { // the verdict stands without the series
		t.out.Invalid = append(t.out.Invalid, "its series could not be written: "+err.Error())
	}
	return nil
}

// shared says whether others use the system too, before, after or beside this trial.
func (t *oneTrial) shared() bool {
	return t.cell.Target.System == "external" || !t.cell.Runs.FreshCluster
}

// prefix keeps the topics in a shared system apart from everybody's, also from
// those that an earlier run could not remove.
func (t *oneTrial) prefix() string {
	if !t.shared() {
		return ""
	}
	prefix := t.manifest.Started.UTC().Format("20060102-150405.000") + "-" + t.out.ID + "-"
	if t.cell.Target.System == "external" {
		prefix = t.cell.Target.External.Prefix + prefix
	}
	return prefix
}

// awaitWhole returns when every fault has been healed: a cut-off leader would
// answer the final read with what it believes. A fault without an end is not
// waited for.
func (t *oneTrial) awaitWhole(ctx context.Context) {
	for _, p := range t.faultPlans() {
		if p.For == 0 {
			return
		}
	}
	select {
	case <-t.whole:
	case <-ctx.Done():
	case <-time.After(t.cell.Phases.Drain):
	}
}

func (t *oneTrial) removeTopics(plan load.Plan) {
	var names []string
	for _, x := range plan.Topics {
		names = append(names, x.Name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := t.driver.DeleteTopics(ctx, names); err != nil {
		t.Progress.Note(fmt.Sprintf("the topics of trial %s could not be removed: %v", t.out.ID, err))
	}
}

// watchers start what goes on beside the load, once the clock runs; the
// returned function waits for all of it.
func (t *oneTrial) watchers(ctx context.Context, plan load.Plan) func() {
	var wg sync.WaitGroup
	after := func(f func()) {
		wg.Go(func() {
			select {
			case <-t.clock.Started():
				f()
			case <-ctx.Done():
			}
		})
	}
	after(func() { t.followLeaders(ctx, plan) })
	after(func() {
		target.Watch(ctx, t.target, samplePeriod, func(s target.Sample) { t.samples = append(t.samples, s) })
	})
	after(func() { t.watchMachine(ctx) })
	plans := t.faultPlans()
	if len(plans) == 0 {
		close(t.whole)
	} else {
		t.startProber(ctx, &wg, plan)
		env := &fault.Env{Target: t.target, Roles: prefixed{t.driver, t.prefix()}, Net: t.Net, NetReason: t.NetReason}
		env.Coordinator = func(ctx context.Context, of string) (int32, error) { return t.coordinator(ctx, plan, of) }
		if len(plan.Consumers.Groups) > 0 {
			env.Worker = plan.Workers.Strike
		}
		after(func() {
			t.events = fault.Run(ctx, env, t.clock.Zero(), plans, t.Progress.TrialFault)
			close(t.whole)
		})
	}
	return wg.Wait
}

// watchMachine notes what the host of a virtual machine took from it while the trial was steady.
func (t *oneTrial) watchMachine(ctx context.Context) {
	if t.clock.SleepUntil(ctx, t.cell.Phases.Start(scenario.PhaseSteady)) != nil {
		return
	}
	before, err := target.ReadMachine()
	if err != nil || t.clock.SleepUntil(ctx, t.cell.Phases.End(scenario.PhaseSteady)) != nil {
		return
	}
	if now, err := target.ReadMachine(); err == nil {
		share := now.StolenSince(before)
		t.stolen = &share
	}
}

// prefixed looks scenario topics up under the names that they have in an
// external system.
type prefixed struct {
	load.Driver
	prefix string
}

func (p prefixed) Leaders(ctx context.Context, topic string) (map[int32]int32, error) {
	return p.Driver.Leaders(ctx, p.prefix+topic)
}

func (p prefixed) Replicas(ctx context.Context, topic string) (map[int32][]int32, error) {
	return p.Driver.Replicas(ctx, p.prefix+topic)
}

func (t *oneTrial) faultPlans() []fault.Plan {
	var out []fault.Plan
	for _, f := range t.cell.Faults {
		out = append(out, fault.Plan{Kind: f.Kind, Shape: f.Shape, Target: f.Target.String(),
			At: t.cell.Phases.Start(f.At.Phase) + f.At.Offset, For: f.For, Failpoint: f.At.Failpoint, Hit: f.At.Hit})
	}
	return out
}

// startProber measures the system's part of an outage, on every partition that
// some fault may hit, with connections of its own.
func (t *oneTrial) startProber(ctx context.Context, wg *sync.WaitGroup, plan load.Plan) {
	cfg := load.ProbeConfig{Nodes: t.target.Bootstrap(), RunID: plan.RunID, Acks: -1, Clock: t.clock}
	seen := map[history.Partition]bool{}
	for _, f := range t.cell.Faults {
		p := history.Partition{Topic: t.prefix() + f.Target.Topic, Partition: f.Target.Partition}
		if f.Target.Topic != "" && !seen[p] {
			seen[p] = true
			cfg.Partitions = append(cfg.Partitions, p)
		}
	}
	if len(cfg.Partitions) == 0 {
		return
	}
	p, err := load.StartProber(ctx, cfg)
	if err != nil {
		t.Progress.Note(fmt.Sprintf("no prober: %v", err))
		return
	}
	t.prober = p
	wg.Go(func() { // probes are writes: none may come while the final read looks for the end
		_ = t.clock.SleepUntil(ctx, t.cell.Phases.End(scenario.PhaseRecovery)) // an interrupted trial stops it too
		t.probed = p.Stop(shortestGap)
	})
}

// followLeaders notes every change of leadership that metadata shows.
func (t *oneTrial) followLeaders(ctx context.Context, plan load.Plan) {
	last := map[history.Partition]int32{}
	for {
		for _, topic := range plan.Topics {
			m, err := t.driver.Leaders(ctx, topic.Name)
			if err != nil {
				continue
			}
			for p, node := range m {
				k := history.Partition{Topic: topic.Name, Partition: p}
				if old, ok := last[k]; ok && old != node {
					t.leaders = append(t.leaders, result.LeaderChange{At: t.clock.Now().Seconds(), Topic: topic.Name, Partition: p, Node: node})
				}
				last[k] = node
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(leaderPoll):
		}
	}
}
