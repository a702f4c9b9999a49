package coordinator

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"gopherlog/txn/group"
)

// groupStats count what happens to the groups that are led here.
type groupStats struct {
	statuses   [group.Stable + 1]atomic.Int64 // machines by status
	members    atomic.Int64
	rebalances atomic.Int64
	commits    atomic.Int64
	offsets    atomic.Int64
	refused    atomic.Int64
	loads      prometheus.Histogram
}

func newGroupStats() *groupStats {
	return &groupStats{loads: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "gopherlog_group_load_seconds", Help: "Time from leading a shard of __consumer_offsets to serving its groups.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
	})}
}

// counted is what the gauges hold of a machine.
type counted struct {
	there   bool
	status  group.Status
	members int
}

// count brings the gauges up to date with a machine; a machine that goes away counts as one that is not there.
func (s *groupStats) count(l *live, there bool) {
	now := counted{}
	if there && !l.state.Silent && !l.state.Blank() {
		now = counted{true, l.state.Status, len(l.state.Members)}
	}
	if now == l.counted {
		return
	}
	if l.counted.there {
		s.statuses[l.counted.status].Add(-1)
	}
	if now.there {
		s.statuses[now.status].Add(1)
	}
	s.members.Add(int64(now.members - l.counted.members))
	l.counted = now
}

// committed counts an OffsetCommit.
func (s *groupStats) committed(code group.Code, offsets int) {
	if code != group.OK {
		s.refused.Add(1)
		return
	}
	s.commits.Add(1)
	s.offsets.Add(int64(offsets))
}

func (g *Groups) collectors() []prometheus.Collector {
	s := g.stats
	counter := func(name, help string, of *atomic.Int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "gopherlog_group_" + name, Help: help}, func() float64 { return float64(of.Load()) })
	}
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "gopherlog_group_" + name, Help: help}, read)
	}
	all := []prometheus.Collector{
		s.loads,
		gauge("members", "Members of the consumer groups that this node coordinates.", func() float64 { return float64(s.members.Load()) }),
		gauge("shards", "Shards of __consumer_offsets that this node leads and serves.", func() float64 {
			terms, _ := g.terms()
			return float64(len(terms))
		}),
		gauge("committed_offsets", "Offsets that the shards which this node leads hold.", func() float64 { return float64(g.held((*table).count)) }),
		gauge("table_bytes", "About how many bytes of log the groups and offsets of the shards that this node leads need.",
			func() float64 { return float64(g.held((*table).size)) }),
		counter("rebalances_total", "Generations that began.", &s.rebalances),
		counter("commits_total", "Requests whose offsets were committed.", &s.commits),
		counter("commits_refused_total", "Requests whose offsets were not committed, or may not have been.", &s.refused),
		counter("offsets_committed_total", "Offsets that were committed.", &s.offsets),
	}
	for status := range s.statuses {
		n := &s.statuses[status]
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gopherlog_groups", Help: "Consumer groups that this node coordinates and that have, or had, members, by Kafka's name of their state.",
			ConstLabels: prometheus.Labels{"state": group.Status(status).String()},
		}, func() float64 { return float64(n.Load()) }))
	}
	return all
}

// held adds up something about the tables of the shards that are led here.
func (g *Groups) held(of func(*table) int64) (sum int64) {
	terms, _ := g.terms()
	for _, t := range terms {
		sum += of(t.table)
	}
	return sum
}

func (g *Groups) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for _, c := range g.collectors() {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// DescribeMetrics registers what Groups register, without any: for documentation.
func DescribeMetrics(r prometheus.Registerer) error {
	return (&Groups{stats: newGroupStats(), shards: &shards{}}).register(r)
}
