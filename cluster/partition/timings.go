package partition

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// timings are the durations that the logs and groups of all partitions report. It implements their observers.
type timings struct {
	appendSeconds, syncSeconds, commitSeconds prometheus.Histogram
	appendBytes, elections                    prometheus.Counter
}

func newTimings() *timings {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "gopherlog", Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(20e-6, 2, 18), // 20 µs to 2.6 s
		})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "gopherlog", Name: name, Help: help})
	}
	return &timings{
		appendSeconds: histogram("log_append_seconds", "Time of one append to a partition's log, its sync included if each append is synced."),
		syncSeconds:   histogram("log_fsync_seconds", "Time of one sync of a partition's segment, waiting for others included."),
		commitSeconds: histogram("commit_seconds", "Time from a leader's proposal of a batch to its commit."),
		appendBytes:   counter("log_append_bytes_total", "Bytes appended to partitions' logs, led or followed."),
		elections:     counter("elections_won_total", "How often a replica of this node began to lead."),
	}
}

// collectors in the order of their names.
func (t *timings) collectors() []prometheus.Collector {
	return []prometheus.Collector{t.commitSeconds, t.elections, t.appendBytes, t.appendSeconds, t.syncSeconds}
}

// Appended implements log.Observer.
func (t *timings) Appended(bytes int, d time.Duration) {
	t.appendBytes.Add(float64(bytes))
	t.appendSeconds.Observe(d.Seconds())
}

// Synced implements log.Observer.
func (t *timings) Synced(d time.Duration) { t.syncSeconds.Observe(d.Seconds()) }

// Committed implements replica.Observer.
func (t *timings) Committed(d time.Duration) { t.commitSeconds.Observe(d.Seconds()) }

// Elected implements replica.Observer.
func (t *timings) Elected(ready bool) {
	if ready {
		t.elections.Inc()
	}
}
