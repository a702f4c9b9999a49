package partition

import "github.com/prometheus/client_golang/prometheus"

var (
	descDoubts   = desc("in_doubt_transactions", "Voted transactions that this leader promised to commit and whose outcome it does not know.", perPartition...)
	descDoubtAge = desc("in_doubt_seconds", "For how long this leader has known the oldest of them to be in doubt; 0 if there is none. Promises do not say when they were given, so it counts from the beginning of a new leadership; mqclient txn list tells the age since EndTxn.", perPartition...)
)

// collectDoubt tells what this replica is in doubt about.
func (p *Partition) collectDoubt(put func(d *prometheus.Desc, t prometheus.ValueType, v float64)) {
	n, age := p.Doubt()
	put(descDoubts, prometheus.GaugeValue, float64(n))
	put(descDoubtAge, prometheus.GaugeValue, age.Seconds())
}
