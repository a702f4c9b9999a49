package coordinator

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"gopherlog/txn/kafkatx"
)

// txnStats counts what coordinators of transactions do.
type txnStats struct {
	states [8]atomic.Int64 // transactional ids on led shards, by kafkatx.Status

	started   prometheus.Counter
	committed prometheus.Counter
	aborted   prometheus.Counter
	held      prometheus.Counter
	calls     prometheus.Counter
	retried   prometheus.Counter
	gauges    []prometheus.Collector
}

func newTxnStats(x *Transactions) *txnStats {
	s := &txnStats{}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "gopherlog_txn_" + name, Help: help})
	}
	s.started = counter("begun_total", "Transactions begun at coordinators on this node.")
	s.committed = counter("committed_total", "Transactions decided to commit at coordinators on this node.")
	s.aborted = counter("aborted_total", "Transactions decided to abort at coordinators on this node, for any reason.")
	s.held = counter("held_requests_total", "Requests that waited for the end of a transaction in their way.")
	s.calls = counter("marker_calls_total", "Calls that carried markers to other nodes.")
	s.retried = counter("marker_retries_total", "Markers that must be sent once more.")
	for status := range s.states {
		s.gauges = append(s.gauges, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gopherlog_txn_ids", Help: "Transactional ids that this node coordinates, by state.",
			ConstLabels: prometheus.Labels{"state": kafkatx.Status(status).String()},
		}, func() float64 { return float64(s.states[status].Load()) }))
	}
	s.gauges = append(s.gauges, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "gopherlog_txn_markers_pending", Help: "Markers that are not known to be in their partitions yet.",
	}, func() float64 {
		if x == nil {
			return 0
		}
		return float64(x.markers.pending())
	}))
	return s
}

func (s *txnStats) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for _, c := range append([]prometheus.Collector{s.started, s.committed, s.aborted, s.held, s.calls, s.retried}, s.gauges...) {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// DescribeTxnMetrics registers what Transactions register, without them: for documentation.
func DescribeTxnMetrics(r prometheus.Registerer) error { return newTxnStats(nil).register(r) }

// enter counts a transactional id that came to this node, as administrators see it; leave one that went.
func (s *txnStats) enter(is kafkatx.State) { s.count(is, 1) }

func (s *txnStats) leave(was kafkatx.State) { s.count(was, -1) }

func (s *txnStats) count(x kafkatx.State, n int64) {
	if x.Meta != nil {
		s.states[x.ShownAs()].Add(n)
	}
}

// move counts a step. What is shown may change without the transaction: when its markers are no longer owed.
func (s *txnStats) move(was, is kafkatx.State) {
	s.enter(is)
	s.leave(was)
	from, to := was.Meta, is.Meta
	if to == nil || from != nil && from.Status == to.Status {
		return
	}
	switch to.Status {
	case kafkatx.Ongoing:
		s.started.Inc()
	case kafkatx.PrepareCommit:
		s.committed.Inc()
	case kafkatx.PrepareAbort:
		s.aborted.Inc()
	}
}

func (m *markers) pending() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.flights)
}
