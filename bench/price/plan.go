package price

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gopherlog/bench/load"
	"gopherlog/bench/scenario"
)

//go:embed price.yaml
var underRate []byte

//go:embed saturation.yaml
var atSaturation []byte

// trialExtra is what a trial takes beside its phases on a cluster that runs: topics, connections, the final read.
const trialExtra = 2500 * time.Millisecond

// cooldown is the pause behind a trial (price.yaml, saturation.yaml).
const cooldown = 300 * time.Millisecond

// waiting is how much of the load may wait for an answer before more of it is left out: a guarantee that cannot keep up must not
// spend the next one's time on its queue. leastWaiting is for small rates.
const (
	waiting      = time.Second
	leastWaiting = 200
)

// groupName ends the names of groups. gathering is what a cluster may take before a new group works: Kafka waits three seconds for more
// members.
const (
	groupName = "workers"
	gathering = 4500 * time.Millisecond
)

// spare is what of MostTime is kept for everything but trials.
const spare = time.Minute

// A Plan is a run before it begins.
type Plan struct {
	Options
	Scenarios   []*scenario.Scenario
	Unavailable map[scenario.Guarantee]string // guarantees that were asked for and cannot be had here, and why
	Facts       load.Facts
}

// NewPlan decides what can be priced on a cluster, and how. The options must be valid.
func NewPlan(o Options, f load.Facts) (*Plan, error) {
	if o.Run == "" {
		o.Run = newRun()
	}
	p := &Plan{Options: o, Facts: f, Unavailable: map[scenario.Guarantee]string{}}
	switch f.VotedPrefix {
	case VotedPrefix:
	case "":
		p.Unavailable[scenario.TwoPhaseCommit] = "these brokers commit by their coordinator's word alone; a vote of the partitions is GopherLog's."
	default:
		p.Unavailable[scenario.TwoPhaseCommit] = fmt.Sprintf("this cluster votes on transactional ids that begin with %q, and this command knows %q only.", f.VotedPrefix, VotedPrefix)
	}
	return p, p.build()
}

// Without takes a guarantee out that turned out not to be available.
func (p *Plan) Without(g scenario.Guarantee, why string) error {
	p.Unavailable[g] = why
	return p.build()
}

// Priced are the guarantees that are measured.
func (p *Plan) Priced() []scenario.Guarantee {
	var out []scenario.Guarantee
	for _, g := range p.Guarantees {
		if p.Unavailable[g] == "" {
			out = append(out, g)
		}
	}
	return out
}

// Stem begins the name of everything that this run creates, voted ids apart.
func (p *Plan) Stem() string { return p.Prefix + p.Run + "-" }

func (p *Plan) build() error {
	p.Scenarios = nil
	sets := []string{fmt.Sprintf("load.rate=%g/s", p.Rate), fmt.Sprintf("load.max_outstanding=%d", max(leastWaiting, int(p.Rate*waiting.Seconds())))}
	if p.Workers > 0 {
		sets = append(sets, fmt.Sprintf("topics=[{name: load, partitions: %d}, {name: made, partitions: %d}]", p.Partitions, p.Partitions),
			fmt.Sprintf("consumers={groups: [{name: %s, members: %d}], transform: {from: load, to: made}}", groupName, p.Workers),
			fmt.Sprintf("phases.warmup=%s", p.warmup()))
	}
	first, err := p.parse("price.yaml", underRate, sets...)
	if err != nil {
		return err
	}
	p.Scenarios = append(p.Scenarios, first)
	if !p.Saturate {
		return nil
	}
	second, err := p.parse("saturation.yaml", atSaturation)
	p.Scenarios = append(p.Scenarios, second)
	return err
}

// parse reads one of the scenarios in here, with what the options say put over it.
func (p *Plan) parse(name string, text []byte, sets ...string) (*scenario.Scenario, error) {
	dir, err := os.MkdirTemp("", "mqbench-price-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	sc, err := scenario.Parse(file, append(p.sets(), sets...))
	if err != nil {
		return nil, fmt.Errorf("the scenario of price: %w", err)
	}
	return sc, nil
}

func (p *Plan) sets() []string {
	var brokers []string
	for _, b := range p.Brokers {
		brokers = append(brokers, fmt.Sprintf("%q", b))
	}
	sets := []string{
		"target.external.bootstrap=[" + strings.Join(brokers, ", ") + "]",
		"target.external.prefix=" + p.Stem(),
		"guarantee=[" + words(p.Priced()) + "]",
		fmt.Sprintf("topics.0.partitions=%d", p.Partitions),
		fmt.Sprintf("producers.count=%d", p.Producers),
		fmt.Sprintf("load.value.size=%dB", p.Bytes),
		fmt.Sprintf("runs.repeats=%d", p.Blocks),
		fmt.Sprintf("phases.warmup=%s", p.Steady/3),
		fmt.Sprintf("runs.max_time=%s", p.share()),
		fmt.Sprintf("phases.steady=%s", p.Steady),
		fmt.Sprintf("seed=%d", p.Seed),
	}
	if len(p.transacting()) > 0 {
		sets = append(sets, fmt.Sprintf("producers.transaction.records=%d", p.Records), fmt.Sprintf("producers.transaction.max_duration=%s", TransactionFor))
	}
	if p.Copies > 0 {
		sets = append(sets, fmt.Sprintf("target.replication_factor=%d", p.Copies))
	}
	return sets
}

// Takes is about how long the run will be.
func (p *Plan) Takes() (sum time.Duration) {
	for _, s := range p.Scenarios {
		sum += min(blockOf(s)*time.Duration(fits(s)), s.Runs.MaxTime)
	}
	return sum
}

// Trials is how many there will be in about that time, and short how many blocks of those that were asked for do not fit into it.
func (p *Plan) Trials() (n, short int) {
	for _, s := range p.Scenarios {
		n += len(s.Expand()) * fits(s)
		short = max(short, s.Runs.Repeats-fits(s))
	}
	return n, short
}

func blockOf(s *scenario.Scenario) (all time.Duration) {
	for _, c := range s.Expand() {
		all += c.Phases.Sending() + trialExtra + c.Runs.Cooldown
	}
	return all
}

// fits is how many blocks end in time, one at least.
func fits(s *scenario.Scenario) int {
	return max(1, min(s.Runs.Repeats, int(s.Runs.MaxTime/max(blockOf(s), 1))))
}

// Try is the topic with which the rights are tried before the load.
func (p *Plan) Try(now time.Time) load.TopicSpec {
	return load.TopicSpec{Name: p.Stem() + now.UTC().Format(stampLayout) + "-try", Partitions: 1, ReplicationFactor: p.Copies, Config: p.topicConfig()}
}

// topicConfig is what any topic of the run is given, so that a policy that refuses it does so before the load.
func (p *Plan) topicConfig() map[string]string {
	out := map[string]string{}
	for _, s := range p.Scenarios {
		for _, t := range s.Topics {
			for k, v := range t.Config {
				if plain, err := scenario.Plain(k, v); err == nil {
					v = plain
				}
				out[k] = v
			}
		}
	}
	return out
}
