package suite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gopherlog/bench/load"
	"gopherlog/bench/scenario"
)

// What a cluster is warmed with: as much as it takes of records of 1 KiB, on
// topics whose retention bounds the page cache, with a reader beside.
const (
	warmOutstanding = 20_000
	warmProducers   = 8 // of transactions
	warmRecord      = 1 << 10
	warmEdge        = 10 * time.Second // over which the first and last rates are taken
	warmTold        = 30 * time.Second // between two notes
)

// warmCell is the load that warms a cell's cluster for some time.
func warmCell(c scenario.Cell, d time.Duration) scenario.Cell {
	c.Topics = []scenario.Topic{{Name: "warm", Partitions: 6, Config: map[string]string{"segment.bytes": "64MiB", "retention.bytes": "128MiB"}}}
	c.Producers.Count, c.Producers.Overrides = 2, nil
	c.Load = scenario.Load{Model: "closed", MaxOutstanding: warmOutstanding, Keys: scenario.Keys{Dist: "none", Space: 1}, Partitioner: "sticky",
		Value: scenario.Value{Size: scenario.SizeDist{Fixed: warmRecord}, Entropy: 1}, ReadAlong: true}
	c.Phases = scenario.Phases{Steady: d, Drain: 30 * time.Second}
	return c
}

// warm puts full load on a cluster until it has had as much as the cell asks for.
func (s *run) warm(ctx context.Context, k *kept, c scenario.Cell) error {
	d := c.Runs.WarmCluster - time.Duration(k.warm.Seconds*float64(time.Second))
	if d > 0 {
		if err := s.warmFor(ctx, k, c, d); err != nil {
			return fmt.Errorf("warm %s: %w", k.system, err)
		}
	}
	if sys := s.system(k.system); sys != nil && k.warm.Seconds > 0 {
		had := k.warm
		sys.Warm = &had
	}
	return nil
}

func (s *run) warmFor(ctx context.Context, k *kept, c scenario.Cell, d time.Duration) error {
	loads := s.warmLoads(c, d)
	for i, one := range loads {
		first, last, err := s.warmBy(ctx, k, one)
		if err != nil {
			return err
		}
		if i > 0 {
			continue // its records are as many as its transactions make them
		}
		if k.warm.Seconds == 0 {
			k.warm.First = first
		}
		k.warm.Last = last
	}
	k.warm.Seconds += d.Seconds()
	pause(ctx, c.Runs.Cooldown, true) // what it wrote is being deleted
	s.Progress.Note(fmt.Sprintf("%s is warm: %.0f records/s at first, %.0f at last%s", k.system, k.warm.First, k.warm.Last, alsoWarm(loads[1:])))
	return nil
}

// alsoWarm names the loads that came after the first.
func alsoWarm(loads []scenario.Cell) (told string) {
	for _, l := range loads {
		told += fmt.Sprintf(", then %s of small transactions (%s)", l.Phases.Steady, l.Guarantee)
	}
	return told
}

// warmTransacting is the share of a cluster's warming in which producers transact, where trials on it will: code that ends transactions is
// not compiled by records alone.
const warmTransacting = 3 // a third of it

// warmLoads are what warms a cell's cluster for some time: full load, and transactions of each kind that this run has on that cluster.
func (s *run) warmLoads(c scenario.Cell, d time.Duration) []scenario.Cell {
	var kinds []scenario.Guarantee
	for _, x := range s.cells {
		if x.Guarantee.Transacts() && x.Absent() == "" && x.Target.ClusterKey() == c.Target.ClusterKey() && !slices.Contains(kinds, x.Guarantee) {
			kinds = append(kinds, x.Guarantee)
		}
	}
	if len(kinds) == 0 {
		return []scenario.Cell{warmCell(c, d)}
	}
	each := d / warmTransacting / time.Duration(len(kinds))
	plain := warmCell(c, d-each*time.Duration(len(kinds)))
	plain.Guarantee = scenario.Idempotent
	out := []scenario.Cell{plain}
	for _, g := range kinds {
		w := warmCell(c, each)
		w.Guarantee, w.Producers.Count, w.Load.Partitioner = g, warmProducers, "round_robin"
		w.Producers.Transaction = scenario.Transaction{Records: 1, MaxDuration: time.Second, Timeout: 10 * time.Second}
		out = append(out, w)
	}
	return out
}

// warmBy puts one load on a cluster, and tells its rates at the beginning and at the end.
func (s *run) warmBy(ctx context.Context, k *kept, c scenario.Cell) (first, last float64, err error) {
	driver, err := load.NewKafka(load.KafkaConfig{Bootstrap: k.target.Bootstrap(), Security: s.Security, Logger: s.Logger})
	if err != nil {
		return 0, 0, err
	}
	defer driver.Close()
	plan := load.PlanOf(c, s.Scenario.Seed, time.Now().UTC().Format("20060102-150405.000")+"-")
	plan.Logger = s.Logger
	s.Progress.Note(fmt.Sprintf("warming %s: %s of full load, %s", k.system, c.Phases.Steady, c.Guarantee))
	told := time.Duration(0)
	plan.Progress = func(g load.Progress) {
		if g.At >= told+warmTold {
			told = g.At
			s.Progress.Note(fmt.Sprintf("warming %s: %.0f s, %.0f records/s", k.system, g.At.Seconds(), g.Acked))
		}
	}
	out, err := load.Run(ctx, driver, plan)
	if err != nil {
		return 0, 0, err
	}
	var names []string
	for _, t := range plan.Topics {
		names = append(names, t.Name)
	}
	if err := driver.DeleteTopics(ctx, names); err != nil {
		return 0, 0, err
	}
	if out.Partial {
		return 0, 0, ctx.Err()
	}
	first, last = edges(out, c.Phases.Steady)
	return first, last, nil
}

// edges are the rates in the first and in the last seconds of a load.
func edges(out *load.Outcome, d time.Duration) (first, last float64) {
	edge := max(time.Second, min(warmEdge, d/2))
	for _, k := range out.Seconds {
		if k.At < edge {
			first += float64(k.Acked)
		}
		if k.At >= d-edge && k.At < d {
			last += float64(k.Acked)
		}
	}
	return first / edge.Seconds(), last / edge.Seconds()
}
