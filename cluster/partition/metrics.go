package partition

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gopherlog_partition_"+name, help, labels, nil)
}

var (
	perPartition = []string{"topic", "partition"}

	descEnd        = desc("log_end_offset", "Next offset to be written on this replica.", perPartition...)
	descHW         = desc("high_watermark", "End of the committed log as this replica knows it.", perPartition...)
	descStart      = desc("log_start_offset", "First offset that may be read.", perPartition...)
	descLeader     = desc("leader", "1 if this replica leads and serves.", perPartition...)
	descTerm       = desc("term", "Raft term, which is the leader epoch.", perPartition...)
	descSize       = desc("size_bytes", "Bytes of segments on disk.", perPartition...)
	descProducers  = desc("producers", "Idempotent producer ids remembered.", perPartition...)
	descQueued     = desc("inflight_bytes", "Bytes of batches queued or not yet committed.", perPartition...)
	descBatches    = desc("appended_batches_total", "Batches proposed while leading.", perPartition...)
	descBytes      = desc("appended_bytes_total", "Bytes of batches proposed while leading.", perPartition...)
	descDuplicates = desc("duplicate_batches_total", "Batches answered as repeats.", perPartition...)
	descRejected   = desc("rejected_batches_total", "Batches rejected before the log.", perPartition...)
	descOpen       = desc("open_transactions", "Transactions that are open on this replica.", perPartition...)
	descUnstable   = desc("unstable_offsets", "Offsets between the last stable offset and the high watermark: what readers of committed wait for.", perPartition...)
	descMarkers    = desc("markers_total", "Markers proposed while leading.", perPartition...)
	descVerified   = desc("verifications_total", "Questions to coordinators whether a transaction is ongoing.", perPartition...)
	descBudget     = desc("produce_budget_used_bytes", "Bytes of produced batches that wait on this node.")
	descReplicas   = desc("replicas", "Replicas on this node by state.", "state")
	descWaiters    = desc("parked_fetches", "Fetches that wait for more data, and requests that wait for a leader, counted per partition.")

	allDescs = []*prometheus.Desc{
		descEnd, descHW, descStart, descLeader, descTerm, descSize, descProducers, descQueued,
		descBatches, descBytes, descDuplicates, descRejected, descOpen, descUnstable, descMarkers, descVerified,
		descDoubts, descDoubtAge,
		descBudget, descReplicas, descWaiters,
	}
)

// collector reads the partitions when it is asked, so that keeping metrics costs the append path a few counters.
type collector struct{ m *Manager }

func (m *Manager) register() error {
	if m.cfg.Registerer == nil {
		return nil
	}
	return m.cfg.Registerer.Register(collector{m})
}

func (m *Manager) unregister() {
	if m.cfg.Registerer != nil {
		m.cfg.Registerer.Unregister(collector{m})
	}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range allDescs {
		ch <- d
	}
	for _, t := range c.m.shared.timings.collectors() {
		t.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	var leading, following, parked int
	for _, p := range c.m.All() {
		switch {
		case p.lead.Load() != nil:
			leading++
		case p.group.Status().Failed == nil:
			following++
		}
		parked += int(p.parked.Load())
		p.collect(ch)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descReplicas, float64(leading), "leading")
	gauge(descReplicas, float64(following), "following")
	gauge(descReplicas, float64(len(c.m.Failed())), "failed")
	gauge(descBudget, float64(c.m.BudgetUsed()))
	gauge(descWaiters, float64(parked))
	for _, t := range c.m.shared.timings.collectors() {
		t.Collect(ch)
	}
}

func (p *Partition) collect(ch chan<- prometheus.Metric) {
	number := strconv.Itoa(int(p.number))
	put := func(d *prometheus.Desc, t prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(d, t, v, p.topic, number)
	}
	leads := 0.0
	if p.lead.Load() != nil {
		leads = 1
	}
	put(descEnd, prometheus.GaugeValue, float64(p.EndOffset()))
	put(descHW, prometheus.GaugeValue, float64(p.HighWatermark()))
	put(descStart, prometheus.GaugeValue, float64(p.LogStart()))
	put(descLeader, prometheus.GaugeValue, leads)
	put(descTerm, prometheus.GaugeValue, float64(p.group.Status().Term))
	put(descSize, prometheus.GaugeValue, float64(p.Size()))
	put(descProducers, prometheus.GaugeValue, float64(p.ProducerCount()))
	put(descQueued, prometheus.GaugeValue, float64(p.own.Used()))
	put(descBatches, prometheus.CounterValue, float64(p.stats.batches.Load()))
	put(descBytes, prometheus.CounterValue, float64(p.stats.bytes.Load()))
	put(descDuplicates, prometheus.CounterValue, float64(p.stats.duplicates.Load()))
	put(descRejected, prometheus.CounterValue, float64(p.stats.rejected.Load()))
	hw := p.HighWatermark()
	put(descOpen, prometheus.GaugeValue, float64(p.OpenTransactions()))
	put(descUnstable, prometheus.GaugeValue, float64(hw-p.stableBelow(hw)))
	put(descMarkers, prometheus.CounterValue, float64(p.stats.markers.Load()))
	put(descVerified, prometheus.CounterValue, float64(p.stats.verifications.Load()))
	p.collectDoubt(put)
}
