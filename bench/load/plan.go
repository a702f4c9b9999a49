package load

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"gopherlog/bench/scenario"
)

// A Plan is one trial's load.
type Plan struct {
	Prefix      string // of every name that the trial gives to something on the cluster
	RunID       uint64
	Seed        int64
	Guarantee   scenario.Guarantee
	Topics      []TopicSpec
	Producers   scenario.Producers
	Consumers   scenario.Consumers
	CommitPoint string // when members of groups commit: before_process, after_process, in_transaction
	Load        scenario.Load
	Phases      scenario.Phases
	Alone       bool           // no reader beside the load: the final read alone
	HistoryDir  string         // empty: no history is kept
	Interval    time.Duration  // of histograms and rates; default 1 s
	EndsEvery   time.Duration  // how often end offsets are asked; default 250 ms
	DrainReader func() Driver  // a fresh driver for the final read, which Run closes; nil: a fresh client of the run's driver
	Troubled    bool           // faults befall the system: what stood still meanwhile is given its time from the beginning of the final read
	BeforeDrain func()         // called between the last outcome and the final read: returns when the system is whole again; may be nil
	Clock       *Clock         // nil: a clock of its own
	Workers     *Workers       // filled when the load starts; may be nil
	Progress    func(Progress) // each interval, from one goroutine; may be nil
	Logger      *slog.Logger   // nil: quiet

	sleep func(time.Duration) // of the pacers; nil: an alarm of the operating system
}

// PlanOf is the plan of a cell for one trial: topic names get the prefix, the seed is the trial's.
func PlanOf(c scenario.Cell, seed int64, prefix string) Plan {
	p := Plan{Prefix: prefix, RunID: uint64(time.Now().UnixNano()), Seed: seed, Guarantee: c.Guarantee, Producers: c.Producers, Load: c.Load, Phases: c.Phases, Alone: !c.Load.ReadAlong}
	p.CommitPoint, p.Consumers = c.CommitPoint(), prefixed(c.Consumers, prefix)
	for _, t := range c.Topics {
		config := map[string]string{}
		if n := c.Target.MinInsyncReplicas; n > 0 {
			config["min.insync.replicas"] = fmt.Sprint(n)
		}
		if c.Target.Durability == "T2" {
			config["flush.messages"] = "1"
		}
		for k, v := range t.Config {
			if plain, err := scenario.Plain(k, v); err == nil { // Parse refuses what is neither
				v = plain
			}
			config[k] = v
		}
		p.Topics = append(p.Topics, TopicSpec{Name: prefix + t.Name, Partitions: t.Partitions, ReplicationFactor: c.Target.ReplicationFactor, Config: config})
	}
	return p
}

// prefixed are the groups of a trial, with topics and names of its own.
func prefixed(c scenario.Consumers, prefix string) scenario.Consumers {
	c.Groups = slices.Clone(c.Groups)
	for i := range c.Groups {
		c.Groups[i].Name = prefix + c.Groups[i].Name
	}
	if c.Transform.From != "" {
		c.Transform.From = prefix + c.Transform.From
	}
	if c.Transform.To != "" {
		c.Transform.To = prefix + c.Transform.To
	}
	return c
}

func (p *Plan) defaults() {
	if p.Interval == 0 {
		p.Interval = time.Second
	}
	if p.EndsEvery == 0 {
		p.EndsEvery = 250 * time.Millisecond
	}
	if p.Clock == nil {
		p.Clock = NewClock()
	}
	if p.Progress == nil {
		p.Progress = func(Progress) {}
	}
	if p.Logger == nil {
		p.Logger = slog.New(slog.DiscardHandler)
	}
}

// Progress is a glance at a running trial.
type Progress struct {
	At      time.Duration
	Phase   string
	Offered float64 // per second, over the last whole interval
	Acked   float64
	Read    float64
	P50     time.Duration // ack latency of messages due in the last whole interval; 0 with too few samples
	P99     time.Duration
	Waiting int64 // messages without outcome
	Failed  int64 // so far, the unknown included
	Shed    int64 // so far
}
